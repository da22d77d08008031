//! When the record of a device is used, kept, dropped and refused.

use alloc::string::ToString as _;

use super::*;

fn estimate(millis: u64, mb_per_second: u64, [kind, access, rate]: [bool; 3]) -> Estimate {
    Estimate {
        profile: DeviceProfile {
            kind: DeviceKind::Parallel,
            access: Nanos::from_millis(millis),
            bytes_per_second: mb_per_second * 1_000_000,
            depth: 30,
            request_bytes: 1 << 20,
        },
        known: Evidence { kind, access, rate },
    }
}

/// Why, contradictions before, evidence and the run's estimate, contradictions left.
type Case<'a> = (&'a str, u32, &'a [(u64, Estimate)], Option<u32>);

/// The same of which the kind was not seen.
fn assumed(own: Estimate) -> Estimate {
    Estimate { known: Evidence { kind: false, ..own.known }, ..own }
}

/// The same, taken for a disk.
fn disk(own: Estimate) -> Estimate {
    Estimate { profile: DeviceProfile { kind: DeviceKind::SeekBound, ..own.profile }, ..own }
}

const ALL: [bool; 3] = [true; 3];
const NONE: [bool; 3] = [false; 3];
const ACCESS: [bool; 3] = [false, true, false];
const RATE: [bool; 3] = [false, false, true];

fn record(contradictions: u32) -> DeviceRecord {
    DeviceRecord { estimate: estimate(50, 500, ALL), contradictions }
}

#[test]
fn a_record_is_used_until_the_run_has_seen_what_it_says() {
    let then = record(0).estimate;
    let (other, access, rate) =
        (estimate(40, 400, ALL), estimate(40, 100, ACCESS), estimate(8, 400, RATE));
    #[rustfmt::skip]
    let rows = [ // why              own                     used
        ("nothing was seen",         estimate(8, 100, NONE), then),
        ("the rate is not known",    access,                 then),
        ("the access is not known",  rate,                   then),
        ("all was seen",             other,                  other),
        ("but not the kind",         assumed(other),         assumed(other)),
        ("another one is assumed",   disk(assumed(other)),   assumed(other)),
        ("another one was seen",     disk(other),            disk(other)),
    ];
    for (why, own, used) in rows {
        let known = Evidence { kind: own.known.kind, ..then.known };
        let then = Estimate { known, ..then };
        let memory = DeviceMemory::new(Some(DeviceRecord { estimate: then, ..record(0) }));
        let used = if used.profile == then.profile { then } else { used };
        assert_eq!(memory.estimate(own), used, "{why}");
        assert_eq!(DeviceMemory::default().estimate(own), own, "{why}: there is no record");
    }
}

#[test]
fn a_record_goes_when_it_proves_wrong_twice_in_a_row() {
    let (same, other) = (estimate(60, 400, ALL), estimate(8, 100, ALL));
    let kind = disk(same);
    let (none, slow) = (estimate(8, 100, NONE), estimate(101, 500, ACCESS));
    let (half, double) = (estimate(25, 1_000, ALL), estimate(100, 250, ALL));
    let rate = estimate(50, 249, RATE);
    #[rustfmt::skip]
    let rows: [Case<'_>; 12] = [
        // why                         before evidence, own                       left
        ("nothing is seen",            0, &[(9, none)],                           Some(0)),
        ("half or double is the same", 0, &[(4, half), (8, double)],              Some(0)),
        ("once",                       0, &[(4, other)],                          Some(1)),
        ("the same evidence",          0, &[(4, other), (7, other)],              Some(1)),
        ("too little evidence",        0, &[(3, other)],                          Some(0)),
        ("twice",                      0, &[(4, other), (8, other)],              None),
        ("once a run, in two runs",    1, &[(4, other)],                          None),
        ("not in a row",               0, &[(4, other), (8, same), (12, other)],  Some(1)),
        ("another kind",               1, &[(4, kind)],                           None),
        ("the latency alone",          1, &[(4, slow)],                           None),
        ("the rate alone",             1, &[(4, rate)],                           None),
        ("dropped before",             2, &[],                                    None),
    ];
    for (why, before, judged, left) in rows {
        let mut memory = DeviceMemory::new(Some(record(before)));
        for &(evidence, own) in judged {
            memory.learn(evidence, &own);
        }
        assert_eq!(memory.record.map(|record| record.contradictions), left, "{why}");
        // What was dropped stays so, whatever is seen later.
        memory.learn(100, &same);
        assert_eq!(memory.record.is_some(), left.is_some(), "{why}");
    }
}

#[test]
fn what_is_kept_is_the_last_that_was_seen_in_full_and_not_in_doubt() {
    let own = estimate(40, 400, ALL);
    let of = |own| Some(DeviceRecord { estimate: own, contradictions: 0 });
    let (some, rate) = (estimate(40, 9, ACCESS), estimate(8, 400, RATE));
    let none = estimate(8, 100, NONE);
    #[rustfmt::skip]
    let rows = [ // why                 record           own   kept
        ("nothing was seen",            None,            none, None),
        ("a first run",                 None,            own,  of(own)),
        ("it saw latencies",            None,            some, of(some)),
        ("it saw a rate alone",         None,            rate, None),
        ("seen anew",                   Some(record(0)), own,  of(own)),
        ("what was known stays",        Some(record(0)), some, Some(record(0))),
        ("in doubt",                    Some(record(1)), own,  Some(record(1))),
        ("dropped",                     Some(record(2)), own,  of(own)),
    ];
    for (why, record, own, kept) in rows {
        assert_eq!(DeviceMemory::new(record).kept(own), kept, "{why}");
    }
}

#[test]
fn a_record_is_read_back_as_it_was_written_and_nothing_else_is() {
    for known in [ALL, NONE, ACCESS, RATE] {
        let mut record = DeviceRecord { estimate: estimate(50, 500, known), contradictions: 1 };
        assert_eq!(record.to_string().parse(), Ok(record));
        record.estimate.profile.kind = DeviceKind::SeekBound;
        assert_eq!(record.to_string().parse(), Ok(record));
    }
    let text = record(1).to_string();
    assert_eq!(text, "parallel 50000000 500000000 30 1048576 kar 1");
    for (from, to) in [
        ("parallel", "disk"),
        ("50000000 ", "0 "),
        ("500000000", "-1"),
        ("500000000", "9000000000000"),
        (" 30 ", " 0 "),
        ("1048576", "4294967295"),
        ("kar", "x"),
        ("kar ", ""),
        (" kar", " "),
        (" 1", " 1 "),
    ] {
        assert!(text.contains(from), "{from}");
        let wrong = text.replacen(from, to, 1);
        assert_eq!(wrong.parse::<DeviceRecord>(), Err(RecordError), "{wrong}");
    }
}
