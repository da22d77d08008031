//! The shared state of all connections: settings and counts.
//!
//! ```text
//!   arrive --> count the body --> InFlight dropped --> the last piece is sent
//! ```
//!
//! # Invariants
//! - An answer that a client has read is counted and no longer in flight: a client with one request
//!   at a time never sees an `in_flight_max` of 2.
//! - Requests under `/-/` are not counted.
//! # Locking
//! One lock, never held over a wait or a send.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use serde_json::json;

use super::fault::{Fault, Turns};
use super::units;

/// The settings and the counts.
pub(crate) struct State {
    latency: Duration,
    /// Bytes a second of each connection; 0: no limit.
    rate: u64,
    faults: Turns,
    /// GETs since the faults were chosen.
    turns: u64,
    counts: Counts,
    in_flight: u64,
    /// The number of resets; a connection is counted once in each epoch.
    epoch: u64,
}

/// The counts of GETs since the last reset.
#[derive(Default, Serialize)]
struct Counts {
    requests: u64,
    bytes: u64,
    connections: u64,
    in_flight_max: u64,
    /// The sizes of the last bodies.
    sizes: VecDeque<u64>,
}

impl State {
    pub(super) fn new(latency: Duration, rate: u64, faults: Turns) -> Self {
        Self { latency, rate, faults, turns: 0, counts: Counts::default(), in_flight: 0, epoch: 0 }
    }
}

/// The settings of one request.
pub(super) struct Turn {
    pub(super) latency: Duration,
    pub(super) rate: u64,
    pub(super) fault: Option<Fault>,
}

/// A state with its lock.
pub(super) struct Shared(Mutex<State>);

impl Shared {
    pub(super) fn new(state: State) -> Self {
        Self(Mutex::new(state))
    }

    /// A GET has arrived on a connection that was last counted in `epoch`.
    pub(super) fn get(&self, epoch: &mut Option<u64>) -> (Turn, InFlight<'_>) {
        let mut state = self.lock();
        state.turns += 1;
        state.in_flight += 1;
        state.counts.requests += 1;
        state.counts.in_flight_max = state.counts.in_flight_max.max(state.in_flight);
        if *epoch != Some(state.epoch) {
            *epoch = Some(state.epoch);
            state.counts.connections += 1;
        }
        let fault = state.faults.of(state.turns);
        (Turn { latency: state.latency, rate: state.rate, fault }, InFlight(self))
    }

    /// A HEAD has arrived. The only fault of a HEAD is a missing length, on every turn.
    pub(super) fn head(&self) -> Turn {
        let state = self.lock();
        let fault = state.faults.fault().filter(|fault| *fault == Fault::NoLength);
        Turn { latency: state.latency, rate: state.rate, fault }
    }

    /// Executes the command of a path under `/-/`; returns JSON.
    pub(super) fn control(&self, words: &str) -> Result<String, String> {
        let mut state = self.lock();
        match words.split_once('/').unwrap_or((words, "")) {
            ("counts", "") => return Ok(json!(state.counts).to_string()),
            ("reset", "") => {
                state.counts = Counts { in_flight_max: state.in_flight, ..Counts::default() };
                state.epoch += 1;
            }
            ("latency", time) => state.latency = units::time(time)?,
            ("rate", rate) => state.rate = units::rate(rate)?,
            ("fault", faults) => (state.faults, state.turns) = (Turns::parse(faults)?, 0),
            _ => return Err(format!("nothing at /-/{words}")),
        }
        Ok("{}".to_owned())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Counts that are off by one serve the other connections better than none.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A GET that is being answered, until it is dropped.
pub(super) struct InFlight<'a>(&'a Shared);

impl InFlight<'_> {
    /// Its body has this size.
    pub(super) fn count(&self, bytes: u64) {
        let counts = &mut self.0.lock().counts;
        counts.bytes += bytes;
        if counts.sizes.len() == SIZES_MAX {
            counts.sizes.pop_front();
        }
        counts.sizes.push_back(bytes);
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.lock().in_flight -= 1;
    }
}

const SIZES_MAX: usize = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn sound() -> State {
        State::new(Duration::ZERO, 0, Turns::parse("none").expect("it is one"))
    }

    #[test]
    fn gets_are_counted_with_their_connections_and_overlap() {
        let shared = Shared::new(sound());
        let counts = || -> serde_json::Value {
            serde_json::from_str(&shared.control("counts").unwrap()).unwrap()
        };
        let (mut first, mut second) = (None, None);
        let (_, a) = shared.get(&mut first);
        let (_, b) = shared.get(&mut second);
        a.count(7);
        drop((a, b));
        let (_, c) = shared.get(&mut first);
        c.count(3);
        let expected = json!({
            "requests": 3, "bytes": 10, "connections": 2, "in_flight_max": 2, "sizes": [7, 3],
        });
        assert_eq!(counts(), expected);
        // Requests in flight stay so; a connection counts again at its next use.
        shared.control("reset").unwrap();
        drop(c);
        drop(shared.get(&mut first));
        let expected = json!({
            "requests": 1, "bytes": 0, "connections": 1, "in_flight_max": 1, "sizes": [],
        });
        assert_eq!(counts(), expected);
    }

    #[test]
    fn only_the_last_sizes_are_kept() {
        let shared = Shared::new(sound());
        let (_, get) = shared.get(&mut None);
        for bytes in 0..SIZES_MAX as u64 + 2 {
            get.count(bytes);
        }
        let sizes = &shared.lock().counts.sizes;
        assert_eq!((sizes.len(), sizes.front()), (SIZES_MAX, Some(&2)));
    }

    #[test]
    fn faults_have_their_turn_and_settings_change() {
        let shared = Shared::new(sound());
        let faults = |count| -> Vec<bool> {
            (0..count).map(|_| shared.get(&mut None).0.fault.is_some()).collect()
        };
        assert_eq!(faults(2), [false, false]);
        shared.control("fault/short:3").unwrap();
        assert_eq!(faults(6), [false, false, true, false, false, true]);
        assert!(shared.head().fault.is_none());
        shared.control("fault/no-length:9").unwrap();
        assert_eq!(shared.head().fault, Some(Fault::NoLength));
        shared.control("fault/none").unwrap();
        assert_eq!(faults(1), [false]);
        shared.control("latency/30ms").unwrap();
        shared.control("rate/90M").unwrap();
        let turn = shared.head();
        assert_eq!((turn.latency, turn.rate), (Duration::from_millis(30), 90_000_000));
        for nonsense in ["", "counts/1", "odd", "latency/", "rate/x", "fault/odd"] {
            assert!(shared.control(nonsense).is_err(), "{nonsense}");
        }
    }
}
