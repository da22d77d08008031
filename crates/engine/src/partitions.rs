//! Partitions as a program describes them, and as they are.
//!
//! # Invariants
//! - Plain values: the core decides which page belongs to which partition (`Rule`), and what
//!   leaves.

use std::{str::FromStr, time::Duration};

use forerun_core::{
    cache::{
        self, Move, MoveReason, PartitionSettings, PartitionStats, PartitionText, PartitionView,
        Rule,
    },
    params::{Bytes, Param as _, ParamError},
    units::PartitionId,
};

#[cfg(doc)]
use forerun_core::cache::Sizing;

/// A partition of a cache: a share of its memory for the pages that a rule takes, with a
/// replacement policy of its own. As text: `NAME=SIZE[,min=SIZE]:POLICY[+READAHEAD]:RULE`, where a
/// rule is `offset=A..B`, `file=PATTERN` or `client=NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Its name in reports and in calls.
    pub name: String,
    /// Memory for its pages at first, in bytes; 0: none until it grows, and its rule takes nothing.
    pub bytes: u64,
    /// Memory that [`Sizing::Auto`] leaves to it at least, beside a window of its readahead and a
    /// largest request.
    pub bytes_min: u64,
    /// What it takes.
    pub rule: Rule,
    /// Its replacement policy, as `NAME:key=value,...`.
    pub policy: String,
    /// Its readahead policy, as `NAME:key=value,...`. `None`: that of the cache.
    pub readahead: Option<String>,
}

impl Partition {
    /// A partition with the default policies.
    #[must_use]
    pub fn new(name: &str, bytes: u64, rule: Rule) -> Self {
        let policy = forerun_core::eviction::DEFAULT.to_owned();
        Self { name: name.to_owned(), bytes, bytes_min: 0, rule, policy, readahead: None }
    }

    /// The replacement policy, as text or by its type.
    #[must_use]
    pub fn policy(mut self, spec: impl Into<String>) -> Self {
        self.policy = spec.into();
        self
    }

    /// The memory that [`Sizing::Auto`] leaves to it at least.
    #[must_use]
    pub fn bytes_min(mut self, bytes: u64) -> Self {
        self.bytes_min = bytes;
        self
    }

    /// A readahead policy of its own, as text or by its type.
    #[must_use]
    pub fn readahead(mut self, spec: impl Into<String>) -> Self {
        self.readahead = Some(spec.into());
        self
    }

    /// The settings of the core; `pages` gives the pages of so many bytes.
    pub(crate) fn core(&self, pages: impl Fn(u64) -> u32) -> PartitionSettings {
        let Self { name, rule, policy, readahead, bytes, bytes_min } = self;
        let (rule, readahead) = (rule.clone(), readahead.clone());
        let made = PartitionSettings::new(name, pages(*bytes), policy);
        PartitionSettings { rule, readahead, frames_min: pages(*bytes_min), ..made }
    }
}

impl FromStr for Partition {
    type Err = ParamError;

    fn from_str(text: &str) -> Result<Self, ParamError> {
        let wrong = |key: &str, value: &str, form: &str| ParamError::BadValue {
            key: key.to_owned(),
            value: value.to_owned(),
            form: form.to_owned(),
        };
        let parts = PartitionText::split(text);
        let parts = parts.ok_or_else(|| wrong("partition", text, PartitionText::FORM))?;
        let PartitionText { name, size, size_min, policy, readahead, rule } = parts;
        let bytes = |key: &str, text: &str| {
            Bytes::parse(text).ok_or_else(|| wrong(key, text, Bytes::FORM)).map(|bytes| bytes.0)
        };
        let bytes_min = size_min.map_or(Ok(0), |text| bytes("min", text))?;
        let bytes = bytes("size", size)?;
        let rule = Rule::parse(rule).ok_or_else(|| wrong("rule", rule, Rule::FORM))?;
        let readahead = readahead.map(str::to_owned);
        Ok(Self { bytes_min, readahead, ..Self::new(name, bytes, rule).policy(policy) })
    }
}

/// A partition as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionState {
    /// Its name; the last to be matched is `rest`, which takes what no rule does.
    pub name: String,
    /// What it takes.
    pub rule: Rule,
    /// Its replacement policy.
    pub policy: String,
    /// Memory that its pages may take.
    pub bytes: u64,
    /// Memory that [`Sizing::Auto`] leaves to it at least.
    pub bytes_min: u64,
    /// Memory that its pages take, those that a smaller share waits for too.
    pub used_bytes: u64,
    /// Memory that [`Sizing::Auto`] has given it so far.
    pub got_bytes: u64,
    /// Memory that [`Sizing::Auto`] has taken from it so far.
    pub gave_bytes: u64,
    /// What it counted, in pages.
    pub stats: PartitionStats,
}

impl PartitionState {
    pub(crate) fn new(view: &PartitionView<'_>, page_bytes: u32) -> Self {
        let bytes = |frames: u32| u64::from(frames) * u64::from(page_bytes);
        let PartitionStats { got, gave, .. } = view.stats;
        Self {
            name: view.settings.name.clone(),
            rule: view.settings.rule.clone(),
            policy: view.settings.policy.clone(),
            bytes: bytes(view.frames),
            bytes_min: bytes(view.frames_min),
            used_bytes: bytes(view.used),
            got_bytes: got * u64::from(page_bytes),
            gave_bytes: gave * u64::from(page_bytes),
            stats: view.stats,
        }
    }
}

/// Memory that [`Sizing::Auto`] moved from one partition to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareMove {
    /// When the last of it moved, since the cache was built.
    pub at: Duration,
    /// Pages that reads had demanded by then.
    pub demanded: u64,
    /// The partition that gave.
    pub from: String,
    /// The partition that got.
    pub to: String,
    /// How much.
    pub bytes: u64,
    /// Why.
    pub reason: MoveReason,
    /// Expected hits of a million reads with the shares as they were when it was decided.
    pub hits_before: u32,
    /// The same once all of it has moved.
    pub hits_after: u32,
}

impl ShareMove {
    pub(crate) fn new(one: &Move, settings: &cache::Settings) -> Self {
        let name = |at: PartitionId| settings.partitions[at.0 as usize].name.clone();
        Self {
            at: Duration::from_nanos(one.at.0),
            demanded: one.demanded,
            from: name(one.from),
            to: name(one.to),
            bytes: u64::from(one.frames) * u64::from(settings.page_bytes),
            reason: one.reason,
            hits_before: one.hits_before,
            hits_after: one.hits_after,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_is_read_or_refused_by_the_part_that_is_wrong() {
        let log = Partition::new("log", 8 << 20, Rule::File("*.log".into()));
        let log = log.policy("lru").readahead("off");
        assert_eq!("log=8M:lru+off:file=*.log".parse(), Ok(log.clone()));
        let least = log.bytes_min(2 << 20);
        assert_eq!("log=8M,min=2M:lru+off:file=*.log".parse(), Ok(least));
        #[rustfmt::skip]
        let rows = [
            ("log",                     "`partition=log`"),
            ("log=8M:lru",              "`partition=log=8M:lru`"),
            ("log=8X:lru:file=*.log",   "`size=8X`"),
            ("log=8M,min=x:lru:file=*", "`min=x`"),
            ("log=8M:lru:offset=4K",    "`rule=offset=4K`"),
        ];
        for (text, says) in rows {
            let error = text.parse::<Partition>().expect_err(text).to_string();
            assert!(error.starts_with(says), "{text}: {error}");
        }
    }
}
