//! A check of every byte that a bench reads, on a thread of its own.
//!
//! A reader reads into a slab; a full slab goes to a checker's thread and an empty one comes back.
//! So the reader only reads, and synchronises once a slab, not once a read.
//!
//! ```text
//!   reader --- full slab ---> checker     pattern: compared with what the offset says
//!      ^                         |        file: a digest a slab, compared with those of plain
//!      +------ empty slab -------+              reads of the same bytes after the measurement
//! ```
//!
//! # Invariants
//! - The slabs of the same reads are the same, so their digests can be compared in order.
//! - A digest differs when any single word, its place or the length of a read does.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use anyhow::{Result, bail};
use forerun_console::target::{Checked, Target};
use forerun_io::store::pattern;
use rustix::fs::{Advice, fadvise};

use crate::pattern_file;

/// Reads and their bytes.
struct Slab {
    bytes: Vec<u8>,
    /// Offset and length of each read, in order.
    reads: Vec<(u64, usize)>,
    used: usize,
}

/// A reader's end.
pub struct Slabs {
    current: Slab,
    full: SyncSender<Slab>,
    empty: Receiver<Slab>,
}

/// The other end: a thread runs it.
pub struct Checker {
    full: Receiver<Slab>,
    empty: SyncSender<Slab>,
    against: Against,
}

/// The expected bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Against {
    /// The pattern of their offsets.
    Pattern,
    /// None: the checker digests the bytes.
    Later,
}

/// The expected bytes of `target`: the pattern, where a check of a few places finds it. The check
/// reads a file, which is then not cold.
pub fn against(target: &Target) -> Result<Against> {
    match target {
        Target::Model { .. } => Ok(Against::Pattern),
        Target::File(file) => against_file(file),
    }
}

/// As [`against`], of a file.
pub fn against_file(file: &Checked) -> Result<Against> {
    let plain = file.plainly()?;
    // The kernel must not read ahead of these few reads: the file must be cold afterwards.
    let _ = fadvise(&plain, 0, None, Advice::Random);
    let is_pattern = pattern_file::is_pattern(&plain, file.bytes());
    Ok(if is_pattern { Against::Pattern } else { Against::Later })
}

/// Both ends of one of `readers`, for reads of at most `request` bytes.
#[must_use]
pub fn ends(request: usize, readers: usize, against: Against) -> (Slabs, Checker) {
    let share = SLABS_BYTES_MAX / (readers * (SPARE + 1));
    let bytes = request.max(share.min(SLAB_BYTES));
    let slab = || Slab { bytes: vec![0; bytes], reads: Vec::new(), used: 0 };
    let (full_in, full) = sync_channel(SPARE);
    let (empty, empty_out) = sync_channel(SPARE);
    for _ in 0..SPARE {
        empty.try_send(slab()).expect("there is room for all");
    }
    let slabs = Slabs { current: slab(), full: full_in, empty: empty_out };
    (slabs, Checker { full, empty, against })
}

impl Slabs {
    /// Where `bytes` at `offset` go; `None` when the checker has found an error.
    pub fn room(&mut self, offset: u64, bytes: usize) -> Option<&mut [u8]> {
        if self.current.used + bytes > self.current.bytes.len() {
            self.hand_over()?;
        }
        let slab = &mut self.current;
        let at = slab.used;
        slab.reads.push((offset, bytes));
        slab.used += bytes;
        Some(&mut slab.bytes[at..at + bytes])
    }

    /// The last read failed: its bytes are none.
    pub fn take_back(&mut self) {
        let (_, bytes) = self.current.reads.pop().expect("a read was begun");
        self.current.used -= bytes;
    }

    /// Sends the last slab to the checker.
    pub fn finish(mut self) {
        // A checker that has ended has returned its error.
        let _ = self.hand_over();
    }

    fn hand_over(&mut self) -> Option<()> {
        let next = self.empty.recv().ok()?;
        self.full.send(std::mem::replace(&mut self.current, next)).ok()
    }
}

impl Checker {
    /// Checks until the reader has finished: the digests, if there are to be some.
    pub fn run(self) -> Result<Vec<u64>> {
        let mut digests = Vec::new();
        for mut slab in self.full {
            match self.against {
                Against::Pattern => compare(&slab)?,
                Against::Later => digests.push(digest(&slab)),
            }
            slab.reads.clear();
            slab.used = 0;
            // The reader may have ended after its last slab.
            let _ = self.empty.try_send(slab);
        }
        Ok(digests)
    }
}

fn compare(slab: &Slab) -> Result<()> {
    for (offset, bytes) in pieces(slab) {
        if let Err(at) = pattern::verify(offset, bytes) {
            bail!("the cache served a wrong byte at {at}: this is a bug, please report it");
        }
    }
    Ok(())
}

fn digest(slab: &Slab) -> u64 {
    let mut digest = 0;
    for (offset, bytes) in pieces(slab) {
        digest = step(digest, offset);
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            digest = step(digest, u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        digest = step(digest, u64::from_le_bytes(last));
        digest = step(digest, bytes.len() as u64);
    }
    digest
}

/// `digest` with `word`: one to one in each argument, so no single change is lost.
#[must_use]
pub fn step(digest: u64, word: u64) -> u64 {
    let mixed = (digest ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 32)
}

fn pieces(slab: &Slab) -> impl Iterator<Item = (u64, &[u8])> {
    let mut at = 0;
    slab.reads.iter().map(move |&(offset, bytes)| {
        at += bytes;
        (offset, &slab.bytes[at - bytes..at])
    })
}

/// A slab that stays in the second-level cache and takes far longer to fill than to pass on.
const SLAB_BYTES: usize = 256 << 10;
/// All slabs of all readers, so that many readers take no memory from what is measured.
const SLABS_BYTES_MAX: usize = 8 << 20;
/// Slabs beside the one that the reader fills.
const SPARE: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    /// Digests of reads of the pattern, changed by `change` after each.
    fn digests(
        reads: &[(u64, usize)],
        against: Against,
        change: impl Fn(usize, &mut [u8]),
    ) -> Result<Vec<u64>> {
        let (mut slabs, checker) = ends(100, 1, against);
        std::thread::scope(|scope| {
            let checking = scope.spawn(|| checker.run());
            for (number, &(offset, bytes)) in reads.iter().enumerate() {
                let Some(room) = slabs.room(offset, bytes) else { break };
                pattern::fill(offset, room);
                change(number, room);
            }
            slabs.finish();
            checking.join().expect("it does not panic")
        })
    }

    #[test]
    fn a_wrong_byte_anywhere_is_found() {
        let reads: Vec<(u64, usize)> = (0..400).map(|n| (n * 5_003, 4_001)).collect();
        let plain = |_: usize, _: &mut [u8]| {};
        assert!(digests(&reads, Against::Pattern, plain).unwrap().is_empty());
        let right = digests(&reads, Against::Later, plain).unwrap();
        assert!(right.len() > 4, "several slabs");
        assert_eq!(digests(&reads, Against::Later, plain).unwrap(), right);
        for (read, byte) in [(0, 0), (17, 4_000), (250, 1_234), (399, 4_000)] {
            let wrong = |number: usize, room: &mut [u8]| {
                if number == read {
                    room[byte] ^= 0x10;
                }
            };
            let error = digests(&reads, Against::Pattern, wrong).unwrap_err().to_string();
            let at = reads[read].0 + byte as u64;
            assert!(error.contains(&format!("at {at}:")), "{error}");
            assert_ne!(digests(&reads, Against::Later, wrong).unwrap(), right);
        }
        let mut swapped = reads.clone();
        swapped.swap(3, 4);
        assert_ne!(digests(&swapped, Against::Later, plain).unwrap(), right);
    }

    #[test]
    fn a_read_that_failed_leaves_nothing() {
        let (mut slabs, checker) = ends(10, 1, Against::Pattern);
        slabs.room(7, 10).unwrap().fill(9);
        slabs.take_back();
        slabs.finish();
        assert!(checker.run().is_ok());
    }
}
