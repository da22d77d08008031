//! `--partition` of a replay: shares of the cache for devices of the trace, or for offsets.
//!
//! ```text
//!   name=SIZE:POLICY:file=PATTERN    the number of the device, or the path that the trace has
//!   name=SIZE:POLICY:client=NAME     the same, as a whole
//!   name=SIZE:POLICY:offset=A..B     offsets of every device
//! ```
//! # Invariants
//! - The core in virtual time and the live engine have the same partitions, and the same devices in
//!   each: a device is a file, and a client of its name.

use anyhow::Result;
use forerun_console::failure::usage;
use forerun_console::names;
use forerun_core::cache::{PartitionText, Settings};
use forerun_core::eviction;
use forerun_core::units::PartitionId;
use forerun_engine::{Partition, PartitionState, Rule};
use forerun_sim::driver::PartitionCounts;

use crate::specs::{self, PAGE_BYTES, Size};

/// The partitions that `texts` describe.
pub(super) fn parse(texts: &[String]) -> Result<Vec<Partition>> {
    texts.iter().map(|text| one(text)).collect()
}

fn one(text: &str) -> Result<Partition> {
    let refused = |why: String| usage(format!("--partition {text}: {why}"));
    let parts = PartitionText::split(text)
        .ok_or_else(|| refused(format!("expected {}", PartitionText::FORM)))?;
    let PartitionText { name, size, size_min, policy, readahead, rule } = parts;
    if size_min.is_some() {
        return Err(refused("a replay moves no memory: leave min= out".into()));
    }
    let Size::Pages(pages) = specs::size(size).map_err(refused)? else {
        return Err(refused("give pages, or bytes with a suffix".into()));
    };
    eviction::show(policy)
        .map_err(|error| names::refused("--partition", &error, names::POLICIES))?;
    readahead.map_or(Ok(()), |readahead| specs::readaheads(readahead).map(drop))?;
    let rule = Rule::parse(rule).ok_or_else(|| refused(format!("expected {}", Rule::FORM)))?;
    let bytes = u64::from(pages) * u64::from(PAGE_BYTES);
    let partition = Partition::new(name, bytes, rule).policy(policy);
    Ok(Partition { readahead: readahead.map(str::to_owned), ..partition })
}

/// The partition of each device called so, of a cache with these settings.
pub(super) fn of_devices(settings: &Settings, names: &[String]) -> Vec<PartitionId> {
    names.iter().map(|name| settings.partition_of(name, name)).collect()
}

/// The partitions as the live engine has them, which opens devices as clients; see [`client`].
pub(super) fn live(partitions: &[Partition]) -> Vec<Partition> {
    let own = |(number, partition): (u32, &Partition)| {
        let by_name = matches!(partition.rule, Rule::File(_) | Rule::Client(_));
        let client = client(PartitionId(number)).filter(|_| by_name);
        let rule = client.map_or_else(|| partition.rule.clone(), Rule::Client);
        Partition { rule, ..partition.clone() }
    };
    (1..).zip(partitions).map(own).collect()
}

/// The client whose files go to `partition`; none for the rest.
pub(super) fn client(partition: PartitionId) -> Option<String> {
    (partition != PartitionId(0)).then(|| format!("partition {}", partition.0))
}

/// What the live partitions counted, under the rules that were given.
pub(super) fn counts(states: Vec<PartitionState>, given: &[Partition]) -> Vec<PartitionCounts> {
    let pages = |bytes: u64| u32::try_from(bytes / u64::from(PAGE_BYTES)).unwrap_or(u32::MAX);
    let one = |state: PartitionState| {
        let as_given = given.iter().find(|partition| partition.name == state.name);
        PartitionCounts {
            rule: as_given.map_or(&state.rule, |partition| &partition.rule).to_string(),
            pages: (pages(state.bytes), pages(state.used_bytes)),
            demanded: (state.stats.demanded(), state.stats.hits),
            name: state.name,
            policy: state.policy,
        }
    };
    states.into_iter().map(one).collect()
}
