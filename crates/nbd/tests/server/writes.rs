//! Writes: what is read after them, what FLUSH and FUA make durable, and where errors belong.

use std::sync::Arc;

use forerun_io::{
    store::{Store, memory::Memory},
    wrap::{
        fault::{Fault, Faults, Rule, When},
        volatile::{Keep, Volatile},
    },
};
use forerun_nbd::server::Mode;
use forerun_testkit::on_threads;

use crate::{
    client::{Client, Message, READ, WRITE},
    rig::Rig,
};

const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const WRITE_ZEROES: u16 = 6;
const FUA: u16 = 1;
const NO_HOLE: u16 = 1 << 1;
const FAST_ZERO: u16 = 1 << 4;
const BYTES: usize = 4 << 20;

/// A volatile store over memory, and the memory.
fn stores() -> (Volatile, Memory) {
    let memory = Memory::new(vec![0xee; BYTES + 100], BYTES + 100);
    (Volatile::new(Arc::new(memory.clone()), 64 << 20), memory)
}

fn done(cookie: u64) -> Message {
    Message::Chunk { cookie, done: true, kind: 0, payload: vec![] }
}

fn write(client: &mut Client, flags: u16, offset: u64, payload: &[u8]) {
    client.request(WRITE, flags, 5, offset, u32::try_from(payload.len()).unwrap());
    client.send(payload);
    assert_eq!(client.answer(), done(5), "{} bytes at {offset}", payload.len());
}

fn at(offset: u64) -> usize {
    usize::try_from(offset).unwrap()
}

#[test]
fn what_is_written_is_read_by_every_connection() {
    let (store, _) = stores();
    let rig = Rig::writable(Arc::new(store), Mode::WriteBack);
    let (mut writer, mut reader) = (rig.client(), rig.client());
    assert_eq!(writer.flags, 0b1101_1110_1101);
    let mut model = vec![0xee; BYTES + 100];
    let end = model.len() as u64;
    #[rustfmt::skip]
    let rows = [ // offset, bytes
        (0, 4096), (8192, 65_536), (5, 1), (4095, 3), (100_000, 700_001), (1 << 20, 1 << 20),
        (end - 1, 1), (end - 5000, 5000), (0, 300_000),
    ];
    for (number, (offset, bytes)) in rows.into_iter().enumerate() {
        let payload = vec![u8::try_from(number + 1).unwrap(); bytes];
        write(&mut writer, 0, offset, &payload);
        model[at(offset)..at(offset) + bytes].copy_from_slice(&payload);
        let around = (offset.saturating_sub(100), u32::try_from(bytes + 50).unwrap());
        let length = around.1.min(u32::try_from(end - around.0).unwrap());
        let found = reader.read(around.0, length);
        assert!(found == model[at(around.0)..at(around.0) + length as usize], "row {number}");
    }
    assert!(reader.read(0, u32::try_from(end).unwrap()) == model);
}

#[test]
fn a_flush_or_fua_survives_a_crash() {
    for mode in [Mode::WriteBack, Mode::WriteThrough] {
        let (store, memory) = stores();
        let rig = Rig::writable(Arc::new(store.clone()), mode);
        let (mut client, mut other) = (rig.client(), rig.client());
        write(&mut client, 0, 0, &[1; 10_000]);
        write(&mut client, FUA, 500_000, &vec![2; 400_000]);
        write(&mut client, FUA, 7, &[3; 5]);
        if mode == Mode::WriteBack {
            write(&mut client, 0, 2 << 20, &[4; 8192]);
            other.request(FLUSH, 0, 8, 0, 0);
            assert_eq!(other.answer(), done(8), "of another connection");
        } else {
            write(&mut client, 0, 2 << 20, &[4; 8192]);
        }
        client.request(WRITE_ZEROES, FUA, 9, 600_000, 300_000);
        assert_eq!(client.answer(), done(9));
        store.crash(Keep::Nothing);
        let kept = memory.contents();
        assert!(kept[500_000..600_000].iter().all(|&byte| byte == 2), "{mode:?}");
        assert!(kept[600_000..900_000].iter().all(|&byte| byte == 0), "{mode:?}");
        assert_eq!(
            (&kept[..7], &kept[7..12], &kept[12..16]),
            (&[1; 7][..], &[3; 5][..], &[1; 4][..])
        );
        assert!(kept[2 << 20..(2 << 20) + 8192].iter().all(|&byte| byte == 4), "{mode:?}");
        assert!(kept[3 << 20..].iter().all(|&byte| byte == 0xee), "{mode:?}");
    }
}

#[test]
fn the_end_of_the_server_makes_all_durable() {
    let (store, memory) = stores();
    let mut rig = Rig::writable(Arc::new(store.clone()), Mode::WriteBack);
    let mut client = rig.client();
    write(&mut client, 0, 4096, &vec![1; 100_000]);
    rig.stop();
    rig.server.close().unwrap();
    store.crash(Keep::Nothing);
    assert!(memory.contents()[4096..104_096].iter().all(|&byte| byte == 1));
}

#[test]
fn zeroes_are_written_or_made_by_the_store() {
    let (volatile, _) = stores();
    let unable = Fault::new(Arc::new(volatile), Faults::default(), 1);
    unable.set(Faults { changes: Some(95), ..Faults::default() });
    let able = stores().0;
    for (store, fast) in [(Arc::new(able) as Arc<dyn Store>, true), (Arc::new(unable), false)] {
        let rig = Rig::writable(store, Mode::WriteBack);
        let mut client = rig.client();
        client.request(WRITE_ZEROES, FAST_ZERO, 1, 1000, 2 << 20);
        if !fast {
            assert_eq!(client.error().0, 95);
            assert!(client.read(0, 3 << 20) == vec![0xee; 3 << 20], "nothing has changed");
            client.request(WRITE_ZEROES, 0, 1, 1000, 2 << 20);
        }
        assert_eq!(client.answer(), done(1));
        let found = client.read(0, (2 << 20) + 2000);
        assert!(found[..1000].iter().all(|&byte| byte == 0xee));
        assert!(found[1000..1000 + (2 << 20)].iter().all(|&byte| byte == 0));
        assert!(found[1000 + (2 << 20)..].iter().all(|&byte| byte == 0xee));
        client.request(WRITE_ZEROES, FAST_ZERO, 2, (3 << 20) + 7, 5000);
        assert_eq!(client.answer(), done(2), "a few are fast to write");
        assert_eq!(client.read((3 << 20) + 6, 5002), [&[0xee], &[0; 5000][..], &[0xee]].concat());
    }
}

#[test]
fn zeroes_of_the_store_are_durable_with_fua() {
    let (store, memory) = stores();
    let rig = Rig::writable(Arc::new(store.clone()), Mode::WriteBack);
    let mut client = rig.client();
    write(&mut client, 0, 0, &vec![1; 3 << 20]);
    client.request(WRITE_ZEROES, FUA | NO_HOLE, 1, 4096, 2 << 20);
    assert_eq!(client.answer(), done(1));
    store.crash(Keep::Nothing);
    let kept = memory.contents();
    assert!(kept[..4096].iter().all(|&byte| byte == 1));
    assert!(kept[4096..4096 + (2 << 20)].iter().all(|&byte| byte == 0));
    assert!(kept[4096 + (2 << 20)..3 << 20].iter().all(|&byte| byte == 1));
}

#[test]
fn a_trim_discards_whole_pages_and_what_lies_past_the_end_has_no_room() {
    let (store, memory) = stores();
    let rig = Rig::writable(Arc::new(store.clone()), Mode::WriteBack);
    let mut client = rig.client();
    write(&mut client, 0, 0, &vec![1; 20_000]);
    client.request(TRIM, FUA, 1, 4000, 9000);
    assert_eq!(client.answer(), done(1));
    let expected = [vec![1; 4096], vec![0; 8192], vec![1; 20_000 - 12_288]].concat();
    assert!(client.read(0, 20_000) == expected);
    store.crash(Keep::Nothing);
    assert!(memory.contents()[..20_000] == expected);
    client.request(WRITE, 0, 4, BYTES as u64 + 99, 2);
    client.send(&[1, 1]);
    assert_eq!(client.error().0, 28, "past the end there is no room");
    client.request(WRITE, 0, 5, 0, 0);
    assert_eq!(client.answer(), done(5), "a write of nothing");
}

#[test]
fn a_failing_device_is_told_to_every_connection_that_flushes_and_nothing_is_lost() {
    let memory = Memory::new(vec![0; BYTES], BYTES);
    let fault = Arc::new(Fault::new(Arc::new(memory.clone()), Faults::default(), 1));
    let rig = Rig::writable(Arc::clone(&fault) as _, Mode::WriteBack);
    let (mut client, mut other) = (rig.client(), rig.client());
    write(&mut client, 0, 0, &[7; 4096]);
    // A connection hears of failures since its first request.
    assert!(other.read(0, 4096) == [7; 4096]);
    let syncs = Rule { fail: Some((When::Every(1), 5)), ..Rule::default() };
    fault.set(Faults { syncs, ..Faults::default() });
    client.request(WRITE, FUA, 1, 8192, 4096);
    client.send(&[8; 4096]);
    assert_eq!(client.error().0, 5, "FUA");
    client.request(FLUSH, 0, 2, 0, 0);
    assert_eq!(client.error().0, 5, "FLUSH");
    fault.set(Faults::default());
    other.request(FLUSH, 0, 3, 0, 0);
    assert_eq!(other.error().0, 5, "the failure that the other connection has not heard of");
    for client in [&mut client, &mut other] {
        // The flush reports a failure since the last one once, and then the bytes are durable.
        client.request(FLUSH, 0, 4, 0, 0);
        let first = client.answer();
        if first != done(4) {
            client.request(FLUSH, 0, 4, 0, 0);
            assert_eq!(client.answer(), done(4));
        }
    }
    assert_eq!(memory.contents()[..4096], [7; 4096]);
    assert_eq!(memory.contents()[8192..12_288], [8; 4096]);
}

#[test]
fn connections_write_side_by_side_with_many_in_flight() {
    let (store, memory) = stores();
    let rig = Rig::writable(Arc::new(store), Mode::WriteBack);
    on_threads(4, |number| {
        let mut client = rig.client();
        let part = number << 20;
        let mark = u8::try_from(number + 1).unwrap();
        for round in 0..8_u64 {
            let mut all = Vec::new();
            for request in 0..16_u64 {
                let offset = part + request * 65_536 + round * 8192;
                let flags = if request % 4 == 0 { FUA } else { 0 };
                all.extend(Client::head(WRITE, flags, request, offset, 8192));
                all.extend([mark; 8192]);
            }
            client.send(&all);
            for _ in 0..16 {
                let Some(Message::Chunk { done: true, kind: 0, .. }) = client.message() else {
                    panic!("a write failed");
                };
            }
            client.request(FLUSH, 0, 99, 0, 0);
            assert_eq!(client.answer(), done(99));
        }
        client.request(READ, 0, 1, part, 4096);
        assert!(matches!(client.message(), Some(Message::Chunk { kind: 1, .. })));
    });
    let kept = memory.contents();
    for number in 0..4_u8 {
        let part = usize::from(number) << 20;
        assert!(kept[part..part + (1 << 20)].iter().all(|&byte| byte == number + 1), "{number}");
    }
}
