//! Reads at random places of a target, as a reaper waits for them: how long each took.
//!
//! # Invariants
//! - A read that failed or came short is an error, never a figure.
//! - Frames are reused: none is allocated inside the measured time.

use anyhow::{Context as _, Result, bail};
use forerun_core::prng::Prng;
use forerun_core::reap::{CLASS_BYTES, Calibration, Latency};
use forerun_core::units::Nanos;
use forerun_io::frames::Frame;
use forerun_io::reaper::{Group, Purpose, ReapOutcome, Reaper, ReaperSettings};
use forerun_io::store::{Completion, Op, OpKind};

use crate::reap_target::ReapTarget;

/// A thread's target, and its frames.
pub struct Reads<'a> {
    target: &'a ReapTarget,
    prng: Prng,
    frames: Vec<Frame>,
    done: Vec<Completion>,
}

impl<'a> Reads<'a> {
    /// Random reads of the target, by `seed`.
    #[must_use]
    pub fn new(target: &'a ReapTarget, seed: u64) -> Self {
        Self { target, prng: Prng::new(seed), frames: Vec::new(), done: Vec::new() }
    }

    /// Reads a group of `count` of `sizes` at random places; returns its cost.
    ///
    /// # Errors
    /// A read failed or came short, or there is no memory.
    pub fn group(&mut self, reaper: &mut Reaper, sizes: &[u64], count: u32) -> Result<ReapOutcome> {
        let mut reads = Vec::with_capacity(count as usize);
        for token in 0..u64::from(count) {
            reads.push(self.read(token, sizes)?);
        }
        let took = reaper.reap(Group::new(Purpose::Demand, reads), &mut self.done);
        for done in self.done.drain(..) {
            let (offset, bytes) = (done.op.offset, done.op.bytes);
            match done.result {
                Ok(moved) if moved == bytes => self.frames.extend(done.op.frames),
                Ok(_) => bail!("it shrank while it was read: measure a file that nobody changes"),
                Err(errno) => {
                    let error = std::io::Error::from_raw_os_error(errno);
                    return Err(error)
                        .with_context(|| format!("cannot read {bytes} bytes at {offset}"));
                }
            }
        }
        Ok(took)
    }

    fn read(&mut self, token: u64, sizes: &[u64]) -> Result<Op> {
        let size = sizes[usize::try_from(self.prng.below(sizes.len() as u64))?];
        let offset = self.prng.below(self.target.bytes() / size) * size;
        let bytes = usize::try_from(size)?;
        let fitting = self.frames.iter().position(|frame| frame.len() >= bytes);
        let frame = match fitting {
            Some(at) => self.frames.swap_remove(at),
            None => Frame::new(bytes.next_power_of_two())?,
        };
        Ok(Op { token, kind: OpKind::Read, offset, bytes, frames: vec![frame] })
    }
}

/// Latencies by spinning at each of `sizes`: the calibration of policies.
pub fn calibrate(target: &ReapTarget, sizes: &[u64], seed: u64) -> Result<Calibration> {
    let mut known = Calibration::default();
    let spin = ReaperSettings { policy: "spin".to_owned(), ..ReaperSettings::default() };
    let mut reaper = target.reaper(1, &spin)?;
    let mut reads = Reads::new(target, seed);
    for (class, &most) in CLASS_BYTES.iter().enumerate() {
        let above = if class == 0 { 0 } else { CLASS_BYTES[class - 1] };
        let is_last = class + 1 == CLASS_BYTES.len();
        let fits = |&size: &u64| size > above && (size <= most || is_last);
        let Some(size) = sizes.iter().copied().find(fits) else { continue };
        let mut took = Vec::new();
        for _ in 0..CALIBRATION_READS {
            took.push(reads.group(&mut reaper, &[size], 1)?.real.0);
        }
        known.reads[class] = Some(trimmed(took));
    }
    Ok(known)
}

/// Mean and standard deviation without the slowest hundredth.
#[must_use]
pub fn trimmed(mut took: Vec<u64>) -> Latency {
    took.sort_unstable();
    took.truncate(took.len() - took.len() / 100);
    let count = took.len().max(1) as u64;
    let mean = took.iter().sum::<u64>() / count;
    let squares = took.iter().map(|one| u128::from(one.abs_diff(mean)).pow(2));
    let variance = squares.sum::<u128>() / u128::from(count);
    let stdev = u64::try_from(variance.isqrt()).expect("no more than the largest");
    Latency { mean: Nanos(mean), stdev: Nanos(stdev) }
}

/// Reads of each size that calibrate.
const CALIBRATION_READS: u32 = 300;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_hundredth_is_no_part_of_mean_and_deviation() {
        let ninety_nine = |last: &[u64]| [vec![10; 99].as_slice(), last].concat();
        #[rustfmt::skip]
        let rows = [ // why                 took                          mean, stdev
            ("nothing",                     vec![],                          0,     0),
            ("one",                         vec![7],                         7,     0),
            ("too few to leave one out",    vec![1, 3],                      2,     1),
            ("a stall of a hundred",        ninety_nine(&[1_000_000]),      10,     0),
            ("in whichever order",          [vec![1_000_000], vec![10; 99]].concat(), 10, 0),
            ("a second one stays",          ninety_nine(&[30, 1_000_000]),  10,     2),
            ("ten seconds", vec![0, 10_000_000_000], 5_000_000_000, 5_000_000_000),
        ];
        for (why, took, mean, stdev) in rows {
            let expected = Latency { mean: Nanos(mean), stdev: Nanos(stdev) };
            assert_eq!(trimmed(took), expected, "{why}");
        }
    }
}
