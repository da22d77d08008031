//! Threads that take each step together, and all end when one cannot go on.
//!
//! ```text
//!   thread 1   next | step | next | step    | next: no
//!   thread 2   next | step | next | panic!
//!                          ^ all have come  ^ one failed: all end
//! ```
//!
//! # Invariants
//! - No step begins before all threads have ended the last one.
//! - The first failure is kept, and a panic is one; every waiting thread returns from its wait.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use anyhow::{Context as _, Result, anyhow};
use parking_lot::{Condvar, Mutex};

/// See the module.
pub struct Steps {
    threads: u32,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Steps that have begun.
    begun: u64,
    /// Threads that wait for the next one.
    waiting: u32,
    failed: Option<anyhow::Error>,
}

impl Steps {
    /// For so many threads.
    #[must_use]
    pub fn new(threads: u32) -> Self {
        Self { threads, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Runs `bodies`, each in a thread of its own, and returns their results in order.
    /// Each body takes [`next`](Steps::next) once, which is where all begin.
    ///
    /// # Errors
    /// The system has no thread to spare: then no body goes on from its start.
    pub fn start_together<T: Send, B: FnOnce(&Self) -> T + Send>(
        bodies: impl ExactSizeIterator<Item = B>,
    ) -> Result<Vec<T>> {
        let steps = &Self::new(u32::try_from(bodies.len()).expect("bounded by the command line"));
        thread::scope(|scope| {
            let spawn = |body: B| thread::Builder::new().spawn_scoped(scope, move || body(steps));
            let running: io::Result<Vec<_>> = bodies.map(spawn).collect();
            let running = running.inspect_err(|_| steps.fail(anyhow!("no thread")));
            let running = running.context("cannot start a thread: give fewer --threads")?;
            let join = |body: thread::ScopedJoinHandle<'_, T>| {
                body.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            Ok(running.into_iter().map(join).collect())
        })
    }

    /// Waits for all others. No, when one of them has failed.
    pub fn next(&self) -> bool {
        let mut state = self.state.lock();
        let step = state.begun;
        state.waiting += 1;
        if state.waiting == self.threads {
            state.begun += 1;
            state.waiting = 0;
            self.changed.notify_all();
        }
        while state.begun == step && state.failed.is_none() {
            self.changed.wait(&mut state);
        }
        state.failed.is_none()
    }

    /// Does the work of one thread; if it fails or panics, all end.
    pub fn carry_out(&self, work: impl FnOnce() -> Result<()>) {
        // A panic aborts the measurement, so its half-done state is not used.
        match catch_unwind(AssertUnwindSafe(work)) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.fail(error),
            Err(panic) => self.fail(anyhow!("a thread panicked: {}", said(&*panic))),
        }
    }

    /// All end.
    pub fn fail(&self, error: anyhow::Error) {
        self.state.lock().failed.get_or_insert(error);
        self.changed.notify_all();
    }

    /// The result, after the end of all threads.
    ///
    /// # Errors
    /// The first failure.
    pub fn ended(self) -> Result<()> {
        self.state.into_inner().failed.map_or(Ok(()), Err)
    }
}

/// The words of a panic.
fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it does not say why")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use anyhow::bail;

    use super::*;

    const THREADS: u32 = 3;
    const STEPS: u32 = 50;

    /// Runs `work(thread, step)` on each thread at each step; returns the number of steps and the
    /// result.
    fn run(work: impl Fn(u32, u32) -> Result<()> + Sync) -> (u32, Result<()>) {
        let (steps, taken, work) = (Steps::new(THREADS), AtomicU32::new(0), &work);
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (steps, taken) = (&steps, &taken);
                let body = move || {
                    for step in 0..STEPS {
                        if !steps.next() {
                            break;
                        }
                        // All are in the same step.
                        let before = taken.fetch_add(1, Ordering::SeqCst);
                        assert_eq!(before / THREADS, step, "not with the others");
                        work(thread, step)?;
                    }
                    Ok(())
                };
                scope.spawn(move || steps.carry_out(body));
            }
        });
        (taken.into_inner(), steps.ended())
    }

    #[test]
    fn all_take_each_step_together() {
        let (taken, ended) = run(|_, _| Ok(()));
        assert_eq!(taken, THREADS * STEPS);
        assert!(ended.is_ok(), "{ended:?}");
    }

    #[test]
    fn one_that_fails_or_panics_ends_all() {
        type Fault = fn() -> Result<()>;
        #[rustfmt::skip]
        let rows: [(u32, Fault, &str); 4] = [ // at step, fault     says
            (0,         || bail!("no device"),                      "no device"),
            (7,         || panic!("out of {}", "order"),            "panicked: out of order"),
            (STEPS - 1, || panic!("late"),                          "a thread panicked: late"),
            (3,         || std::panic::panic_any(5),                "it does not say why"),
        ];
        for (at, fault, says) in rows {
            let at_step = |thread, step| if (thread, step) == (1, at) { fault() } else { Ok(()) };
            let (taken, ended) = run(at_step);
            let error = ended.expect_err(says).to_string();
            assert!(error.contains(says), "{error}");
            // Of the others, the step in which it failed is the last.
            assert!(taken <= (at + 1) * THREADS, "{taken} steps: {says}");
            assert!(taken > at * THREADS, "{taken} steps: {says}");
        }
    }

    #[test]
    fn who_did_not_start_is_not_waited_for() {
        let steps = Steps::new(2);
        thread::scope(|scope| {
            scope.spawn(|| assert!(!steps.next(), "half of them"));
            steps.fail(anyhow!("no thread"));
        });
        let error = steps.ended().expect_err("one is missing").to_string();
        assert_eq!(error, "no thread");
    }

    #[test]
    fn nobody_goes_before_the_last_has_come() {
        let came = AtomicU32::new(0);
        let body = |start: &Steps| {
            came.fetch_add(1, Ordering::SeqCst);
            (start.next(), came.load(Ordering::SeqCst))
        };
        assert_eq!(Steps::start_together([body; 5].into_iter()).unwrap(), [(true, 5); 5]);
    }

    #[test]
    fn who_waits_for_a_start_that_is_called_off_does_not_go() {
        let start = Steps::new(3);
        let went = thread::scope(|scope| {
            let waits = [(); 2].map(|()| scope.spawn(|| start.next()));
            start.fail(anyhow!("no thread"));
            waits.map(|thread| thread.join().unwrap())
        });
        assert_eq!(went, [false; 2]);
    }
}
