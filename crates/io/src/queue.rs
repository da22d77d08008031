//! A queue over operations that block: carried out by whoever reaps, or by a few threads.
//!
//! ```text
//!   submit -> waiting -> carried out by the reaper ------------------> reaped
//!                    \-> carried out by one of `depth` threads -> done -> reaped
//! ```
//!
//! A thread is started when an operation waits and none is idle, so a deep queue that is used
//! shallowly costs little. Where the system refuses a thread, those there are do the work; where
//! it refuses the first, what waits fails with `EAGAIN`.
//!
//! # Invariants
//! - No operation begins while `depth` are carried out, where there are threads, and they begin in
//!   the order of submission.
//! - A reaper sleeps only while something is in flight: whoever ends the last operation wakes all.
//! - Once closed, nothing waits and no thread begins another operation.
//! # Locking
//! One lock a queue, held over no operation. `Carry::plan` and `Carry::interrupt` run outside it.

use std::{collections::VecDeque, sync::Arc, thread};

use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::io::Errno;

use crate::{
    process::Home,
    store::{Done, Op, Queue, QueueKind, Wait},
};

/// How a store carries out one operation, blocking.
pub(crate) trait Carry: Send + Sync + 'static {
    /// What is settled when the operation is submitted, in that order, whoever carries it out.
    type Plan: Send;

    /// Settles what is to be done about `op`. Called once for each, before it waits.
    fn plan(&self, op: &Op) -> Self::Plan;

    /// Carries `op` out, on whichever thread calls.
    fn carry(&self, op: Op, plan: Self::Plan) -> Done;

    /// The queue was closed: what is being carried out should end soon.
    fn interrupt(&self) {}
}

/// A queue of `kind` over `carry`.
pub(crate) fn open<C: Carry>(carry: C, kind: QueueKind) -> Arc<dyn Queue> {
    Arc::new(Carried::new(carry, kind))
}

/// The owner's end: ends the threads when it goes.
struct Carried<C: Carry> {
    shared: Arc<Shared<C>>,
    home: Home,
    threads: Mutex<Vec<thread::JoinHandle<()>>>,
}

struct Shared<C: Carry> {
    carry: C,
    /// Whether threads carry out; else the reaper does.
    background: bool,
    state: Mutex<State<C::Plan>>,
    /// Something waits, or the queue was closed: for the threads.
    work: Condvar,
    /// Something is done, waits, or nothing is in flight any more: for the reapers.
    changed: Condvar,
}

struct State<P> {
    waiting: VecDeque<(Op, P)>,
    done: Vec<Done>,
    carrying: u32,
    /// Carried out by threads at once, at most.
    depth: u32,
    threads: u32,
    idle: u32,
    closed: bool,
}

impl<P> State<P> {
    fn new(depth: u32) -> Self {
        let (waiting, done) = (VecDeque::new(), Vec::new());
        Self { waiting, done, carrying: 0, depth, threads: 0, idle: 0, closed: false }
    }

    /// Whether a reaper has nothing to wait for.
    fn is_quiet(&self) -> bool {
        self.waiting.is_empty() && self.carrying == 0
    }

    /// Takes the next operation to carry out.
    fn begin(&mut self) -> Option<(Op, P)> {
        let next = self.waiting.pop_front()?;
        self.carrying += 1;
        Some(next)
    }

    /// Gives back all that waits, with `errno`.
    fn refuse_waiting(&mut self, errno: i32) {
        let refused = self.waiting.drain(..).map(|(op, _)| Done { op, result: Err(errno) });
        self.done.extend(refused);
    }
}

impl<C: Carry> Queue for Carried<C> {
    fn submit(&self, op: Op) {
        op.check();
        let plan = self.shared.carry.plan(&op);
        let mut state = self.shared.state.lock();
        let nobody = self.shared.background && self.home.is_left();
        if state.closed || nobody {
            state.done.push(op.cancelled());
            self.shared.changed.notify_one();
            return;
        }
        state.waiting.push_back((op, plan));
        if !self.shared.background {
            self.shared.changed.notify_one();
            return;
        }
        self.shared.work.notify_one();
        if state.threads < state.depth && state.waiting.len() > state.idle as usize {
            state.threads += 1;
            drop(state);
            self.start_thread();
        }
    }

    fn reap(&self, wait: Wait, out: &mut Vec<Done>) {
        let mut state = self.shared.state.lock();
        loop {
            if !state.done.is_empty() {
                out.append(&mut state.done);
                return;
            }
            if !self.shared.background
                && let Some((op, plan)) = state.begin()
            {
                out.push(MutexGuard::unlocked(&mut state, || self.shared.carry.carry(op, plan)));
                self.shared.end(&mut state);
                return;
            }
            if wait == Wait::Never || state.is_quiet() {
                return;
            }
            self.shared.changed.wait(&mut state);
        }
    }

    fn set_depth(&self, depth: u32) {
        assert!(depth > 0, "a queue that nobody serves");
        self.shared.state.lock().depth = depth;
    }

    fn close(&self) {
        let mut state = self.shared.state.lock();
        state.closed = true;
        state.refuse_waiting(crate::store::ECANCELED);
        drop(state);
        self.shared.carry.interrupt();
        self.shared.work.notify_all();
        self.shared.changed.notify_all();
    }
}

impl<C: Carry> Carried<C> {
    fn new(carry: C, kind: QueueKind) -> Self {
        let (background, depth) = match kind {
            QueueKind::Caller => (false, 0),
            QueueKind::Background { depth } => {
                assert!(depth > 0, "a queue that nobody serves");
                (true, depth)
            }
        };
        let shared = Arc::new(Shared {
            carry,
            background,
            state: Mutex::new(State::new(depth)),
            work: Condvar::new(),
            changed: Condvar::new(),
        });
        Self { shared, home: Home::here(), threads: Mutex::default() }
    }

    /// Starts a thread that is counted already.
    fn start_thread(&self) {
        let shared = Arc::clone(&self.shared);
        let started =
            thread::Builder::new().name("forerun-io".into()).spawn(move || shared.serve());
        let Ok(thread) = started else {
            self.shared.thread_refused();
            return;
        };
        self.threads.lock().push(thread);
    }
}

impl<C: Carry> Shared<C> {
    /// A thread's life.
    fn serve(&self) {
        let mut state = self.state.lock();
        loop {
            let next = if state.carrying < state.depth { state.begin() } else { None };
            if let Some((op, plan)) = next {
                let done = MutexGuard::unlocked(&mut state, || self.carry.carry(op, plan));
                state.done.push(done);
                self.end(&mut state);
            } else if state.closed {
                return;
            } else {
                state.idle += 1;
                self.work.wait(&mut state);
                state.idle -= 1;
            }
        }
    }

    /// An operation was carried out.
    fn end(&self, state: &mut State<C::Plan>) {
        state.carrying -= 1;
        if state.is_quiet() {
            self.changed.notify_all();
        } else {
            self.changed.notify_one();
        }
    }

    /// The system has no thread for us.
    fn thread_refused(&self) {
        let mut state = self.state.lock();
        state.threads -= 1;
        if state.threads == 0 {
            state.refuse_waiting(Errno::AGAIN.raw_os_error());
            self.changed.notify_all();
        }
    }
}

impl<C: Carry> Drop for Carried<C> {
    fn drop(&mut self) {
        if self.home.is_left() {
            return; // The threads are the parent's.
        }
        self.close();
        for thread in self.threads.get_mut().drain(..) {
            thread.join().expect("a store does not panic");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        sync::mpsc::{Receiver, Sender, TryRecvError, channel},
        time::Duration,
    };

    use super::*;
    use crate::store::{ECANCELED, OpKind};

    /// Says when an operation begins and ends it when it is told to.
    struct Gate {
        begun: Mutex<Sender<u64>>,
        go: Mutex<Receiver<()>>,
        plans: Mutex<u64>,
    }

    impl Carry for Gate {
        type Plan = u64;

        fn plan(&self, _: &Op) -> u64 {
            let mut plans = self.plans.lock();
            *plans += 1;
            *plans
        }

        fn carry(&self, op: Op, plan: u64) -> Done {
            // A test that failed has dropped its ends: go on, so that the queue can be dropped.
            let _ = self.begun.lock().send(op.token);
            let _ = self.go.lock().recv();
            Done { op, result: Ok(usize::try_from(plan).expect("few")) }
        }
    }

    /// The queue is dropped last, and does not wait for the gate then.
    struct Rig {
        go: Sender<()>,
        begun: Receiver<u64>,
        queue: Arc<dyn Queue>,
    }

    /// A gate and the test's ends of it.
    struct Gated {
        gate: Gate,
        begun: Receiver<u64>,
        go: Sender<()>,
    }

    fn gated() -> Gated {
        let (begun_in, begun) = channel();
        let (go, go_out) = channel();
        let (begun_in, go_out) = (Mutex::new(begun_in), Mutex::new(go_out));
        let gate = Gate { begun: begun_in, go: go_out, plans: Mutex::new(0) };
        Gated { gate, begun, go }
    }

    fn rig(kind: QueueKind) -> Rig {
        let Gated { gate, begun, go } = gated();
        Rig { go, begun, queue: open(gate, kind) }
    }

    fn sync(token: u64) -> Op {
        Op { token, kind: OpKind::Sync, offset: 0, bytes: 0, frames: Vec::new() }
    }

    impl Rig {
        fn submit(&self, token: u64) {
            self.queue.submit(sync(token));
        }

        /// The next `count` operations to begin.
        fn begun(&self, count: usize) -> BTreeSet<u64> {
            let wait = Duration::from_secs(20);
            (0..count).map(|_| self.begun.recv_timeout(wait).expect("one begins")).collect()
        }

        fn go(&self, count: usize) {
            (0..count).for_each(|_| self.go.send(()).expect("the gate listens"));
        }

        /// A reaper on a thread of its own: what it gets.
        fn reaper(&self) -> Receiver<Vec<(u64, Result<usize, i32>)>> {
            let (sender, receiver) = channel();
            let queue = Arc::clone(&self.queue);
            thread::spawn(move || {
                let mut out = Vec::new();
                queue.reap(Wait::One, &mut out);
                drop(queue);
                sender.send(out.iter().map(|done| (done.op.token, done.result)).collect())
            });
            receiver
        }
    }

    fn got<T>(reaper: &Receiver<T>) -> T {
        reaper.recv_timeout(Duration::from_secs(20)).expect("the reaper comes back")
    }

    #[test]
    fn at_most_depth_operations_begin_and_in_order() {
        for depth in 1..4 {
            let rig = rig(QueueKind::Background { depth });
            let wide = u64::from(depth);
            (0..3 * wide).for_each(|token| rig.submit(token));
            assert_eq!(rig.begun(depth as usize), (0..wide).collect());
            for next in wide..3 * wide {
                rig.go(1);
                assert_eq!(rig.begun(1), BTreeSet::from([next]), "{depth}");
            }
            rig.go(depth as usize);
        }
    }

    #[test]
    fn a_depth_that_changes_holds_from_the_next_submission_on() {
        let Gated { gate, begun, go } = gated();
        let queue = Carried::new(gate, QueueKind::Background { depth: 1 });
        let begins = |token: u64| {
            assert_eq!(begun.recv_timeout(Duration::from_secs(20)), Ok(token));
        };
        let carrying = || queue.shared.state.lock().carrying;
        queue.submit(sync(0));
        begins(0);
        queue.submit(sync(1));
        assert_eq!(carrying(), 1);
        queue.set_depth(2);
        queue.submit(sync(2));
        begins(1);
        queue.set_depth(1);
        queue.submit(sync(3));
        for (next, left) in [(None, 1), (Some(2), 1), (Some(3), 1), (None, 0)] {
            go.send(()).expect("the gate listens");
            let mut out = Vec::new();
            queue.reap(Wait::One, &mut out);
            assert_eq!((out.len(), carrying()), (1, left), "whoever ends one begins the next");
            next.into_iter().for_each(begins);
        }
    }

    #[test]
    fn a_thread_that_is_idle_is_used_again() {
        /// Notes who carries out.
        struct Who(Arc<Mutex<Vec<thread::ThreadId>>>);

        impl Carry for Who {
            type Plan = ();

            fn plan(&self, _: &Op) {}

            fn carry(&self, op: Op, (): ()) -> Done {
                self.0.lock().push(thread::current().id());
                Done { op, result: Ok(0) }
            }
        }

        let who = Arc::new(Mutex::new(Vec::new()));
        let queue = open(Who(Arc::clone(&who)), QueueKind::Background { depth: 8 });
        for token in 0..50 {
            queue.submit(sync(token));
            let mut out = Vec::new();
            queue.reap(Wait::One, &mut out);
            assert_eq!(out.len(), 1);
        }
        let who = who.lock();
        assert_eq!(who.len(), 50);
        assert!(who.iter().all(|id| *id == who[0] && *id != thread::current().id()));
    }

    #[test]
    fn plans_are_made_in_the_order_of_submission() {
        let rig = rig(QueueKind::Caller);
        (0..3).for_each(|token| rig.submit(token));
        rig.go(3);
        for token in 0..3 {
            let result = Ok(usize::try_from(token).unwrap() + 1);
            assert_eq!(got(&rig.reaper()), [(token, result)]);
        }
    }

    #[test]
    fn without_waiting_what_is_under_way_is_not_waited_for() {
        let rig = rig(QueueKind::Background { depth: 1 });
        rig.submit(1);
        rig.begun(1);
        let mut out = Vec::new();
        rig.queue.reap(Wait::Never, &mut out);
        assert!(out.is_empty());
        rig.go(1);
        assert_eq!(got(&rig.reaper()), [(1, Ok(1))]);
    }

    #[test]
    fn reapers_of_one_operation_all_come_back() {
        for kind in [QueueKind::Caller, QueueKind::Background { depth: 2 }] {
            let rig = rig(kind);
            rig.submit(1);
            let reapers = [rig.reaper(), rig.reaper(), rig.reaper()];
            rig.begun(1);
            rig.go(1);
            let mut all: Vec<_> = reapers.iter().flat_map(got).collect();
            assert_eq!(all.pop(), Some((1, Ok(1))), "{kind:?}");
            assert_eq!(all, [], "{kind:?}");
        }
    }

    #[test]
    fn a_reaper_that_waits_for_another_carries_out_what_comes_later() {
        let rig = rig(QueueKind::Caller);
        rig.submit(1);
        let first = rig.reaper();
        rig.begun(1);
        let second = rig.reaper();
        rig.submit(2);
        // The gate is one at a time: the second stands before it once the first has gone on.
        rig.go(2);
        let both: BTreeSet<_> = [&first, &second].into_iter().flat_map(got).collect();
        assert_eq!(both, BTreeSet::from([(1, Ok(1)), (2, Ok(2))]));
    }

    #[test]
    fn closing_cancels_what_waits_and_lets_what_is_under_way_end() {
        for kind in [QueueKind::Caller, QueueKind::Background { depth: 1 }] {
            let rig = rig(kind);
            (1..4).for_each(|token| rig.submit(token));
            let first = rig.reaper();
            rig.begun(1);
            rig.queue.close();
            let cancelled = vec![(2, Err(ECANCELED)), (3, Err(ECANCELED))];
            if kind == QueueKind::Caller {
                assert_eq!(got(&rig.reaper()), cancelled, "{kind:?}");
                rig.go(1);
                assert_eq!(got(&first), [(1, Ok(1))], "{kind:?}");
            } else {
                assert_eq!(got(&first), cancelled, "{kind:?}");
                rig.go(1);
                assert_eq!(got(&rig.reaper()), [(1, Ok(1))], "{kind:?}");
            }
            rig.submit(4);
            assert_eq!(got(&rig.reaper()), [(4, Err(ECANCELED))], "{kind:?}");
            assert_eq!(got(&rig.reaper()), [], "{kind:?}");
        }
    }

    #[test]
    fn closing_wakes_reapers_that_sleep() {
        // Whether the reaper sleeps already when the queue is closed is a race: run it often.
        for _ in 0..200 {
            let rig = rig(QueueKind::Background { depth: 1 });
            rig.submit(1);
            rig.begun(1);
            rig.submit(2);
            let reaper = rig.reaper();
            (0..20).for_each(|_| thread::yield_now());
            rig.queue.close();
            assert_eq!(got(&reaper), [(2, Err(ECANCELED))]);
            rig.go(1);
        }
    }

    #[test]
    fn a_refused_thread_fails_what_waits_only_if_there_is_no_other() {
        for (threads, expected) in [(2, None), (1, Some(Err(Errno::AGAIN.raw_os_error())))] {
            let Gated { gate, .. } = gated();
            let queue = Carried::new(gate, QueueKind::Background { depth: 4 });
            let mut state = queue.shared.state.lock();
            state.threads = threads;
            state.waiting.push_back((sync(1), 1));
            drop(state);
            queue.shared.thread_refused();
            let mut out = Vec::new();
            queue.reap(Wait::Never, &mut out);
            assert_eq!(out.pop().map(|done| done.result), expected);
            assert_eq!(queue.shared.state.lock().threads, threads - 1);
        }
    }

    #[test]
    fn dropping_a_queue_ends_its_threads() {
        let rig = rig(QueueKind::Background { depth: 3 });
        (0..5).for_each(|token| rig.submit(token));
        rig.begun(3);
        rig.go(5);
        let Rig { queue, begun, .. } = rig;
        drop(queue);
        assert!(begun.try_iter().count() <= 2);
        let end = begun.try_recv().expect_err("nothing begins any more");
        assert_eq!(end, TryRecvError::Disconnected, "the threads held the gate");
    }
}
