//! The text of a comparison: figures as in its JSON, a time and its ends in one unit.

use forerun_core::units::Nanos;

use super::*;

fn way(device_bytes: &[u64]) -> Way {
    let of = |&device_bytes| TimedRun {
        status: 0,
        time: Nanos(1),
        user: Nanos(1),
        system: Nanos(1),
        device_bytes,
    };
    Way { name: "alone", words: Vec::new(), runs: device_bytes.iter().map(of).collect() }
}

#[test]
fn text_and_json_have_the_same_bytes_from_devices() {
    #[rustfmt::skip]
    let rows: [(&[u64], u64, Option<&str>); 6] = [ // counts, of the JSON, in the text
        (&[4_096],                        4_096, Some("4 KiB")),
        (&[0],                                0, None),
        (&[0, 8_192],                     4_096, Some("4 KiB")),
        (&[1 << 20, 3 << 20],           2 << 20, Some("2 MiB")),
        (&[1 << 20, 9 << 20, 2 << 20],  2 << 20, Some("2 MiB")),
        (&[0, 0, 512, 1_024],               256, Some("256 B")),
    ];
    for (counts, bytes, told) in rows {
        let way = way(counts);
        assert_eq!(way.device_bytes(), bytes, "{counts:?}");
        let told = told.map(|told| format!("{told} read from devices"));
        assert_eq!(way.device(), told, "{counts:?}");
    }
}

#[test]
fn a_time_and_its_ends_have_one_unit_and_as_many_decimals() {
    #[rustfmt::skip]
    let rows = [ // times              in a line of their own     with ends
        ([0.0123, 0.012, 0.5],      "12.3 ms",                 "12.3 (12.0 to 500.0) ms"),
        ([1.5, 0.9, 2.25],          "1.500 s",                 "1.500 (0.900 to 2.250) s"),
    ];
    for ([median, min, max], alone, with_ends) in rows {
        let unit = Unit::of(median);
        assert_eq!(unit.show(median), alone);
        assert_eq!(unit.summary(Summary { median, min, max }), with_ends);
    }
}
