//! The common argument types of the lab's commands: policies, prefetching threads, cache sizes,
//! and where results go.
//!
//! # Invariants
//! - Every name is known and every size is possible before the first run.

use std::path::PathBuf;

use anyhow::Result;
use forerun_console::failure::usage;
use forerun_console::form::{Form, Kind};
use forerun_console::{interrupt, names, output, ranges};
use forerun_core::cache::Sizing;
use forerun_core::params::{Bytes, Param, ParamError, Share};
use forerun_core::{eviction, params, reap};
use forerun_report::RunRecord;
use forerun_sim::oracle::belady;
use forerun_sim::prefetch::Prefetch;
use forerun_sim::replay;
use serde::Serialize;

pub(crate) use forerun_console::specs::{PAGE_BYTES, device, devices, each, readaheads, split};

/// The record of runs, and the form of what is printed.
#[derive(clap::Args)]
pub(crate) struct Output {
    /// Write a record of the runs, for `forerun report`; or the rows, into .csv or .ndjson
    #[arg(id = "output", short, long, value_name = "RUN.json")]
    pub(crate) path: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) form: Form,
}

impl Output {
    /// Writes the record, or the rows at `runs` of `result`, where a file is asked for.
    pub(crate) fn record(
        &self,
        result: &impl Serialize,
        make: impl FnOnce() -> Result<RunRecord>,
    ) -> Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        if let Some(kind) = Kind::of(path).filter(|kind| kind.is_of_rows()) {
            let rows = kind.show(result, &["runs"], String::new)?;
            return output::file(path, rows.as_bytes());
        }
        let record = make()?;
        Ok(interrupt::unbroken(|| record.write(path))?)
    }
}

/// No prefetching thread.
pub(crate) const NONE: &str = "none";
/// Pages of a cache at most, so that its tables fit a machine: 256 GiB of pages.
const PAGES_MAX: u32 = 1 << 26;

/// Replacement policies; `all` stands for every one, and includes policies that know the `future`
/// where a future is given.
pub(crate) fn policies(text: &str, future: bool) -> Result<Vec<String>> {
    let mut specs = Vec::new();
    for spec in split(text) {
        if spec == "all" {
            specs.extend(eviction::NAMES.iter().map(|&name| name.to_owned()));
            continue;
        }
        if spec == belady::NAME && !future {
            return Err(usage(format!(
                "--policy {spec}: knows the future of replacement alone; leave out --readahead and \
                 --device"
            )));
        }
        specs.extend(each(&spec, "--policy", names::POLICIES, |spec| show(spec, future))?);
    }
    Ok(specs)
}

/// What `spec` is made of; names what there is where there is no such policy.
fn show(spec: &str, future: bool) -> Result<Vec<(&'static str, String)>, ParamError> {
    replay::show(spec).map_err(|mut error| {
        if let (ParamError::UnknownName { known, .. }, true) = (&mut error, future) {
            known.push(belady::NAME);
        }
        error
    })
}

/// Sizes of I/Os: multiples of `unit` up to a mebibyte, `form` in words.
pub(crate) fn io_sizes(list: &str, unit: u64, form: &str) -> Result<Vec<u64>> {
    let fits = |bytes: &Bytes| (unit..=1 << 20).contains(&bytes.0) && bytes.0.is_multiple_of(unit);
    let one = |text: &str| {
        let bytes = Bytes::parse(text).filter(fits).map(|bytes| bytes.0);
        bytes.ok_or_else(|| usage(format!("--sizes: `{text}` is no {form}")))
    };
    list.split(',').map(one).collect()
}

/// Ways of waiting, each of them known; all where none is named.
pub(crate) fn reapers(list: Option<&str>, lister: &str) -> Result<Vec<String>> {
    let own = || reap::NAMES.iter().map(|&name| name.to_owned()).collect();
    let policies = list.map_or_else(own, split);
    let each = |policy: String| each(&policy, "--policy", lister, reap::show);
    Ok(policies.into_iter().map(each).collect::<Result<Vec<_>>>()?.concat())
}

/// Prefetching threads; `none` stands for none.
pub(crate) fn prefetches(text: &str) -> Result<Vec<Option<Prefetch>>> {
    let make = |spec: &String| match spec.as_str() {
        NONE => Ok(None),
        spec => Prefetch::make(spec).map(Some).map_err(|error| match &error {
            ParamError::UnknownName { .. } => {
                let lister = names::listed(names::POLICIES);
                usage(format!("--prefetch {spec}: neither {NONE} nor a thread: {error}{lister}"))
            }
            _ => usage(format!("--prefetch {spec}: {error}")),
        }),
    };
    let each = |spec: String| -> Result<Vec<Option<Prefetch>>> {
        match params::split(&spec) {
            (name, pairs) if pairs.contains("..") => {
                let specs = ranges::expand(&format!("{name}:"), pairs, Prefetch::make);
                let specs = specs.map_err(|error| usage(format!("--prefetch {spec}: {error}")))?;
                specs.iter().map(make).collect()
            }
            _ => Ok(vec![make(&spec)?]),
        }
    };
    Ok(split(text).into_iter().map(each).collect::<Result<Vec<_>>>()?.concat())
}

/// The size of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    /// So many pages.
    Pages(u32),
    /// A share of the blocks that a trace touches, in millionths of a hundredth.
    Share(Share),
}

impl Size {
    /// All blocks that a trace touches.
    pub(crate) const ALL: Self = Self::Share(Share { ppm: 100_000_000 });

    /// The pages, where a trace touches `unique` blocks; at least 1.
    pub(crate) fn pages(self, unique: u64) -> u32 {
        match self {
            Self::Pages(pages) => pages,
            Self::Share(percent) => {
                let pages = u128::from(unique) * u128::from(percent.ppm) / 100_000_000;
                u32::try_from(pages).unwrap_or(PAGES_MAX).clamp(1, PAGES_MAX)
            }
        }
    }

    fn parse(text: &str) -> Option<Self> {
        if let Some(percent) = Share::percent_of(text) {
            return Share::parse(percent).filter(|share| share.ppm > 0).map(Self::Share);
        }
        let is_of_pages = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        if is_of_pages && text.contains('.') {
            return None;
        }
        let scale = if is_of_pages { 1 } else { u64::from(PAGE_BYTES) };
        let pages = u32::try_from(Bytes::parse(text)?.0 / scale).ok()?;
        (1..=PAGES_MAX).contains(&pages).then_some(Self::Pages(pages))
    }
}

/// Sizes of caches, as of `flag`: pages, bytes with a suffix, or a share.
pub(crate) fn sizes(flag: &str, text: &str) -> Result<Vec<Size>> {
    let one = |item: &str| {
        size(item).map_err(|why| usage(format!("{flag} {item}: {why}, or a range (64M..1G/5)")))
    };
    let range = |item: &str| -> Result<Vec<Size>> {
        let values = ranges::values(item).unwrap_or_else(|| vec![item.to_owned()]);
        values.iter().map(|value| one(value)).collect()
    };
    Ok(text.split(',').map(str::trim).map(range).collect::<Result<Vec<_>>>()?.concat())
}

/// One cache size, or what it should look like.
pub(crate) fn size(text: &str) -> Result<Size, String> {
    Size::parse(text).ok_or_else(|| {
        format!(
            "expected pages (1000), bytes with a suffix (64M) or a share of the unique blocks \
             (10%), from 1 page to {PAGES_MAX}"
        )
    })
}

/// Memory that may be taken.
pub(crate) fn memory(text: &str) -> Result<u64, String> {
    let bytes = Bytes::parse(text).filter(|bytes| bytes.0 >= MEMORY_MIN);
    bytes.map(|bytes| bytes.0).ok_or_else(|| format!("{}, at least 1M", Bytes::FORM))
}

/// The hits of a cache, of all accesses.
pub(crate) fn hits(text: &str) -> Result<Share, String> {
    share(text).ok_or_else(|| "expected a share of the accesses, such as 90% or 0.9".to_owned())
}

/// The share of the keys of a trace that is followed.
pub(crate) fn sample(text: &str) -> Result<Share, String> {
    share(text).ok_or_else(|| "a share from 0.000001 to 1, such as 0.01 or 1%".to_owned())
}

/// A part of a whole, more than nothing and no more than all.
fn share(text: &str) -> Option<Share> {
    let share = match Share::percent_of(text) {
        // A hundredth of what the number says.
        Some(percent) => Share::parse(percent).map(|share| Share { ppm: share.ppm / 100 }),
        None => Share::parse(text),
    };
    share.filter(|share| (1..=1_000_000).contains(&share.ppm))
}

/// Whether partitions change their sizes.
pub(crate) fn sizing(text: &str) -> Result<Sizing, String> {
    Sizing::parse(text).ok_or_else(|| format!("expected {}", Sizing::FORM))
}

/// Less holds too few pages for a result.
const MEMORY_MIN: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_checked_and_all_is_every_one() {
        assert_eq!(policies("all", true).unwrap(), eviction::NAMES);
        assert_eq!(policies("lru,2q:kin=0.1", false).unwrap(), ["lru", "2q:kin=0.1"]);
        assert_eq!(policies("lru, 2q:kin=0.1", false).unwrap(), ["lru", "2q:kin=0.1"]);
        assert_eq!(policies("belady,lru", true).unwrap(), ["belady", "lru"]);
        assert!(policies("belady,lru", false).is_err());
        for text in ["", "lur", "lru,", "lru:x=1", "2q:kin=x", "belady:x=1"] {
            assert!(policies(text, true).is_err(), "{text}");
        }
    }

    #[test]
    fn prefetching_threads_are_checked_and_none_is_none() {
        let made = prefetches("none,paper:limit=4K,nap=4ms,adaptive").unwrap();
        let names: Vec<_> = made.iter().map(|one| one.as_ref().map(Prefetch::name)).collect();
        assert_eq!(names, [None, Some("paper"), Some("adaptive")]);
        for text in ["", "all", "none:limit=4K", "paper:limit=x", "adaptive,"] {
            assert!(prefetches(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_pages_bytes_or_shares() {
        #[rustfmt::skip]
        let rows = [ // text  of 1,000 unique blocks
            ("1",        Some(1)),
            ("4096",     Some(4_096)),
            ("4K",       Some(1)),
            ("2G",       Some(524_288)),
            ("10%",      Some(100)),
            ("0.19%",    Some(1)),
            ("0.25%",    Some(2)),
            ("0.01%",    Some(1)),
            ("100%",     Some(1_000)),
            ("67108864", Some(1 << 26)),
            ("0",        None),
            ("5000.5",   None),
            ("1000B",    None),
            ("0%",       None),
            ("1K",       None),
            ("-1",       None),
            ("10 %",     Some(100)),
            ("10  %",    None),
            ("x",        None),
            ("",         None),
            ("%",        None),
            ("67108865", None),
            ("1T",       None),
            ("99999999999999999999", None),
        ];
        for (text, pages) in rows {
            assert_eq!(Size::parse(text).map(|size| size.pages(1_000)), pages, "{text}");
        }
        assert_eq!(Size::parse("1000%").unwrap().pages(u64::MAX), PAGES_MAX);
        assert_eq!(sizes("--size", "1,2M, 3%").unwrap().len(), 3);
        assert_eq!(sample("10%"), sample("0.1"));
        assert!(sample("0%").is_err() && sample("101%").is_err());
        assert!(sizes("--size", "1,,2").is_err());
        let pages =
            |text| sizes("--size", text).unwrap().into_iter().map(|size| size.pages(0)).collect();
        let (even, uneven): (Vec<u32>, Vec<u32>) = (pages("64M..1G/5"), pages("1000..2000/4"));
        assert_eq!(even, [16_384, 77_824, 139_264, 200_704, 262_144]);
        assert_eq!(uneven, [1_000, 1_333, 1_667, 2_000]);
        assert!(sizes("--size", "64M..1000/2").is_err());
    }
}
