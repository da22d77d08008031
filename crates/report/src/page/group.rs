//! The runs of one chart, and the labels of their policies.
//!
//! Runs are compared where all but the policy and the number of streams is equal: device, drive
//! cache and workload. Each such *group* has its own charts. A policy's *label* is its name; where
//! one name ran with several parameters these are part of it, and where several records repeat the
//! same run, so is the record.
//!
//! ```text
//!   records -> runs --+-- group (device, cache, workload) --+-- row (label, streams, figures)
//!                     |                                     +-- row ...
//!                     +-- labels, in order of appearance: the label's number is its colour
//! ```
//!
//! # Invariants
//! - Within a group no two rows have the same label and number of streams.
//! - A label has the same number, hence the same colour, in every group.

use crate::record::{Run, RunRecord};
use std::fmt::Write;

/// All runs of a page, in groups, and the labels of their policies.
pub(super) struct Groups<'a> {
    /// In order of appearance; a row's `policy` points in here.
    pub(super) labels: Vec<String>,
    /// In order of appearance, none of them empty.
    pub(super) groups: Vec<Group<'a>>,
}

/// Runs that differ in policy and streams only.
pub(super) struct Group<'a> {
    pub(super) device: &'a str,
    pub(super) emulated: bool,
    pub(super) drive_cache: Option<bool>,
    /// The workload without its number of streams.
    pub(super) workload: String,
    /// By streams, then by policy.
    pub(super) rows: Vec<Row<'a>>,
}

/// One run and the number of its policy's label.
pub(super) struct Row<'a> {
    pub(super) run: &'a Run,
    pub(super) policy: usize,
}

impl<'a> Groups<'a> {
    pub(super) fn new(records: &'a [RunRecord]) -> Self {
        let all: Vec<(usize, &Run)> = (1..)
            .zip(records)
            .flat_map(|(number, record)| record.runs.iter().map(move |run| (number, run)))
            .collect();
        let repeated = all.iter().any(|&(number, run)| {
            all.iter().any(|&(other, twin)| other != number && same_run(run, twin))
        });
        let mut page = Self { labels: Vec::new(), groups: Vec::new() };
        for (index, &(number, run)) in all.iter().enumerate() {
            let mut label = name(run, &all);
            if repeated {
                let _ = write!(label, " [record {number}]");
            }
            let earlier = &all[..index];
            let twins = earlier.iter().filter(|&&(n, r)| n == number && same_run(r, run)).count();
            if twins > 0 {
                let _ = write!(label, " #{}", twins + 1);
            }
            page.add(run, label);
        }
        for group in &mut page.groups {
            group.rows.sort_by_key(|row| (row.run.streams, row.policy));
        }
        page
    }

    /// Removes and returns the groups with runs of waiting for I/O.
    pub(super) fn take_waits(&mut self) -> Vec<Group<'a>> {
        let is_of_waits = |group: &mut Group<'a>| group.rows[0].run.waits.is_some();
        self.groups.extract_if(.., is_of_waits).collect()
    }

    fn add(&mut self, run: &'a Run, label: String) {
        let policy = self.labels.iter().position(|known| *known == label).unwrap_or_else(|| {
            self.labels.push(label);
            self.labels.len() - 1
        });
        let row = Row { run, policy };
        match self.groups.iter_mut().find(|group| same_group(group.rows[0].run, run)) {
            Some(group) => group.rows.push(row),
            None => self.groups.push(Group {
                device: &run.device,
                emulated: run.emulated,
                drive_cache: run.drive_cache,
                workload: family(&run.workload),
                rows: vec![row],
            }),
        }
    }
}

impl Group<'_> {
    /// The numbers of streams that ran, ascending.
    pub(super) fn streams(&self) -> Vec<u32> {
        let mut streams: Vec<u32> = self.rows.iter().map(|row| row.run.streams).collect();
        streams.dedup();
        streams
    }

    /// The policies that ran, by number.
    pub(super) fn policies(&self) -> Vec<usize> {
        let mut policies: Vec<usize> = self.rows.iter().map(|row| row.policy).collect();
        policies.sort_unstable();
        policies.dedup();
        policies
    }

    /// The run of one policy at one number of streams.
    pub(super) fn run(&self, policy: usize, streams: u32) -> Option<&Run> {
        self.rows
            .iter()
            .find(|row| row.policy == policy && row.run.streams == streams)
            .map(|row| row.run)
    }

    /// The device's limit at this number of streams, where a run has it.
    pub(super) fn limit(&self, streams: u32) -> Option<f64> {
        self.rows
            .iter()
            .filter(|row| row.run.streams == streams)
            .filter_map(|row| row.run.limit_mb_per_second)
            .reduce(f64::max)
    }

    /// Device and drive cache in words.
    pub(super) fn device_in_words(&self) -> String {
        match self.drive_cache {
            Some(true) => format!("{}, drive cache on", self.device),
            Some(false) => format!("{}, drive cache off", self.device),
            None => self.device.to_owned(),
        }
    }
}

/// The policy's name, with its parameters where the name alone would be two policies.
fn name(run: &Run, all: &[(usize, &Run)]) -> String {
    let alone = all.iter().all(|(_, r)| r.readahead != run.readahead || r.params == run.params);
    if alone || run.params.is_empty() {
        return run.readahead.clone();
    }
    let pairs: Vec<String> =
        run.params.iter().map(|(key, value)| format!("{key}={value}")).collect();
    format!("{}:{}", run.readahead, pairs.join(","))
}

fn same_run(one: &Run, other: &Run) -> bool {
    same_group(one, other)
        && one.streams == other.streams
        && one.readahead == other.readahead
        && one.params == other.params
}

fn same_group(one: &Run, other: &Run) -> bool {
    one.device == other.device
        && one.emulated == other.emulated
        && one.drive_cache == other.drive_cache
        && family(&one.workload) == family(&other.workload)
}

/// `workload:streams,n=10,each=100M` without `n=10`, which is the streams' number again.
fn family(workload: &str) -> String {
    let kept: Vec<&str> = workload
        .split(',')
        .filter(|part| {
            let count = part.strip_prefix("n=").or_else(|| part.strip_prefix("streams="));
            !count.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
        })
        .collect();
    kept.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(readahead: &str, streams: u32) -> Run {
        Run {
            readahead: readahead.to_owned(),
            device: "hdd".to_owned(),
            streams,
            workload: format!("workload:streams,n={streams},each=1M"),
            ..Run::default()
        }
    }

    fn record(runs: &[Run]) -> RunRecord {
        RunRecord { runs: runs.to_vec(), ..RunRecord::default() }
    }

    #[test]
    fn runs_that_differ_in_policy_and_streams_share_a_group_in_order() {
        let records = [record(&[run("b", 10), run("a", 1), run("b", 1)])];
        let page = Groups::new(&records);
        assert_eq!(page.labels, ["b", "a"]);
        assert_eq!(page.groups.len(), 1);
        let group = &page.groups[0];
        assert_eq!(group.workload, "workload:streams,each=1M");
        assert_eq!((group.streams(), group.policies()), (vec![1, 10], vec![0, 1]));
        let order: Vec<_> = group.rows.iter().map(|r| (r.run.streams, r.policy)).collect();
        assert_eq!(order, [(1, 0), (1, 1), (10, 0)]);
        assert!(group.run(0, 10).is_some() && group.run(1, 10).is_none());
    }

    #[test]
    fn device_cache_emulation_and_workload_part_groups_and_labels_stay() {
        let mut others = [(); 5].map(|()| run("a", 1));
        others[1].device = "ssd".to_owned();
        others[2].drive_cache = Some(true);
        others[3].workload = "mail".to_owned();
        others[4].emulated = true;
        let records = [record(&others)];
        let page = Groups::new(&records);
        assert_eq!((page.groups.len(), page.labels.len()), (5, 1));
        assert!(page.groups.iter().all(|group| group.rows[0].policy == 0));
        let words: Vec<_> = page.groups[..3].iter().map(Group::device_in_words).collect();
        assert_eq!(words, ["hdd", "ssd", "hdd, drive cache on"]);
        others[0].drive_cache = Some(false);
        let records = [record(&others[..1])];
        assert_eq!(Groups::new(&records).groups[0].device_in_words(), "hdd, drive cache off");
    }

    #[test]
    fn labels_say_no_more_than_tells_policies_apart() {
        let with = |max: &str| {
            let mut run = run("a", 1);
            run.params.insert("max".to_owned(), max.to_owned());
            run.params.insert("min".to_owned(), "4K".to_owned());
            run
        };
        #[rustfmt::skip]
        let rows = [ // why, records, labels
            ("one set of parameters",  vec![record(&[with("1M"), run("b", 1)])],
                       vec!["a", "b"]),
            ("two sets",               vec![record(&[with("1M"), with("2M")])],
                        vec!["a:max=1M,min=4K", "a:max=2M,min=4K"]),
            ("none and some",          vec![record(&[run("a", 1), with("2M")])],
                       vec!["a", "a:max=2M,min=4K"]),
            ("the same run twice",     vec![record(&[run("a", 1), run("a", 1)])],
                      vec!["a", "a #2"]),
            ("in two records",         vec![record(&[run("a", 1)]), record(&[run("a", 1)])],
                vec!["a [record 1]", "a [record 2]"]),
            ("one of two is repeated", vec![record(&[run("a", 1), run("b", 1)]),
                record(&[run("a", 1)])], vec!["a [record 1]", "b [record 1]", "a [record 2]"]),
            ("records that add up",    vec![record(&[run("a", 1)]), record(&[run("a", 2)])],
                vec!["a"]),
        ];
        for (why, records, labels) in rows {
            assert_eq!(Groups::new(&records).labels, labels, "{why}");
        }
    }

    #[test]
    fn only_the_number_of_streams_is_left_out_of_a_workload() {
        #[rustfmt::skip]
        let rows = [
            ("workload:streams,n=10,seed=1", "workload:streams,seed=1"),
            ("workload:thrash,streams=200,rate=1", "workload:thrash,rate=1"),
            ("a,n=", "a,n="), ("a,n=x", "a,n=x"), ("n=3 of them, more", "n=3 of them, more"),
                ("", ""),
        ];
        for (workload, expected) in rows {
            assert_eq!(family(workload), expected);
        }
    }

    #[test]
    fn the_limit_is_the_highest_that_a_run_knows() {
        let (mut low, mut high) = (run("a", 1), run("b", 1));
        low.limit_mb_per_second = Some(1.0);
        high.limit_mb_per_second = Some(2.0);
        let records = [record(&[low, high, run("c", 1), run("c", 2)])];
        let page = Groups::new(&records);
        assert_eq!((page.groups[0].limit(1), page.groups[0].limit(2)), (Some(2.0), None));
    }
}
