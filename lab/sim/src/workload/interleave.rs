//! Streams that share a handle: their places, their readers, and the order of their reads.
//!
//! ```text
//!   adjacent   |1111|2222|3333|            one after the other
//!   spread     |....|2222|....|3333|..     twice as far apart, in random order
//!   irregular  |..|2222|......|3333||1111  the same, each somewhere in its place
//!   start=mid  |....|1111|2222|3333|       the same, behind a gap as long as a stream
//! ```
//! The *walk* of a stream is its order of reads (forward, backward, in strides). `readers` threads
//! share the streams, each with its own turns; all threads read through the one handle, or through
//! the handle of the stream (`handles=each`).
//!
//! `order=random` draws the stream of each read among the unfinished ones with equal weight, so
//! each stream is read to its end and none runs far ahead of its turn; the paper says no more
//! than that streams are interleaved at random. `order=alternate` takes strict turns,
//! `order=sequential` reads one stream after the other.
//!
//! `mixed` per cent of a reader's reads are lone ones: of a page anywhere in the file, each at a
//! place drawn for it alone, through the handle of one of the streams.
//!
//! # Invariants
//! - Each stream is one reader's, and its reads come in the order of its walk.
//! - Lone reads change neither the order of the streams nor their places.
//! # Sources
//! Wu, Xi, Xu, "File Prefetching Algorithm for Concurrent Streams" (2010), section 4.3.

use std::iter::Peekable;

use forerun_core::device::Rate;
use forerun_core::params::{Bytes, Param, ParamError, check, choice};
use forerun_core::prng::Prng;
use forerun_core::units::Nanos;

use super::{
    Access, BYTES_FORM, BYTES_MAX, RATE_FORM, RATE_MIN, REQUEST_FORM, REQUEST_MAX, Reader,
    STREAMS_FORM, STREAMS_MAX, Workload, time_of,
};

choice! {
    /// The stream of the next read.
    pub enum Interleaving ("random, alternate or sequential") {
        /// Any unfinished stream.
        Random = "random",
        /// Each stream in turn.
        Alternate = "alternate",
        /// The first unfinished stream.
        Sequential = "sequential",
    }
}

choice! {
    /// Where the first stream begins.
    pub enum Start ("head or mid") {
        /// At the head of the file.
        Head = "head",
        /// Behind a gap, so that no stream is found by the head of the file.
        Mid = "mid",
    }
}

choice! {
    /// Where the streams lie.
    pub enum Layout ("adjacent, spread or irregular") {
        /// Each behind the one before.
        Adjacent = "adjacent",
        /// Twice as far apart, in random order.
        Spread = "spread",
        /// As spread, each somewhere in its place.
        Irregular = "irregular",
    }
}

choice! {
    /// The handles of streams.
    pub enum Handles ("one or each") {
        /// All through one handle.
        One = "one",
        /// Each through a handle of its own.
        Each = "each",
    }
}

/// The common parameters of such workloads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sharing {
    pub(super) n: u32,
    /// Bytes that are read of each.
    pub(super) each: Bytes,
    pub(super) request: Bytes,
    pub(super) seed: u64,
    pub(super) order: Interleaving,
    pub(super) start: Start,
    pub(super) layout: Layout,
    pub(super) readers: u32,
    /// Bytes a second that each stream is read at; 0 for no bound.
    pub(super) rate: Rate,
    pub(super) handles: Handles,
    /// Reads in a hundred that are lone ones.
    pub(super) mixed: u32,
}

/// Declares a workload of such streams: its parameters are those of [`Sharing`], with more behind
/// `each` and behind `order`; a `start` that it does not have is [`Start::Head`].
macro_rules! interleaved {
    (
        $(#[$doc:meta])*
        $name:ident, n = $n:literal, each = $each:expr,
        { $($(#[$own_doc:meta])* $own:ident: Bytes = $default:expr,)* }
        { $($(#[$start_doc:meta])* $start:ident: Start = $head:expr,)? }
    ) => {
        forerun_core::params! {
            $(#[$doc])*
            pub struct $name {
                /// How many streams.
                n: u32 = $n,
                /// Bytes that are read of each.
                each: Bytes = $each,
                $($(#[$own_doc])* $own: Bytes = $default,)*
                /// Bytes of a read.
                request: Bytes = Bytes(4 << 10),
                /// Decides every random choice.
                seed: u64 = 1,
                /// The stream of each read.
                order: Interleaving = Interleaving::Random,
                $($(#[$start_doc])* $start: Start = $head,)?
                /// Where the streams lie in the file.
                layout: Layout = Layout::Adjacent,
                /// Threads that share the streams out.
                readers: u32 = 1,
                /// Bytes a second that each stream is read at; 0 for no bound.
                rate: Rate = Rate(0),
                /// The handles of streams.
                handles: Handles = Handles::One,
                /// Reads in a hundred that are lone ones, of a page anywhere in the file.
                mixed: u32 = 0,
            }
        }

        impl $name {
            /// The common parameters, if they make a workload.
            fn sharing(&self) -> Result<Sharing, ParamError> {
                let Self {
                    n, each, request, seed, order, layout, readers, rate, handles, mixed, ..
                } = *self;
                let start = [$(self.$start,)? Start::Head][0];
                let sharing = Sharing {
                    n, each, request, seed, order, start, layout, readers, rate, handles, mixed,
                };
                sharing.check()?;
                Ok(sharing)
            }
        }
    };
}
pub(super) use interleaved;

impl Sharing {
    /// Refuses what makes no workload.
    pub(super) fn check(&self) -> Result<(), ParamError> {
        let Self { n, readers, each: Bytes(each), request: Bytes(request), rate, .. } = *self;
        check((1..=STREAMS_MAX).contains(&n), "n", &n, STREAMS_FORM)?;
        check((1..=BYTES_MAX).contains(&each), "each", &self.each, BYTES_FORM)?;
        check((1..=REQUEST_MAX).contains(&request), "request", &self.request, REQUEST_FORM)?;
        check((1..=n).contains(&readers), "readers", &readers, "from 1 to one a stream")?;
        check(self.mixed <= MIXED_MAX, "mixed", &self.mixed, "at most 90")?;
        check(rate.0 == 0 || rate.0 >= RATE_MIN, "rate", &rate, RATE_FORM)
    }

    /// How the reads are made, for titles.
    pub(super) fn show(&self) -> String {
        let mut text = format!("{} reads, {} order", self.request.show(), self.order.show());
        if self.rate.0 > 0 {
            text = format!("{text}, {} a second each", self.rate.show());
        }
        let handles = match self.handles {
            Handles::One => "one handle",
            Handles::Each => "a handle each",
        };
        if self.mixed > 0 {
            text = format!("{text}, {} % lone reads", self.mixed);
        }
        match self.readers {
            1 => format!("{text}, {handles}"),
            readers => format!("{text}, {readers} readers, {handles}"),
        }
    }

    /// How many, for titles.
    pub(super) fn count(&self) -> String {
        format!("{} stream{}", self.n, if self.n == 1 { "" } else { "s" })
    }

    /// All parts of the workload but its oracle's streams, and where each stream begins. Each lies
    /// in `extent` bytes, and `walk` makes its reads from its first byte.
    pub(super) fn parts<W>(
        &self,
        title: String,
        extent: u64,
        walk: impl Fn(u64) -> W,
    ) -> (Workload, Vec<u64>)
    where
        W: Iterator<Item = (u64, u32)> + Send + 'static,
    {
        let mut prng = Prng::new(self.seed);
        let mut places: Vec<u64> = (0..u64::from(self.n)).collect();
        let step = match self.layout {
            Layout::Adjacent => extent,
            Layout::Spread | Layout::Irregular => {
                shuffle(&mut places, &mut prng);
                2 * extent
            }
        };
        let gap = match self.start {
            Start::Head => 0,
            Start::Mid => extent,
        };
        let mut stray = || match self.layout {
            Layout::Adjacent | Layout::Spread => 0,
            Layout::Irregular => prng.below(extent.div_ceil(STRAY_BYTES)) * STRAY_BYTES,
        };
        let file_bytes = gap + u64::from(self.n) * step;
        let starts: Vec<u64> = places.iter().map(|place| gap + place * step + stray()).collect();
        let readers = (0..self.readers as usize).map(|reader| {
            let own = (0..).zip(&starts).skip(reader).step_by(self.readers as usize);
            let handle = |stream| match self.handles {
                Handles::One => 0,
                Handles::Each => stream,
            };
            let walks = own.map(|(stream, &start)| (handle(stream), walk(start).peekable()));
            let walks: Vec<_> = walks.collect();
            // The first reader goes on with the generator of the places, the others have theirs.
            let prng = if reader == 0 { prng.clone() } else { Prng::new(prng.draw()) };
            let rate = self.rate.0.saturating_mul(walks.len() as u64);
            let lone = Lone {
                per_cent: self.mixed,
                pages: (file_bytes / LONE_BYTES).max(1),
                prng: Prng::new(self.seed ^ LONE_SEED ^ reader as u64),
            };
            Reader::new(Interleave { walks, order: self.order, turn: 0, prng, rate, read: 0, lone })
        });
        let parts = Workload {
            title,
            files: vec![file_bytes],
            handles: vec![
                0;
                match self.handles {
                    Handles::One => 1,
                    Handles::Each => self.n as usize,
                }
            ],
            readers: readers.collect(),
            bytes_wanted: u64::from(self.n) * self.each.0,
            ..Workload::default()
        };
        (parts, starts)
    }
}

/// What streams that lie irregularly begin at multiples of.
const STRAY_BYTES: u64 = 4096;

/// Of a lone read.
const LONE_BYTES: u64 = 4096;
/// Apart from the generator of the streams' order.
const LONE_SEED: u64 = 0x6c6f_6e65;
const MIXED_MAX: u32 = 90;

/// One reader with all its streams.
struct Interleave<W: Iterator> {
    /// The unfinished streams, and the handle of each.
    walks: Vec<(u32, Peekable<W>)>,
    order: Interleaving,
    /// The index of the next stream, where streams take turns.
    turn: usize,
    prng: Prng,
    /// Bytes a second over all streams; 0 for no bound.
    rate: u64,
    /// Bytes read so far.
    read: u64,
    lone: Lone,
}

/// Lone reads among those of streams.
struct Lone {
    per_cent: u32,
    /// Pages of the file.
    pages: u64,
    prng: Prng,
}

impl Lone {
    /// The place of a lone read, if one comes now.
    fn next(&mut self) -> Option<u64> {
        let comes = self.per_cent > 0 && self.prng.below(100) < u64::from(self.per_cent);
        comes.then(|| self.prng.below(self.pages) * LONE_BYTES)
    }
}

impl<W: Iterator<Item = (u64, u32)>> Iterator for Interleave<W> {
    type Item = Access;

    fn next(&mut self) -> Option<Access> {
        let count = self.walks.len();
        if count == 0 {
            return None;
        }
        let lone = self.lone.next();
        let index = match self.order {
            _ if lone.is_some() => self.turn % count,
            Interleaving::Random => usize::try_from(self.prng.below(count as u64))
                .expect("below a length that is a usize"),
            Interleaving::Alternate => self.turn % count,
            Interleaving::Sequential => 0,
        };
        let (handle, walk) = &mut self.walks[index];
        let handle = *handle;
        if let Some(offset) = lone {
            let bytes = u32::try_from(LONE_BYTES).expect("a page");
            let not_before = if self.rate == 0 { Nanos(0) } else { time_of(self.read, self.rate) };
            return Some(Access { handle, not_before, ..Access::read(offset, bytes) });
        }
        let (offset, bytes) = walk.next().expect("only unfinished streams are kept");
        self.turn = index + 1;
        if walk.peek().is_none() {
            // All are equally long, so in turns the first is also the first to finish.
            drop(self.walks.remove(index));
            self.turn = index;
        }
        let not_before = if self.rate == 0 { Nanos(0) } else { time_of(self.read, self.rate) };
        self.read += u64::from(bytes);
        Some(Access { handle, not_before, ..Access::read(offset, bytes) })
    }
}

/// Fisher and Yates's shuffle.
pub(super) fn shuffle(places: &mut [u64], prng: &mut Prng) {
    for last in (1..places.len()).rev() {
        let chosen = prng.below(last as u64 + 1);
        places.swap(last, usize::try_from(chosen).expect("an index of the slice"));
    }
}
