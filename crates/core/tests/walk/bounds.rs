//! Bounds and balances under any calls.

use std::collections::BTreeSet;

use forerun_core::prng::Prng;
use forerun_core::units::Nanos;
use forerun_core::walk::{
    DirectoryId, Entry, EntryKind, Use, WalkOutcome, WalkRequest, WalkRequestId, WalkSettings,
    WalkStats, Walks, Want,
};

use super::program::{Program, READ};

fn small(sees_all: bool) -> WalkSettings {
    WalkSettings {
        directories_max: 8,
        entries_max: 20,
        entries_all_max: 60,
        walks_max: 3,
        window_min: 2,
        window_max: 8,
        ahead_bytes_max: 1 << 20,
        budget_bytes: 3 << 19,
        sees_all,
        ..WalkSettings::default()
    }
}

/// What a random driver saw.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    requests: Vec<WalkRequest>,
    stats: WalkStats,
}

/// Calls by chance: registrations, listings, uses mostly in some order, answers late and in any
/// order, changes.
fn run(seed: u64) -> Seen {
    let mut chance = Prng::new(seed);
    let settings = small(chance.chance(50));
    let mut walks = Walks::new(settings.clone());
    let names: Vec<String> = (0..25).map(|at| format!("n{at}.{}", at % 3)).collect();
    let mut dirs: Vec<DirectoryId> = vec![walks.directory(None)];
    let (mut waiting, mut requests): (Vec<WalkRequest>, Vec<WalkRequest>) = Default::default();
    let (mut dir, mut at) = (dirs[0], 0);
    let mut ids: BTreeSet<WalkRequestId> = BTreeSet::new();
    let pick = |chance: &mut Prng, count: usize| {
        usize::try_from(chance.below(count as u64)).expect("below a count")
    };
    for _ in 0..400 {
        match chance.below(20) {
            0 => {
                let name = &names[pick(&mut chance, 4)];
                let parent = dirs[pick(&mut chance, dirs.len())];
                let new = walks.directory(Some((parent, name.as_bytes())));
                assert!(new.0 < settings.directories_max);
                if !dirs.contains(&new) {
                    dirs.push(new);
                }
            }
            1 => walks.list(dirs[pick(&mut chance, dirs.len())]),
            2 => {
                let which = dirs[pick(&mut chance, dirs.len())];
                let count = pick(&mut chance, 26);
                give(&mut walks, which, &names[..count]);
            }
            3 if chance.chance(20) => walks.changed(dirs[pick(&mut chance, dirs.len())]),
            4 => (dir, at) = (dirs[pick(&mut chance, dirs.len())], pick(&mut chance, 25)),
            5..=8 if !waiting.is_empty() => {
                let request = waiting.swap_remove(pick(&mut chance, waiting.len()));
                let outcome = if chance.chance(90) {
                    WalkOutcome::Fetched { bytes: chance.below(300 << 10), saves: Nanos(0) }
                } else {
                    WalkOutcome::Failed
                };
                if request.want == Want::Listing && request.index.is_none() {
                    give(&mut walks, request.dir, &names[..20]);
                }
                walks.complete(request.id, outcome);
            }
            _ => {
                let usage = [Use::Stat, READ][usize::from(chance.chance(70))];
                walks.touch(dir, names[at].as_bytes(), usage);
                at = (at + 1 + usize::from(chance.chance(10))) % 25;
            }
        }
        let room = pick(&mut chance, 12);
        let before = requests.len();
        walks.issue(room, &mut requests);
        assert!(requests.len() - before <= room, "no more than there is room");
        for request in &requests[before..] {
            assert!(ids.insert(request.id), "{request:?} comes twice");
            assert!(request.index.is_none_or(|index| index < settings.entries_max));
            waiting.push(*request);
        }
        let stats = walks.stats();
        let ahead = usize::try_from(stats.in_flight + stats.waiting).unwrap();
        let max = settings.window_max as usize * 2 * usize::from(settings.walks_max);
        assert!(ahead <= max, "{ahead} of {max} are ahead");
    }
    // All that is still in flight comes: then nothing is.
    for request in waiting {
        walks.complete(request.id, WalkOutcome::Fetched { bytes: 1, saves: Nanos(1) });
    }
    let stats = walks.stats();
    assert_eq!(stats.in_flight, 0);
    Seen { requests, stats }
}

fn give(walks: &mut Walks, dir: DirectoryId, names: &[String]) {
    let kinds = [EntryKind::File, EntryKind::Directory, EntryKind::File, EntryKind::Other];
    let entries: Vec<Entry<'_>> = (0..)
        .zip(names)
        .map(|(at, name)| Entry {
            name: name.as_bytes(),
            inode: at * 7 % 25,
            kind: kinds[usize::try_from(at % 4).expect("four kinds")],
        })
        .collect();
    walks.listed(dir, &entries, &mut Vec::new());
}

#[test]
fn counts_balance_bounds_hold_and_the_same_calls_give_the_same_requests() {
    let mut total = WalkStats::default();
    for seed in 0..400 {
        let seen = run(seed);
        assert_eq!(seen, run(seed), "seed {seed}");
        total.walks += seen.stats.walks;
        total.used += seen.stats.used;
        total.unused += seen.stats.unused;
        total.failed += seen.stats.failed;
        total.refused += seen.stats.refused;
    }
    // The chances reach every kind of end.
    let counts = [total.walks, total.used, total.unused, total.failed, total.refused];
    assert!(counts.iter().all(|&count| count > 100), "{total:?}");
}

#[test]
fn what_is_ahead_stays_below_the_bytes_of_a_walk_and_of_all() {
    let names: Vec<String> = (0..200).map(|at| format!("{:03}", at * 73 % 200)).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    #[rustfmt::skip]
    let rows = [ // why, of a walk, of all, bytes of a file, ahead
        ("in flight a file counts all it may bring", 1_u64 << 20, 8_u64 << 20, 4_u64 << 10, 4),
        ("the budget of all",                        8 << 20,     1 << 20,     4 << 10,     4),
    ];
    for (why, ahead_bytes_max, budget_bytes, bytes, ahead) in rows {
        let settings = WalkSettings {
            ahead_bytes_max,
            budget_bytes,
            sees_all: true,
            ..WalkSettings::default()
        };
        let mut program = Program::with(&[("", &names)], settings);
        program.bytes = bytes;
        program.give("");
        program.completes = false;
        program.touch_all(&names[..20], READ);
        let stats = program.walks.stats();
        assert_eq!(stats.in_flight, ahead, "{why}");
        // As they arrive, they count what they have brought.
        program.completes = true;
        for request in std::mem::take(&mut program.waiting) {
            program.complete(request);
        }
        program.work();
        assert!(program.walks.stats().waiting > 100, "{why}: {:?}", program.walks.stats());
    }
}

#[test]
fn a_dropped_listing_drops_what_was_requested_in_it() {
    let names: Vec<String> = (0..40).map(|at| format!("{:02}", at * 17 % 40)).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut program = Program::new(&[("", &names)]);
    program.give("");
    program.touch_all(&names[..4], READ);
    let top = program.dir("");
    let before = program.walks.stats();
    assert!(before.waiting > 0);
    program.walks.changed(top);
    let after = program.walks.stats();
    assert_eq!((after.waiting, after.unused), (0, before.waiting));
    assert_eq!(after.unused_bytes, before.waiting * 1_000);
    assert_eq!(program.touch(names[5], READ), Vec::<String>::new());
}

#[test]
fn after_a_clear_nothing_is_known_and_old_answers_are_passed_over() {
    let mut program = Program::new(&[("", &["m", "c", "x", "a", "q"])]);
    program.give("");
    program.completes = false;
    program.touch_all(&["m", "c", "x"], READ);
    let old = program.waiting[0];
    program.walks.clear();
    program.ids.clear();
    assert_eq!(program.walks.stats(), WalkStats::default());
    program.give("");
    program.waiting.clear();
    program.touch_all(&["m", "c", "x"], READ);
    assert_ne!(program.waiting[0].id, old.id);
    program.walks.complete(old.id, WalkOutcome::Failed);
    assert_eq!(program.walks.stats().failed, 0);
}

#[test]
fn the_least_recently_used_listings_and_directories_give_way() {
    let mut walks = Walks::new(small(true));
    let top = walks.directory(None);
    let names: Vec<String> = (0..20).map(|at| format!("{at}")).collect();
    let dirs: Vec<DirectoryId> =
        names[..3].iter().map(|name| walks.directory(Some((top, name.as_bytes())))).collect();
    let mut dropped = Vec::new();
    let entry =
        |name: &'static str| Entry { name: name.as_bytes(), inode: 1, kind: EntryKind::File };
    let full = [entry("a"); 20];
    for &dir in &dirs {
        walks.listed(dir, &full, &mut dropped);
    }
    assert!(dropped.is_empty(), "60 entries have room");
    walks.touch(dirs[0], b"a", Use::Stat);
    walks.listed(top, &full[..1], &mut dropped);
    assert_eq!(dropped, [dirs[1]], "the first directory was used since");
    // A name that is known keeps its number; the ninth directory takes that of another.
    assert_eq!(walks.directory(Some((top, b"0"))), dirs[0]);
    let more: BTreeSet<DirectoryId> =
        names[3..8].iter().map(|name| walks.directory(Some((top, name.as_bytes())))).collect();
    assert!(more.contains(&dirs[1]) && !more.contains(&top), "{more:?}");
    assert_eq!(walks.stats().refused, 0);
    walks.listed(top, &[entry("a"); 21], &mut dropped);
    assert_eq!(walks.stats().refused, 1);
}

#[test]
fn a_directory_takes_no_number_of_one_that_it_lies_in() {
    let mut walks = Walks::new(small(true));
    let top = walks.directory(None);
    let above = walks.directory(Some((top, b"above")));
    // The table has eight: most of these take the number of an earlier one.
    for number in 0..20_u8 {
        let child = walks.directory(Some((above, &[b'a' + number])));
        assert!(child != above && child != top, "{child:?}");
    }
    assert_eq!(walks.directory(Some((top, b"above"))), above);
}

#[test]
fn a_use_costs_little_however_many_walks_have_stopped_elsewhere() {
    // The program goes by readdir in each directory, and to the next directory in no order.
    const DIRECTORIES: usize = 150;
    const FILES: usize = 120;
    let files: Vec<String> = (0..FILES).map(|at| format!("f{}", at * 53 % FILES)).collect();
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let names: Vec<String> = (0..DIRECTORIES).map(|at| format!("d{at}/")).collect();
    let mut shuffled: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut chance = Prng::new(7);
    shuffled.sort_by_cached_key(|_| chance.draw());
    let mut tree: Vec<(&str, &[&str])> = vec![("", &shuffled)];
    tree.extend(names.iter().map(|name| (name.trim_end_matches('/'), &files[..])));
    let mut program = Program::with(&tree, WalkSettings::default());
    program.give("");
    // Requests come late, so most of the entries are used before they belong to a walk.
    let mut uses = 0;
    for name in &names {
        for file in &files {
            let directory = program.dir(name.trim_end_matches('/'));
            program.walks.told(directory, file.as_bytes());
            uses += 1;
            if uses % 100 == 0 {
                program.work();
            }
        }
    }
    let stats = program.walks.stats();
    assert!(stats.walks > 30, "walks stop where a directory ends: {stats:?}");
    assert!(stats.examined < 400 * uses, "{} a use: {stats:?}", stats.examined / uses);
}
