//! Lists by themselves: what is trusted, ranges, versions, bounds.

#![expect(clippy::single_range_in_vec_init, reason = "lists of ranges have one at times")]

use super::*;
use alloc::format;
use std::vec;

type Ranges<'a> = &'a [Range<u64>];

fn entry(path: &str, first: u64) -> LearnedEntry {
    LearnedEntry {
        path: path.as_bytes().into(),
        kind: LearnedKind::Read,
        first: Nanos(first),
        ranges: vec![0..4096],
        version: Version { inode: 1, bytes: 4096, modified: 7 },
        history: 0,
    }
}

fn run(paths: &[&str]) -> Vec<Observed> {
    let all = paths.iter().zip(0..);
    all.map(|(path, first)| Observed { entry: entry(path, first), is_seen: true }).collect()
}

fn trusted(list: &LearnedList) -> Vec<&str> {
    list.trusted().map(|entry| str::from_utf8(&entry.path).unwrap()).collect()
}

#[test]
fn of_two_runs_all_is_trusted_and_then_what_two_of_the_last_three_used() {
    #[rustfmt::skip]
    let rows: &[(&[&[&str]], &[&str])] = &[ // what runs used, what is trusted
        (&[],                                                          &[]),
        (&[&["b", "a"]],                                               &["b", "a"]),
        (&[&["a"], &["b"]],                                            &["a", "b"]),
        (&[&["a"], &["b"], &["b"]],                                    &["b"]),
        (&[&["a"], &["b"], &["a"]],                                    &["a"]),
        (&[&["a", "b"], &["a", "b"], &["c"]],                          &["a", "b"]),
        (&[&["a"], &["a"], &["b"], &["b"]],                            &["b"]),
        (&[&["a"], &["a"], &["a"], &["b"], &["c"], &["d"]],            &[]),
    ];
    for (runs, expected) in rows {
        let mut list = LearnedList::default();
        for paths in *runs {
            list.merge(run(paths));
        }
        assert_eq!(trusted(&list), *expected, "{runs:?}");
        assert_eq!(list.runs(), runs.len() as u64);
    }
}

#[test]
fn what_no_use_could_be_seen_of_keeps_what_was_known() {
    let mut list = LearnedList::default();
    for _ in 0..3 {
        list.merge(run(&["a", "b"]));
    }
    for _ in 0..5 {
        let mut next = run(&["a", "b"]);
        next[0].is_seen = false;
        list.merge(next);
    }
    assert_eq!(trusted(&list), ["a", "b"]);
    list.merge(vec![Observed { entry: entry("new", 0), is_seen: false }]);
    assert!(!trusted(&list).contains(&"new"), "it was never used");
}

#[test]
fn ranges_are_joined_and_bounded() {
    #[rustfmt::skip]
    let rows: &[(Ranges, Ranges)] = &[
        (&[],                           &[]),
        (&[5..5],                       &[]),
        (&[4..8, 0..4],                 &[0..8]),
        (&[0..9, 2..4],                 &[0..9]),
        (&[8..9, 0..4],                 &[0..4, 8..9]),
    ];
    for (ranges, expected) in rows {
        assert_eq!(joined(ranges.to_vec()), *expected, "{ranges:?}");
    }
    let far: Vec<Range<u64>> = (0..1_000).map(|n| n * n * 10..n * n * 10 + 1).collect();
    let fewer = joined(far.clone());
    assert!(fewer.len() <= RANGES_MAX);
    assert!(
        far.iter().all(|one| fewer.iter().any(|it| it.start <= one.start && one.end <= it.end))
    );
}

#[test]
fn another_version_is_fetched_whole_or_by_its_head() {
    let same = entry("a", 0).version;
    let longer = Version { bytes: 9_000, ..same };
    let touched = Version { modified: 8, ..same };
    let copied = Version { inode: 2, ..same };
    let huge = Version { bytes: u64::MAX, ..same };
    let part = |range| LearnedEntry {
        ranges: vec![range],
        version: Version { bytes: 1 << 30, ..same },
        ..entry("p", 0)
    };
    let (whole, head, tail) = (entry("a", 0), part(0..1 << 20), part(4096..8192));
    #[rustfmt::skip]
    let rows: &[(&LearnedEntry, Version, Ranges)] = &[
        (&whole, same,    &[0..4096]),
        (&whole, copied,  &[0..4096]),
        (&whole, longer,  &[0..9_000]),
        (&whole, touched, &[0..4096]),
        (&whole, huge,    &[0..WHOLE_MAX]),
        (&head,  longer,  &[0..9_000]),
        (&head,  huge,    &[0..HEAD_MAX]),
        (&tail,  longer,  &[]),
        (&tail,  tail.version, &[4096..8192]),
        (&tail,  Version { bytes: 0, ..tail.version }, &[]),
    ];
    for (entry, now, expected) in rows {
        assert_eq!(entry.ranges_of(*now), *expected, "{entry:?} {now:?}");
    }
}

#[test]
fn a_run_that_used_another_version_replaces_the_ranges() {
    let mut list = LearnedList::default();
    list.merge(run(&["a"]));
    let version = Version { bytes: 99_999, inode: 9, modified: 9 };
    let ranges = vec![8192..12288];
    let next = LearnedEntry { version, ranges: ranges.clone(), ..entry("a", 5) };
    list.merge(vec![Observed { entry: next, is_seen: true }]);
    assert_eq!(list.entries()[0].ranges, ranges);
    let next = LearnedEntry { version, ranges: vec![0..4096], ..entry("a", 5) };
    list.merge(vec![Observed { entry: next, is_seen: true }]);
    assert_eq!(list.entries()[0].ranges, [0..4096, 8192..12288]);
}

#[test]
fn lists_are_bounded_and_keep_what_is_trusted() {
    let mut list = LearnedList::default();
    let many: Vec<Observed> = (0..ENTRIES_MAX as u64 + 50)
        .map(|n| Observed { entry: entry(&format!("f{n}"), n), is_seen: true })
        .collect();
    list.merge(run(&["kept"]));
    list.merge(run(&["kept"]).into_iter().chain(many).collect());
    assert_eq!(list.entries().len(), ENTRIES_MAX);
    assert!(trusted(&list).contains(&"kept"));
    assert!(!trusted(&list).contains(&format!("f{}", ENTRIES_MAX + 49).as_str()));
}

#[test]
fn lists_of_two_machines_are_joined() {
    let (mut one, mut other) = (LearnedList::default(), LearnedList::default());
    for _ in 0..3 {
        one.merge(run(&["a", "b"]));
        other.merge(run(&["b", "c"]));
    }
    other.merge(run(&["b", "c", "once"]));
    one.merge_list(&other);
    assert_eq!(trusted(&one), ["a", "b", "c"]);
    assert_eq!(one.runs(), 4);
}
