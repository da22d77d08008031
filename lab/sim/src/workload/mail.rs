//! Requests of a mail store, after what is known of Hewlett-Packard's `OpenMail`.
//!
//! ```text
//!   run       |extent|extent|extent|      neighbours, used equally often, in order, 8 slots apart
//!   volume    ..[run]......[run]......[run]......   at equal strides, in random order
//!   uses      x..x...........................x.x............x      gaps are short or very long
//! ```
//! `OpenMail`'s traces are not public any more. This model has the statistics that a paper on them
//! states; it is not mail data, and results on it must say so. A request is one extent. Time is
//! counted in slots of a request each, and lasts an hour.
//!
//! # Invariants
//! - Memory: 16 bytes a request, while they are read; the number of requests is bounded.
//! # Sources
//! Meng et al. 2009, section 2 (the features of openmail5). The distributions and the parameters
//! of the three models were fitted to them: m1 on the whole, m2 with more to gain at middle sizes,
//! m3 where 2Q* is ahead of the others up to 0.75 GB.

mod chance;
mod model;

use forerun_core::params;
use forerun_core::params::{Param, ParamError, check, choice};

use self::model::RequestDraw;
use super::{Access, Entry, Op, Reader, Workload};
use chance::Chance;

choice! {
    /// The model's parameters.
    pub enum Model ("m1, m2 or m3") {
        /// All features at once.
        M1 = "m1",
        /// More to gain at middle sizes.
        M2 = "m2",
        /// 2Q* ahead of ARC and LIRS up to 0.75 GB.
        M3 = "m3",
    }
}

params! {
    /// What may be set.
    pub struct Mail {
        /// The model. `m1`: the best fit.
        model: Model = Model::M1,
        /// About how many requests. An hour of openmail5.
        requests: u64 = 2_580_000,
        /// Decides every random choice.
        seed: u64 = 1,
    }
}

impl Entry for Mail {
    const NAME: &'static str = "mail";
    const SUMMARY: &'static str =
        "a model of a mail store's requests (model=m1|m2|m3 requests seed)";

    fn parts(&self) -> Result<Workload, ParamError> {
        let Self { model, requests, seed } = *self;
        let form = "10000 to 8000000 requests";
        check((10_000..=8_000_000).contains(&requests), "requests", &requests, form)?;
        let drawn = RequestDraw::new(model, requests, seed);
        Ok(Workload {
            title: format!(
                "a model ({}) of a mail store, {} requests",
                model.show(),
                drawn.requests()
            ),
            files: vec![drawn.volume_bytes()],
            handles: vec![0],
            bytes_wanted: drawn.bytes_wanted(),
            readers: vec![Reader::new(Requests::Drawn(Box::new(drawn)))],
            ..Workload::default()
        })
    }
}

/// The requests in order of time, sorted at the first call of `next`.
enum Requests {
    Drawn(Box<RequestDraw>),
    Sorted {
        drawn: Box<RequestDraw>,
        events: std::vec::IntoIter<Event>,
        reads: Reads,
    },
    /// For the moment in which one becomes the other.
    Empty,
}

/// One use of an extent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    /// In thousandths of a slot.
    at: u64,
    extent: u32,
}

/// Whether requests read: first uses do less often than later ones.
struct Reads {
    chance: Chance,
    seen: Vec<bool>,
    later: f64,
}

impl Reads {
    fn new(drawn: &RequestDraw) -> Self {
        let (first, all) = (f64::from(drawn.extents()), drawn.requests_exact());
        let later = (READ_SHARE * all - FIRST_READ_SHARE * first) / (all - first);
        let seen = vec![false; drawn.extents() as usize];
        Self { chance: Chance::new(drawn.seed() ^ READS_SEED), seen, later }
    }

    fn op(&mut self, extent: u32) -> Op {
        let is_later = std::mem::replace(&mut self.seen[extent as usize], true);
        let share = if is_later { self.later } else { FIRST_READ_SHARE };
        if self.chance.uniform() < share { Op::Read } else { Op::Write }
    }
}

impl Iterator for Requests {
    type Item = Access;

    fn next(&mut self) -> Option<Access> {
        if let Self::Drawn(_) = self
            && let Self::Drawn(drawn) = std::mem::replace(self, Self::Empty)
        {
            let mut events = drawn.events();
            events.sort_unstable();
            let reads = Reads::new(&drawn);
            *self = Self::Sorted { drawn, events: events.into_iter(), reads };
        }
        let Self::Sorted { drawn, events, reads } = self else { return None };
        let Event { at, extent } = events.next()?;
        let (offset, bytes) = drawn.place(extent);
        let (not_before, op) = (drawn.moment(at), reads.op(extent));
        Some(Access { not_before, op, ..Access::read(offset, bytes) })
    }
}

/// Of all requests, and of those to extents that are used for the first time.
const READ_SHARE: f64 = 0.6134;
const FIRST_READ_SHARE: f64 = 0.30;
/// Keeps the draws of reads apart from those of times.
const READS_SEED: u64 = 0x7265_6164;

#[cfg(test)]
mod tests {
    use super::super::make;
    use super::*;
    use forerun_core::units::Nanos;

    #[test]
    fn a_small_store_has_the_features_of_the_large_one() {
        for model in ["m1", "m2", "m3"] {
            let workload = make(&format!("mail,model={model},requests=100000")).expect("a model");
            let volume = workload.files[0];
            let all: Vec<Access> = workload.readers.into_iter().flatten().collect();
            let total: u64 = all.iter().map(|access| u64::from(access.bytes)).sum();
            assert_eq!(total, workload.bytes_wanted, "{model}");
            assert!((95_000..101_000).contains(&all.len()), "{model}: {} requests", all.len());
            let mean = total / all.len() as u64;
            assert!((8_100..8_700).contains(&mean), "{model}: {mean} bytes a request");
            let reads = all.iter().filter(|access| access.op == Op::Read).count();
            let percent = reads * 1_000 / all.len();
            assert!((600..626).contains(&percent), "{model}: {percent} reads in a thousand");
            assert!(all.iter().all(|a| a.offset + u64::from(a.bytes) <= volume), "{model}");
            assert!(all.windows(2).all(|pair| pair[0].not_before <= pair[1].not_before));
            let hour = Nanos::from_millis(3_600_000);
            assert!(all.iter().all(|access| access.not_before <= hour), "{model}");
        }
    }

    #[test]
    fn an_extent_is_always_asked_for_as_a_whole() {
        let workload = make("mail,requests=20000").expect("a model");
        let mut sizes = std::collections::BTreeMap::new();
        for access in workload.readers.into_iter().flatten() {
            assert!(access.offset % 4_096 == 0 && [1, 2, 4, 6, 8].contains(&(access.bytes >> 12)));
            let known = *sizes.entry(access.offset).or_insert(access.bytes);
            assert_eq!(known, access.bytes, "at {}", access.offset);
        }
        let ends: Vec<u64> = sizes.iter().map(|(at, bytes)| at + u64::from(*bytes)).collect();
        let starts = sizes.keys().skip(1);
        assert!(ends.iter().zip(starts).all(|(end, start)| end <= start), "extents overlap");
    }
}
