//! SIGINT: the command ends at once with status 130, but never in the middle of a file.
//!
//! # Invariants
//! - Files are written inside [`unbroken`]; the handler waits for that, yet less than a second:
//!   what takes longer is no regular file, and leaves nothing behind.
//! - A large file that is being made is removed ([`Making`]): writing it may take long.
//! - A command that has figures to tell asks for the first signal itself ([`gently`]); the second
//!   one ends it as any other.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};

static WRITING: Mutex<()> = Mutex::new(());
/// The part of a file that is of no use to anybody yet.
static MAKING: Mutex<Option<PathBuf>> = Mutex::new(None);
/// The command ends by itself when it is asked to.
static GENTLE: AtomicBool = AtomicBool::new(false);
static ASKED: AtomicBool = AtomicBool::new(false);

/// Takes over SIGINT (and the other two that end a program) for this process.
pub(crate) fn install() -> Result<()> {
    ctrlc::set_handler(end).context("cannot listen for signals")
}

/// Runs `write`, which is not interrupted.
pub(crate) fn unbroken<R>(write: impl FnOnce() -> R) -> R {
    let _held = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    write()
}

/// As long as it lives, a signal removes the file that is being made.
pub(crate) struct Making(());

impl Making {
    /// `part` is where the file is written.
    pub(crate) fn new(part: Option<&Path>) -> Self {
        *making() = part.map(Path::to_owned);
        Self(())
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        *making() = None;
    }
}

fn making() -> MutexGuard<'static, Option<PathBuf>> {
    MAKING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on the first signal only asks: see [`asked`].
pub(crate) fn gently() {
    GENTLE.store(true, Ordering::Relaxed);
}

/// Whether a signal has asked the command to end.
pub(crate) fn asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}

fn end() {
    if GENTLE.load(Ordering::Relaxed) && !ASKED.swap(true, Ordering::Relaxed) {
        return;
    }
    for _ in 0..80 {
        if let Ok(_held) = WRITING.try_lock() {
            // Held until the process is gone, so that no file is begun any more.
            leave();
        }
        thread::sleep(Duration::from_millis(10));
    }
    leave();
}

/// Ends the process as interrupted.
pub(crate) fn leave() -> ! {
    if let Some(part) = making().take() {
        // Nothing can be done about a failure here.
        let _ = fs::remove_file(part);
    }
    let _ = writeln!(io::stderr(), "forerun: interrupted");
    process::exit(STATUS)
}

/// 128 and the number of SIGINT, as shells count.
const STATUS: i32 = 130;
