//! Profiles in files: read back as written, one writer at a time, refusals.

use forerun_core::reap;
use forerun_testkit::Scratch;

use super::super::latency::{WaitTimes, Waits};
use super::super::measure::{Class, Order};
use super::*;

const FACTS: DeviceProfile = DeviceProfile {
    kind: DeviceKind::Parallel,
    access: Nanos(45_000_123),
    bytes_per_second: 562_345_678,
    depth: 32,
    request_bytes: 1 << 20,
};

fn place() -> Place {
    Place { device: "259:0".into(), model: "A \"B\" = [1]".into(), ..Place::default() }
}

fn profile() -> Profile {
    let class = Class { order: Order::Random, bytes: 4096, depth: 8 };
    let (latency_mean, latency_stdev) = (Nanos(1_500), Nanos(1));
    let rates = ClassRates { class, requests: 3, bytes_per_second: 7, latency_mean, latency_stdev };
    let known = Evidence { kind: true, access: false, rate: true };
    Profile::new(&place(), FACTS, known, &[rates], None)
}

#[test]
fn facts_are_read_back_as_they_were_written() {
    let mut profiles = Profiles::default();
    profiles.insert(&place(), profile());
    let other = Place { device: "8:0".into(), ..Place::default() };
    let disk = DeviceProfile {
        kind: DeviceKind::SeekBound,
        access: Nanos(1),
        bytes_per_second: 1,
        ..FACTS
    };
    let known = Evidence { kind: true, access: true, rate: true };
    profiles.insert(&other, Profile::new(&other, disk, known, &[], None));
    let text = profiles.text().expect("it can be written");
    let read = Profiles::parse(&text).expect("it can be read");
    assert_eq!(read.facts(&place()).expect("it is there").expect("it is sound"), FACTS);
    assert_eq!(read.facts(&other).expect("it is there").expect("it is sound"), disk);
    assert!(read.facts(&Place::default()).is_none());
    assert_eq!(read.text().expect("it can be written"), text);
    assert!(text.contains("assumed = [\"access\"]\n"), "{text}");
}

/// An idle machine's, with and without polling.
fn latencies(mean: u64) -> Latencies {
    let took = |mean| {
        let latency = reap::Latency { mean: Nanos(mean), stdev: Nanos(1) };
        WaitTimes { samples: 3, latency, cpu: Nanos(1_001) }
    };
    let waits = [
        Waits { bytes: 4_096, polling: Some(took(mean)), interrupt: took(45_000) },
        Waits { bytes: 8_192, polling: None, interrupt: took(90_000) },
    ];
    Latencies::idle("io_uring", waits.to_vec())
}

#[test]
fn latencies_are_read_back_stay_without_new_ones_and_may_be_missing() {
    let known = Evidence { kind: true, access: true, rate: true };
    let new = |latencies: Option<&Latencies>| Profile::new(&place(), FACTS, known, &[], latencies);
    let (old, young) = (latencies(50_000), latencies(39_999));
    #[rustfmt::skip]
    let rows = [ // before, measured        kept    wake-up of 4 KiB
        (None,       None,                  false,  None),
        (None,       Some(&young),          false,  Some("wake_us = 5.001\n")),
        (Some(&old), None,                  true,   Some("wake_us = -5.0\n")),
        (Some(&old), Some(&young),          false,  Some("wake_us = 5.001\n")),
    ];
    for (before, measured, kept, wake) in rows {
        let mut profiles = Profiles::default();
        assert!(!profiles.insert(&place(), new(before)));
        let written = profiles.text().expect("it can be written");
        let mut profiles = Profiles::parse(&written).expect("it can be read");
        assert_eq!(profiles.insert(&place(), new(measured)), kept);
        let text = profiles.text().expect("it can be written");
        assert_eq!(text.contains("latency]\nio = \"io_uring\"\n"), wake.is_some(), "{text}");
        assert!(wake.is_none_or(|wake| text.contains(wake)), "{text}");
        assert_eq!(text.matches("wake_us").count(), usize::from(wake.is_some()), "{text}");
        let read = Profiles::parse(&text).expect("it can be read");
        assert_eq!(read.text().expect("it can be written"), text);
        assert_eq!(read.facts(&place()).expect("it is there").expect("it is sound"), FACTS);
    }
}

#[test]
fn who_adds_to_a_file_has_it_alone_until_it_is_written() {
    const COUNT: u32 = 16;
    let folder = Scratch::new("store");
    let path = folder.join("devices.toml");
    let add = &|minor: u32| {
        let place = Place { device: format!("8:{minor}"), ..Place::default() };
        Profiles::update(&path, |profiles| profiles.insert(&place, profile()))
    };
    std::thread::scope(|scope| {
        let adders: Vec<_> = (0..COUNT).map(|minor| scope.spawn(move || add(minor))).collect();
        for adder in adders {
            assert!(!adder.join().expect("no panic").expect("it is written"));
        }
    });
    let profiles = Profiles::load(&path).expect("it can be read");
    assert_eq!(profiles.0.len(), COUNT as usize);
}

#[test]
fn what_cannot_be_is_refused() {
    let mut profiles = Profiles::default();
    profiles.insert(&place(), profile());
    let text = profiles.text().expect("it can be written");
    for (from, to) in [
        ("kind = \"parallel\"", "kind = \"disk\""),
        ("access_us = 45000.123", "access_us = -1.0"),
        ("access_us = 45000.123", "access_us = nan"),
        ("mb_per_second = 562.345678", "mb_per_second = 0.0"),
        ("mb_per_second = 562.345678", "mb_per_second = inf"),
        ("request_bytes = 1048576", "request_bytes = 0"),
    ] {
        assert!(text.contains(from), "{from}: {text}");
        let changed = Profiles::parse(&text.replacen(from, to, 1)).expect("it is of the form");
        assert!(changed.facts(&place()).expect("it is there").is_err(), "{to}");
    }
    for text in ["x = 1", "[x]\nkind = 1", "[x", "\u{1}"] {
        assert!(Profiles::parse(text).is_err(), "{text:?}");
    }
    assert!(Profiles::parse("").expect("no profile yet").0.is_empty());
}
