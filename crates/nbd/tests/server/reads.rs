//! Reads: the right bytes in the right messages, and errors where they belong.

use std::{io::Read as _, sync::Arc};

use forerun_io::{
    store::pattern::{self, Pattern},
    wrap::fault::{Fault, Faults, Rule, When},
};
use forerun_nbd::{
    BlockSizes,
    server::{Mode, ServerSettings},
};
use forerun_testkit::on_threads;

use crate::{
    client::{BLOCK_STATUS, CACHE, Client, DF, Message, READ, WRITE},
    rig::{Gated, Rig},
};

const MIB: u32 = 1 << 20;

#[test]
fn every_range_has_its_bytes() {
    let bytes = 3 * u64::from(MIB) + 123;
    let rig = Rig::pattern(bytes);
    let mut client = rig.client();
    assert_eq!((client.bytes, client.flags), (bytes, 0b101_1000_0011));
    #[rustfmt::skip]
    let rows = [ // offset, length
        (0, 1), (4095, 2), (0, 4096), (5, 256 << 10), (7, (256 << 10) + 1), (0, MIB),
        (bytes - 1, 1), (u64::from(MIB) - 3, 2 * MIB),
    ];
    for _cold_and_warm in 0..2 {
        for (offset, length) in rows {
            assert_eq!(pattern::verify(offset, &client.read(offset, length)), Ok(()), "{offset}");
        }
    }
}

#[test]
fn a_long_read_is_whole_wherever_the_cache_ends() {
    let piece = 256 << 10;
    for cached in [0, 1, piece - 1, piece, 2 * piece + 5, 4 * piece] {
        let rig = Rig::pattern(u64::from(MIB) + 7);
        let mut client = rig.client();
        if cached > 0 {
            client.read(0, cached);
        }
        for length in [MIB, MIB + 7] {
            assert_eq!(pattern::verify(0, &client.read(0, length)), Ok(()), "{cached} {length}");
        }
        drop(client);
        let metrics = rig.server.metrics();
        let line = metrics.lines().find(|line| line.starts_with("forerun_serve_read_bytes_total"));
        let told: u64 = line.unwrap().rsplit(' ').next().unwrap().parse().unwrap();
        assert_eq!(told, u64::from(cached + 2 * MIB + 7), "each byte counts once: {cached}");
    }
}

#[test]
fn simple_replies_carry_their_data_behind_them() {
    let rig = Rig::pattern(u64::from(MIB));
    let mut client = Client::simple(&rig.socket);
    assert_eq!(client.flags, 0b101_0000_0011, "no DF without structured replies");
    for length in [1, 4096, 256 << 10, MIB] {
        for _cold_and_warm in 0..2 {
            client.request(READ, 0, 9, 0, length);
            assert_eq!(client.message(), Some(Message::Simple { cookie: 9, error: 0 }));
            let mut data = vec![0; length as usize];
            client.stream.read_exact(&mut data).unwrap();
            assert_eq!(pattern::verify(0, &data), Ok(()), "{length}");
        }
    }
    client.request(READ, 0, 9, u64::from(MIB), 1);
    assert_eq!(client.message(), Some(Message::Simple { cookie: 9, error: 22 }));
    client.request(WRITE, 0, 10, 0, 3);
    client.send(b"abc");
    assert_eq!(client.message(), Some(Message::Simple { cookie: 10, error: 1 }));
}

#[test]
fn a_read_that_must_not_be_cut_comes_in_one_chunk() {
    let rig = Rig::pattern(u64::from(MIB));
    let mut client = rig.client();
    client.request(READ, DF, 3, 0, MIB);
    let Some(Message::Chunk { cookie: 3, done: false, kind: 1, payload }) = client.message() else {
        panic!("no data");
    };
    assert_eq!(pattern::verify(0, &payload[8..]), Ok(()));
    assert_eq!(payload.len(), MIB as usize + 8);
    let none = Message::Chunk { cookie: 3, done: true, kind: 0, payload: vec![] };
    assert_eq!(client.message(), Some(none));
}

#[test]
fn what_is_refused_says_why_and_the_next_request_is_served() {
    let blocks = BlockSizes { min: 512, ..BlockSizes::default() };
    let rig = Rig::of(
        Arc::new(Pattern::new(u64::from(MIB))),
        ServerSettings::default(),
        blocks,
        Mode::ReadOnly,
    );
    let mut client = rig.client();
    #[rustfmt::skip]
    let rows = [ // command, flags, offset, length, error
        (READ,         0,      1,              512,     22),
        (READ,         0,      u64::from(MIB), 512,     22),
        (READ,         1 << 9, 0,              512,     22),
        (WRITE,        0,      0,              1 << 20, 1),
        (BLOCK_STATUS, 0,      0,              0,       22),
        (99,           0,      0,              512,     22),
    ];
    for (command, flags, offset, length, expected) in rows {
        client.request(command, flags, 1, offset, length);
        if command == WRITE {
            client.send(&vec![1; length as usize]);
        }
        let (error, text, rest) = client.error();
        assert_eq!((error, rest.len()), (expected, 0), "{command} {text}");
        assert!(text.contains(&format!("{length} bytes at {offset}")), "{text}");
        assert_eq!(pattern::verify(0, &client.read(0, 512)), Ok(()), "after {command}");
    }
}

#[test]
fn hints_and_states_are_answered() {
    let rig = Rig::pattern(u64::from(MIB));
    let mut client = rig.client();
    client.request(CACHE, 0, 1, 0, MIB);
    let none = |cookie| Message::Chunk { cookie, done: true, kind: 0, payload: vec![] };
    assert_eq!(client.message(), Some(none(1)));
    client.request(BLOCK_STATUS, 0, 2, 512, 4096);
    let payload = vec![0, 0, 0, 1, 0, 0, 16, 0, 0, 0, 0, 0];
    let status = Message::Chunk { cookie: 2, done: true, kind: 5, payload };
    assert_eq!(client.message(), Some(status));
    client.request(READ, 0, 3, 0, 0);
    assert_eq!(client.message(), Some(none(3)), "a read of nothing");
}

#[test]
fn a_failing_device_is_an_error_of_the_request_alone() {
    let fault =
        Arc::new(Fault::new(Arc::new(Pattern::new(4 * u64::from(MIB))), Faults::default(), 1));
    let rig = Rig::new(Arc::clone(&fault) as _, ServerSettings::default());
    let (mut client, mut simple) = (rig.client(), Client::simple(&rig.socket));
    let reads = Rule { fail: Some((When::Every(1), 5)), ..Rule::default() };
    assert_eq!(pattern::verify(0, &client.read(0, 256 << 10)), Ok(()));
    fault.set(Faults { reads, ..Faults::default() });
    client.request(READ, 0, 1, u64::from(MIB), 4096);
    let (error, text, _) = client.error();
    assert_eq!(error, 5, "{text}");
    simple.request(READ, 0, 1, u64::from(MIB), 4096);
    assert_eq!(simple.message(), Some(Message::Simple { cookie: 1, error: 5 }));

    // The first piece is cached, the second fails.
    client.request(READ, 0, 2, 0, MIB);
    let Some(Message::Chunk { cookie: 2, done: false, kind: 1, payload }) = client.message() else {
        panic!("no data");
    };
    assert_eq!(pattern::verify(0, &payload[8..]), Ok(()));
    let (error, _, rest) = client.error();
    assert_eq!((error, rest), (5, u64::to_be_bytes(256 << 10).to_vec()), "and where");

    client.request(READ, DF, 3, 0, MIB);
    let Some(Message::Chunk { cookie: 3, done: false, kind: 1, payload }) = client.message() else {
        panic!("no data");
    };
    assert_eq!(payload.len(), 8 + MIB as usize, "one chunk, filled up");
    assert_eq!(client.error().0, 5);

    simple.request(READ, 0, 2, 0, MIB);
    assert_eq!(simple.message(), Some(Message::Simple { cookie: 2, error: 0 }));
    assert!(simple.is_over(), "the reply cannot be taken back");
    fault.set(Faults::default());
    assert_eq!(pattern::verify(0, &client.read(0, MIB)), Ok(()), "the others go on");
}

#[test]
fn a_hit_overtakes_the_miss_before_it() {
    let (store, gate) = Gated::new(u64::from(MIB));
    let rig = Rig::new(store, ServerSettings::default());
    let mut client = rig.client();
    client.read(0, 4096);
    gate.close();
    let both = [Client::head(READ, 0, 1, 8192, 4096), Client::head(READ, 0, 2, 0, 4096)];
    client.send(&both.concat());
    let cookie = |message| match message {
        Some(Message::Chunk { cookie, done: true, kind: 1, .. }) => cookie,
        other => panic!("no data: {other:?}"),
    };
    assert_eq!(cookie(client.message()), 2, "the hit");
    gate.open();
    assert_eq!(cookie(client.message()), 1, "the miss");
}

#[test]
fn misses_wait_for_the_device_together() {
    let (store, gate) = Gated::new(u64::from(MIB));
    let rig = Rig::new(store, ServerSettings::default());
    let mut client = rig.client();
    gate.close();
    let all: Vec<Vec<u8>> = (0..8).map(|at| Client::head(READ, 0, at, at * 65_536, 4096)).collect();
    client.send(&all.concat());
    gate.wait_for(8);
    gate.open();
    let mut seen = [false; 8];
    for _ in 0..8 {
        let Some(Message::Chunk { cookie, done: true, kind: 1, payload }) = client.message() else {
            panic!("no data");
        };
        assert_eq!(pattern::verify(cookie * 65_536, &payload[8..]), Ok(()));
        seen[usize::try_from(cookie).unwrap()] = true;
    }
    assert_eq!(seen, [true; 8]);
}

#[test]
fn connections_read_side_by_side() {
    let rig = Rig::pattern(8 * u64::from(MIB));
    on_threads(8, |number| {
        let mut client = rig.client();
        for at in 0..64 {
            let offset = (number * 7 + at) % 64 * 100_001;
            let data = client.read(offset, 5000 + u32::try_from(at).unwrap());
            assert_eq!(pattern::verify(offset, &data), Ok(()));
        }
    });
    assert_eq!(rig.count("connections_accepted_total"), 8);
}
