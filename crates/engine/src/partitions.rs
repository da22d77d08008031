//! Partitions as a program describes them, and as they are.
//!
//! # Invariants
//! - Plain values: the core decides which page belongs to which partition (`Rule`), and what
//!   leaves.

use std::str::FromStr;

use forerun_core::{
    cache::{PartitionSettings, PartitionStats, PartitionText, PartitionView, Rule},
    params::{Bytes, Param as _, ParamError},
};

/// A partition of a cache: a share of its memory for the pages that a rule takes, with a
/// replacement policy of its own. As text: `NAME=SIZE:POLICY[+READAHEAD]:RULE`, where a rule is
/// `offset=A..B`, `file=PATTERN` or `client=NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Its name in reports and in calls.
    pub name: String,
    /// Memory for its pages at first, in bytes; 0: none until it grows, and its rule takes nothing.
    pub bytes: u64,
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
        Self { name: name.to_owned(), bytes, rule, policy, readahead: None }
    }

    /// The replacement policy, as text or by its type.
    #[must_use]
    pub fn policy(mut self, spec: impl Into<String>) -> Self {
        self.policy = spec.into();
        self
    }

    /// A readahead policy of its own, as text or by its type.
    #[must_use]
    pub fn readahead(mut self, spec: impl Into<String>) -> Self {
        self.readahead = Some(spec.into());
        self
    }

    /// The settings of the core, for a share of `frames`.
    pub(crate) fn core(&self, frames: u32) -> PartitionSettings {
        let Self { name, rule, policy, readahead, bytes: _ } = self;
        let (rule, readahead) = (rule.clone(), readahead.clone());
        PartitionSettings { rule, readahead, ..PartitionSettings::new(name, frames, policy) }
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
        let PartitionText { name, size, policy, readahead, rule } = parts;
        let bytes = Bytes::parse(size).ok_or_else(|| wrong("size", size, Bytes::FORM))?.0;
        let rule = Rule::parse(rule).ok_or_else(|| wrong("rule", rule, Rule::FORM))?;
        let readahead = readahead.map(str::to_owned);
        Ok(Self { readahead, ..Self::new(name, bytes, rule).policy(policy) })
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
    /// Memory that its pages take, those that a smaller share waits for too.
    pub used_bytes: u64,
    /// What it counted, in pages.
    pub stats: PartitionStats,
}

impl PartitionState {
    pub(crate) fn new(view: &PartitionView<'_>, page_bytes: u32) -> Self {
        let bytes = |frames: u32| u64::from(frames) * u64::from(page_bytes);
        Self {
            name: view.settings.name.clone(),
            rule: view.settings.rule.clone(),
            policy: view.settings.policy.clone(),
            bytes: bytes(view.frames),
            used_bytes: bytes(view.used),
            stats: view.stats,
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
        assert_eq!("log=8M:lru+off:file=*.log".parse(), Ok(log));
        #[rustfmt::skip]
        let rows = [
            ("log",                     "`partition=log`"),
            ("log=8M:lru",              "`partition=log=8M:lru`"),
            ("log=8X:lru:file=*.log",   "`size=8X`"),
            ("log=8M:lru:offset=4K",    "`rule=offset=4K`"),
        ];
        for (text, says) in rows {
            let error = text.parse::<Partition>().expect_err(text).to_string();
            assert!(error.starts_with(says), "{text}: {error}");
        }
    }
}
