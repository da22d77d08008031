//! Rules: which partition a page belongs to.
//!
//! ```text
//!   mail  = client=mail        a handle gets the first partition whose file or client rule
//!   log   = offset=0..64M      matches, else the rest; a page in a range of offsets goes to that
//!   cold  = file=*.tar         partition instead, if its rule comes before the handle's
//!   rest                       all that no rule takes
//! ```
//!
//! A rule of names is matched once, as a handle is opened; the driver sends the partition in
//! `Open`, so a journal holds it. A rule of offsets is matched here, page by page.
//!
//! # Invariants
//! - Every page has a partition: the rest has no rule, and keeps at least a window of its
//!   readahead.
//! - A partition of no frames takes no page: its rule is passed over until it grows.
//! - The answer depends on the settings, the shares and the names alone.
//! # Sources
//! Meng et al. 2009, section 4: a partition for each application. Rules of offsets serve those
//! that share one device or image.

use alloc::{format, string::String, vec::Vec};
use core::fmt;
use core::ops::Range;

use super::{Cache, HandleId, Partition, Settings};
use crate::params::{Bytes, Param};
use crate::units::{PageIndex, PartitionId};

/// What a partition takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Rule {
    /// All that no other rule takes.
    #[default]
    Rest,
    /// Pages that begin in these bytes, of every file.
    Offsets(Range<u64>),
    /// Files whose path matches: `*` stands for any characters, `?` for one; a pattern without `/`
    /// is compared with the last part of a path.
    File(String),
    /// What a client of this name opens.
    Client(String),
}

impl Rule {
    /// What a rule looks like, for error messages and help.
    pub const FORM: &'static str = "offset=A..B, file=PATTERN or client=NAME";

    /// The rule that `text` stands for; `None` if it is none of [`Rule::FORM`]. Either end of a
    /// range may be left out.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (key, value) = text.split_once('=')?;
        let name = Some(value).filter(|name| !name.is_empty() && !name.contains('\n'));
        match key {
            "offset" => {
                let (start, end) = value.split_once("..")?;
                let bytes = |text: &str, open: u64| {
                    if text.is_empty() { Some(open) } else { Some(Bytes::parse(text)?.0) }
                };
                let range = bytes(start, 0)?..bytes(end, u64::MAX)?;
                (!range.is_empty()).then_some(Self::Offsets(range))
            }
            "file" => name.map(|name| Self::File(name.into())),
            "client" => name.map(|name| Self::Client(name.into())),
            _ => None,
        }
    }

    /// The pages that begin in a range of offsets.
    fn pages(&self, page_bytes: u32) -> Option<Range<PageIndex>> {
        let Self::Offsets(Range { start, end }) = self else { return None };
        let page = |offset: u64| offset.div_ceil(page_bytes.into());
        let last = if *end == u64::MAX { u64::MAX } else { page(*end) };
        Some(page(*start)..last)
    }

    /// Whether a rule of names takes what `client` opens at `path`.
    fn takes(&self, path: &str, client: &str) -> bool {
        match self {
            Self::Rest | Self::Offsets(_) => false,
            Self::Client(name) => name == client,
            Self::File(pattern) if pattern.contains('/') => matches(pattern, path),
            Self::File(pattern) => {
                matches(pattern, path.rsplit_once('/').map_or(path, |(_, name)| name))
            }
        }
    }
}

/// As [`Rule::parse`] reads it; the rest is `rest`.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = |bytes: u64| Bytes(bytes).show();
        match self {
            Self::Rest => f.write_str("rest"),
            Self::Offsets(range) => {
                let start = if range.start == 0 { String::new() } else { size(range.start) };
                let end = if range.end == u64::MAX { String::new() } else { size(range.end) };
                write!(f, "offset={start}..{end}")
            }
            Self::File(pattern) => write!(f, "file={pattern}"),
            Self::Client(name) => write!(f, "client={name}"),
        }
    }
}

/// Whether all of `name` matches `pattern`. The work is at most the product of their lengths.
fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut from) = (0, 0);
    // The last `*`, and how much of the name it covers so far.
    let mut star = None;
    while from < name.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, from));
                at += 1;
            }
            Some(&one) if one == '?' || one == name[from] => (at, from) = (at + 1, from + 1),
            Some(_) | None => {
                let Some((before, covered)) = star else { return false };
                star = Some((before, covered + 1));
                (at, from) = (before + 1, covered + 1);
            }
        }
    }
    pattern[at..].iter().all(|&one| one == '*')
}

impl Settings {
    /// The partition of what `client` opens at `path`; a range of offsets in it may belong to
    /// another.
    #[must_use]
    pub fn partition_of(&self, path: &str, client: &str) -> PartitionId {
        let taken = self.partitions.iter().position(|row| row.rule.takes(path, client));
        let at = taken.or_else(|| self.rest()).unwrap_or(0);
        PartitionId(u32::try_from(at).expect("a PartitionId each"))
    }

    /// The first partition without a rule.
    pub(super) fn rest(&self) -> Option<usize> {
        self.partitions.iter().position(|row| row.rule == Rule::Rest)
    }
}

/// The ranges of offsets that belong to partitions.
pub(super) struct Ranges {
    /// In the order of their partitions.
    rows: Vec<(Range<PageIndex>, u32)>,
    /// Where pages go that no range and no name takes.
    rest: u32,
}

/// The partition of a page, and the neighbours that share it.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) partition: u32,
    /// Pages of the same file with the same partition: all up to the next rule's.
    pub(super) pages: Range<PageIndex>,
}

impl Ranges {
    pub(super) fn new(settings: &Settings) -> Self {
        let pages = |row: &super::PartitionSettings| row.rule.pages(settings.page_bytes);
        let rows = (0..).zip(&settings.partitions);
        let rows = rows.filter_map(|(at, row)| Some((pages(row)?, at))).collect();
        let rest = u32::try_from(settings.rest().unwrap_or(0)).expect("a PartitionId each");
        Self { rows, rest }
    }

    pub(super) fn rest(&self) -> u32 {
        self.rest
    }

    /// The place of the page at `index` of a handle whose partition is `own`.
    fn place(&self, partitions: &[Partition], own: u32, index: PageIndex) -> Place {
        let takes = |partition: u32| partitions[partition as usize].capacity > 0;
        let own = if takes(own) { own } else { self.rest };
        let by_name = partitions[own as usize].by_name;
        let mut place = Place { partition: own, pages: 0..PageIndex::MAX };
        for (range, partition) in &self.rows {
            if !takes(*partition) || by_name && *partition > own {
                continue;
            }
            let pages = &mut place.pages;
            if range.contains(&index) {
                place.partition = *partition;
                *pages = pages.start.max(range.start)..pages.end.min(range.end);
                return place;
            }
            if index < range.start {
                pages.end = pages.end.min(range.start);
            } else {
                pages.start = pages.start.max(range.end);
            }
        }
        place
    }
}

impl Cache {
    /// The place of the page at `index`, as `handle` reads or writes it.
    pub(super) fn place(&self, handle: HandleId, index: PageIndex) -> Place {
        let row = self.handles.get(handle.0 as usize).and_then(Option::as_ref);
        let own = row.map_or(self.ranges.rest, |row| row.partition);
        self.ranges.place(&self.partitions, own, index)
    }

    /// The frames of the smallest partition that a handle of `partition` uses: what all pages of
    /// one request should fit into.
    #[must_use]
    pub fn smallest_share(&self, partition: PartitionId) -> u32 {
        let share = |at: u32| self.partitions[at as usize].capacity;
        let own = Some(share(partition.0)).filter(|&share| share > 0);
        let own = own.unwrap_or_else(|| share(self.ranges.rest));
        let ranges = self.ranges.rows.iter().map(|row| share(row.1)).filter(|&share| share > 0);
        ranges.fold(own, u32::min)
    }
}

/// A partition as text: `NAME=SIZE[,min=SIZE]:POLICY[+READAHEAD]:RULE`. What a size means is the
/// reader's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionText<'t> {
    /// Its name.
    pub name: &'t str,
    /// Its size.
    pub size: &'t str,
    /// The size that sizing leaves to it at least.
    pub size_min: Option<&'t str>,
    /// Its replacement policy.
    pub policy: &'t str,
    /// Its readahead policy, where it has one of its own.
    pub readahead: Option<&'t str>,
    /// Its rule.
    pub rule: &'t str,
}

impl<'t> PartitionText<'t> {
    /// What a partition looks like, for error messages and help.
    pub const FORM: &'static str = "NAME=SIZE[,min=SIZE]:POLICY[+READAHEAD]:RULE";

    /// The parts of `text`; `None` if one is missing.
    #[must_use]
    pub fn split(text: &'t str) -> Option<Self> {
        let (name, text) = text.split_once('=')?;
        let (sizes, text) = text.split_once(':')?;
        let (size, size_min) = match sizes.split_once(',') {
            Some((size, min)) => (size, Some(min.strip_prefix("min=")?)),
            None => (sizes, None),
        };
        let keys = ["offset", "file", "client"].map(|key| format!(":{key}="));
        let at = keys.iter().filter_map(|key| text.find(key)).min()?;
        let (policies, rule) = (&text[..at], &text[at + 1..]);
        let (policy, readahead) = match policies.split_once('+') {
            Some((policy, readahead)) => (policy, Some(readahead)),
            None => (policies, None),
        };
        let parts = [name, size, size_min.unwrap_or("-"), policy, readahead.unwrap_or("-"), rule];
        let whole = parts.iter().all(|part| !part.is_empty());
        whole.then_some(Self { name, size, size_min, policy, readahead, rule })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{string::ToString, vec};

    #[test]
    fn a_rule_is_read_as_it_is_shown() {
        #[rustfmt::skip]
        let rows = [ // text              shown, if it is a rule
            ("offset=0..64M",        Some("offset=..64M")),
            ("offset=4K..",          Some("offset=4K..")),
            ("offset=..",            Some("offset=..")),
            ("file=*.db",            Some("file=*.db")),
            ("client=a b=c",         Some("client=a b=c")),
            ("offset=4K..4K",        None),
            ("offset=8K..4K",        None),
            ("offset=4K",            None),
            ("offset=x..4K",         None),
            ("file=",                None),
            ("client=",              None),
            ("client=a\nb",          None),
            ("owner=x",              None),
            ("rest",                 None),
            ("",                     None),
        ];
        for (text, shown) in rows {
            let rule = Rule::parse(text);
            assert_eq!(rule.as_ref().map(ToString::to_string).as_deref(), shown, "{text}");
            assert_eq!(rule.as_ref().and_then(|rule| Rule::parse(&rule.to_string())), rule);
        }
    }

    #[test]
    fn a_pattern_matches_all_of_a_name() {
        #[rustfmt::skip]
        let rows = [ // pattern  path            matches
            ("*.db",     "/a/b.db",          true),
            ("*.db",     "/a/b.db/c",        false),
            ("b.db",     "b.db",             true),
            ("/a/*",     "/a/b/c",           true),
            ("/a/*.db",  "/b/a.db",          false),
            ("?",        "/x/\u{e4}",        true),
            ("?",        "/x/ab",            false),
            ("a*b*c",    "aXbYbZc",          true),
            ("a*b*c",    "aXbYbZ",           false),
            ("**",       "",                 true),
            ("a",        "",                 false),
        ];
        for (pattern, path, taken) in rows {
            assert_eq!(Rule::File(pattern.into()).takes(path, ""), taken, "{pattern} {path}");
        }
    }

    #[test]
    fn a_partition_has_its_parts() {
        let split = |text| PartitionText::split(text);
        let parts = split("db=64M:2q:kin=0.1+linux-6:max=64K:file=/a:b").expect("it is whole");
        assert_eq!((parts.name, parts.size, parts.policy), ("db", "64M", "2q:kin=0.1"));
        assert_eq!((parts.readahead, parts.rule), (Some("linux-6:max=64K"), "file=/a:b"));
        let plain = split("a=1:lru:client=x").expect("it is whole");
        assert_eq!((plain.readahead, plain.size_min), (None, None));
        let least = split("a=8M,min=2M:lru:client=x").expect("it is whole");
        assert_eq!((least.size, least.size_min), ("8M", Some("2M")));
        for text in [
            "",
            "a",
            "a=1",
            "a=1:lru",
            "a=1:lru:rule",
            "=1:lru:file=x",
            "a=:lru:file=x",
            "a=1::file=x",
            "a=1:lru+:file=x",
            "a=1,:lru:file=x",
            "a=1,2:lru:file=x",
            "a=1,min=:lru:file=x",
        ] {
            assert_eq!(split(text), None, "{text}");
        }
    }

    #[test]
    fn names_are_matched_in_the_order_of_partitions() {
        let mut settings = Settings::new(100, "lru", "off");
        let rules = ["client=mail", "file=*.db", "offset=..4K", "file=big.db"];
        for (name, rule) in ["a", "b", "c", "d"].into_iter().zip(rules) {
            let rule = Rule::parse(rule).expect("it is a rule");
            settings.partitions.push(super::super::PartitionSettings {
                rule,
                ..super::super::PartitionSettings::new(name, 1, "lru")
            });
        }
        let of = |path, client| settings.partition_of(path, client).0;
        let found = vec![of("/x.db", "mail"), of("/big.db", ""), of("/x", "db"), of("", "")];
        assert_eq!(found, [1, 2, 0, 0]);
    }

    #[test]
    fn a_page_belongs_to_the_range_in_which_it_begins() {
        let pages = |start, end| Rule::Offsets(start..end).pages(4096);
        assert_eq!(pages(0, 4096), Some(0..1));
        assert_eq!(pages(1, 8193), Some(1..3));
        assert_eq!(pages(8193, u64::MAX), Some(3..u64::MAX));
        assert_eq!(Rule::Rest.pages(4096), None);
    }
}
