//! What the command line of `cargo xtask bench streams` chooses.
//!
//! ```text
//!               devices      forerun's policies      seconds   rounds   reads       takes
//!   (default)   hdd, cloud   linux-6, streams        40        1        all         an hour
//!   --full      all four     those, linux-6:max=8M   60        3        all         half a day
//!   --quick     hdd, cloud   linux-6, streams        3         1        a quarter   15 minutes
//! ```
//! Patterns, folios and the kernel's sizes are all of them unless some are named, as none of the
//! kernel's settings is the best one everywhere. A shorter run is cut while much is read ahead,
//! which does not count as delivered: 40 seconds are enough for whatever keeps a device busy.
//!
//! # Invariants
//! - What is named wins over what `--full` and `--quick` choose, in any order.

use std::path::PathBuf;

use anyhow::{Result, bail};

use super::case;
use crate::bench::bed::Folios;
use crate::bench::{device, options};

/// See the module.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(super) devices: Vec<String>,
    pub(super) patterns: Vec<String>,
    pub(super) read_ahead_kib: Vec<u32>,
    pub(super) folios: Vec<Folios>,
    /// Ours.
    pub(super) readaheads: Vec<String>,
    pub(super) seconds: u32,
    pub(super) rounds: u32,
    pub(super) out: Option<PathBuf>,
    /// The program to measure; otherwise the release build.
    pub(super) forerun: Option<PathBuf>,
    /// A quarter of the reads: to see that all works.
    pub(super) quick: bool,
    /// Whether the device's requests are kept and drawn.
    pub(super) log: bool,
}

impl Options {
    /// Options from switches and `--name value` pairs; a list has commas, but `--readahead` is
    /// repeated, as a policy has commas of its own.
    pub(crate) fn parse(words: &[String]) -> Result<Self> {
        let owned = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
        let has = |switch: &str| words.iter().any(|word| word == switch);
        let (quick, full) = (has("--quick"), has("--full"));
        let mut parsed = Self {
            devices: owned(if full { device::names() } else { DEVICES.to_vec() }),
            patterns: owned(case::names()),
            read_ahead_kib: READ_AHEAD_KIB.to_vec(),
            folios: vec![Folios::Large, Folios::Small],
            readaheads: Vec::new(),
            seconds: match (quick, full) {
                (true, _) => QUICK_SECONDS,
                (false, true) => FULL_SECONDS,
                (false, false) => SECONDS,
            },
            rounds: if full && !quick { FULL_ROUNDS } else { 1 },
            out: None,
            forerun: None,
            quick,
            log: false,
        };
        options::each(words, &["--quick", "--full", "--log"], |name, value| {
            match name {
                "--quick" | "--full" => {}
                "--log" => parsed.log = true,
                "--device" => parsed.devices = options::known(value, &device::names())?,
                "--pattern" => parsed.patterns = options::known(value, &case::names())?,
                "--ra" => parsed.read_ahead_kib = options::list(name, value)?,
                "--folios" => parsed.folios = folios(value)?,
                "--readahead" => parsed.readaheads.push(value.to_owned()),
                "--seconds" => parsed.seconds = options::count(name, value)?,
                "--rounds" => parsed.rounds = options::count(name, value)?,
                "--out" => parsed.out = Some(value.into()),
                "--forerun" => parsed.forerun = Some(value.into()),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        if parsed.readaheads.is_empty() {
            let count = if full { READAHEADS.len() } else { READAHEADS.len() - 1 };
            parsed.readaheads = owned(READAHEADS[..count].to_vec());
        }
        Ok(parsed)
    }

    /// The policy that is judged against the kernel.
    pub(super) fn judged(&self) -> &str {
        let named = self.readaheads.iter().find(|name| *name == JUDGED);
        named.or(self.readaheads.last()).expect("there is one at least")
    }
}

fn folios(value: &str) -> Result<Vec<Folios>> {
    match value {
        "large" => Ok(vec![Folios::Large]),
        "small" => Ok(vec![Folios::Small]),
        other => bail!("--folios {other}: expected large or small"),
    }
}

/// The default of most devices, a usual setting of administrators, and a large one.
const READ_AHEAD_KIB: [u32; 3] = [128, 1_024, 8_192];
/// Ours; the last is for `--full`.
const READAHEADS: [&str; 3] = ["linux-6", JUDGED, "linux-6:max=8M"];
const JUDGED: &str = "streams";
/// Of the two kinds that there are, positional and parallel, one each.
const DEVICES: [&str; 2] = ["hdd", "cloud"];
const SECONDS: u32 = 40;
const FULL_SECONDS: u32 = 60;
const QUICK_SECONDS: u32 = 3;
const FULL_ROUNDS: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Options> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Options::parse(&words)
    }

    #[test]
    fn what_is_named_wins_over_full_and_quick() {
        #[rustfmt::skip]
        let rows = [ // options                       folios ours seconds rounds  judged
            ("",                                      2,     2,   40,     1,      "streams"),
            ("--full",                                2,     3,   60,     3,      "streams"),
            ("--quick",                               2,     2,   3,      1,      "streams"),
            ("--rounds 2 --full --seconds 5",         2,     3,   5,      2,      "streams"),
            ("--folios small --readahead off",        1,     1,   40,     1,      "off"),
        ];
        for (line, folios, ours, seconds, rounds, judged) in rows {
            let options = parsed(line).expect(line);
            assert_eq!((options.folios.len(), options.readaheads.len()), (folios, ours), "{line}");
            assert_eq!((options.seconds, options.rounds), (seconds, rounds), "{line}");
            assert_eq!(options.judged(), judged, "{line}");
        }
        let devices = |line: &str| parsed(line).expect(line).devices.len();
        assert_eq!((devices(""), devices("--full"), devices("--quick --device object")), (2, 4, 1));
        let some = parsed("--device hdd,object --pattern backward --ra 128,0").expect("known");
        assert_eq!((some.devices.len(), some.patterns.len()), (2, 1));
        assert_eq!(some.read_ahead_kib, [128, 0]);
        for nonsense in ["--device floppy", "--pattern x", "--ra x", "--seconds 0", "--folios no"] {
            assert!(parsed(nonsense).is_err(), "{nonsense}");
        }
    }
}
