//! Answers that wait for their time: a model of a device says when each is due.
//!
//! ```text
//!   give(bytes, answer) --> device.submit --> [thread: next due] --> device.complete --> answer()
//! ```
//! # Invariants
//! - As many answers wait as the device takes; one more is refused, at once.
//! - No answer is given under the lock.
//! # Locking
//! One lock, of the device and of the answers.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use forerun_console::machine;
use forerun_core::device::{Device, IN_FLIGHT_MAX, Request};

type Answer = Box<dyn FnOnce() + Send>;

/// See the module.
pub(super) struct Delay(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// Told when an answer may be due earlier, and at the end.
    changed: Condvar,
}

struct State {
    device: Device,
    answers: BTreeMap<u64, Answer>,
    given: u64,
    ended: bool,
}

impl Delay {
    /// Starts the thread that gives answers at the time of `device`.
    pub(super) fn start(device: Device) -> Result<Self> {
        let state = State { device, answers: BTreeMap::new(), given: 0, ended: false };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let serving = Arc::clone(&shared);
        let thread = thread::Builder::new().name("demo-volume".into());
        thread.spawn(move || serving.serve()).context("cannot start a thread for the volume")?;
        Ok(Self(shared))
    }

    /// Calls `answer` when a read of `bytes` would be done; gives it back where too many wait.
    pub(super) fn give(&self, bytes: u64, answer: Answer) -> Result<(), Answer> {
        let mut state = self.0.lock();
        if state.device.in_flight() >= IN_FLIGHT_MAX {
            return Err(answer);
        }
        let id = state.given;
        state.given += 1;
        let bytes = bytes.clamp(1, state.device.request_bytes_max());
        state.device.submit(machine::now(), Request { id, offset: 0, bytes, write: false });
        state.answers.insert(id, answer);
        drop(state);
        self.0.changed.notify_one();
        Ok(())
    }
}

impl Drop for Delay {
    fn drop(&mut self) {
        self.0.lock().ended = true;
        self.0.changed.notify_one();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self) {
        let mut state = self.lock();
        while !state.ended {
            let now = machine::now();
            if let Some(done) = state.device.complete(now) {
                let answer = state.answers.remove(&done.request.id);
                drop(state);
                if let Some(answer) = answer {
                    answer();
                }
                state = self.lock();
                continue;
            }
            let wait =
                state.device.next().map_or(REST, |due| Duration::from_nanos(due.since(now).0));
            let waited = self.changed.wait_timeout(state, wait);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Between two looks of a thread that nothing wakes.
const REST: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn answers_come_at_the_time_of_the_device_and_in_parallel() {
        let device = forerun_core::device::make("object", 1).expect("a model");
        let delay = Delay::start(device).expect("a thread");
        let (tell, told) = mpsc::channel();
        let begun = machine::now();
        for number in 0..20 {
            let tell = tell.clone();
            let answer = move || tell.send((number, machine::now())).expect("it is waited for");
            assert!(delay.give(4_096, Box::new(answer)).is_ok());
        }
        let mut numbers: Vec<u32> = (0..20)
            .map(|_| {
                let (number, at) = told.recv().expect("an answer");
                assert!(at > begun, "no answer is at once");
                number
            })
            .collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..20).collect::<Vec<u32>>(), "each is given once");
    }
}
