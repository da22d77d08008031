//! Where the program is in its list, and how far ahead of that is fetched.
//!
//! # Invariants
//! - Times are counted by the test.

use super::*;

#[test]
fn the_distance_follows_latency_and_rate_within_its_bounds() {
    #[rustfmt::skip]
    let rows = [ // a fetch takes  entries ahead, with one use each millisecond
        (millis(1),                AHEAD_MIN),
        (millis(50),               100),
        (millis(5_000),            AHEAD_MAX),
    ];
    for (took, expected) in rows {
        let mut replay = Replay::new(entries(1_000));
        assert_eq!(follow(&mut replay, |_| true, took), expected, "{took:?}");
    }
}

#[test]
fn a_program_that_is_ahead_of_the_list_is_not_waited_for() {
    let mut replay = Replay::new(entries(1_000));
    assert_eq!(issue(&mut replay).len(), AHEAD_MIN);
    for index in 0..JUDGED_MIN {
        complete(&mut replay, index, Some(millis(1)), true);
        replay.used(millis(1), index);
    }
    replay.used(millis(1), 45);
    let next = issue(&mut replay);
    assert_eq!(next[..AHEAD_MIN], (46..46 + FIRST).collect::<Vec<_>>());
    assert_eq!(next[AHEAD_MIN..], (FIRST..45).collect::<Vec<_>>(), "then the skipped");
}

#[test]
fn one_use_far_ahead_moves_nothing_and_several_do() {
    let mut replay = Replay::new(entries(1_000));
    for index in issue(&mut replay) {
        complete(&mut replay, index, Some(millis(1)), true);
    }
    for (now, far) in [500, 900, 200].into_iter().enumerate() {
        replay.used(millis(now as u64), far);
        assert_eq!(issue(&mut replay), [], "{far}");
    }
    for index in 0..FIRST {
        replay.used(millis(10), index);
    }
    assert!(issue(&mut replay).contains(&(FIRST)), "it goes on where it was");
    for index in 700..704 {
        replay.used(millis(20), index);
    }
    assert_eq!(issue(&mut replay)[0], 704);
    assert!(!replay.is_wrong());
}

#[test]
fn one_use_within_what_is_requested_is_no_position_either() {
    let mut replay = Replay::new(entries(1_000));
    let mut requested = issue(&mut replay);
    for index in 0..FIRST {
        complete(&mut replay, index, Some(millis(100)), true);
        replay.used(millis(u64::from(index)), index);
        requested.extend(issue(&mut replay));
    }
    let last = *requested.last().unwrap();
    assert!(last > 2 * FIRST + 1, "the distance has grown: {last}");
    // Those that another run used late, one in order between them.
    let rows = [(last, FIRST), (FIRST, FIRST + 1), (last - 1, FIRST + 1), (last - 20, last)];
    for (now, (used, position)) in (40..).zip(rows) {
        replay.used(millis(now), used);
        assert_eq!(replay.position, position as usize, "after {used} of {last}");
    }
}

#[test]
fn the_distance_doubles_once_in_a_fetch_where_the_program_comes_to_what_is_in_flight() {
    let took = millis(100);
    // As fast as it is, it never comes to more than ten while one is fetched.
    let at = |use_: u64| millis(200 * use_);
    let right = || {
        let mut replay = Replay::new(entries(2_000));
        for index in 0..JUDGED_MIN {
            issue(&mut replay);
            complete(&mut replay, index, Some(took), true);
            replay.used(at(u64::from(index)), index);
        }
        issue(&mut replay);
        replay
    };
    let mut replay = right();
    assert_eq!(replay.distance(), AHEAD_MIN);
    let began = at(u64::from(JUDGED_MIN));
    #[rustfmt::skip]
    let rows = [ // milliseconds later  entries ahead
        (0,                             64),
        (1,                             64),
        (99,                            64),
        (100,                           128),
        (300,                           256),
        (500,                           AHEAD_MAX),
    ];
    for (index, (later, expected)) in (JUDGED_MIN..).zip(rows) {
        replay.used(began + millis(later), index);
        replay.uses.clear();
        assert_eq!(replay.distance(), expected, "after {later} ms");
    }
    let mut wrong = Replay::new(entries(2_000));
    for index in issue(&mut wrong) {
        if index.is_multiple_of(2) {
            wrong.used(began, index);
            wrong.uses.clear();
        }
    }
    assert_eq!(wrong.distance(), AHEAD_MIN, "nothing is known of it");
}
