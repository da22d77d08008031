//! Every event through its bytes and back; bytes that are cut or foreign.

use super::{DecodeError, VERSION, decode, encode, put_varint, take_varint};
use crate::event::{Event, Hit};
use crate::prng::Prng;
use crate::units::{FileId, FrameId, HandleId, Nanos, PartitionId, RequestId};
use alloc::{format, string::String, vec, vec::Vec};

/// An event of each kind, and of each form that some have.
fn samples(hits: &[Hit]) -> Vec<Event<'_>> {
    let mut samples = others(hits);
    samples.extend(reads());
    samples.extend(writes());
    samples.extend(changes());
    samples
}

fn reads() -> [Event<'static>; 2] {
    let (request, handle) = (RequestId(u64::MAX), HandleId(7));
    [
        Event::Read {
            request,
            handle,
            first: 127,
            count: 128,
            previous_end: Some(1 << 50),
            congested: true,
        },
        Event::Read { request, handle, first: 0, count: 1, previous_end: None, congested: false },
    ]
}

fn writes() -> [Event<'static>; 2] {
    let (request, handle) = (RequestId(u64::MAX), HandleId(7));
    [
        Event::Write {
            request,
            handle,
            first: 5,
            count: 6,
            head_partial: true,
            tail_partial: false,
            durable: true,
        },
        Event::Write {
            request,
            handle,
            first: 5,
            count: 6,
            head_partial: false,
            tail_partial: true,
            durable: false,
        },
    ]
}

fn changes() -> [Event<'static>; 2] {
    let (request, handle) = (RequestId(u64::MAX), HandleId(7));
    [
        Event::Change {
            request,
            handle,
            first: 3,
            count: u64::MAX,
            keeps_first: true,
            file_pages: Some(4),
            durable: false,
        },
        Event::Change {
            request,
            handle,
            first: 1 << 50,
            count: 1,
            keeps_first: false,
            file_pages: None,
            durable: true,
        },
    ]
}

fn others(hits: &[Hit]) -> Vec<Event<'_>> {
    let (request, handle) = (RequestId(u64::MAX), HandleId(7));
    let (file, frame, first) = (FileId(9), FrameId(300), FrameId(70_000));
    let partition = PartitionId(2);
    vec![
        Event::Open { handle, file, partition, file_pages: 1 << 40 },
        Event::Close { handle },
        Event::Hits { hits },
        Event::Marker {
            handle,
            hit: Hit { frame, generation: 3 },
            count: 5,
            previous_end: None,
            congested: true,
        },
        Event::Filled { request, frame },
        Event::Flush { request, handle },
        Event::Cancel { request },
        Event::Arrived { first, count: 256 },
        Event::Failed { first, count: 1, errno: -5 },
        Event::Written { first, count: 2 },
        Event::WriteFailed { first, count: 3, errno: 28 },
        Event::Synced { file, errno: 5 },
        Event::Truncate { file, pages: 3 },
        Event::Invalidate { file, first: 4, count: u64::MAX },
        Event::Pinned { frame },
        Event::Settled,
        Event::Resize { partition, frames: 1024 },
        Event::Policy { partition, policy: 3 },
        Event::Tick,
        Event::Prefetch { handle, first: 1 << 60, count: u32::MAX },
        Event::Changed { request, errno: 95 },
    ]
}

#[test]
fn every_event_survives_the_journal_and_every_cut_is_an_error() {
    let batch = [
        Hit { frame: FrameId(0), generation: 1 },
        Hit { frame: FrameId(u32::MAX), generation: u32::MAX },
    ];
    for event in samples(&batch) {
        let mut bytes = Vec::new();
        encode(Nanos(123_456_789), &event, &mut bytes);
        let mut hits = vec![Hit { frame: FrameId(1), generation: 1 }];
        let decoded = decode(&bytes, &mut hits);
        assert_eq!(decoded, Ok((Nanos(123_456_789), event, bytes.len())));
        for cut in 0..bytes.len() {
            assert_eq!(decode(&bytes[..cut], &mut hits), Err(DecodeError::Cut), "{event:?}");
        }
    }
}

/// A journal of an older build is read by this one: where this list has to change, not only to
/// grow, [`VERSION`] goes up.
#[test]
fn the_bytes_of_each_event_are_those_of_the_version() {
    let hits = [Hit { frame: FrameId(3), generation: 1 }, Hit { frame: FrameId(4), generation: 2 }];
    let written: Vec<_> = samples(&hits)
        .iter()
        .map(|event| {
            let mut bytes = Vec::new();
            encode(Nanos(300), event, &mut bytes);
            bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
        })
        .collect();
    assert_eq!(VERSION, 6);
    assert_eq!(written, WRITTEN);
}

/// The events of [`samples`] at 300 ns, by their version.
#[rustfmt::skip]
const WRITTEN: [&str; 27] = [
    "01ac02070902808080808020",
    "02ac0207",
    "04ac020203010402",
    "05ac0207ac0203050100",
    "07ac02ffffffffffffffffff01ac02",
    "08ac02ffffffffffffffffff0107",
    "09ac02ffffffffffffffffff01",
    "0aac02f0a2048002",
    "0bac02f0a20401fbffffff0f",
    "0cac02f0a20402",
    "0dac02f0a204031c",
    "0eac020905",
    "0fac020903",
    "10ac020904ffffffffffffffffff01",
    "11ac02ac02",
    "12ac02",
    "13ac02028008",
    "18ac020203",
    "14ac02",
    "15ac0207808080808080808010ffffffff0f",
    "17ac02ffffffffffffffffff015f",
    "03ac02ffffffffffffffffff01077f8001038080808080808002",
    "03ac02ffffffffffffffffff010700010000",
    "06ac02ffffffffffffffffff0107050605",
    "06ac02ffffffffffffffffff0107050602",
    "16ac02ffffffffffffffffff010703ffffffffffffffffff010304",
    "16ac02ffffffffffffffffff01078080808080808002010400",
];

#[test]
fn a_number_survives_and_a_cut_or_long_one_is_an_error() {
    for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
        let mut bytes = Vec::new();
        put_varint(value, &mut bytes);
        let mut input = bytes.as_slice();
        assert_eq!((take_varint(&mut input), input.len()), (Ok(value), 0));
        for cut in 0..bytes.len() {
            assert_eq!(
                take_varint(&mut &bytes[..cut]),
                Err(DecodeError::Cut),
                "{value} cut at {cut}"
            );
        }
    }
    assert_eq!(take_varint(&mut [0xff; 12].as_slice()), Err(DecodeError::OutOfRange));
    let above = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2];
    assert_eq!(take_varint(&mut above.as_slice()), Err(DecodeError::OutOfRange));
}

#[test]
fn foreign_bytes_are_errors_not_panics() {
    let mut hits = Vec::new();
    assert_eq!(decode(&[0, 0], &mut hits), Err(DecodeError::UnknownTag(0)));
    assert_eq!(decode(&[99, 0], &mut hits), Err(DecodeError::UnknownTag(99)));
    let too_long = [18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02];
    assert_eq!(decode(&too_long, &mut hits), Err(DecodeError::OutOfRange));
    let top = [18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
    assert_eq!(decode(&top, &mut hits), Ok((Nanos(u64::MAX), Event::Settled, 11)));
    let wide_frame = [17, 0, 0x80, 0x80, 0x80, 0x80, 0x10];
    assert_eq!(decode(&wide_frame, &mut hits), Err(DecodeError::OutOfRange));
    let flags_of_four_bits = [3, 0, 1, 1, 1, 1, 4, 0];
    assert_eq!(decode(&flags_of_four_bits, &mut hits), Err(DecodeError::OutOfRange));
    let mut random = Prng::new(1);
    for _ in 0..20_000 {
        let length = random.below(24);
        let bytes: Vec<u8> =
            (0..length).map(|_| u8::try_from(random.below(256)).unwrap()).collect();
        if let Ok((_, _, used)) = decode(&bytes, &mut hits) {
            assert!(used <= bytes.len());
        }
    }
}
