//! Where the time of threads went, of samples that were made up.

use super::*;

#[test]
fn the_time_that_a_lone_thread_did_not_run_is_divided() {
    #[rustfmt::skip]
    let rows = [ // idle, waited, waited or slept, of that waited
        (100, 30, 40, 75, "as samples found it"),
        (100, 30, 30, 100, "all of it"),
        (100,  0, 30, 0, "nothing of it"),
        (100,  0,  0, 0, "no sample found it idle"),
        (u64::MAX, 1, 1, u64::MAX, "the largest numbers"),
    ];
    for (idle, waited, all, is, why) in rows {
        assert_eq!(share(Nanos(idle), Nanos(waited), Nanos(all)), Nanos(is), "{why}");
    }
}

#[test]
fn what_is_lost_is_what_blocked_threads_would_have_run() {
    use BlockedIn::{Entry, Fault, Nothing, Other};
    let (stat, open) = (Entry(EntryCall::Stat), Entry(EntryCall::Open));
    #[rustfmt::skip]
    let rows = [ // states, blocked in, processors, lost of 60
        ("D", Nothing, 2, 60), ("S", Nothing, 2, 0), ("R", Nothing, 2, 0),
        ("DS", Other, 2, 60), ("DD", Fault, 2, 60), ("SS", Other, 2, 0),
        ("", Nothing, 2, 0), ("S", stat, 2, 60),
        ("S", open, 2, 0), ("D", open, 2, 60),
        // Beside a thread that runs: others than waits for storage may be for a child.
        ("DR", Other, 2, 0), ("DR", Nothing, 2, 0), ("RD", Fault, 2, 30),
        ("RD", stat, 2, 30), ("RD", stat, 1, 0), ("RRD", stat, 2, 0), ("RDD", stat, 2, 30),
        ("RDD", stat, 3, 40), ("RD", stat, 64, 30), ("RRRD", stat, 4, 15),
    ];
    for (letters, met, processors, lost) in rows {
        let state = |letter| ThreadState { letter, threads: 1, delay_ticks: 0 };
        let all = letters.bytes().map(state).map(|state| States::of(state, met));
        let all = all.fold(States::default(), States::and);
        assert_eq!(all.lost(Nanos(60), processors), Nanos(lost), "{letters} on {processors}");
    }
}

#[test]
fn a_program_is_no_faster_than_its_busiest_thread() {
    let millis = Nanos::from_millis;
    let sums = WaitSums { sampled: millis(40), seen: 2, ..WaitSums::default() };
    let idle = millis(1);
    assert_eq!(sums.waited(millis(100), idle), millis(40));
    let sums = WaitSums { busiest: millis(90), ..sums };
    assert_eq!(sums.waited(millis(100), idle), millis(10));
    assert_eq!(sums.waited(millis(80), idle), Nanos(0), "samples are longer than the run");
}
