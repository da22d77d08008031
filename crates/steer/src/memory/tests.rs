//! Rooms of machines that are made up: files of `/proc` and `/sys` in a folder.
//!
//! # Invariants
//! - Each row of a table has a folder of its own, so that rows cannot help each other.
//! - Nothing depends on the memory of this machine, but for the test that says so.

use forerun_testkit::Scratch;

use super::*;

type Files = &'static [(&'static str, &'static str)];

const MACHINE: (&str, &str) = ("proc/meminfo", "MemAvailable: 1000 kB\n");
const TWO: Files = &[
    ("proc/self/cgroup", "0::/a/b\n"),
    ("proc/self/mountinfo", "41 31 0:38 / /cg rw - cgroup2 cgroup2 rw\n"),
];
const ONE: Files = &[
    ("proc/self/cgroup", "4:memory:/a\n"),
    ("proc/self/mountinfo", "36 31 0:37 / /cg rw - cgroup cgroup rw,memory\n"),
];

#[test]
fn the_least_of_machine_and_groups_is_free() {
    const MAX: &str = "cg/a/b/memory.max";
    const HIGH: &str = "cg/a/b/memory.high";
    const CURRENT: (&str, &str) = ("cg/a/b/memory.current", "400\n");
    const STAT: &str = "cg/a/b/memory.stat";
    const OUTER: &str = "cg/a/memory.current";
    const LIMIT: &str = "cg/a/memory.limit_in_bytes";
    const USAGE: (&str, &str) = ("cg/a/memory.usage_in_bytes", "400\n");
    const TOTAL: &str = "inactive_file 1\ntotal_inactive_file 50\ntotal_active_file 60\n";
    const BEYOND: &str = "inactive_file 18446744073709551615\nactive_file 9\n";
    let whole = 1_024_000;
    let (own, outer, top) = (Some("cg/a/b"), Some("cg/a"), Some("cg"));
    #[rustfmt::skip]
    let rows: &[(&str, Files, Files, u64, Option<&str>)] = &[
        // why               where, what its groups say                           free   bound
        ("no groups",          &[], &[],                                          whole, None),
        ("no limit",           TWO, &[(MAX, "max\n"), CURRENT],                   whole, None),
        ("beyond the machine", TWO, &[(MAX, "2000000\n"), CURRENT],               whole, None),
        ("its own limit",      TWO, &[(MAX, "1000\n"), CURRENT],                  600,   own),
        ("high before max",    TWO, &[(MAX, "1000\n"), (HIGH, "900\n"), CURRENT], 500,   own),
        ("the one around it",  TWO, &[(MAX, "1000\n"), CURRENT,
                                      ("cg/a/memory.max", "1000\n"),
                                      (OUTER, "700\n")],                          300,   outer),
        ("file pages",         TWO, &[(MAX, "700\n"), CURRENT,
                                      (STAT, "inactive_file 70\nactive_file 60\n")], 400, own),
        ("over its limit",     TWO, &[(MAX, "300\n"), CURRENT],                   0,     own),
        ("stat beyond usage",  TWO, &[(MAX, "1000\n"), CURRENT, (STAT, BEYOND)],  1_000, own),
        ("usage is unknown",  TWO, &[(MAX, "1000\n")],                           whole, None),
        ("limit is no number", TWO, &[(MAX, "lots\n"), CURRENT],                  whole, None),
        ("version 1",          ONE, &[(LIMIT, "500\n"), USAGE,
                                      ("cg/a/memory.stat", TOTAL)],               180,   outer),
        ("version 1, the top", ONE, &[("cg/memory.limit_in_bytes", "500\n"),
                                      ("cg/memory.usage_in_bytes", "100\n")],     400,   top),
        ("version 1, no limit", ONE, &[(LIMIT, "9223372036854771712\n"), USAGE],  whole, None),
    ];
    for (why, place, groups, free, group) in rows {
        let files = [&[MACHINE], *place, *groups].concat();
        let fake = Scratch::of("free", &files);
        let room = Memory::below(&fake).room();
        assert_eq!(room.free_bytes, Some(*free), "{why}");
        let bound = group.map_or(Bound::Machine, |group| Bound::Group(fake.join(group)));
        assert_eq!(room.bound, bound, "{why}");
        assert_eq!(room.pressure, 0, "{why}");
        let beyond = ["no limit", "beyond the machine"].contains(why);
        let of_groups = Memory::below(&fake).group_free_bytes();
        assert!(beyond || of_groups == group.map(|_| *free), "{why}: {of_groups:?}");
    }
}

#[test]
fn the_worse_pressure_counts() {
    let own = ("cg/a/b/memory.pressure", "some avg10=3.00 avg60=0.00 avg300=0.00 total=1\n");
    let all = ("proc/pressure/memory", "some avg10=2.00 avg60=0.00 avg300=0.00 total=1\n");
    let fake = Scratch::of("pressure", &[TWO, &[MACHINE, own, all]].concat());
    assert_eq!(Memory::below(&fake).room().pressure, 300);
    fs::write(fake.join(own.0), "some avg10=1.00 \n").unwrap();
    assert_eq!(Memory::below(&fake).room().pressure, 200);
    fs::remove_file(fake.join(all.0)).unwrap();
    assert_eq!(Memory::below(&fake).room().pressure, 100);
}

#[test]
fn what_may_be_used_falls_with_pressure() {
    #[rustfmt::skip]
    let rows = [ // why                     free             pressure   to use
        ("calm",                            Some(1_900),     0,         1_900),
        ("as calm as machines are",         Some(1_900),     100,       1_900),
        ("half way",                        Some(1_900),     1_050,     950),
        ("nearly none",                     Some(1_900),     1_999,     1),
        ("none left",                       Some(1_900),     2_000,     0),
        ("beyond",                          Some(1_900),     u32::MAX,  0),
        ("no overflow",                     Some(u64::MAX),  0,         u64::MAX),
        ("all unknown",                    None,            0,         UNKNOWN_BYTES),
        ("nothing free",                    Some(0),         0,         0),
    ];
    for (why, free_bytes, pressure, expected) in rows {
        let room = Room { free_bytes, bound: Bound::Machine, pressure };
        assert_eq!(room.bytes_to_use(), expected, "{why}");
    }
}

#[test]
fn a_machine_without_information_is_no_error() {
    let fake = Scratch::of("nothing", &[("proc/meminfo", "\u{0}\n"), ("proc/self/cgroup", "::\n")]);
    let room = Memory::below(&fake).room();
    assert_eq!(room, Room { free_bytes: None, bound: Bound::Machine, pressure: 0 });
}

#[test]
fn this_machine_tells_what_is_free() {
    let room = Memory::here().room();
    assert!(room.free_bytes.is_some_and(|bytes| bytes > 0), "{room:?}");
}
