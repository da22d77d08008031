//! Drivers that do not see every use, and those that are told of each read in some directories.

use forerun_core::units::Nanos;
use forerun_core::walk::{WalkOutcome, WalkSettings, Want};

use super::program::{Program, READ, SAVES};

/// Names of files, in no order but their own.
fn names(count: usize) -> Vec<String> {
    (0..count).map(|at| format!("{:04}", at * 1_373 % count)).collect()
}

fn polled(names: &[&str], bytes: u64) -> Program {
    let mut program = Program::with(&[("", names)], WalkSettings::default());
    program.bytes = bytes;
    program.give("");
    program
}

#[test]
fn a_walk_goes_on_to_the_end_whose_uses_are_met_now_and_then() {
    let names = names(3_000);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut program = polled(&names, 1_000);
    program.touch_all(&names[..8], READ);
    for at in (40..3_000).step_by(40) {
        program.touch(names[at], READ);
    }
    let stats = program.walks.stats();
    assert!(stats.requested > 2_900, "{stats:?}");
    assert!(stats.passed > 2_500, "{stats:?}");
    assert_eq!((stats.walks, stats.unused, stats.misses), (1, 0, 0), "{stats:?}");
    let (unused, _) = program.walks.not_used();
    assert_eq!(unused, stats.waiting, "what waits was not used so far");
}

#[test]
fn of_a_read_that_is_told_it_is_known_whether_a_walk_had_fetched_it_from_its_device() {
    let names = names(200);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut program = polled(&names, 1_000);
    program.completes = false;
    program.touch_all(&names[..6], READ);
    let top = program.dir("");
    let mut waiting = std::mem::take(&mut program.waiting);
    waiting.retain(|request| !names[..6].contains(&program.path(request).as_str()));
    assert!(waiting.len() > 3, "{waiting:?}");
    let ends = [Some(SAVES), Some(Nanos(0)), None];
    for (request, end) in waiting.iter().zip(ends) {
        if let Some(saves) = end {
            program.walks.complete(request.id, WalkOutcome::Fetched { bytes: 1_000, saves });
        }
    }
    #[rustfmt::skip]
    let rows = [ // the request, whether the program was saved a wait, why
        (0, true,   "it was fetched"),
        (0, false,  "it was used before"),
        (1, false,  "it was cached"),
        (2, false,  "it is in flight"),
    ];
    for (at, is_saved, why) in rows {
        let name = program.path(&waiting[at]);
        assert_eq!(program.walks.told(top, name.as_bytes()), is_saved, "{why}");
    }
    assert!(!program.walks.told(top, names[199].as_bytes()), "it was not requested");
}

#[test]
fn where_reads_are_told_what_is_passed_by_was_not_used() {
    let names = names(200);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    #[rustfmt::skip]
    let rows = [ // told, bytes, misses, why
        (false, 1_000,  false, "a poll does not see what is there"),
        (true,  1_000,  true,  "each read is told"),
        (true,  20_000, false, "what is not small may be mapped, and no read of it is told"),
    ];
    for (is_told, bytes, misses, why) in rows {
        let mut program = polled(&names, bytes);
        program.touch_all(&names[..6], READ);
        let top = program.dir("");
        for at in (10..150).step_by(5) {
            if is_told {
                program.walks.told(top, names[at].as_bytes());
                program.work();
            } else {
                program.touch(names[at], READ);
            }
        }
        let stats = program.walks.stats();
        assert_eq!(stats.misses > 0, misses, "{why}: {stats:?}");
        assert_eq!(stats.unused > 0, misses, "{why}: {stats:?}");
        assert_eq!(stats.passed > 8, !misses, "{why}: {stats:?}");
        // Without telling, a miss is none again.
        program.walks.untold(top);
        program.touch_all(&[names[150], names[155], names[160]], READ);
        assert_eq!(program.walks.stats().misses, stats.misses, "{why}");
    }
}

#[test]
fn what_was_used_has_saved_its_program_time() {
    let names = names(100);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut program = polled(&names, 1_000);
    for name in &names[..50] {
        program.touch(name, READ);
    }
    let stats = program.walks.stats();
    assert!(stats.used > 0 && stats.waiting > 0, "{stats:?}");
    assert_eq!(program.walks.take_gained(), Nanos(SAVES.0 * (stats.used + stats.passed)));
    assert_eq!(program.walks.take_gained(), Nanos(0), "it is taken once");
}

#[test]
fn bytes_ahead_follow_what_was_used() {
    let names = names(1_200);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let bytes = 200_000;
    let mut program = polled(&names, bytes);
    for (at, name) in names[..800].iter().enumerate() {
        program.touch(name, READ);
        let ahead = program.walks.ahead_bytes();
        let allowed = (8 << 20).max(at as u64 * bytes / 2) + bytes;
        assert!(ahead <= allowed, "{ahead} of {allowed} after {at}");
    }
    assert!(program.walks.ahead_bytes() > 40_000_000, "as much as a window may have");
}

#[test]
fn reads_that_are_told_lead_a_walk_through_a_tree() {
    // d00/ .. d59/, each with files, and in every third one a directory with files.
    let mut owned: Vec<(String, Vec<String>)> = Vec::new();
    let top: Vec<String> = (0..60).map(|at| format!("d{:02}/", at * 37 % 60)).collect();
    let mut visits: Vec<String> = Vec::new();
    for (at, dir) in top.iter().enumerate() {
        let dir = dir.trim_end_matches('/');
        let mut inner: Vec<String> = (0..12).map(|at| format!("f{}.h", at * 7 % 12)).collect();
        let below = format!("{dir}/sub");
        if at % 3 == 0 {
            inner.insert(5, "sub/".into());
            let files: Vec<String> = (0..9).map(|at| format!("g{}.h", at * 4 % 9)).collect();
            owned.push((below.clone(), files));
        }
        for name in &inner {
            if name == "sub/" {
                visits.extend(owned.last().unwrap().1.iter().map(|it| format!("{below}/{it}")));
            } else {
                visits.push(format!("{dir}/{name}"));
            }
        }
        owned.push((dir.to_owned(), inner));
    }
    owned.push((String::new(), top));
    let parts: Vec<(&str, Vec<&str>)> = owned
        .iter()
        .map(|(path, names)| (path.as_str(), names.iter().map(String::as_str).collect()))
        .collect();
    let tree: Vec<(&str, &[&str])> =
        parts.iter().map(|(path, names)| (*path, names.as_slice())).collect();
    let mut program = Program::with(&tree, WalkSettings::default());
    program.list("");
    program.completes = false;
    let (mut listed, mut missed) = (Vec::<String>::new(), 0);
    for visit in &visits {
        let (dir, name) = visit.rsplit_once('/').unwrap();
        let before = program.walks.stats();
        if !listed.iter().any(|it| it == dir) {
            listed.push(dir.to_owned());
            program.list(dir);
        }
        let id = program.dir(dir);
        // What was requested has come by the next read.
        for request in std::mem::take(&mut program.waiting) {
            if request.want == Want::Listing {
                let path = program.path(&request);
                listed.push(path);
            }
            program.complete(request);
        }
        program.walks.told(id, name.as_bytes());
        program.work();
        let after = program.walks.stats();
        missed += usize::from(after.used == before.used);
    }
    let stats = program.walks.stats();
    assert!(missed < 20, "{missed} of {}: {stats:?}", visits.len());
}
