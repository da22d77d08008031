//! Lists by themselves: what is trusted, ranges, versions, bounds.

#![expect(clippy::single_range_in_vec_init, reason = "lists of ranges have one at times")]

use super::*;
use alloc::format;
use std::string::String;
use std::vec;

type Ranges<'a> = &'a [Range<u64>];
/// What a run was seen to use of a file, and what no use would be seen of.
type Told<'a> = (Ranges<'a>, Ranges<'a>);

fn entry(path: &str, first: u64) -> LearnedEntry {
    LearnedEntry {
        path: path.as_bytes().into(),
        kind: LearnedKind::Read,
        first: Nanos(first),
        ranges: vec![0..4096],
        version: Version { inode: 1, bytes: 4096, modified: 7 },
        history: 0,
        histories: Vec::new(),
    }
}

fn run(paths: &[&str]) -> Vec<Observed> {
    let all = paths.iter().zip(0..);
    all.map(|(path, first)| Observed { entry: entry(path, first), unseen: vec![], is_seen: true })
        .collect()
}

fn trusted(list: &LearnedList) -> Vec<String> {
    list.trusted().map(|entry| String::from_utf8(entry.path.into()).unwrap()).collect()
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
fn what_a_run_was_not_seen_to_use_keeps_its_place_among_the_others() {
    let at = |paths: &[(&str, u64)], is_seen: &dyn Fn(&str) -> bool| {
        let row = |&(path, first): &(&str, u64)| Observed {
            entry: LearnedEntry { first: Nanos::from_millis(first), ..entry(path, 0) },
            unseen: vec![],
            is_seen: is_seen(path),
        };
        paths.iter().map(row).collect::<Vec<_>>()
    };
    let mut list = LearnedList::default();
    // A run that waits for each, and one that is thirty times as fast: of one no use would have
    // been seen, and one was not used.
    let slow = [("a", 0), ("b", 300), ("c", 600), ("d", 900), ("e", 1_200)];
    list.merge(at(&slow, &|_| true));
    list.merge(at(&[("a", 0), ("b", 0), ("c", 20), ("e", 40)], &|path| path != "b"));
    assert_eq!(trusted(&list), ["a", "b", "c", "d", "e"]);
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
    list.merge(vec![Observed { entry: entry("new", 0), unseen: vec![], is_seen: false }]);
    assert!(!trusted(&list).contains(&"new".into()), "it was never used");
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
        (&whole, huge,    &[0..WHOLE_BYTES]),
        (&head,  longer,  &[0..9_000]),
        (&head,  huge,    &[0..HEAD_MAX]),
        (&tail,  longer,  &[]),
        (&tail,  tail.version, &[4096..8192]),
        (&tail,  Version { bytes: 0, ..tail.version }, &[]),
    ];
    for (entry, now, expected) in rows {
        assert_eq!(entry.ranges_of(*now, u64::MAX), *expected, "{entry:?} {now:?}");
    }
}

#[test]
fn a_run_that_used_another_version_replaces_the_ranges() {
    let mut list = LearnedList::default();
    list.merge(run(&["a"]));
    let version = Version { bytes: 99_999, inode: 9, modified: 9 };
    let ranges = vec![8192..12288];
    let next = LearnedEntry { version, ranges: ranges.clone(), ..entry("a", 5) };
    list.merge(vec![Observed { entry: next, unseen: vec![], is_seen: true }]);
    assert_eq!(list.entries()[0].ranges, ranges);
    let next = LearnedEntry { version, ranges: vec![0..4096], ..entry("a", 5) };
    list.merge(vec![Observed { entry: next, unseen: vec![], is_seen: true }]);
    assert_eq!(list.entries()[0].ranges, [0..4096, 8192..12288]);
}

#[test]
fn lists_are_bounded_and_keep_what_is_trusted() {
    let mut list = LearnedList::default();
    let many: Vec<Observed> = (0..ENTRIES_MAX as u64 + 50)
        .map(|n| Observed { entry: entry(&format!("f{n}"), n), unseen: vec![], is_seen: true })
        .collect();
    list.merge(run(&["kept"]));
    list.merge(run(&["kept"]).into_iter().chain(many).collect());
    assert_eq!(list.entries().len(), ENTRIES_MAX);
    assert!(trusted(&list).contains(&"kept".into()));
    assert!(!trusted(&list).contains(&format!("f{}", ENTRIES_MAX + 49)));
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

#[test]
fn a_list_that_is_joined_keeps_how_little_its_last_runs_used() {
    #[rustfmt::skip]
    let rows = [ // of one, of the other, of both
        (Some(0b011), None,        0b011),
        (None,        Some(0b011), 0b011),
        (Some(0b011), Some(0b101), 0b101),
        (Some(0b110), Some(0b001), 0b110),
        (Some(0b011), Some(0),     0),
        (None,        None,        0),
    ];
    let list = |poor: Option<u8>| {
        let of = |poor| LearnedList::new(3, [entry("a", 0)]).with_poor(poor);
        poor.map_or_else(LearnedList::default, of)
    };
    for (one, other, expected) in rows {
        let mut joined = list(one);
        joined.merge_list(&list(other));
        assert_eq!(joined.poor(), expected, "{one:?} {other:?}");
    }
}

/// An entry of a large file with these ranges.
fn part(ranges: Ranges) -> LearnedEntry {
    let version = Version { inode: 1, bytes: 1 << 30, modified: 7 };
    LearnedEntry { ranges: ranges.to_vec(), version, ..entry("db", 0) }
}

/// The trusted ranges of the only entry.
fn fetched(list: &LearnedList) -> Vec<Range<u64>> {
    list.trusted().next().map(|entry| entry.ranges).unwrap_or_default()
}

#[test]
fn ranges_are_trusted_as_entries_are() {
    #[rustfmt::skip]
    let rows: &[(&[Told], Ranges, &str)] = &[ // seen and unseen of each run, trusted, why
        (&[(&[0..4], &[])],                                     &[0..4],       "one run"),
        (&[(&[0..4], &[]), (&[6..9], &[])],                     &[0..4, 6..9], "two"),
        (&[(&[0..4], &[]), (&[6..9], &[]), (&[2..7], &[])],     &[2..4, 6..7], "two of three"),
        (&[(&[0..4], &[]), (&[6..9], &[0..4]), (&[], &[0..9])], &[0..4, 6..9], "none is visible"),
        (&[(&[0..4], &[]), (&[6..9], &[0..4]), (&[20..22], &[0..9]), (&[30..32], &[0..9])],
                                                                &[0..4, 6..9], "others each time"),
        (&[(&[0..4], &[]), (&[0..4], &[]), (&[6..9], &[]), (&[6..9], &[])],
                                                                &[6..9],       "others for good"),
        (&[(&[0..9], &[]), (&[0..9], &[]), (&[4..5], &[]), (&[4..5], &[])],
                                                                &[4..5],       "a part stays"),
    ];
    for (runs, expected, why) in rows {
        let mut list = LearnedList::default();
        for (seen, unseen) in *runs {
            let (entry, unseen) = (part(seen), unseen.to_vec());
            list.merge(vec![Observed { entry, unseen, is_seen: true }]);
        }
        assert_eq!(fetched(&list), *expected, "{why}");
    }
}

#[test]
fn a_program_that_reads_other_parts_each_time_has_a_list_that_stays_small() {
    let mut list = LearnedList::default();
    let at = |run: u64| run * (1 << 20)..run * (1 << 20) + 4096;
    for run in 0..50 {
        // What was fetched is not seen to be used.
        let unseen = fetched(&list);
        let entry = part(&[at(run)]);
        list.merge(vec![Observed { entry, unseen, is_seen: true }]);
    }
    let ranges = &list.entries()[0].ranges;
    assert!(ranges.len() <= 2 + 3, "those of the first two runs and of the last three: {ranges:?}");
    assert_eq!(fetched(&list), [at(0), at(1)], "what was seen once is not fetched");
    list.merge(vec![Observed { entry: part(&[at(49)]), unseen: fetched(&list), is_seen: true }]);
    assert!(fetched(&list).contains(&at(49)), "seen twice");
    // A run that does not come to the file keeps what it may have used.
    let (entry, unseen) = (part(&[]), vec![]);
    let before = fetched(&list);
    list.merge(vec![Observed { entry, unseen, is_seen: false }]);
    assert_eq!(fetched(&list), before);
}

#[test]
fn what_was_used_once_is_not_used_again_unseen() {
    #[rustfmt::skip]
    let rows: &[(Ranges, bool, &str)] = &[ // what no use of is visible, whether one of it was seen
        (&[0..u64::MAX], true,  "all was there before the program came to it"),
        (&[],            false, "nothing was seen of it"),
    ];
    for (unseen, is_seen, why) in rows {
        let mut list = LearnedList::default();
        for _ in 0..3 {
            list.merge(vec![Observed { entry: part(&[0..4]), unseen: vec![], is_seen: true }]);
        }
        let told = vec![0..4];
        list.merge(vec![Observed { entry: part(&[6..9]), unseen: told, is_seen: true }]);
        for _ in 0..3 {
            let (entry, unseen) = (part(&[]), unseen.to_vec());
            list.merge(vec![Observed { entry, unseen, is_seen: *is_seen }]);
            assert_eq!(fetched(&list), [0..4], "{why}");
        }
        assert_eq!(list.entries()[0].ranges, [0..4], "{why}");
    }
}

#[test]
fn of_another_version_all_ranges_are_trusted_as_the_entry_is() {
    let mut list = LearnedList::default();
    for seen in [0..4, 0..4, 8..9] {
        list.merge(vec![Observed { entry: part(&[seen]), unseen: vec![], is_seen: true }]);
    }
    assert_eq!(fetched(&list), [0..4]);
    let version = Version { modified: 8, ..part(&[]).version };
    let entry = LearnedEntry { version, ..part(&[3..5]) };
    list.merge(vec![Observed { entry, unseen: vec![], is_seen: true }]);
    assert_eq!((fetched(&list), list.entries()[0].histories.len()), (vec![3..5], 0));
}

#[test]
fn histories_that_do_not_fit_are_left_out_and_others_kept() {
    let of = |ranges: Ranges, histories: &[u8]| {
        let entry = LearnedEntry { histories: histories.to_vec(), history: 7, ..part(ranges) };
        LearnedList::new(5, [entry])
    };
    assert_eq!(fetched(&of(&[0..4, 8..9], &[3, 1])), [0..4]);
    assert_eq!(fetched(&of(&[8..9, 0..9], &[4, 2])), [8..9], "where they overlap both count");
    assert_eq!(fetched(&of(&[0..4, 4..9], &[3, 6])), [0..9], "joined where they are fetched");
    assert_eq!(fetched(&of(&[0..4, 8..9], &[3])), [0..4, 8..9]);
    assert_eq!(fetched(&of(&[0..4], &[0xf8])), [], "no run of those that are remembered");
    let mut joined = of(&[0..4, 8..9], &[3, 1]);
    joined.merge_list(&of(&[20..21], &[]));
    assert_eq!(fetched(&joined), [0..4, 20..21], "what either trusts");
}

#[test]
fn a_list_that_three_runs_on_end_used_little_of_is_learned_anew() {
    #[rustfmt::skip]
    let rows: &[(&[Option<u32>], bool, &str)] = &[
        (&[Some(79), Some(0), Some(50)],                     true,  "three"),
        (&[Some(79), Some(0)],                               false, "two"),
        (&[Some(79), Some(80), Some(0), Some(0)],            false, "one was well used"),
        (&[Some(79), Some(80), Some(0), Some(0), Some(0)],   true,  "three after that"),
        (&[Some(0), None, Some(0), None, Some(0)],           true,  "none tells nothing"),
        (&[None, None, None, None],                          false, "nothing is judged"),
    ];
    for (precisions, is_anew, why) in rows {
        let mut list = LearnedList::default();
        for _ in 0..3 {
            list.merge(run(&["a", "b"]));
        }
        let (end, before) = precisions.split_last().unwrap();
        for precision in before {
            list.judge(*precision);
            list.merge(run(&["a", "b"]));
            assert!(list.runs() > 3 && trusted(&list) == ["a", "b"], "{why}");
        }
        list.judge(*end);
        list.merge(run(&["c"]));
        assert_eq!(list.runs() == 1, *is_anew, "{why}");
        assert_eq!(trusted(&list) == ["c"], *is_anew, "{why}");
        assert!(!is_anew || list.poor() == 0, "{why}: judged anew as well");
    }
}

#[test]
fn no_version_of_a_file_is_fetched_beyond_what_is_allowed() {
    let sizes = [1, 4096, 5_000, WHOLE_BYTES, WHOLE_BYTES + 1, 4 << 20, 1 << 40];
    let mut entries = Vec::new();
    for bytes in sizes {
        let version = Version { bytes, ..entry("a", 0).version };
        for ranges in [vec![0..bytes], vec![0..bytes / 2 + 1], vec![0..1, 8_191..8_193], vec![7..8]]
        {
            entries.push(LearnedEntry { ranges, version, ..entry("a", 0) });
        }
    }
    for entry in &entries {
        let least = entry.bytes_charged();
        assert!(least >= entry.bytes() && entry.bytes_max() <= least.max(WHOLE_BYTES));
        for now in sizes.into_iter().chain([0, u64::MAX / 2]) {
            for modified in [7, 8] {
                let now = Version { inode: 1, bytes: now, modified };
                for allowed in [least, least + 100, least.max(20_000), entry.bytes_max(), u64::MAX]
                {
                    let ranges = entry.ranges_of(now, allowed);
                    let bytes = charged(&ranges);
                    assert!(bytes <= allowed.min(entry.bytes_max()), "{entry:?} {now:?} {allowed}");
                    assert!(ranges.iter().all(|range| range.end <= now.bytes));
                }
            }
        }
    }
}
