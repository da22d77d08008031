//! When the requests of a trace are made in a replay, and through how many slots.
//!
//! ```text
//!   requests --due--> one list --next--> slot, slot, slot: a reader each
//!   open loop    at the trace's own times, scaled; a slot waits for the moment
//!   closed loop  as soon as a slot is free
//! ```
//! A response begins when its request is due. A request that finds no free slot is late, and its
//! response is that much longer, so that a slow device cannot slow down its own measurement.
//!
//! # Invariants
//! - Requests begin in the order of the trace; each is made once.
//! - Times are counted from that of the first request; a time before it counts as that time.

use std::sync::{Arc, Mutex, PoisonError};

use forerun_core::units::Nanos;

use crate::trace::{BLOCK_BYTES, Request};
use crate::workload::{Access, Reader};

/// How fast a trace is replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// At its own times, so many millionths as fast as they were recorded.
    Open {
        /// 1,000,000 is as recorded; at least 1.
        speed_ppm: u64,
    },
    /// Each slot makes its next request when its last one is answered.
    Closed,
}

impl Pace {
    /// When a request of this time is due, where the first one came at `first`.
    #[must_use]
    pub fn due(self, first: Nanos, time: Nanos) -> Nanos {
        match self {
            Self::Closed => Nanos(0),
            Self::Open { speed_ppm } => {
                let after = u128::from(time.0.saturating_sub(first.0)) * 1_000_000;
                Nanos(u64::try_from(after / u128::from(speed_ppm)).unwrap_or(u64::MAX))
            }
        }
    }
}

/// The bytes that `request` is for, as an access of `file`, due at `due`.
///
/// # Panics
/// It is for more bytes than a request can be.
#[must_use]
pub fn access(request: &Request, file: u32, due: Nanos) -> Access {
    let offset = request.offset();
    let pages = u64::from(request.count) * BLOCK_BYTES - u64::from(request.skew);
    let bytes = if request.bytes == 0 { pages } else { request.bytes.min(pages) };
    let bytes = u32::try_from(bytes).expect("requests are at most 1 GiB");
    let op = request.op;
    Access { handle: file, file, not_before: due, op, ..Access::read(offset, bytes) }
}

/// `slots` readers that take `accesses` from one list, each when it is free.
///
/// # Panics
/// There are no slots.
#[must_use]
pub fn slots(accesses: impl Iterator<Item = Access> + Send + 'static, slots: usize) -> Vec<Reader> {
    assert!(slots > 0, "requests need a slot");
    let list = Arc::new(Mutex::new(accesses));
    let slot = |_| {
        let list = Arc::clone(&list);
        Reader::new(std::iter::from_fn(move || {
            list.lock().unwrap_or_else(PoisonError::into_inner).next()
        }))
    };
    (0..slots).map(slot).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Op;

    #[test]
    fn requests_are_due_at_their_times_scaled() {
        let millis = Nanos::from_millis;
        #[rustfmt::skip]
        let rows = [ // speed_ppm  first        time         due
            (1_000_000, millis(0),   millis(7),   millis(7)),
            (1_000_000, millis(5),   millis(7),   millis(2)),
            (250_000,   millis(0),   millis(10),  millis(40)),
            (4_000_000, millis(0),   millis(10),  Nanos(2_500_000)),
            (1_000_000, millis(9),   millis(7),   Nanos(0)),
            (1,         millis(0),   Nanos(u64::MAX), Nanos(u64::MAX)),
        ];
        for (speed_ppm, first, time, due) in rows {
            assert_eq!(Pace::Open { speed_ppm }.due(first, time), due, "{speed_ppm} {time:?}");
        }
        assert_eq!(Pace::Closed.due(millis(1), millis(9)), Nanos(0));
    }

    #[test]
    fn a_request_is_its_bytes() {
        let request = Request::blocks(3, 6_000, 9_000).unwrap().unwrap().at(Nanos(5), Op::Write);
        let made = access(&request, 1, Nanos(77));
        assert_eq!((made.file, made.handle, made.offset, made.bytes), (1, 1, 6_000, 9_000));
        assert_eq!((made.not_before, made.op), (Nanos(77), Op::Write));
        let pages = Request { bytes: 0, skew: 0, ..request };
        assert_eq!(access(&pages, 0, Nanos(0)).bytes, 3 * 4_096);
    }

    #[test]
    fn slots_take_requests_in_order_and_each_once() {
        let list = (0..5).map(|at| Access::read(at * 4_096, 4_096));
        let mut slots = slots(list, 2);
        let mut took = Vec::new();
        for turn in [0, 1, 1, 0, 1] {
            took.push(slots[turn].next().unwrap().offset / 4_096);
        }
        assert_eq!(took, [0, 1, 2, 3, 4]);
        assert!(slots.iter_mut().all(|slot| slot.next().is_none()));
    }
}
