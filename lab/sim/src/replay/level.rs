//! A cache without bytes: one policy over pages that are numbered.
//!
//! ```text
//!   number --frames--> frame, or absent          used: renew; absent: evict one, insert
//!   frame  --numbers-> number
//! ```
//! The loop is compiled for each policy. Where the pages are a sample, the misses of each are
//! counted too: their differences give the sample's error.
//!
//! # Invariants
//! - A page lies in one frame at most; a frame that was ever filled holds a page.
//! # Sources
//! Meng et al. 2009, section 4: a hit renews, a miss on a full cache evicts one and inserts.

use forerun_core::eviction::Eviction;
use forerun_core::units::{FileId, FrameId, PageId};

use super::Chunk;
use super::stack::Uses;

/// See the module.
pub(super) struct Level<E: Eviction> {
    policy: E,
    params: E::Params,
    pages: u32,
    /// The frame of each number, or [`ABSENT`].
    frames: Vec<u32>,
    /// The number in each frame that was ever filled.
    numbers: Vec<u32>,
    victims: Vec<FrameId>,
    sampled: Option<SampleRates>,
}

/// Misses of each page of a sample.
#[derive(Default)]
struct SampleRates {
    misses: Vec<u32>,
    /// The sum of their squares.
    squares: u64,
}

impl<E: Eviction> Level<E> {
    /// An empty cache of `pages`.
    pub(super) fn new(pages: u32, params: E::Params, is_sample: bool) -> Self
    where
        E::Params: Clone,
    {
        let mut policy = E::new(pages, params.clone());
        policy.number_pages();
        Self {
            policy,
            params,
            pages,
            frames: Vec::new(),
            numbers: Vec::new(),
            victims: Vec::new(),
            sampled: is_sample.then(SampleRates::default),
        }
    }

    /// Misses in `chunk`.
    pub(super) fn access_all(&mut self, chunk: &Chunk) -> Uses {
        let numbers = &chunk.numbers;
        let Some(&largest) = numbers.iter().max() else { return Uses::default() };
        let pages = largest as usize + 1;
        if self.frames.len() < pages {
            self.frames.resize(pages, ABSENT);
        }
        let mut sampled = self.sampled.take();
        let misses = match &mut sampled {
            None if chunk.bytes.is_empty() => Uses {
                count: numbers.iter().map(|&number| u64::from(!self.hit(number))).sum(),
                bytes: 0,
            },
            sampled => {
                if let Some(sampled) = sampled {
                    sampled.misses.resize(sampled.misses.len().max(pages), 0);
                }
                let mut misses = Uses::default();
                for (at, &number) in numbers.iter().enumerate() {
                    if !self.hit(number) {
                        misses = misses.and(Uses { count: 1, bytes: chunk.bytes_of(at) });
                        if let Some(sampled) = sampled {
                            sampled.missed(number);
                        }
                    }
                }
                misses
            }
        };
        self.sampled = sampled;
        misses
    }

    /// The sum of the squares of each page's misses, of a sample.
    pub(super) fn squares(&self) -> u64 {
        self.sampled.as_ref().map_or(0, |sampled| sampled.squares)
    }

    /// Bytes that it takes once there are `pages` distinct ones.
    pub(super) fn bytes(&self, pages: u32) -> u64 {
        let numbers = 1 + u64::from(self.sampled.is_some());
        let frames = self.pages.min(pages);
        let own = (u64::from(pages) * numbers + u64::from(frames)) * size_of::<u32>() as u64;
        own + E::bytes(frames, pages, &self.params)
    }

    fn hit(&mut self, number: u32) -> bool {
        let frame = self.frames[number as usize];
        let is_hit = frame != ABSENT;
        if is_hit {
            self.policy.renew(FrameId(frame));
        } else {
            self.miss(number);
        }
        is_hit
    }

    fn miss(&mut self, number: u32) {
        let page = PageId { file: FileId(0), index: number.into() };
        self.policy.missed(page);
        let frame = self.empty_frame();
        self.frames[number as usize] = frame;
        self.numbers[frame as usize] = number;
        self.policy.insert(FrameId(frame), page, false);
    }

    fn empty_frame(&mut self) -> u32 {
        let filled = u32::try_from(self.numbers.len()).expect("at most `pages`");
        if filled < self.pages {
            self.numbers.push(ABSENT);
            return filled;
        }
        self.victims.clear();
        self.policy.evict(1, &|_| true, &mut self.victims);
        let &[FrameId(victim)] = self.victims.as_slice() else {
            panic!("a full cache has one victim, not {:?}", self.victims);
        };
        self.frames[self.numbers[victim as usize] as usize] = ABSENT;
        victim
    }
}

impl SampleRates {
    /// The page `number` was missed once.
    fn missed(&mut self, number: u32) {
        let misses = &mut self.misses[number as usize];
        self.squares += 2 * u64::from(*misses) + 1;
        *misses = misses.saturating_add(1);
    }
}

const ABSENT: u32 = u32::MAX;
