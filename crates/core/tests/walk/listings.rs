//! Listings that are requested for themselves: which come first, how many wait, what becomes of
//! those that fail.
//!
//! # Invariants
//! - What is requested is taken with as much room as each test says.

use std::collections::BTreeSet;

use forerun_core::walk::{DirectoryId, Use, WalkOutcome, WalkRequest, WalkSettings, Walks, Want};

use super::program::{Program, READ};

/// What is requested where there is room for `room`.
fn issue(walks: &mut Walks, room: usize) -> Vec<WalkRequest> {
    let mut requests = Vec::new();
    walks.issue(room, &mut requests);
    requests
}

fn is_listing(request: &WalkRequest) -> bool {
    request.want == Want::Listing && request.index.is_none()
}

#[test]
fn listings_wait_for_room_once_each_and_no_more_than_a_window() {
    let settings = WalkSettings {
        directories_max: 20,
        window_min: 2,
        window_max: 8,
        ..WalkSettings::default()
    };
    let mut walks = Walks::new(settings.clone());
    let top = walks.directory(None);
    walks.listed(top, &[], &mut Vec::new());
    let mut last = Vec::new();
    // Most of these take the number of an earlier one, and there is no room for a request.
    for number in 0..1_000_u32 {
        let dir = walks.directory(Some((top, number.to_string().as_bytes())));
        walks.list(dir);
        assert_eq!(issue(&mut walks, 0), []);
        last.push(dir);
    }
    let dirs: Vec<DirectoryId> = issue(&mut walks, 10_000).iter().map(|it| it.dir).collect();
    let distinct: BTreeSet<DirectoryId> = dirs.iter().copied().collect();
    assert_eq!((dirs.len(), distinct.len()), (8, 8), "{dirs:?}");
    assert_eq!(dirs, last[992..], "those that the program came to last");
    // Those that were left out are requested as the program comes back.
    walks.list(last[985]);
    assert_eq!(issue(&mut walks, 10).iter().map(|it| it.dir).collect::<Vec<_>>(), [last[985]]);
}

#[test]
fn a_listing_that_failed_is_requested_again_later_and_not_for_ever() {
    let names: Vec<String> = (0..2_000).map(|at| format!("{at:04}")).collect();
    let mut walks = Walks::new(WalkSettings::default());
    let top = walks.directory(None);
    let mut requested_at = Vec::new();
    for (at, name) in names.iter().enumerate() {
        walks.touch(top, name.as_bytes(), Use::Stat);
        for request in issue(&mut walks, 10) {
            assert!(is_listing(&request), "{request:?}");
            requested_at.push(at);
            walks.complete(request.id, WalkOutcome::Failed);
        }
    }
    assert_eq!(requested_at, [2, 2 + 9, 11 + 65, 76 + 513], "ever later, and at last not again");
    assert_eq!(walks.stats().listings, 4);
}

#[test]
fn a_walk_goes_on_once_its_listing_has_come_after_a_failure() {
    let names: Vec<String> = (0..60).map(|at| format!("{:02}", at * 37 % 60)).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut program = Program::new(&[("", &names)]);
    program.completes = false;
    program.touch_all(&names[..3], READ);
    let failed = program.waiting.pop().expect("its listing is requested");
    assert!(is_listing(&failed), "{failed:?}");
    program.walks.complete(failed.id, WalkOutcome::Failed);
    program.completes = true;
    program.touch_all(&names[3..40], READ);
    let stats = program.walks.stats();
    assert_eq!((stats.listings, stats.walks), (2, 1), "{stats:?}");
    assert!(stats.used > 10, "{stats:?}");
    // One that came is not requested again.
    program.touch_all(&names[40..], READ);
    assert_eq!(program.walks.stats().listings, 2);
}

#[test]
fn what_a_number_has_requested_fails_for_no_other_directory() {
    let settings = WalkSettings { directories_max: 2, ..WalkSettings::default() };
    let mut walks = Walks::new(settings);
    let top = walks.directory(None);
    let first = walks.directory(Some((top, b"first")));
    walks.list(first);
    let old = issue(&mut walks, 10);
    assert_eq!(old.len(), 1, "{old:?}");
    let second = walks.directory(Some((top, b"second")));
    assert_eq!(second, first, "it takes the number");
    walks.list(second);
    assert_eq!(issue(&mut walks, 10).len(), 1);
    walks.complete(old[0].id, WalkOutcome::Failed);
    for _ in 0..20 {
        walks.list(second);
        assert_eq!(issue(&mut walks, 10), [], "its own listing is in flight");
    }
}

#[test]
fn what_the_program_is_at_is_requested_first() {
    let names: Vec<String> = (0..900).map(|at| format!("{:03}", at * 37 % 900)).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut program =
        Program::new(&[("", &["a/", "b/", "c/"]), ("a", &names), ("b", &names), ("c", &names)]);
    for dir in ["a", "b"] {
        program.give(dir);
        for name in &names[..8] {
            program.touch(&format!("{dir}/{name}"), READ);
        }
    }
    program.completes = false;
    let [a, b, c] = ["a", "b", "c"].map(|dir| program.dir(dir));
    let mut at = 8;
    // Two walks have room in their windows; there is room for one request at a time.
    for (used, other) in [(a, b), (b, a), (b, a), (a, b)] {
        for dir in [other, used] {
            program.walks.touch(dir, names[at].as_bytes(), READ);
        }
        at += 1;
        let first = issue(&mut program.walks, 1);
        assert_eq!(first.iter().map(|it| it.dir).collect::<Vec<_>>(), [used], "{first:?}");
        let both: BTreeSet<DirectoryId> =
            issue(&mut program.walks, 1_000).iter().map(|it| it.dir).collect();
        assert!(both.contains(&other), "the other one has requests as well: {both:?}");
    }
    // The listing of the directory that it comes to is what it waits for.
    for dir in [a, b] {
        program.walks.touch(dir, names[at].as_bytes(), READ);
    }
    program.walks.list(c);
    let first = issue(&mut program.walks, 1);
    assert!(is_listing(&first[0]) && first[0].dir == c, "{first:?}");
    assert!(issue(&mut program.walks, 1_000).iter().all(|it| it.dir != c));
}
