//! A common start for threads, which can be called off where not all of them could be made.
//!
//! ```text
//!   thread 1 --arrive--|          |--> go
//!   thread 2 ----------arrive-----|--> go      the last one to arrive starts all
//!   no thread 3: called off       |--> nobody goes
//! ```
//!
//! # Invariants
//! - Either all of `count` threads go, or none does; nobody waits for a thread that was never made.
//! # Locking
//! One lock of its own, held for a count.

use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::{Context as _, Result};

/// See the module.
pub struct Start {
    row: Mutex<Row>,
    decided: Condvar,
}

struct Row {
    missing: u32,
    off: bool,
}

impl Start {
    /// Runs `bodies`, each in a thread of its own, and gives what they came to, in their order.
    /// Each body has to [`arrive`](Start::arrive) once.
    ///
    /// # Errors
    /// The system has no thread to spare: then no body goes on from its start.
    pub fn run<T: Send, B: FnOnce(&Self) -> T + Send>(
        bodies: impl ExactSizeIterator<Item = B>,
    ) -> Result<Vec<T>> {
        let missing = u32::try_from(bodies.len()).expect("bounded by the command line");
        let start = Self { row: Mutex::new(Row { missing, off: false }), decided: Condvar::new() };
        thread::scope(|scope| {
            let start = &start;
            let spawn = |body: B| thread::Builder::new().spawn_scoped(scope, move || body(start));
            let running: io::Result<Vec<_>> = bodies.map(spawn).collect();
            let running = running.inspect_err(|_| start.call_off());
            let running = running.context("cannot start a thread: give fewer --threads")?;
            let join = |body: thread::ScopedJoinHandle<'_, T>| {
                body.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            Ok(running.into_iter().map(join).collect())
        })
    }

    /// Waits for the others; whether all of them came.
    pub fn arrive(&self) -> bool {
        let mut row = self.row();
        row.missing -= 1;
        if row.missing == 0 {
            self.decided.notify_all();
        }
        while row.missing > 0 && !row.off {
            row = self.decided.wait(row).unwrap_or_else(PoisonError::into_inner);
        }
        !row.off
    }

    fn call_off(&self) {
        self.row().off = true;
        self.decided.notify_all();
    }

    fn row(&self) -> MutexGuard<'_, Row> {
        self.row.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn nobody_goes_before_the_last_has_come() {
        let came = AtomicU32::new(0);
        let body = |start: &Start| {
            came.fetch_add(1, Ordering::SeqCst);
            (start.arrive(), came.load(Ordering::SeqCst))
        };
        assert_eq!(Start::run([body; 5].into_iter()).unwrap(), [(true, 5); 5]);
    }

    #[test]
    fn who_waits_for_a_start_that_is_called_off_does_not_go() {
        let start =
            Start { row: Mutex::new(Row { missing: 3, off: false }), decided: Condvar::new() };
        let went = thread::scope(|scope| {
            let waits = [(); 2].map(|()| scope.spawn(|| start.arrive()));
            start.call_off();
            waits.map(|thread| thread.join().unwrap())
        });
        assert_eq!(went, [false; 2]);
    }
}
