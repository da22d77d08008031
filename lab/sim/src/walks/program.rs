//! The calls of a trace as a program that waits: each begins when those that it follows have ended,
//! and as long after as the trace says.
//!
//! ```text
//!   thread 1  --a--     --b--            --e--
//!   thread 2         --c--  --d--                e waits for d: all of thread 2 lies before it
//! ```
//! # Invariants
//! - A call follows the one before it in its thread, the ends of the threads that began and ended
//!   between the two, and, as the first of its thread, the last call of any that ended before.

use std::collections::BTreeMap;

use forerun_core::units::Nanos;

use super::accesses::Call;

/// See the module.
pub(super) struct Program {
    /// For each call, the calls that it follows that have not ended.
    before: Vec<u32>,
    /// For each call, those that follow it.
    after: Vec<Vec<usize>>,
    /// Time from the last of those before to the call.
    gaps: Vec<Nanos>,
}

impl Program {
    /// `tracing` is what the recorder added to each call.
    pub(super) fn new(calls: &[Call], tracing: Nanos) -> Self {
        let mut spans: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
        for (number, call) in calls.iter().enumerate() {
            spans.entry(call.thread).or_insert((number, number)).1 = number;
        }
        let mut ends: Vec<usize> = (0..calls.len()).collect();
        ends.sort_by_key(|&number| (calls[number].end(), number));
        let mut previous: BTreeMap<u32, usize> = BTreeMap::new();
        let mut program = Self {
            before: vec![0; calls.len()],
            after: vec![Vec::new(); calls.len()],
            gaps: vec![Nanos(0); calls.len()],
        };
        for (number, call) in calls.iter().enumerate() {
            let begin = Nanos(call.begin);
            let mut follows = Vec::new();
            if let Some(&before) = previous.get(&call.thread) {
                let within = |&&(first, last): &&(usize, usize)| {
                    calls[first].begin >= calls[before].end().0 && calls[last].end() <= begin
                };
                follows.push(before);
                follows.extend(spans.values().filter(within).map(|&(_, last)| last));
            } else {
                let ended = ends.partition_point(|&other| calls[other].end() <= begin);
                follows.extend(ends[..ended].iter().rev().find(|&&other| other < number));
            }
            let last = follows.iter().map(|&other| calls[other].end()).max();
            let gap = last.map_or(Nanos(0), |last| begin.since(last));
            program.gaps[number] = gap.since(tracing);
            program.before[number] = u32::try_from(follows.len()).expect("threads are few");
            for other in follows {
                program.after[other].push(number);
            }
            previous.insert(call.thread, number);
        }
        program
    }

    /// The calls that follow none.
    pub(super) fn first(&self) -> Vec<usize> {
        (0..self.before.len()).filter(|&number| self.before[number] == 0).collect()
    }

    /// A call has ended: those that may begin now, and how long after.
    pub(super) fn ended(&mut self, number: usize) -> Vec<(usize, Nanos)> {
        let mut free = Vec::new();
        for &other in &self.after[number] {
            self.before[other] -= 1;
            if self.before[other] == 0 {
                free.push((other, self.gaps[other]));
            }
        }
        free
    }
}
