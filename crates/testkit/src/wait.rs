//! Waiting for states that other threads and processes bring about.
//!
//! A test that waits for something live has no deadline of its own: on a loaded machine each is
//! too short at some time, and the test fails by chance. What hangs is named by [`within`], after
//! the deadline of the runner: `FORERUN_TEST_SECONDS_MAX`, ten minutes unless it is set.

use std::{
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

/// Returns once `holds` does. Use it for states that stay, never for moments.
pub fn until(mut holds: impl FnMut() -> bool) {
    let mut polls = 0;
    while !holds() {
        // Most states come at once; the processor is left to the others where one does not.
        if polls < POLLS_BUSY {
            thread::yield_now();
        } else {
            thread::sleep(POLL_INTERVAL);
        }
        polls += 1;
    }
}

/// What `body` returns. A body that hangs fails the test at the deadline of the runner.
///
/// # Panics
/// When `body` panics, with its message, or hangs.
pub fn within<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    let thread = thread::spawn(move || sender.send(body()));
    match receiver.recv_timeout(Duration::from_secs(seconds_max())) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => panic!("it hangs: FORERUN_TEST_SECONDS_MAX passed"),
        Err(RecvTimeoutError::Disconnected) => {
            std::panic::resume_unwind(thread.join().expect_err("it sent nothing"))
        }
    }
}

/// Runs `body` on `count` threads, numbered from 0, and returns when all have ended.
pub fn on_threads(count: u64, body: impl Fn(u64) + Sync) {
    thread::scope(|scope| {
        for number in 0..count {
            let body = &body;
            scope.spawn(move || body(number));
        }
    });
}

/// The runner's deadline for one test, in seconds.
///
/// # Panics
/// When `FORERUN_TEST_SECONDS_MAX` is no number.
#[must_use]
pub fn seconds_max() -> u64 {
    let set = std::env::var("FORERUN_TEST_SECONDS_MAX").ok();
    set.map_or(SECONDS_MAX, |text| text.parse().expect("FORERUN_TEST_SECONDS_MAX is a number"))
}

/// The deadline of a runner that sets none.
const SECONDS_MAX: u64 = 600;
/// Polls of [`until`] before it sleeps between them.
const POLLS_BUSY: u32 = 1_000;
const POLL_INTERVAL: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::{on_threads, until, within};

    #[test]
    fn a_state_of_another_thread_is_waited_for() {
        let count = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                on_threads(4, |number| {
                    count.fetch_add(number, Ordering::Relaxed);
                });
            });
            until(|| count.load(Ordering::Relaxed) == 6);
        });
    }

    #[test]
    fn a_body_gives_its_result_or_its_panic() {
        assert_eq!(within(|| 7), 7);
        let caught = std::panic::catch_unwind(|| within(|| panic!("told")));
        assert_eq!(caught.unwrap_err().downcast_ref::<&str>(), Some(&"told"));
    }
}
