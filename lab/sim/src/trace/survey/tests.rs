//! What a survey counts, whole and sampled, and its bound.

use super::*;

const WHOLE: SurveySettings = SurveySettings { memory: 1 << 20, sample: Share::percent(100) };

fn survey(settings: SurveySettings, requests: &[Request], addresses: Addresses) -> TraceSummary {
    let mut survey = Survey::new(settings, addresses);
    for request in requests {
        survey.add(request).expect("it fits");
    }
    survey.finish()
}

fn keys(keys: impl IntoIterator<Item = u64>) -> Vec<Request> {
    keys.into_iter().map(|key| Request::key(key, 0)).collect()
}

#[test]
fn uses_and_gaps_are_counted() {
    // Page 1 is used at 1, 2, 4 and 8, page 2 at 3 and 7, the others once.
    let found = survey(WHOLE, &keys([1, 1, 2, 1, 5, 6, 2, 1]), Addresses::Keys);
    assert_eq!((found.requests, found.accesses, found.unique), (8, 8, 4));
    assert_eq!(found.uses, [0.5, 0.25, 0.0, 0.25, 0.0, 0.0]);
    assert_eq!(found.gaps_by_use[..4], [(2, 2.5), (1, 2.0), (1, 4.0), (0, 0.0)]);
    assert_eq!(found.gaps[..4], [1, 1, 2, 0], "gaps of 1, 2, and 4 twice");
    // 2 after 1, 5 after nothing, 6 after 5, 2 after the 1 before.
    assert_eq!((found.sequential, found.nearly_sequential), (2, 3));
}

#[test]
fn requests_are_counted() {
    let at = |device, offset, bytes, time, op| {
        let made = Request::blocks(device, offset, bytes).unwrap().unwrap();
        made.at(Nanos(time), op)
    };
    let requests = [
        at(0, 512, 4_096, 5, Op::Read),
        at(0, 4_608, 512, 6, Op::Read),
        at(7, 5_120, 65_537, 9, Op::Write),
        at(0, 5_120, 1, 9, Op::Unknown),
    ];
    let found = survey(WHOLE, &requests, Addresses::Blocks);
    assert_eq!((found.requests, found.accesses, found.unique), (4, 2 + 1 + 17 + 1, 19));
    assert_eq!((found.reads, found.writes, found.devices), (2, 1, 2));
    assert_eq!((found.bytes, found.smallest, found.largest), (70_146, 1, 65_537));
    assert_eq!((found.begins, found.ends), (Nanos(5), Nanos(9)));
    assert_eq!((found.sequential, found.nearly_sequential), (1, 2));
    let sizes: Vec<_> = found.sizes.iter().enumerate().filter(|(_, n)| **n > 0).collect();
    assert_eq!(sizes, [(0, &1), (9, &1), (12, &1), (17, &1)]);
    assert_eq!(found.footprint(), 19 * 4096);
}

#[test]
fn nothing_is_nothing() {
    let found = survey(WHOLE, &[], Addresses::Blocks);
    assert_eq!((found.requests, found.unique, found.smallest, found.begins.0), (0, 0, 0, 0));
}

#[test]
fn a_sample_tells_of_the_whole() {
    let all = keys((0..200_000).map(|i| i * i % 40_009));
    let whole = survey(SurveySettings { memory: 1 << 23, ..WHOLE }, &all, Addresses::Keys);
    let sample = SurveySettings { memory: 1 << 23, sample: Share::percent(10) };
    let part = survey(sample, &all, Addresses::Keys);
    assert_eq!((part.requests, part.accesses), (whole.requests, whole.accesses));
    assert!(part.unique.abs_diff(whole.unique) * 20 < whole.unique, "{}", part.unique);
    assert!((part.uses[3] - whole.uses[3]).abs() < 0.05);
}

#[test]
fn memory_is_bounded_and_the_way_out_is_told() {
    let mut survey = Survey::new(SurveySettings { memory: 9_600, ..WHOLE }, Addresses::Keys);
    for key in 0..100 {
        survey.add(&Request::key(key, 0)).expect("it fits");
    }
    let error = survey.add(&Request::key(100, 0)).expect_err("one more").to_string();
    assert!(error.contains("more than 100 distinct pages") && error.contains("--sample"));
    survey.add(&Request::key(5, 0)).expect("known pages take nothing");
}
