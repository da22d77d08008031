//! Workers of one connection: requests that wait for the device, several at a time.
//!
//! A worker is started when a request finds none idle, and ends with the connection. A client
//! that has one request in flight at a time never needs one.
//!
//! # Invariants
//! - At most so many requests at a time as the bound says; the next is carried out by the thread
//!   that brings it.
//! - All requests that were handed over are carried out before [`Workers::finish`] returns, which
//!   the owner calls before the threads' scope ends.
//! # Locking
//! One lock, around the queue alone.

use std::{collections::VecDeque, mem, thread::Scope};

use parking_lot::{Condvar, Mutex};

use super::{STACK_BYTES, job::Session, outbox::Broken};
use crate::request::{Command, Request};

/// See the module.
pub(super) struct Workers {
    state: Mutex<State>,
    /// A request came, or the end.
    wakes: Condvar,
    /// A request was carried out.
    done: Condvar,
    count_max: usize,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    /// Requests that a worker carries out.
    busy: usize,
    started: usize,
    ends: bool,
    broken: bool,
}

/// A request, and the payload of a write.
struct Job {
    request: Request,
    payload: Option<Vec<u8>>,
}

impl Workers {
    pub(super) fn new(count_max: usize) -> Self {
        let (state, wakes, done) = (Mutex::default(), Condvar::new(), Condvar::new());
        Self { state, wakes, done, count_max }
    }

    /// Whether nothing is in flight.
    pub(super) fn are_idle(&self) -> bool {
        let state = self.state.lock();
        state.queue.is_empty() && state.busy == 0
    }

    /// Hands `request` over, with `room` where that begins with the payload of a write; `false`
    /// where all workers are busy, or none can be started.
    pub(super) fn take<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        session: &'scope Session<'scope>,
        request: Request,
        room: &mut Vec<u8>,
    ) -> bool {
        let mut state = self.state.lock();
        if state.busy + state.queue.len() >= self.count_max {
            return false;
        }
        if state.busy + state.queue.len() >= state.started {
            let builder = std::thread::Builder::new().stack_size(STACK_BYTES);
            let spawned = builder.spawn_scoped(scope, move || self.work(session));
            state.started += usize::from(spawned.is_ok());
            if state.started == 0 {
                return false;
            }
        }
        let payload = (request.command == Command::Write).then(|| mem::take(room));
        state.queue.push_back(Job { request, payload });
        drop(state);
        self.wakes.notify_one();
        true
    }

    fn work(&self, session: &Session<'_>) {
        let mut room = Vec::new();
        let mut state = self.state.lock();
        loop {
            let Some(Job { request, payload }) = state.queue.pop_front() else {
                if state.ends {
                    return;
                }
                self.wakes.wait(&mut state);
                continue;
            };
            state.busy += 1;
            let skips = state.broken;
            drop(state);
            room = payload.unwrap_or(room);
            let broken = !skips && session.carry_out(&request, &mut room) == Err(Broken);
            state = self.state.lock();
            state.busy -= 1;
            state.broken |= broken;
            if state.busy == 0 && state.queue.is_empty() {
                self.done.notify_all();
            }
        }
    }

    /// Waits until nothing is in flight.
    pub(super) fn wait(&self) {
        let mut state = self.state.lock();
        while state.busy > 0 || !state.queue.is_empty() {
            self.done.wait(&mut state);
        }
    }

    /// Waits until nothing is in flight, and ends the workers.
    pub(super) fn finish(&self) {
        self.wait();
        self.state.lock().ends = true;
        self.wakes.notify_all();
    }
}
