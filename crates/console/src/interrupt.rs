//! SIGINT: the command ends at once with status 130, but never in the middle of a file.
//!
//! # Invariants
//! - Files are written inside [`unbroken`]; the handler waits for that, yet less than a second.
//! - A longer write leaves nothing behind: the handler removes the part of an unfinished file.
//! - A command with results to print handles the first signal itself ([`gently`]); the second
//!   one ends it as any other.

use std::io::{self, Write as _};
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use forerun_report::remove_parts;

static WRITING: Mutex<()> = Mutex::new(());
/// The command ends by itself after the first signal.
static GENTLE: AtomicBool = AtomicBool::new(false);
static ASKED: AtomicBool = AtomicBool::new(false);
/// What the first signal calls.
static STOP: Mutex<Option<Box<dyn Fn() + Send>>> = Mutex::new(None);
/// What the message on an interrupted command ends with.
static FAREWELL: Mutex<Option<Box<dyn Fn() -> String + Send>>> = Mutex::new(None);

/// Takes over SIGINT (and the other two that end a program) for this process.
pub fn install() -> Result<()> {
    ctrlc::set_handler(end).context("cannot listen for signals")
}

/// Runs `write`, which is not interrupted.
pub fn unbroken<R>(write: impl FnOnce() -> R) -> R {
    let _held = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    write()
}

/// Makes the first signal set the flag of [`asked`] only.
pub fn gently() {
    GENTLE.store(true, Ordering::Relaxed);
}

/// Makes an interrupted command end with what `tell` says, on stderr.
pub fn tells(tell: impl Fn() -> String + Send + 'static) {
    *FAREWELL.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(tell));
}

/// Makes the first signal call `stop`, for a command that waits for other things than signals, and
/// otherwise as [`gently`].
pub fn stops(stop: impl Fn() + Send + 'static) {
    *STOP.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(stop));
    gently();
}

/// Whether a signal has requested the command's end.
pub fn asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}

fn end() {
    if GENTLE.load(Ordering::Relaxed) && !ASKED.swap(true, Ordering::Relaxed) {
        if let Some(stop) = &*STOP.lock().unwrap_or_else(PoisonError::into_inner) {
            stop();
        }
        return;
    }
    for _ in 0..80 {
        if let Ok(_held) = WRITING.try_lock() {
            // Locked until the process ends, so that no further file is begun.
            leave();
        }
        thread::sleep(Duration::from_millis(10));
    }
    leave();
}

/// Ends the process as interrupted.
pub fn leave() -> ! {
    remove_parts();
    let farewell = FAREWELL.try_lock().ok();
    let told = farewell.and_then(|tell| tell.as_ref().map(|tell| format!(": {}", tell())));
    let _ = writeln!(io::stderr(), "forerun: interrupted{}", told.unwrap_or_default());
    process::exit(STATUS)
}

/// 128 and the number of SIGINT, as shells count.
const STATUS: i32 = 130;
