//! The same work for many things, on all processors.
//!
//! # Invariants
//! - The results are in the order of the inputs, on any number of threads.

use forerun_console::machine;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use parking_lot::Mutex;

/// Runs `work` for each of `numbers`; their end is below 2^63. A panic of one ends all.
pub(crate) fn for_each(numbers: Range<u64>, work: impl Fn(u64) + Sync) {
    let next = AtomicU64::new(numbers.start);
    let take = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&next| next < numbers.end);
    thread::scope(|scope| {
        for _ in 0..machine::cores() {
            scope.spawn(|| std::iter::from_fn(take).for_each(&work));
        }
    });
}

/// The result of `work` for each of `all`.
pub(crate) fn map<T: Sync, R: Send>(all: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let done = Mutex::new(BTreeMap::new());
    for_each(0..all.len() as u64, |number| {
        let result = work(&all[usize::try_from(number).expect("an index")]);
        done.lock().insert(number, result);
    });
    done.into_inner().into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::map;

    #[test]
    fn results_are_in_the_order_of_what_they_are_made_of() {
        let numbers: Vec<u32> = (0..1_000).collect();
        assert!(map(&numbers, |number| number * 2).into_iter().eq((0..2_000).step_by(2)));
        assert!(map(&[], |number: &u32| *number).is_empty());
    }
}
