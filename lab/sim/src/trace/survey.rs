//! The contents of a trace: counts, sizes, sequences, and the reuse of its pages.
//!
//! ```text
//!   uses of a page        x.....x..x................x
//!   inter-reference gaps   <--6-><3><-------16------>      counted in accesses
//! ```
//! How many pages are used how often, how the mean gap changes with the use, and how gaps are
//! distributed say which cache sizes and policies can gain anything.
//!
//! # Invariants
//! - Memory follows the distinct pages alone, and is bounded: past [`SurveySettings::memory`] the
//!   survey ends with [`TooManyPages`]. A sample of the pages needs as much less; counts of pages
//!   are then scaled up, gaps and shares are as they are.
//! # Sources
//! Meng et al. 2009, Fig. 1: how often blocks are used, the mean gap by use, the distribution of
//! gaps. Sampling by a hash of the key: Waldspurger and others, "SHARDS" (FAST 2015).

use std::hash::BuildHasher as _;

use forerun_core::hash::FixedState;
use forerun_core::params::Share;
use forerun_core::units::Nanos;
use hashbrown::HashMap;

use super::request::{Addresses, BLOCK_BYTES, Op, Request};

/// The memory of a survey, and the pages that it follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SurveySettings {
    /// Bytes at most.
    pub memory: u64,
    /// Pages that are followed.
    pub sample: Share,
}

/// More distinct pages than the memory holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "more than {pages} distinct pages, which need more than {memory} bytes: \
     allow more with --memory, or follow a part of the pages with --sample 0.1"
)]
pub struct TooManyPages {
    /// Pages that fit.
    pub pages: u64,
    /// Bytes that were allowed.
    pub memory: u64,
}

/// The results of a survey.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TraceSummary {
    /// Requests.
    pub requests: u64,
    /// Pages of all requests.
    pub accesses: u64,
    /// Requests that read, and that write; the others do not say.
    pub reads: u64,
    /// See `reads`.
    pub writes: u64,
    /// Bytes of all requests.
    pub bytes: u64,
    /// The smallest and the largest request, in bytes.
    pub smallest: u64,
    /// See `smallest`.
    pub largest: u64,
    /// Requests of at most 2^i bytes, and more than half of that.
    pub sizes: Vec<u64>,
    /// Requests that begin where the one before ended.
    pub sequential: u64,
    /// Requests that begin where one of the 64 before ended.
    pub nearly_sequential: u64,
    /// The first and the last time.
    pub begins: Nanos,
    /// See `begins`.
    pub ends: Nanos,
    /// Distinct devices, where keys are blocks.
    pub devices: u64,
    /// Distinct pages.
    pub unique: u64,
    /// Of each number of uses, from 1 on: the share of pages used so often; the last one stands for
    /// all that are used more often.
    pub uses: Vec<f64>,
    /// Of each use, from the second on: the gaps before it, and their mean; the last one stands for
    /// all later uses.
    pub gaps_by_use: Vec<(u64, f64)>,
    /// Gaps of at least 2^i accesses and less than twice that.
    pub gaps: Vec<u64>,
}

/// A survey that counts requests as they come.
pub struct Survey {
    settings: SurveySettings,
    pages: HashMap<u64, Page, FixedState>,
    devices: Vec<u32>,
    ends: Ends,
    gap_sums: [u128; GAPS_TOLD],
    found: TraceSummary,
}

/// A page that was used.
#[derive(Clone, Copy)]
struct Page {
    /// The access that used it last.
    last: u64,
    uses: u32,
}

impl Survey {
    /// An empty survey of pages that are `addresses`.
    #[must_use]
    pub fn new(settings: SurveySettings, addresses: Addresses) -> Self {
        let found = TraceSummary {
            sizes: vec![0; 65],
            gaps: vec![0; 64],
            uses: vec![0.0; USES_TOLD],
            gaps_by_use: vec![(0, 0.0); GAPS_TOLD],
            smallest: u64::MAX,
            begins: Nanos(u64::MAX),
            ..TraceSummary::default()
        };
        Self {
            settings,
            pages: HashMap::with_hasher(FixedState),
            devices: Vec::new(),
            ends: Ends::new(addresses),
            gap_sums: [0; GAPS_TOLD],
            found,
        }
    }

    /// Counts a request.
    ///
    /// # Errors
    /// The memory that was allowed does not hold the page.
    pub fn add(&mut self, request: &Request) -> Result<(), TooManyPages> {
        let found = &mut self.found;
        found.requests += 1;
        match request.op {
            Op::Read => found.reads += 1,
            Op::Write => found.writes += 1,
            Op::Unknown => {}
        }
        found.bytes = found.bytes.saturating_add(request.bytes);
        found.smallest = found.smallest.min(request.bytes);
        found.largest = found.largest.max(request.bytes);
        found.sizes[size_class(request.bytes)] += 1;
        found.begins = found.begins.min(request.time);
        found.ends = found.ends.max(request.time);
        let (last, near) = self.ends.follow(request);
        found.sequential += u64::from(last);
        found.nearly_sequential += u64::from(near);
        let is_block = self.ends.addresses == Addresses::Blocks;
        if is_block && self.devices.last() != Some(&request.device()) {
            self.note_device(request.device());
        }
        for page in request.pages() {
            self.found.accesses += 1;
            if is_sampled(page, self.settings.sample) {
                self.access(page)?;
            }
        }
        Ok(())
    }

    /// The last one is in front, since requests of a device follow each other.
    fn note_device(&mut self, device: u32) {
        match self.devices.iter().position(|&known| known == device) {
            Some(at) => {
                let last = self.devices.len() - 1;
                self.devices.swap(at, last);
            }
            None if self.devices.len() < DEVICES_TOLD => {
                self.devices.push(device);
                self.found.devices += 1;
            }
            None => {}
        }
    }

    fn access(&mut self, key: u64) -> Result<(), TooManyPages> {
        let now = self.found.accesses;
        if let Some(page) = self.pages.get_mut(&key) {
            let gap = now - page.last;
            let use_class = (page.uses as usize - 1).min(GAPS_TOLD - 1);
            self.found.gaps_by_use[use_class].0 += 1;
            self.gap_sums[use_class] += u128::from(gap);
            self.found.gaps[gap.ilog2() as usize] += 1;
            *page = Page { last: now, uses: page.uses.saturating_add(1) };
            return Ok(());
        }
        let pages = self.settings.memory / PAGE_BYTES_MAX;
        if self.pages.len() as u64 >= pages {
            return Err(TooManyPages { pages, memory: self.settings.memory });
        }
        self.pages.insert(key, Page { last: now, uses: 1 });
        Ok(())
    }

    /// The results so far.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    pub fn finish(self) -> TraceSummary {
        let mut found = self.found;
        let pages = self.pages.len() as u64;
        for page in self.pages.values() {
            found.uses[(page.uses as usize - 1).min(USES_TOLD - 1)] += 1.0;
        }
        for share in &mut found.uses {
            *share /= pages.max(1) as f64;
        }
        for ((count, mean), sum) in found.gaps_by_use.iter_mut().zip(self.gap_sums) {
            *mean = sum as f64 / (*count).max(1) as f64;
        }
        let scaled = u128::from(pages) * 1_000_000 / u128::from(self.settings.sample.ppm.max(1));
        found.unique = u64::try_from(scaled).unwrap_or(u64::MAX);
        if found.requests == 0 {
            (found.smallest, found.begins) = (0, Nanos(0));
        }
        found
    }
}

impl TraceSummary {
    /// Bytes of all distinct blocks.
    #[must_use]
    pub fn footprint(&self) -> u64 {
        self.unique.saturating_mul(BLOCK_BYTES)
    }
}

/// Where the last requests ended: a page, and bytes into it.
struct Ends {
    addresses: Addresses,
    ring: [(u64, u64); ENDS],
    next: usize,
}

impl Ends {
    fn new(addresses: Addresses) -> Self {
        // No request begins so far into a page.
        Self { addresses, ring: [(0, u64::MAX); ENDS], next: 0 }
    }

    /// Whether `request` goes on where the last one ended, and where one of the last did.
    fn follow(&mut self, request: &Request) -> (bool, bool) {
        let skew = u64::from(request.skew);
        let begins = (request.first, skew);
        let last = self.ring[(self.next + ENDS - 1) % ENDS] == begins;
        let near = last || self.ring.contains(&begins);
        let (pages, rest) = match self.addresses {
            Addresses::Blocks => {
                ((skew + request.bytes) / BLOCK_BYTES, (skew + request.bytes) % BLOCK_BYTES)
            }
            Addresses::Keys => (1, 0),
        };
        self.ring[self.next] = (request.first.wrapping_add(pages), rest);
        self.next = (self.next + 1) % ENDS;
        (last, near)
    }
}

/// The power of two that `bytes` are at most.
fn size_class(bytes: u64) -> usize {
    if bytes <= 1 { 0 } else { (bytes - 1).ilog2() as usize + 1 }
}

/// Whether `key` belongs to the pages that are followed.
pub(crate) fn is_sampled(key: u64, sample: Share) -> bool {
    sample.ppm >= 1_000_000 || FixedState.hash_one(key) % 1_000_000 < u64::from(sample.ppm)
}

/// Numbers of uses with a count of their own.
const USES_TOLD: usize = 6;
/// Uses with a count of gaps of their own.
const GAPS_TOLD: usize = 16;
/// Remembered ends of requests: at least as many as a disk's cache has segments.
const ENDS: usize = 64;
/// Devices with a count of their own.
const DEVICES_TOLD: usize = 1 << 16;
/// What a page takes at most: the table is at least 7/16 full, and for a moment there are two.
const PAGE_BYTES_MAX: u64 = 96;

#[cfg(test)]
mod tests;
