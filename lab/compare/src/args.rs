//! The common arguments of all benches.
//!
//! # Invariants
//! - A list has commas; where an item may have commas of its own, the flag is repeated.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::builder::PossibleValuesParser;

use crate::forerun::{folder, place, release};

/// The folder of records, and the program to measure.
#[derive(Clone, clap::Args)]
pub(crate) struct Places {
    /// Where records and tables go [default: a folder below bench/runs]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// The program to measure [default: the release build]
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) forerun: Option<PathBuf>,
}

impl Places {
    /// The program to measure, built where none is named, and the folder of `bench`'s records.
    pub(crate) fn open(&self, root: &Path, bench: &str) -> Result<(PathBuf, PathBuf)> {
        let out = self.out.clone().map_or_else(|| place(root, bench), Ok)?;
        Ok((release(root, self.forerun.as_deref())?, folder(out)?))
    }
}

/// What takes the names of `all`.
pub(crate) fn names<T>(all: &[T], name: fn(&T) -> &'static str) -> PossibleValuesParser {
    all.iter().map(name).collect::<Vec<_>>().into()
}

/// The samples of `count` contenders: every round runs each of them, another one first.
pub(crate) fn in_turns<T>(
    rounds: NonZeroUsize,
    count: usize,
    mut run: impl FnMut(usize, usize) -> Result<T>,
) -> Result<Vec<Vec<T>>> {
    let mut samples: Vec<Vec<T>> = (0..count).map(|_| Vec::new()).collect();
    for round in 0..rounds.get() {
        for turn in 0..count {
            let at = (round + turn) % count;
            samples[at].push(run(round, at)?);
        }
    }
    Ok(samples)
}

/// The items of `all` named in `names`; all of them where none is named.
pub(crate) fn chosen<'a, T>(
    all: &'a [T],
    names: &[String],
    name: impl Fn(&T) -> &str,
) -> Vec<&'a T> {
    let is_named = |one: &&T| names.is_empty() || names.iter().any(|it| it == name(one));
    all.iter().filter(is_named).collect()
}

/// The arguments of a bench as `line` gives them; nothing where it is refused.
#[cfg(test)]
pub(crate) fn parsed<A: clap::Args>(line: &str) -> Option<A> {
    let command = A::augment_args(clap::Command::new("bench").no_binary_name(true));
    let matches = command.try_get_matches_from(line.split_whitespace()).ok()?;
    A::from_arg_matches(&matches).ok()
}
