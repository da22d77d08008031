//! The cells of a surface: which are run, what each shows, and where cliffs lie.
//!
//! # Invariants
//! - Cells are numbered by count, then by length; one that is left out has no figures.
//! - A cliff is judged between neighbours that were both run.

use serde_json::{Value, json};

use crate::device::Device;

/// Numbers of streams by lengths.
pub(super) struct Grid {
    pub(super) counts: Vec<u64>,
    pub(super) lengths: Vec<u64>,
    /// Cells of more bytes are left out.
    most: u64,
}

/// A cell that is run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub(super) at: usize,
    pub(super) count: u64,
    pub(super) bytes: u64,
}

/// What a run shows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figures {
    pub(super) seconds: f64,
    /// Misses beyond one for each lone read.
    pub(super) misses: u64,
    pub(super) lone: u64,
    pub(super) bytes_read: u64,
    pub(super) bytes_wanted: u64,
}

/// One device, order and mix.
pub(super) struct Surface {
    pub(super) device: &'static Device,
    pub(super) order: String,
    pub(super) mixed: u32,
    pub(super) grid: Grid,
    pub(super) figures: Vec<Option<Figures>>,
}

/// Lengths from 32 KiB to 4 MiB, each a fifth longer than the one before, in whole pages.
pub(super) fn lengths() -> Vec<u64> {
    let mut lengths = Vec::new();
    let mut length = SHORTEST;
    while length < LONGEST {
        lengths.push(length / PAGE * PAGE);
        length += length / 5;
    }
    lengths
}

impl Grid {
    pub(super) fn new(counts: &[u64], lengths: &[u64], most: u64) -> Self {
        Self { counts: counts.to_vec(), lengths: lengths.to_vec(), most }
    }

    /// All cells in order; nothing for one that is left out.
    pub(super) fn cases(&self) -> Vec<Option<Case>> {
        let pairs = self
            .counts
            .iter()
            .flat_map(|&count| self.lengths.iter().map(move |&bytes| (count, bytes)));
        let case = |(at, (count, bytes)): (usize, (u64, u64))| {
            (count.saturating_mul(bytes) <= self.most).then_some(Case { at, count, bytes })
        };
        pairs.enumerate().map(case).collect()
    }
}

impl Case {
    /// Pages of all streams.
    pub(super) fn pages(&self) -> u64 {
        self.count * self.bytes.div_ceil(PAGE)
    }
}

impl Figures {
    pub(super) fn mb_per_second(&self) -> f64 {
        float(self.bytes_wanted) / 1e6 / self.seconds.max(1e-9)
    }

    pub(super) fn bytes_ratio(&self) -> f64 {
        float(self.bytes_read) / float(self.bytes_wanted.max(1))
    }

    pub(super) fn misses_a_stream(&self, count: u64) -> f64 {
        float(self.misses) / float(count)
    }
}

impl Surface {
    pub(super) const HEADER: &'static str = "\
| device | order | mixed | cells | misses > 3 | most | bytes > 1.1 | most | cliffs | steepest |
|---|---|---|---|---|---|---|---|---|---|";

    /// The cells that were run, with their figures.
    pub(super) fn cells(&self) -> impl Iterator<Item = (Case, Figures)> {
        let cases = self.grid.cases().into_iter().zip(&self.figures);
        cases.filter_map(|(case, figures)| Some((case?, (*figures)?)))
    }

    /// How steep it is from the cell `at` to the next length: 1 or less is no cliff.
    pub(super) fn cliff(&self, at: usize) -> Option<f64> {
        let row = self.grid.lengths.len();
        if (at + 1).is_multiple_of(row) {
            return None;
        }
        let (short, long) = (self.figures[at]?, (*self.figures.get(at + 1)?)?);
        // Lone reads are as many a page; what they take is the same a byte.
        let shorter = short.seconds / long.seconds;
        let longer = short.mb_per_second() / long.mb_per_second();
        Some(f64::max(shorter, longer))
    }

    /// The line of the summary.
    pub(super) fn line(&self) -> String {
        let cells: Vec<_> = self.cells().collect();
        let misses = |cell: &(Case, Figures)| cell.1.misses_a_stream(cell.0.count);
        let long = || cells.iter().filter(|cell| cell.0.bytes >= MISSES_FROM);
        let many = long().filter(|cell| misses(cell) > MISSES_MAX).count();
        let most = long().map(misses).fold(0.0, f64::max);
        let ratios = || cells.iter().map(|cell| cell.1.bytes_ratio());
        let cliffs: Vec<f64> = cells.iter().filter_map(|cell| self.cliff(cell.0.at)).collect();
        let steep = cliffs.iter().filter(|&&steep| steep > STEEP).count();
        format!(
            "| {} | {} | {} % | {} | {many} | {most:.1} | {} | {:.2} | {steep} | {:.2} |",
            self.device.name,
            self.order,
            self.mixed,
            cells.len(),
            ratios().filter(|&ratio| ratio > BYTES_MAX).count(),
            ratios().fold(0.0, f64::max),
            cliffs.iter().copied().fold(0.0, f64::max),
        )
    }

    /// The cells for the record.
    pub(super) fn rows(&self) -> Vec<Value> {
        let row = |(case, figures): (Case, Figures)| {
            json!({
                "device": self.device.name, "order": self.order, "mixed": self.mixed,
                "streams": case.count, "bytes": case.bytes, "seconds": figures.seconds,
                "mb_per_second": figures.mb_per_second(), "lone_reads": figures.lone,
                "misses_a_stream": figures.misses_a_stream(case.count),
                "read_to_wanted": figures.bytes_ratio(), "steep": self.cliff(case.at),
            })
        };
        self.cells().map(row).collect()
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of a bounded run")]
fn float(count: u64) -> f64 {
    count as f64
}

const PAGE: u64 = 4096;
const SHORTEST: u64 = 32 << 10;
const LONGEST: u64 = 4 << 20;
/// Misses a stream, from this length on.
pub(super) const MISSES_MAX: f64 = 3.0;
pub(super) const MISSES_FROM: u64 = 64 << 10;
/// Bytes for each that is wanted.
pub(super) const BYTES_MAX: f64 = 1.1;
/// A cliff is a tenth.
pub(super) const STEEP: f64 = 1.1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::DEVICES;

    #[test]
    fn lengths_grow_by_a_fifth_in_whole_pages() {
        let lengths = lengths();
        assert_eq!((lengths[0], lengths.len()), (SHORTEST, 27));
        for pair in lengths.windows(2) {
            assert!(pair[0] < pair[1] && pair[1] <= pair[0] * 13 / 10, "{pair:?}");
            assert!(pair[1].is_multiple_of(PAGE));
        }
    }

    #[test]
    fn a_cliff_is_less_that_takes_longer_or_more_that_is_slower() {
        let of = |seconds, bytes_wanted| {
            Some(Figures { seconds, misses: 7, lone: 0, bytes_read: 3, bytes_wanted })
        };
        #[rustfmt::skip]
        let rows = [ // why                             figures                             steepest
            ("in proportion",                     [of(1.0, 100), of(1.2, 120)],             1.0),
            ("a longer one takes no longer",      [of(1.0, 100), of(1.0, 120)],             1.0),
            ("a longer one takes half the time",  [of(1.0, 100), of(0.5, 120)],             2.0),
            ("a longer one is half as fast",      [of(1.0, 100), of(2.4, 120)],             2.0),
            ("one was not run",                   [of(1.0, 100), None],                     0.0),
        ];
        for (why, figures, steepest) in rows {
            let grid = Grid::new(&[10], &[100, 120], 1 << 20);
            let (order, figures) = ("random".to_owned(), figures.to_vec());
            let surface = Surface { device: &DEVICES[1], order, mixed: 0, grid, figures };
            let found = surface.cliff(0).unwrap_or(0.0);
            assert!((found - steepest).abs() < 1e-9, "{why}: {found}");
            assert_eq!(surface.cliff(1), None, "{why}: the last length");
            assert!(surface.line().contains("| hdd | random | 0 % |"), "{why}");
        }
    }
}
