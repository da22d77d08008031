//! What was learnt of devices in earlier runs: one file a user.
//!
//! ```text
//!   $XDG_STATE_HOME/forerun/devices
//!     forerun-devices 1                                        the version
//!     252:0 9a3f01c2d4e5b6a7<TAB>parallel 412000 ... kar 0     a line a device, the latest first
//!     host example.com<TAB>parallel 31000000 ... kar 0
//! ```
//! A device is known by its number and the file system's id, which most file systems make of their
//! UUID: after a restart, or where another disk is mounted, the same number may be another device.
//! A remote store is known by its host. What a record says, and when it is believed, is decided in
//! the core ([`DeviceRecord`]).
//!
//! # Invariants
//! - A file of another version, or one that another user could have written, is not used.
//! - At most [`DEVICES_MAX`] devices; those that were saved longest ago go.
//! - A line that is no record is left out: what is forgotten is learnt again.

use std::fmt;
use std::io::{self, Read as _};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use forerun_core::device::remembered::DeviceRecord;
use rustix::fs::{major, minor, statvfs};

use crate::state::{StateError, StateFolder};

/// The name of a device or a store in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceKey(String);

impl DeviceKey {
    /// The device that the file at `path` lies on, or is.
    ///
    /// # Errors
    /// The system would not say.
    pub fn of_file(path: &Path) -> io::Result<Self> {
        let found = path.metadata()?;
        let is_device = found.file_type().is_block_device();
        let number = if is_device { found.rdev() } else { found.dev() };
        let system = if is_device { 0 } else { statvfs(path)?.f_fsid };
        Ok(Self::of_numbers(number, system))
    }

    /// The device `number` below the file system with this id.
    #[must_use]
    pub fn of_numbers(number: u64, file_system: u64) -> Self {
        Self(format!("{}:{} {file_system:016x}", major(number), minor(number)))
    }

    /// The store at `host`, such as `example.com:9000`; `None` where that is no host.
    #[must_use]
    pub fn of_host(host: &str) -> Option<Self> {
        let is_sound = !host.is_empty() && host.len() <= HOST_BYTES_MAX;
        let is_plain = host.bytes().all(|byte| byte.is_ascii_graphic());
        (is_sound && is_plain).then(|| Self(format!("host {host}")))
    }
}

impl fmt::Display for DeviceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// See the module.
#[derive(Debug)]
pub struct DeviceStore(StateFolder);

impl DeviceStore {
    /// The file of this user.
    ///
    /// # Errors
    /// There is no folder for it, or others may write there.
    pub fn of_user() -> Result<Self, StateError> {
        StateFolder::of_user("").map(Self)
    }

    /// The file in the folder at `path`.
    ///
    /// # Errors
    /// As of [`DeviceStore::of_user`].
    pub fn at(path: &Path) -> Result<Self, StateError> {
        StateFolder::at(path).map(Self)
    }

    /// What was learnt of the device `key`.
    ///
    /// # Errors
    /// The file cannot be read, or is not this user's alone.
    pub fn load(&self, key: &DeviceKey) -> Result<Option<DeviceRecord>, StateError> {
        let rows = self.rows()?;
        Ok(rows.into_iter().find(|(name, _)| name == key).map(|(_, record)| record))
    }

    /// Keeps what was learnt of devices. Waits `patience` for others that save.
    ///
    /// # Errors
    /// The system refuses to write, or others hold the lock all the time. The file before stays.
    pub fn save(
        &self,
        learnt: &[(DeviceKey, DeviceRecord)],
        patience: Duration,
    ) -> Result<(), StateError> {
        if learnt.is_empty() {
            return Ok(());
        }
        let lock = self.0.lock(patience)?;
        let before = self.rows().unwrap_or_default();
        let is_kept = |row: &&(DeviceKey, _)| learnt.iter().all(|new| new.0 != row.0);
        let rows = learnt.iter().chain(before.iter().filter(is_kept)).take(DEVICES_MAX);
        self.0.replace(&lock, FILE, |to| {
            writeln!(to, "{HEAD}")?;
            rows.into_iter().try_for_each(|(key, record)| writeln!(to, "{key}\t{record}"))
        })
    }

    fn rows(&self) -> Result<Vec<(DeviceKey, DeviceRecord)>, StateError> {
        let Some(mut file) = self.0.open(FILE, BYTES_MAX)? else { return Ok(Vec::new()) };
        let mut text = Vec::new();
        let failed = |error| StateError::Io(self.0.path().join(FILE), error);
        file.by_ref().take(BYTES_MAX).read_to_end(&mut text).map_err(failed)?;
        let text = String::from_utf8_lossy(&text);
        let mut lines = text.lines();
        if lines.next() != Some(HEAD) {
            return Ok(Vec::new());
        }
        let row = |line: &str| {
            let (key, record) = line.split_once('\t')?;
            Some((DeviceKey(key.to_owned()), record.parse().ok()?))
        };
        Ok(lines.filter_map(row).take(DEVICES_MAX).collect())
    }
}

const FILE: &str = "devices";
const HEAD: &str = "forerun-devices 1";
/// Devices of a user.
pub const DEVICES_MAX: usize = 256;
/// As many lines with the longest names.
const BYTES_MAX: u64 = 128 << 10;
const HOST_BYTES_MAX: usize = 255;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use forerun_testkit::Scratch;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn record(depth: usize) -> DeviceRecord {
        format!("parallel 50000000 500000000 {} 1048576 kar 0", depth + 1).parse().unwrap()
    }

    fn host(number: usize) -> DeviceKey {
        DeviceKey::of_host(&format!("h{number}")).unwrap()
    }

    #[test]
    fn what_was_saved_last_is_found_by_its_device() {
        let scratch = Scratch::new("devices");
        let store = DeviceStore::at(&scratch.join("a/b")).unwrap();
        let file = DeviceKey::of_file(&std::env::current_exe().unwrap()).unwrap();
        assert_eq!(store.load(&file).unwrap(), None);
        store.save(&[(file.clone(), record(1)), (host(1), record(2))], PATIENCE).unwrap();
        store.save(&[(file.clone(), record(3))], PATIENCE).unwrap();
        assert_eq!(store.load(&file).unwrap(), Some(record(3)));
        assert_eq!(store.load(&host(1)).unwrap(), Some(record(2)));
        assert_eq!(store.load(&host(2)).unwrap(), None);
        assert_eq!(fs::read_to_string(scratch.join("a/b/devices")).unwrap().lines().count(), 3);
        let mode = |path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!(mode(scratch.join("a/b/devices")), 0o600);
        assert_eq!(mode(scratch.join("a/b")), 0o700);
        let left = fs::read_dir(scratch.join("a/b")).unwrap().count();
        assert_eq!(left, 2, "the file and the lock");
    }

    #[test]
    fn those_that_were_saved_longest_ago_go() {
        let scratch = Scratch::new("devices-many");
        let store = DeviceStore::at(&scratch).unwrap();
        for number in 0..DEVICES_MAX + 3 {
            store.save(&[(host(number), record(number))], PATIENCE).unwrap();
        }
        for (number, is_there) in [(2, false), (3, true), (DEVICES_MAX + 2, true)] {
            let found = store.load(&host(number)).unwrap();
            assert_eq!(found, is_there.then(|| record(number)), "{number}");
        }
    }

    #[test]
    fn what_is_no_record_of_this_version_and_user_is_not_used() {
        let scratch = Scratch::new("devices-odd");
        let store = DeviceStore::at(&scratch).unwrap();
        store.save(&[(host(1), record(1)), (host(2), record(2))], PATIENCE).unwrap();
        let path = scratch.join("devices");
        let text = fs::read_to_string(&path).unwrap();
        #[rustfmt::skip]
        let rows = [ // why             text                                       h1     h2
            ("as it was",               text.clone(),                              true,  true),
            ("another version",         text.replacen("devices 1", "devices 2", 1), false, false),
            ("a line that is none",     text.replacen("50000000", "x", 1),         false, true),
            ("cut",                     text[..text.len() - 9].to_owned(),         true,  false),
            ("empty",                   String::new(),                             false, false),
            ("no text",                 "\0".repeat(99),                           false, false),
        ];
        for (why, text, first, second) in rows {
            fs::write(&path, text).unwrap();
            assert_eq!(store.load(&host(1)).unwrap().is_some(), first, "{why}");
            assert_eq!(store.load(&host(2)).unwrap().is_some(), second, "{why}");
        }
        fs::write(&path, &text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o622)).unwrap();
        assert!(matches!(store.load(&host(1)), Err(StateError::OfOthers(_))));
        store.save(&[(host(3), record(3))], PATIENCE).unwrap();
        assert_eq!(store.load(&host(3)).unwrap(), Some(record(3)), "a file of one's own");
        assert_eq!(store.load(&host(1)).unwrap(), None, "nothing of the other's is taken over");
        fs::set_permissions(&*scratch, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(DeviceStore::at(&scratch), Err(StateError::OfOthers(_))));
    }

    #[test]
    fn names_of_hosts_stay_on_their_line() {
        for host in ["", "a b", "a\tb", "a\nb", "\u{e9}", &"h".repeat(256)] {
            assert_eq!(DeviceKey::of_host(host), None, "{host:?}");
        }
        assert!(DeviceKey::of_host("[::1]:9000").is_some());
    }
}
