//! Where things are on a disk: how far the arm has to move, and how long until a byte comes
//! round.
//!
//! ```text
//!   angle(byte) = time to stream from byte 0 to it, modulo one turn     (perfect track skew:
//!   angle(now)  = now, modulo one turn                                   a stream never turns
//!   wait        = angle(byte) - angle(now), modulo one turn              in vain)
//!
//!   seek(d) = min + b sqrt(d) + c d     d = distance as a share of the full stroke, 0..1
//!             b = 5 (average - min - (max - min) / 3),  c = max - min - b
//! ```
//! The average over random pairs of positions of `sqrt(d)` is 8/15 and of `d` 1/3; `b` and `c`
//! follow from `seek(1) = max` and from the average. Within a track nothing moves. Only the
//! angle shows why a disk that reads one command after the other loses a turn at each.
//!
//! # Invariants
//! - A wait is shorter than a turn; one within a nanosecond of a whole turn is none.
//! - The angle of a byte is exact: nothing drifts over a long run.

use crate::units::Nanos;

use super::fine::{FRACTION_BITS, Fine, SECOND_NS};

/// The geometry of one disk.
#[derive(Clone, Debug)]
pub(super) struct Platter {
    /// Bytes that pass under the head in a second.
    rate: u64,
    rpm: u32,
    capacity: u64,
    seek_min: Fine,
    /// `b` and `c` of the seek curve; `c` may be negative.
    root: i128,
    linear: i128,
}

impl Platter {
    /// A platter whose bounds the caller has checked.
    pub(super) fn new(rate: u64, rpm: u32, capacity: u64, seek: [Nanos; 3]) -> Self {
        let [min, average, max] = seek.map(Fine::from);
        assert!(rate > 0 && rpm > 0 && capacity > 0);
        let span = signed(max) - signed(min);
        let root = 5 * (signed(average) - signed(min)) - 5 * span / 3;
        Self { rate, rpm, capacity, seek_min: min, root, linear: span - root }
    }

    /// Moving the head from byte `from` to byte `to` at moment `now`, and waiting for it there.
    pub(super) fn position(&self, now: Fine, from: u64, to: u64) -> Fine {
        let seek = self.seek(from, to);
        seek + self.rotation(now + seek, to)
    }

    /// The time to move the arm from the track of `from` to that of `to`.
    pub(super) fn seek(&self, from: u64, to: u64) -> Fine {
        if self.track(from) == self.track(to) {
            return Fine::default();
        }
        let distance = (u128::from(from.abs_diff(to)) << DISTANCE_BITS) / u128::from(self.capacity);
        let root = distance.isqrt().cast_signed();
        let rooted = (self.root * root) >> (DISTANCE_BITS / 2);
        let straight = (self.linear * distance.cast_signed()) >> DISTANCE_BITS;
        let moved = u128::try_from(rooted + straight).expect("a checked curve never falls below 0");
        self.seek_min + Fine(moved)
    }

    /// The time from `now` until `byte` is under the head.
    pub(super) fn rotation(&self, now: Fine, byte: u64) -> Fine {
        // In shares of a turn, so scaled by the turns a minute that both terms are exact.
        let turn = u128::from(60 * SECOND_NS) << FRACTION_BITS;
        let minute_bytes = 60 * u128::from(self.rate);
        let along = u128::from(byte) * u128::from(self.rpm) % minute_bytes;
        let angle = ((along * u128::from(SECOND_NS)) << FRACTION_BITS) / u128::from(self.rate);
        let wait = (angle + turn - now.0 * u128::from(self.rpm) % turn) % turn;
        let tolerance = u128::from(self.rpm) << FRACTION_BITS;
        if wait + tolerance > turn { Fine::default() } else { Fine(wait / u128::from(self.rpm)) }
    }

    fn track(&self, byte: u64) -> u128 {
        u128::from(byte) * u128::from(self.rpm) / (60 * u128::from(self.rate))
    }
}

fn signed(time: Fine) -> i128 {
    time.0.cast_signed()
}

/// Bits of a distance behind the point; even, so that its root has half of them.
const DISTANCE_BITS: u32 = 60;

const _: () = assert!(DISTANCE_BITS.is_multiple_of(2));
