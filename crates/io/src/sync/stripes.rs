//! Stripes: a few of a thing, in which each thread always uses the same one.
//!
//! ```text
//!   threads   0  4      1  5      2        3
//!              \ |       \ |      |        |
//!   stripes   [ 0 ]     [ 1 ]   [ 2 ]    [ 3 ]
//! ```
//!
//! What a thread writes where no other does stays in its processor's cache. A stripe has to be
//! right for threads that share it all the same: there may be any number of them.
//!
//! # Invariants
//! - There are as many stripes as there were at first: a power of two.
//! - A thread has one number, the same in all stripes of the process. In a model it is the
//!   checker's.

use std::thread;

/// See the module. A `T` of atomics is aligned to cache lines of its own.
#[derive(Debug)]
pub struct Stripes<T>(Box<[T]>);

impl<T> Stripes<T> {
    /// A few for each processor there is, and `count_max` at most.
    ///
    /// # Panics
    /// `count_max` is no power of two.
    pub fn new(count_max: usize, make: impl Fn() -> T) -> Self {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let count = (processors * STRIPES_A_PROCESSOR).next_power_of_two();
        Self::of(count.min(count_max), make)
    }

    /// `count` of them.
    ///
    /// # Panics
    /// `count` is no power of two.
    pub fn of(count: usize, make: impl Fn() -> T) -> Self {
        assert!(count.is_power_of_two(), "{count} stripes");
        Self((0..count).map(|_| make()).collect())
    }

    /// This thread's stripe.
    #[must_use]
    #[inline]
    pub fn mine(&self) -> &T {
        &self.0[thread_number() & (self.0.len() - 1)]
    }

    /// All of them.
    #[must_use]
    #[inline]
    pub fn all(&self) -> &[T] {
        &self.0
    }
}

/// The number of this thread: threads are numbered as they first call this.
#[cfg(not(feature = "shuttle"))]
#[inline]
fn thread_number() -> usize {
    use std::{
        cell::Cell,
        sync::atomic::{AtomicUsize, Ordering},
    };
    thread_local! {
        static NUMBER: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    NUMBER.with(|number| {
        if number.get() == usize::MAX {
            number.set(THREADS.fetch_add(1, Ordering::Relaxed) & (usize::MAX >> 1));
        }
        number.get()
    })
}

/// The threads of a model are one to the system.
#[cfg(feature = "shuttle")]
fn thread_number() -> usize {
    shuttle::current::me().into()
}

/// Threads outnumber processors by about this where they wait for storage.
const STRIPES_A_PROCESSOR: usize = 4;

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    #[test]
    fn a_thread_keeps_its_stripe_and_the_next_has_another() {
        let stripes = Stripes::of(4, || 0_u8);
        let mine = || ptr::from_ref(stripes.mine()).addr();
        let first = mine();
        assert_eq!(mine(), first);
        assert!(stripes.all().iter().any(|stripe| ptr::from_ref(stripe).addr() == first));
        // Others may begin threads meanwhile, so that a number or two are not seen here.
        let others = (0..16).map(|_| thread::scope(|scope| scope.spawn(mine).join().unwrap()));
        assert!(others.collect::<Vec<_>>().iter().any(|&other| other != first));
    }

    #[test]
    fn there_are_a_few_for_each_processor_and_as_many_as_allowed() {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        for count_max in [1, 2, 64, 1 << 20] {
            let count = Stripes::new(count_max, || ()).all().len();
            assert!(count == count_max || count >= 4 * processors, "{count} of {count_max}");
            assert!(count.is_power_of_two() && count <= count_max);
        }
    }
}
