//! Queues over operations that block, on a gate that the tests open.

use std::{
    collections::BTreeSet,
    sync::mpsc::{Receiver, Sender, TryRecvError, channel},
};

use super::*;
use crate::store::ECANCELED;

/// Reports each operation that begins, and ends it on a signal of the test.
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

    fn carry(&self, op: Op, plan: u64) -> Completion {
        // A test that failed has dropped its ends: go on, so that the queue can be dropped.
        let _ = self.begun.lock().send(op.token);
        let _ = self.go.lock().recv();
        Completion { op, result: Ok(usize::try_from(plan).expect("few")) }
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

impl Rig {
    fn submit(&self, token: u64) {
        self.queue.submit(Op::sync(token));
    }

    /// The next `count` operations to begin.
    fn begun(&self, count: usize) -> BTreeSet<u64> {
        (0..count).map(|_| self.begun.recv().expect("one begins")).collect()
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
    reaper.recv().expect("the reaper comes back")
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
    let queue = WorkerQueue::new(gate, QueueKind::Background { depth: 1 });
    let begins = |token: u64| {
        assert_eq!(begun.recv(), Ok(token));
    };
    let carrying = || queue.shared.state.lock().scheduler.in_flight();
    queue.submit(Op::sync(0));
    begins(0);
    queue.submit(Op::sync(1));
    assert_eq!(carrying(), 1);
    queue.set_depth(2);
    queue.submit(Op::sync(2));
    begins(1);
    queue.set_depth(1);
    queue.submit(Op::sync(3));
    for (next, left) in [(None, 1), (Some(2), 1), (Some(3), 1), (None, 0)] {
        go.send(()).expect("the gate listens");
        let mut out = Vec::new();
        queue.reap(Wait::One, &mut out);
        assert_eq!((out.len(), carrying()), (1, left), "the end of one begins the next");
        next.into_iter().for_each(begins);
    }
}

#[test]
fn a_thread_that_is_idle_is_used_again() {
    /// Records the threads that carry out.
    struct Who(Arc<Mutex<Vec<thread::ThreadId>>>);

    impl Carry for Who {
        type Plan = ();

        fn carry(&self, op: Op, (): ()) -> Completion {
            self.0.lock().push(thread::current().id());
            Completion { op, result: Ok(0) }
        }
    }

    let who = Arc::new(Mutex::new(Vec::new()));
    let queue = open(Who(Arc::clone(&who)), QueueKind::Background { depth: 8 });
    for token in 0..50 {
        queue.submit(Op::sync(token));
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
        let queue = WorkerQueue::new(gate, QueueKind::Background { depth: 4 });
        let mut state = queue.shared.state.lock();
        state.threads = threads;
        let id = state.id;
        state.scheduler.submit(id, (Op::sync(1), 1));
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
