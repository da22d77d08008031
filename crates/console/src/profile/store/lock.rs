//! The lock of a file of profiles: one command at a time changes it.
//!
//! Each write replaces the file, so the lock is that of its folder (`flock`): it ends with the
//! process that has it, after any end, and leaves nothing behind.
//!
//! # Invariants
//! - The wait for the lock is bounded.
//! - A folder without locks, as on some networks, is noted, and the file is changed all the
//!   same.

use std::fs::File;
use std::io;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::failure::note;
use crate::output;

/// The right to change `path` for as long as it lives; none where there are no locks.
///
/// # Errors
/// Other processes had the lock for all of `wait`.
pub(super) fn take(path: &Path, wait: Duration) -> Result<Option<File>> {
    let mut left = wait;
    let held = File::open(output::folder(path)).and_then(|folder| {
        loop {
            match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) if !left.is_zero() => {
                    thread::sleep(PAUSE);
                    left = left.saturating_sub(PAUSE);
                }
                Err(Errno::INTR) => {}
                locked => return locked.map(|()| folder).map_err(io::Error::from),
            }
        }
    });
    let name = path.display();
    match held {
        Ok(folder) => Ok(Some(folder)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => bail!(
            "cannot write {name}: another program has held the lock of its folder for {wait:?}; \
             try again when that has ended"
        ),
        Err(error) => {
            note(&format!(
                "{name}: its folder takes no lock ({error}): do not let two commands write it at \
                 the same time"
            ));
            Ok(None)
        }
    }
}

/// Another process has the lock while it reads and writes a small file.
pub(super) const WAIT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use std::fs;

    use forerun_testkit::Scratch;

    use super::*;

    #[test]
    fn one_at_a_time_may_change_a_file_and_who_waits_too_long_is_told() {
        let folder = Scratch::new("lock");
        let path = folder.join("devices.toml");
        let held = take(&path, Duration::ZERO).expect("it is free").expect("it takes a lock");
        for wait in [Duration::ZERO, PAUSE * 2] {
            let error = take(&path, wait).expect_err("it is held").to_string();
            assert!(error.contains("has held the lock of its folder for "), "{error}");
        }
        drop(held);
        assert!(take(&path, Duration::ZERO).expect("it is free again").is_some());
        assert_eq!(fs::read_dir(&folder).expect("it is there").count(), 0, "nothing is left");
    }
}
