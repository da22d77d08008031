//! Sequential streams that share one handle.
//!
//! ```text
//!   adjacent   |1111|2222|3333|            one after the other, as in the paper
//!   spread     |....|2222|....|3333|..     twice as far apart, in random order
//!   start=mid  |....|1111|2222|3333|       the same, behind a gap as long as a stream
//! ```
//! `order=random` draws the stream of each read among the unfinished ones with equal weight, so
//! each stream is read to its end and none runs far ahead of its turn; the paper says no more
//! than that streams are interleaved at random. `order=alternate` takes strict turns.
//!
//! # Sources
//! Wu, Xi, Xu, "File Prefetching Algorithm for Concurrent Streams" (2010), section 4.3:
//! ten streams of 100 MB, stream i from (i - 1) x 100 MB, 4 KB reads, the first n of them
//! interleaved.

use forerun_core::params;
use forerun_core::params::{Bytes, Param, ParamError};
use forerun_core::prng::Prng;
use forerun_core::units::Nanos;

use super::span::Span;
use super::{
    Access, BYTES_FORM, BYTES_MAX, Named, Parts, REQUEST_FORM, REQUEST_MAX, Reader, STREAMS_FORM,
    STREAMS_MAX, Stream, check, choice,
};

params! {
    /// What may be set.
    pub struct Streams {
        /// How many; the paper's 1 to 10.
        n: u32 = 10,
        /// Bytes of each.
        each: Bytes = Bytes(100 << 20),
        /// Bytes of a read.
        request: Bytes = Bytes(4 << 10),
        /// Decides every random choice.
        seed: u64 = 1,
        /// Whose turn it is.
        order: Order = Order::Random,
        /// Where the first stream begins.
        start: Start = Start::Head,
        /// Where the streams lie in the file.
        layout: Layout = Layout::Adjacent,
    }
}

choice! {
    /// Whose turn it is.
    pub enum Order ("random or alternate") {
        /// Any unfinished stream's.
        Random = "random",
        /// Each stream's in turn.
        Alternate = "alternate",
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
    pub enum Layout ("adjacent or spread") {
        /// Each behind the one before.
        Adjacent = "adjacent",
        /// Twice as far apart, in random order.
        Spread = "spread",
    }
}

impl Named for Streams {
    const NAME: &'static str = "streams";
    const SUMMARY: &'static str =
        "sequential streams interleaved on one handle (n each request seed order start layout)";

    fn parts(&self) -> Result<Parts, ParamError> {
        let Self { n, each: Bytes(each), request: Bytes(request), .. } = *self;
        check((1..=STREAMS_MAX).contains(&n), "n", &self.n, STREAMS_FORM)?;
        check((1..=BYTES_MAX).contains(&each), "each", &self.each, BYTES_FORM)?;
        check((1..=REQUEST_MAX).contains(&request), "request", &self.request, REQUEST_FORM)?;
        let mut prng = Prng::new(self.seed);
        let mut places: Vec<u64> = (0..u64::from(n)).collect();
        let step = match self.layout {
            Layout::Adjacent => each,
            Layout::Spread => {
                shuffle(&mut places, &mut prng);
                2 * each
            }
        };
        let gap = match self.start {
            Start::Head => 0,
            Start::Mid => each,
        };
        let starts = places.iter().map(|place| gap + place * step);
        let streams = starts.clone().map(|start| Stream { file: 0, start, bytes: each }).collect();
        Ok(Parts {
            title: format!(
                "{n} stream{} of {}, {} reads, {} order, one handle",
                if n == 1 { "" } else { "s" },
                self.each.show(),
                self.request.show(),
                self.order.show()
            ),
            files: vec![gap + u64::from(n) * step],
            handles: vec![0],
            readers: vec![Reader::new(Interleave {
                streams: starts.map(|start| Span::new(start, each, request)).collect(),
                order: self.order,
                turn: 0,
                prng,
            })],
            streams,
            bytes_wanted: u64::from(n) * each,
        })
    }
}

/// The one reader: it has all streams in hand.
struct Interleave {
    /// The unfinished streams.
    streams: Vec<Span>,
    order: Order,
    /// Whose turn it is, if they take turns.
    turn: usize,
    prng: Prng,
}

impl Iterator for Interleave {
    type Item = Access;

    fn next(&mut self) -> Option<Access> {
        let count = self.streams.len();
        if count == 0 {
            return None;
        }
        let index = match self.order {
            Order::Random => usize::try_from(self.prng.below(count as u64))
                .expect("below a length that is a usize"),
            Order::Alternate => self.turn % count,
        };
        let (offset, bytes) = self.streams[index].read().expect("only unfinished streams are kept");
        self.turn = index + 1;
        if self.streams[index].is_done() {
            // All are equally long, so in turns the first is also the first to finish.
            self.streams.remove(index);
            self.turn = index;
        }
        Some(Access { handle: 0, file: 0, offset, bytes, not_before: Nanos(0), think: Nanos(0) })
    }
}

/// Fisher and Yates's shuffle.
fn shuffle(places: &mut [u64], prng: &mut Prng) {
    for last in (1..places.len()).rev() {
        let chosen = prng.below(last as u64 + 1);
        places.swap(last, usize::try_from(chosen).expect("an index of the slice"));
    }
}
