//! A device of which only the time is real: for reaping without fast hardware.
//!
//! ```text
//!   port     submit -> due = service(now, bytes)    poll: done?          wait: futex
//!                            |                        ^                    ^ only when it is armed
//!   device   thread: spin until due ---------> done += 1 ------------> wake
//! ```
//!
//! The device's thread completes each read at a moment that was settled when it was submitted, and
//! spins up to it: a thread that slept would add its own wake-up latency. A completion is a word in
//! memory that is counted up; the device's thread wakes a port that blocks, as an interrupt's
//! handler does. [`Lateness`] has what that costs the device's thread, and how late the thread was:
//! under contention it waits for a processor like all others.
//!
//! # Invariants
//! - A read completes at its moment or later, never earlier, and once.
//! - No byte is moved: frames come back as they were.
//! - While nothing is in flight for a while, the thread sleeps.
//! # Locking
//! The device's lock, then one port's; neither is held over a sleep or a spin.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use forerun_core::units::Nanos;
use parking_lot::Mutex;
use rustix::thread::futex;

use super::{
    clock::{now, timespec},
    port::{Port, PortFeatures},
};
use crate::store::{Completion, Op};

/// The service of a device: when a read that is submitted at a moment completes, and its result.
pub type ModelService = Box<dyn FnMut(Nanos, &Op) -> ModelCompletion + Send>;

/// When and how a read completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelCompletion {
    /// The moment of its completion.
    pub at: Nanos,
    /// The errno that it fails with.
    pub fails: Option<i32>,
}

/// How late the model completed its reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    /// Reads that were completed.
    pub reads: u64,
    /// From their moments to their completion, in all.
    pub late: Nanos,
    /// Wake-ups that the device's thread gave.
    pub wakes: u64,
    /// What they took of its processor: on hardware, a handler's time.
    pub waking: Nanos,
}

/// See the module. Its thread ends when it is dropped.
pub struct Model {
    device: Arc<Device>,
    thread: Option<thread::JoinHandle<()>>,
}

struct Device {
    state: Mutex<State>,
    /// The first moment of all reads in flight.
    due: AtomicU64,
    /// The thread sleeps, or is about to.
    asleep: AtomicBool,
    ended: AtomicBool,
}

struct State {
    serve: ModelService,
    /// By their moments, then by their numbers.
    in_flight: BTreeMap<(Nanos, u64), PendingRead>,
    /// Reads that there were so far.
    numbers: u64,
    lateness: Lateness,
}

/// A read in flight.
struct PendingRead {
    fails: Option<i32>,
    slot: usize,
    port: Arc<PortState>,
}

/// What a port shares with the device.
#[derive(Default)]
struct PortState {
    /// Completions so far; what a sleeper waits on.
    done: AtomicU32,
    /// The port sleeps until `done` is `wanted`.
    armed: AtomicBool,
    wanted: AtomicU32,
    /// Completions that the port has not taken: slots and errnos.
    completed: Mutex<Vec<(usize, Option<i32>)>>,
}

impl Model {
    /// A device whose times are those of `serve`.
    ///
    /// # Panics
    /// The system has no thread for the device.
    #[must_use]
    pub fn new(serve: ModelService) -> Self {
        let (in_flight, lateness) = (BTreeMap::new(), Lateness::default());
        let state = State { serve, in_flight, numbers: 0, lateness };
        let device = Arc::new(Device {
            state: Mutex::new(state),
            due: AtomicU64::new(u64::MAX),
            asleep: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        });
        let device_side = Arc::clone(&device);
        let thread = thread::Builder::new().name("forerun-model".into());
        let thread = thread.spawn(move || device_side.run()).expect("a thread for the device");
        Self { device, thread: Some(thread) }
    }

    /// A port to it, for groups of `depth` reads. It outlives the model only without reads.
    #[must_use]
    pub fn port(&self, depth: u32) -> Box<dyn Port> {
        let thread = self.thread.as_ref().expect("it runs").thread().clone();
        let mut slots = Vec::new();
        slots.resize_with(depth as usize, || None);
        Box::new(ModelPort {
            device: Arc::clone(&self.device),
            thread,
            port: Arc::default(),
            slots,
            taken: 0,
            in_flight: 0,
        })
    }

    /// See [`Lateness`].
    #[must_use]
    pub fn lateness(&self) -> Lateness {
        self.device.state.lock().lateness
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        self.device.ended.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            thread.join().expect("the device's thread does not panic");
        }
    }
}

impl Device {
    /// The device's thread.
    fn run(&self) {
        let mut idle_since = now();
        while !self.ended.load(Ordering::Relaxed) {
            let due = self.due.load(Ordering::Acquire);
            let at = now();
            if due <= at.0 {
                self.complete(at);
                idle_since = at;
            } else if due == u64::MAX && at.since(idle_since) > SLEEPS_AFTER {
                self.asleep.store(true, Ordering::SeqCst);
                // A submitter stores the moment first, then loads `asleep`.
                if self.due.load(Ordering::SeqCst) == u64::MAX && !self.ended.load(Ordering::SeqCst)
                {
                    thread::park();
                }
                self.asleep.store(false, Ordering::SeqCst);
                idle_since = now();
            } else {
                std::hint::spin_loop();
            }
        }
    }

    /// Completes what is due at `at`.
    fn complete(&self, at: Nanos) {
        let mut wakes = Vec::new();
        let mut state = self.state.lock();
        while let Some(first) = state.in_flight.first_entry()
            && first.key().0 <= at
        {
            let ((due, _), PendingRead { fails, slot, port }) = first.remove_entry();
            state.lateness.reads += 1;
            state.lateness.late += now().since(due);
            if port.complete(slot, fails) {
                wakes.push(port);
            }
        }
        self.due.store(state.next(), Ordering::SeqCst);
        if wakes.is_empty() {
            return;
        }
        drop(state);
        let begun = now();
        for port in &wakes {
            // At the worst, no thread sleeps there any more.
            let _ = futex::wake(&port.done, futex::Flags::PRIVATE, 1);
        }
        let waking = now().since(begun);
        let lateness = &mut self.state.lock().lateness;
        lateness.wakes += wakes.len() as u64;
        lateness.waking += waking;
    }
}

impl State {
    fn next(&self) -> u64 {
        self.in_flight.first_key_value().map_or(u64::MAX, |((at, _), _)| at.0)
    }
}

impl PortState {
    /// Adds a completion; whether the port is to be woken.
    fn complete(&self, slot: usize, fails: Option<i32>) -> bool {
        self.completed.lock().push((slot, fails));
        let done = self.done.fetch_add(1, Ordering::SeqCst).wrapping_add(1);
        // A port that sleeps arms first, then loads the count.
        self.armed.load(Ordering::SeqCst) && done == self.wanted.load(Ordering::SeqCst)
    }
}

struct ModelPort {
    device: Arc<Device>,
    thread: thread::Thread,
    port: Arc<PortState>,
    slots: Vec<Option<Op>>,
    /// Completions that were taken, as the device counts.
    taken: u32,
    in_flight: u32,
}

impl Port for ModelPort {
    fn name(&self) -> &'static str {
        "model"
    }

    fn features(&self) -> PortFeatures {
        PortFeatures { poll: true, timed: true }
    }

    fn capacity(&self) -> usize {
        self.slots.len()
    }

    fn submit(&mut self, group: Vec<Op>, _: &mut Vec<Completion>) {
        assert!(self.in_flight == 0 && group.len() <= self.slots.len(), "more than it takes");
        self.in_flight = u32::try_from(group.len()).expect("at most the capacity");
        let mut state = self.device.state.lock();
        for (slot, op) in group.into_iter().enumerate() {
            let ModelCompletion { at, fails } = (state.serve)(now(), &op);
            let key = (at, state.numbers);
            state.numbers += 1;
            state.in_flight.insert(key, PendingRead { fails, slot, port: Arc::clone(&self.port) });
            self.slots[slot] = Some(op);
        }
        self.device.due.store(state.next(), Ordering::SeqCst);
        drop(state);
        if self.device.asleep.load(Ordering::SeqCst) {
            self.thread.unpark();
        }
    }

    fn in_flight(&self) -> usize {
        self.in_flight as usize
    }

    fn poll(&mut self, out: &mut Vec<Completion>) {
        if self.port.done.load(Ordering::Acquire) == self.taken {
            return;
        }
        for (slot, fails) in self.port.completed.lock().drain(..) {
            let op = self.slots[slot].take().expect("a read completes once");
            let result = fails.map_or(Ok(op.bytes), Err);
            out.push(Completion { op, result });
            self.taken = self.taken.wrapping_add(1);
            assert!(self.in_flight > 0, "a completion is of a read in flight");
            self.in_flight -= 1;
        }
    }

    fn wait(&mut self, time: Option<Duration>, out: &mut Vec<Completion>) {
        let until =
            time.map(|time| now() + Nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 2)));
        let wanted = self.taken.wrapping_add(self.in_flight);
        self.port.wanted.store(wanted, Ordering::SeqCst);
        self.port.armed.store(true, Ordering::SeqCst);
        loop {
            let done = self.port.done.load(Ordering::SeqCst);
            let left = until.map(|until| until.since(now()));
            if done == wanted || left == Some(Nanos(0)) {
                break;
            }
            // Whatever ends it, the loop checks again.
            let _ = futex::wait(
                &self.port.done,
                futex::Flags::PRIVATE,
                done,
                left.map(timespec).as_ref(),
            );
        }
        self.port.armed.store(false, Ordering::SeqCst);
        self.poll(out);
    }
}

/// Longer than a reader takes between two reads.
const SLEEPS_AFTER: Nanos = Nanos::from_millis(2);
