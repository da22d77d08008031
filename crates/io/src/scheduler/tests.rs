//! The scheduler alone: tables of what starts when, and every short run of events beside a plain
//! model that keeps lists.

use std::{cell::RefCell, collections::VecDeque};

use super::*;

const AHEAD: QueueKind = QueueKind::Background { depth: 4 };
const EIO: i32 = 5;

/// An operation that costs so much.
#[derive(Debug)]
struct Costs(u64, u32);

impl Scheduled for Costs {
    fn failed(self, errno: i32) -> Completion {
        Op::sync(self.0).failed(errno)
    }
}

type Tested = Scheduler<Costs>;

fn ahead(depth: u32) -> QueueKind {
    QueueKind::Background { depth }
}

/// A scheduler and its queues.
fn scheduler(in_flight_max: u32, kinds: &[QueueKind]) -> (Tested, Vec<QueueId>) {
    let mut scheduler = Tested::new(in_flight_max);
    let queues = kinds.iter().map(|kind| scheduler.open(*kind, Arc::default())).collect();
    (scheduler, queues)
}

/// All that starts now.
fn starts(scheduler: &mut Tested) -> Vec<u64> {
    std::iter::from_fn(|| scheduler.next(|op| op.1)).map(|(_, op)| op.0).collect()
}

fn taken(scheduler: &mut Tested, id: QueueId) -> Vec<(u64, Result<usize, i32>)> {
    let mut out = Vec::new();
    scheduler.take(id, &mut out);
    out.iter().map(|done| (done.op.token, done.result)).collect()
}

/// The device is done with an operation of `id` that costs 1.
fn land(scheduler: &mut Tested, id: QueueId, token: u64) {
    scheduler.freed(1);
    scheduler.complete(id, Completion { op: Op::sync(token), result: Ok(0) });
}

#[test]
fn demand_starts_first_and_queues_of_a_class_take_turns() {
    type Row = (&'static str, u32, [QueueKind; 2], &'static [(usize, u64, u32)], &'static [u64]);
    const FG: QueueKind = QueueKind::Caller;
    const BG: QueueKind = AHEAD;
    const D1: QueueKind = QueueKind::Background { depth: 1 };
    #[rustfmt::skip]
    let rows: [Row; 9] = [ // why, what fits, queues; queue, token and cost of each; starts
        ("nothing waits",           4, [BG, BG], &[],                                &[]),
        ("a queue keeps its order", 4, [BG, BG], &[(0, 1, 1), (0, 2, 1)],            &[1, 2]),
        ("two queues take turns",   4, [BG, BG], &[(0, 1, 1), (0, 2, 1), (1, 3, 1)], &[1, 3, 2]),
        ("demand goes first",       4, [BG, FG], &[(0, 1, 1), (1, 2, 1), (1, 3, 1)], &[2, 3, 1]),
        ("no more than a depth",    4, [D1, BG], &[(0, 1, 1), (0, 2, 1), (1, 3, 1)], &[1, 3]),
        ("demand has no depth",     4, [FG, D1], &[(0, 1, 1), (0, 2, 1), (0, 3, 1)], &[1, 2, 3]),
        ("no more than fits",       2, [BG, FG], &[(0, 1, 1), (1, 2, 1), (1, 3, 1)], &[2, 3]),
        ("congested: it waits",     3, [BG, FG], &[(0, 1, 1), (1, 2, 2), (1, 3, 2)], &[2]),
        ("what costs nothing fits", 1, [BG, BG], &[(0, 1, 1), (1, 2, 0), (1, 3, 0)], &[1, 2, 3]),
    ];
    for (why, fits, kinds, submitted, expected) in rows {
        let (mut scheduler, queues) = scheduler(fits, &kinds);
        for (queue, token, cost) in submitted {
            scheduler.submit(queues[*queue], Costs(*token, *cost));
        }
        assert_eq!(starts(&mut scheduler), expected, "{why}");
        assert!(scheduler.in_flight() <= fits, "{why}");
    }
}

#[test]
fn queues_take_turns_where_the_device_is_full() {
    let (mut scheduler, queues) = scheduler(2, &[AHEAD, AHEAD]);
    for token in 0..4 {
        scheduler.submit(queues[0], Costs(token, 1));
    }
    scheduler.submit(queues[1], Costs(10, 1));
    assert_eq!(starts(&mut scheduler), [0, 10]);
    assert_eq!(starts(&mut scheduler), [], "there is no room");
    land(&mut scheduler, queues[0], 0);
    assert_eq!(starts(&mut scheduler), [1]);
    land(&mut scheduler, queues[1], 10);
    assert_eq!(starts(&mut scheduler), [2]);
    assert_eq!(taken(&mut scheduler, queues[0]), [(0, Ok(0))]);
    assert_eq!(taken(&mut scheduler, queues[1]), [(10, Ok(0))]);
}

#[test]
fn a_queue_has_no_more_in_flight_than_its_depth_whatever_it_costs() {
    let (mut scheduler, queues) = scheduler(2, &[ahead(2)]);
    for (token, cost) in [(0, 0), (1, 1), (2, 1), (3, 0)] {
        scheduler.submit(queues[0], Costs(token, cost));
    }
    assert_eq!(starts(&mut scheduler), [0, 1]);
    land(&mut scheduler, queues[0], 1);
    assert_eq!(starts(&mut scheduler), [2]);
    scheduler.complete(queues[0], Completion { op: Op::sync(0), result: Ok(0) });
    assert_eq!(starts(&mut scheduler), [3]);
    assert_eq!((scheduler.in_flight(), scheduler.in_flight_of(queues[0])), (1, 2));
}

#[test]
fn a_queue_that_loses_depth_starts_nothing_and_one_that_gains_some_goes_on() {
    let (mut scheduler, queues) = scheduler(2, &[ahead(1), ahead(1)]);
    (0..4).for_each(|token| scheduler.submit(queues[0], Costs(token, 1)));
    assert_eq!(starts(&mut scheduler), [0]);
    scheduler.set_depth(queues[0], 3);
    scheduler.set_depth(queues[0], 2);
    assert_eq!(starts(&mut scheduler), [1], "once, though the depth was set twice");
    land(&mut scheduler, queues[0], 0);
    scheduler.set_depth(queues[0], 1);
    assert_eq!(starts(&mut scheduler), [], "it was its turn, and is no longer");
    land(&mut scheduler, queues[0], 1);
    assert_eq!(starts(&mut scheduler), [2]);
    scheduler.set_depth(queues[0], 8);
    scheduler.close(queues[0]);
    assert_eq!(starts(&mut scheduler), []);
}

#[test]
fn closing_cancels_what_waits_and_what_needs_another_call() {
    let (mut scheduler, queues) = scheduler(2, &[ahead(2), ahead(2)]);
    for token in 0..3 {
        scheduler.submit(queues[0], Costs(token, 1));
    }
    assert_eq!(starts(&mut scheduler), [0, 1]);
    scheduler.submit(queues[1], Costs(10, 1));
    scheduler.freed(1);
    scheduler.again(queues[0], Costs(1, 1));
    scheduler.close(queues[0]);
    let cancelled = [(1, Err(ECANCELED)), (2, Err(ECANCELED))];
    assert_eq!(taken(&mut scheduler, queues[0]), cancelled);
    assert_eq!(starts(&mut scheduler), [10], "that of another queue stays");
    scheduler.freed(1);
    scheduler.again(queues[0], Costs(0, 1));
    scheduler.submit(queues[0], Costs(3, 1));
    assert_eq!(starts(&mut scheduler), [], "nothing starts on a closed queue");
    let cancelled = [(0, Err(ECANCELED)), (3, Err(ECANCELED))];
    assert_eq!(taken(&mut scheduler, queues[0]), cancelled);
    assert!(scheduler.is_idle(queues[0]) && !scheduler.is_idle(queues[1]));
}

#[test]
fn what_is_taken_up_again_starts_before_all_of_its_class() {
    let (mut scheduler, queues) = scheduler(2, &[ahead(2), AHEAD]);
    (0..3).for_each(|token| scheduler.submit(queues[0], Costs(token, 1)));
    (10..12).for_each(|token| scheduler.submit(queues[1], Costs(token, 1)));
    assert_eq!(starts(&mut scheduler), [0, 10]);
    scheduler.freed(1);
    scheduler.again(queues[0], Costs(0, 1));
    assert_eq!(starts(&mut scheduler), [0]);
    land(&mut scheduler, queues[1], 10);
    assert_eq!(starts(&mut scheduler), [11], "the turn goes on");
}

#[test]
fn a_queue_that_was_dropped_goes_with_its_last_operation() {
    let (mut scheduler, queues) = scheduler(2, &[ahead(2), ahead(2)]);
    scheduler.submit(queues[0], Costs(1, 1));
    scheduler.submit(queues[0], Costs(2, 1));
    assert_eq!(scheduler.next(|op| op.1).map(|(_, op)| op.0), Some(1));
    scheduler.release(queues[0]);
    assert_eq!(scheduler.ids(), queues);
    land(&mut scheduler, queues[0], 1);
    assert_eq!(scheduler.ids(), [queues[1]]);
    scheduler.release(queues[1]);
    assert_eq!(scheduler.ids(), []);
    let fresh = scheduler.open(AHEAD, Arc::default());
    assert!(queues.contains(&fresh) && scheduler.is_idle(fresh), "its place is used again");
}

#[test]
fn queues_that_share_reapers_are_reaped_together_and_fail_together() {
    let (mut scheduler, queues) = scheduler(1, &[AHEAD]);
    let beside = scheduler.open_beside(AHEAD, queues[0]);
    scheduler.submit(queues[0], Costs(1, 1));
    scheduler.submit(beside, Costs(2, 1));
    assert_eq!((starts(&mut scheduler), scheduler.open_count(queues[0])), (vec![1], 2));
    scheduler.fail_waiting(EIO);
    land(&mut scheduler, queues[0], 1);
    assert_eq!(taken(&mut scheduler, queues[0]), [(2, Err(EIO)), (1, Ok(0))]);
    assert!(scheduler.is_idle(beside) && starts(&mut scheduler).is_empty());
}

/// One event of a short run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Submit(usize),
    Start,
    Complete,
    Again,
    Deepen,
    Close(usize),
}

const EVENTS: [Event; 8] = [
    Event::Submit(0),
    Event::Submit(1),
    Event::Start,
    Event::Complete,
    Event::Again,
    Event::Deepen,
    Event::Close(0),
    Event::Close(1),
];

/// What a queue has, in lists. Queue 0 is readahead, queue 1 demand.
#[derive(Default)]
struct Model {
    waiting: [VecDeque<u64>; 2],
    flying: VecDeque<(usize, u64)>,
    depth: usize,
    closed: [bool; 2],
    due: [Vec<(u64, Result<usize, i32>)>; 2],
    tokens: u64,
}

impl Model {
    fn startable(&self, queue: usize) -> bool {
        let deep = self.flying.iter().filter(|(of, _)| *of == 0).count() >= self.depth;
        !self.waiting[queue].is_empty() && (queue == 1 || !deep)
    }

    fn cancel(&mut self, queue: usize, token: u64) {
        self.due[queue].push((token, Err(ECANCELED)));
    }

    /// What starts, if the device takes two.
    fn start(&mut self) -> Option<(usize, u64)> {
        let queue = [1, 0].into_iter().find(|queue| self.startable(*queue))?;
        if self.flying.len() == 2 {
            return None;
        }
        let started = (queue, self.waiting[queue].pop_front()?);
        self.flying.push_back(started);
        Some(started)
    }

    fn step(&mut self, event: Event, scheduler: &mut Tested, queues: &[QueueId]) {
        match event {
            Event::Submit(queue) => {
                self.tokens += 1;
                scheduler.submit(queues[queue], Costs(self.tokens, 1));
                if self.closed[queue] {
                    self.cancel(queue, self.tokens);
                } else {
                    self.waiting[queue].push_back(self.tokens);
                }
            }
            Event::Start => {
                let can = scheduler.can_start();
                let started = scheduler.next(|op| op.1).map(|(id, op)| (id, op.0));
                assert!(can || started.is_none());
                let expected = self.start().map(|(queue, token)| (queues[queue], token));
                assert_eq!(started, expected);
            }
            Event::Complete => {
                let Some((queue, token)) = self.flying.pop_front() else { return };
                land(scheduler, queues[queue], token);
                self.due[queue].push((token, Ok(0)));
            }
            Event::Again => {
                let Some((queue, token)) = self.flying.pop_front() else { return };
                scheduler.freed(1);
                scheduler.again(queues[queue], Costs(token, 1));
                if self.closed[queue] {
                    self.cancel(queue, token);
                } else {
                    self.waiting[queue].push_front(token);
                }
            }
            Event::Deepen => {
                self.depth = 3 - self.depth;
                let depth = u32::try_from(self.depth).unwrap();
                for id in queues {
                    scheduler.set_depth(*id, depth);
                }
            }
            Event::Close(queue) => {
                scheduler.close(queues[queue]);
                self.closed[queue] = true;
                for token in mem::take(&mut self.waiting[queue]) {
                    self.cancel(queue, token);
                }
            }
        }
    }

    fn compare(&self, scheduler: &Tested, queues: &[QueueId]) {
        assert_eq!(scheduler.in_flight() as usize, self.flying.len());
        for (queue, id) in queues.iter().enumerate() {
            let flying = self.flying.iter().filter(|(of, _)| *of == queue).count();
            assert_eq!(scheduler.in_flight_of(*id) as usize, flying);
            assert_eq!(scheduler.waiting_count(*id), self.waiting[queue].len());
            assert_eq!(scheduler.open_count(*id), self.waiting[queue].len() + flying);
        }
    }
}

#[test]
fn every_short_run_of_events_is_that_of_the_model() {
    let run = RefCell::new(Vec::new());
    for number in 0..EVENTS.len().pow(6) {
        let events = (0..6).map(|at| EVENTS[number / EVENTS.len().pow(at) % EVENTS.len()]);
        *run.borrow_mut() = events.collect();
        let (mut scheduler, queues) = scheduler(2, &[ahead(1), QueueKind::Caller]);
        let mut model = Model { depth: 1, ..Model::default() };
        // What the last steps leave is started and completed, so that all comes back.
        let rest = [Event::Start, Event::Complete].into_iter().cycle().take(14);
        for event in run.borrow().iter().copied().chain(rest) {
            model.step(event, &mut scheduler, &queues);
            model.compare(&scheduler, &queues);
        }
        for (queue, id) in queues.into_iter().enumerate() {
            assert_eq!(taken(&mut scheduler, id), model.due[queue], "{:?}", run.borrow());
            assert!(scheduler.is_idle(id), "{:?}", run.borrow());
            scheduler.release(id);
        }
        assert_eq!(scheduler.ids(), []);
    }
}
