//! Tables: what is requested of which entry, and where a walk goes on.

use forerun_core::walk::{EntryKind, Use, WalkSettings, Want};

use super::program::{Program, READ};

const HEAD: Use = Use::Read { to_end: false };
const FLAT: &[(&str, &[&str])] = &[("", &["m", "c", "x", "a", "q", "k", "z", "e", "s", "b"])];

#[test]
fn what_is_requested_is_what_the_last_entries_were_used_for() {
    #[rustfmt::skip]
    let rows: &[(&str, &[Use], &str)] = &[ // why, the uses of each entry, what is requested
        ("what is only asked for is only asked for", &[Use::Stat],             "Inode"),
        ("a head that is read",                      &[HEAD],                  "Head"),
        ("a file that is read to its end",           &[READ],                  "Whole"),
        ("the deepest use counts",                   &[Use::Stat, HEAD, READ], "Whole"),
        ("in any order",                             &[HEAD, Use::Stat],       "Head"),
    ];
    for (why, uses, want) in rows {
        let mut program = Program::new(FLAT);
        program.give("");
        let mut shown = Vec::new();
        for name in ["m", "c", "x"] {
            for &usage in *uses {
                shown = program.touch(name, usage);
            }
        }
        // Of the third entry's uses the first already recognises the walk.
        if uses.len() == 1 {
            let expected = ["a", "q", "k", "z"].map(|name| format!("{want} {name}"));
            assert_eq!(shown, expected, "{why}");
        }
        let next = program.touch("a", uses[0]);
        assert!(next.iter().all(|it| it.starts_with(want)), "{why}: {next:?}");
    }
}

#[test]
fn a_program_that_stops_reading_is_followed_after_eight_entries() {
    let names: Vec<String> = (0..60).map(|at| format!("{:02}", at * 37 % 60)).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut program = Program::new(&[("", &names)]);
    program.give("");
    program.touch_all(&names[..6], READ);
    let before = program.walks.stats().requested;
    // The window has gone far ahead by now: what it requests later is what the last eight need.
    let mut wants = Vec::new();
    for name in &names[6..] {
        wants.extend(program.touch(name, Use::Stat));
    }
    assert!(before >= 6, "{before} were requested");
    assert!(wants.iter().all(|want| want.starts_with("Whole") || want.starts_with("Inode")));
}

#[test]
fn a_walk_goes_on_in_the_directories_that_the_program_enters() {
    let tree: &[(&str, &[&str])] = &[
        ("", &["d/", "b/", "f/", "a/", "g/", "z"]),
        ("d", &["2", "1"]),
        ("b", &["4", "3"]),
        ("f", &["6", "5", "sub/"]),
        ("f/sub", &["9"]),
        ("a", &["8", "7"]),
        ("g", &["x"]),
    ];
    let mut program = Program::new(tree);
    program.list("");
    for dir in ["d", "b"] {
        program.list(dir);
        for entry in tree.iter().find(|(path, _)| *path == dir).unwrap().1 {
            program.touch(&format!("{dir}/{entry}"), READ);
        }
    }
    // By now d, its entries, b and its entries came one after the other.
    let stats = program.walks.stats();
    assert_eq!((stats.walks, stats.unused), (1, 0));
    let mut shown: Vec<String> = Vec::new();
    for path in ["f/6", "f/5", "f/sub/9", "a/8", "a/7", "g/x", "z"] {
        shown.extend(program.touch(path, READ));
    }
    let stats = program.walks.stats();
    assert_eq!((stats.unused, stats.misses, stats.waiting), (0, 0, 0), "{shown:?}");
    assert!(stats.used >= 8, "{stats:?} {shown:?}");
}

#[test]
fn files_of_a_kind_that_the_program_passes_over_are_not_requested() {
    let names: Vec<String> = (0..40)
        .flat_map(|at| {
            let at = at * 17 % 40;
            [format!("n{at}.c"), format!("n{at}.o")]
        })
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut program = Program::new(&[("", &names)]);
    program.give("");
    let mut shown = Vec::new();
    for name in names.iter().filter(|name| name.contains(".c")) {
        shown.extend(program.touch(name, READ));
    }
    let wrong = shown.iter().filter(|it| it.contains(".o")).count();
    assert!(wrong <= 4, "{wrong} of {}: {shown:?}", shown.len());
    assert!(shown.len() >= 34, "{shown:?}");
}

#[test]
fn links_are_requested_only_if_the_program_uses_links() {
    let tree: &[(&str, &[&str])] = &[("", &["m", "l1@", "c", "l2@", "x", "l3@", "a", "l4@", "q"])];
    for (with_links, expected) in [
        (false, vec!["Inode a", "Inode q"]),
        (true, vec!["Inode x", "Inode l3@", "Inode a", "Inode l4@"]),
    ] {
        let mut program = Program::new(tree);
        program.give("");
        let uses: &[&str] = if with_links { &["l1@", "c", "l2@"] } else { &["m", "c", "x"] };
        assert_eq!(program.touch_all(uses, Use::Stat), expected);
    }
}

#[test]
fn a_listing_is_requested_after_three_names_or_as_the_program_lists() {
    let mut program = Program::new(FLAT);
    program.completes = false;
    for (name, listings) in [("m", 0), ("c", 0), ("c", 0), ("x", 1), ("a", 1)] {
        program.touch(name, Use::Stat);
        assert_eq!(program.walks.stats().listings, listings, "after {name}");
    }
    let request = program.waiting[0];
    assert_eq!((request.index, request.want), (None, Want::Listing));
    let mut program = Program::new(FLAT);
    program.list("");
    program.list("");
    assert_eq!(program.walks.stats().listings, 1);
    // What was used before there was a listing is not requested again.
    let mut program = Program::new(FLAT);
    program.touch_all(&["m", "c", "x"], Use::Stat);
    program.touch("a", Use::Stat);
    program.touch("q", Use::Stat);
    assert_eq!(program.touch("k", Use::Stat), ["Inode z", "Inode e", "Inode s", "Inode b"]);
}

#[test]
fn the_window_doubles_with_each_hit_and_a_walk_that_misses_rests() {
    let names: Vec<String> = (0..400).map(|at| format!("{:03}", at * 173 % 400)).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut program = Program::new(&[("", &names)]);
    program.give("");
    let counts: Vec<usize> =
        names[..12].iter().map(|name| program.touch(name, Use::Stat).len()).collect();
    assert_eq!(counts, [0, 0, 4, 5, 9, 17, 33, 65, 129, 1, 1, 1]);
    // Uses far from what was requested, each a miss: two of the last eight are enough.
    let before = program.walks.stats();
    for at in [390, 370, 350] {
        program.touch(names[at], Use::Stat);
    }
    let after = program.walks.stats();
    assert_eq!(after.misses - before.misses, 2, "a walk at rest is not judged");
    let quiet: usize = names[12..76].iter().map(|name| program.touch(name, Use::Stat).len()).sum();
    assert_eq!(quiet, 0, "a walk at rest requests nothing");
    let again: usize = names[76..90].iter().map(|name| program.touch(name, Use::Stat).len()).sum();
    assert!(again > 0, "after 64 entries it is tried again");
}

#[test]
fn what_a_poll_did_not_see_is_no_miss_if_it_was_there_already() {
    let names: Vec<String> = (0..100).map(|at| format!("{:02}", at * 37 % 100)).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for (sees_all, misses) in [(false, false), (true, true)] {
        let settings = WalkSettings { sees_all, ..WalkSettings::default() };
        let mut program = Program::with(&[("", &names)], settings);
        program.give("");
        program.touch_all(&names[..6], READ);
        for at in (10..60).step_by(5) {
            program.touch(names[at], READ);
        }
        assert_eq!(program.walks.stats().misses > 0, misses, "sees all: {sees_all}");
    }
}

#[test]
fn a_jump_to_the_neighbour_in_another_order_changes_none() {
    // The next one by name comes 37 later in the listing.
    let names: Vec<String> = (0..400).map(|at| format!("{:03}", at * 173 % 400)).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let settings = WalkSettings { sees_all: false, ..WalkSettings::default() };
    let mut program = Program::with(&[("", &names)], settings);
    program.give("");
    program.touch_all(&names[..8], Use::Stat);
    let dir = program.dir("");
    let mut at = 7;
    for step in [37, 1, 37, 1, 1, 37, 37, 1, 37] {
        at += step;
        program.touch(names[at], Use::Stat);
        let walk = program.walks.walk_at(dir, names[at].as_bytes()).expect("it goes on");
        assert_eq!(walk.order, "readdir", "at {at}");
    }
    let stats = program.walks.stats();
    assert_eq!((stats.walks, stats.misses), (1, 0), "{stats:?}");
}

#[test]
fn what_is_not_seen_lies_between_uses_of_a_walk_as_far_as_requests_may_have_brought_it() {
    let names: Vec<String> = (0..4_000).map(|at| format!("{:04}", at * 1_733 % 4_000)).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    #[rustfmt::skip]
    let rows = [ // why, sees all, seeks, steps, misses
        ("polled",                         false, false, vec![40, 100],                0),
        ("further than any block",         false, false, vec![400],                    1),
        ("each use is seen",               true,  false, vec![40],                     1),
        ("a request costs the program",    false, true,  vec![40],                     1),
        ("strides that nothing confirms",  false, false, vec![100; 10],                2),
    ];
    for (why, sees_all, seeks, steps, misses) in rows {
        let settings = WalkSettings { sees_all, window_max: 4, ..WalkSettings::default() };
        let mut program = Program::with(&[("", &names)], settings);
        program.give("");
        program.walks.set_seeks(seeks);
        program.touch_all(&names[..3], Use::Stat);
        let mut at = 2;
        for step in steps {
            at += step;
            program.touch(names[at], Use::Stat);
        }
        assert_eq!(program.walks.stats().misses, misses, "{why}");
    }
}

#[test]
fn threads_that_use_neighbours_in_any_order_go_on_with_the_walk() {
    let names: Vec<String> = (0..64).map(|at| format!("{:02}", at * 37 % 64)).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut program = Program::new(&[("", &names)]);
    program.give("");
    program.touch_all(&names[..3], READ);
    for at in (3..63).step_by(2) {
        program.touch(names[at + 1], READ);
        program.touch(names[at], READ);
    }
    let stats = program.walks.stats();
    assert_eq!((stats.walks, stats.unused, stats.misses), (1, 0, 0), "{stats:?}");
    assert!(stats.used >= 59, "{stats:?}");
}

#[test]
fn a_second_pass_that_goes_deeper_is_a_walk_of_its_own() {
    let mut program = Program::new(FLAT);
    program.give("");
    let names = FLAT[0].1;
    program.touch_all(names, Use::Stat);
    assert_eq!((program.walks.stats().walks, program.walks.stats().misses), (1, 0));
    // By name now, and to the end: a, b, c, e, k, m.
    let shown = program.touch_all(&["a", "b", "c"], READ);
    assert_eq!(shown, ["Whole e", "Whole k", "Whole m", "Whole q"]);
    let stats = program.walks.stats();
    assert_eq!((stats.walks, stats.misses, stats.unused), (2, 0, 0), "{stats:?}");
}

#[test]
fn walks_that_went_wrong_make_the_next_ones_need_more_evidence() {
    let names: Vec<String> = (0..200).map(|at| format!("{:03}", at * 73 % 200)).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut program = Program::new(&[("", &names)]);
    program.give("");
    let mut needed = Vec::new();
    for start in [0, 40, 80, 120] {
        let walks = program.walks.stats().walks;
        let used = (start..).take_while(|&at| {
            program.touch(names[at], READ);
            program.walks.stats().walks == walks
        });
        needed.push(used.count() + 1);
        // Then far away, twice: each a miss.
        program.touch(names[start + 30], READ);
        program.touch(names[start + 25], READ);
    }
    assert_eq!(needed, [3, 4, 5, 6]);
}

#[test]
fn a_file_is_no_directory() {
    // The kinds are what the driver says, whatever the names are.
    assert_ne!(EntryKind::File, EntryKind::Directory);
    let mut program = Program::new(&[("", &["m/", "c/", "x/", "a", "q/"])]);
    program.give("");
    program.touch_all(&["m", "c"], Use::Stat);
    assert_eq!(program.touch("x", Use::Stat), ["Inode q"], "directories were only asked for");
}

#[test]
fn a_walk_is_told_by_its_top_and_its_order() {
    let tree: &[(&str, &[&str])] = &[("", &["d/", "z"]), ("d", &["m", "c", "x", "a", "q"])];
    let mut program = Program::new(tree);
    program.give("");
    program.give("d");
    let at = |program: &mut Program, name: &str| {
        let dir = program.dir("d");
        program.touch(&format!("d/{name}"), Use::Stat);
        program.walks.walk_at(dir, name.as_bytes())
    };
    assert_eq!(at(&mut program, "m"), None, "one entry is no walk");
    assert_eq!(at(&mut program, "c"), None);
    let third = at(&mut program, "x").expect("three are");
    assert_eq!((third.order, third.top), ("readdir", program.dir("d")));
    let fourth = at(&mut program, "a").expect("it goes on");
    assert_eq!(fourth.number, third.number, "it is the same one");
    let dir = program.dir("d");
    assert_eq!(program.walks.walk_at(dir, b"m"), None, "it is elsewhere by now");
    assert_eq!(program.walks.walk_at(dir, b"unknown"), None);
    program.walks.changed(dir);
    assert_eq!(program.walks.walk_at(dir, b"a"), None, "what is listed has changed");
}
