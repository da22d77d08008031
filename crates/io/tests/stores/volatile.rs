//! Crashes: what was synced stays, what was not goes, and of the rest each sector stays whole.

use std::{collections::BTreeMap, sync::Arc};

use forerun_core::prng::Prng;
use forerun_io::{
    store::{OpKind, QueueKind, Store, memory::Memory},
    wrap::{
        fault::{Fault, Faults, Rule, When},
        record::Record,
        volatile::{Crash, Keep, Volatile},
    },
};

use crate::rig::{KINDS, drain, held, one, op, write};

const EIO: i32 = rustix::io::Errno::IO.raw_os_error();
const ENOSPC: i32 = rustix::io::Errno::NOSPC.raw_os_error();
const BYTES: usize = 4_096;
const BYTES_MAX: usize = 8_192;
const SECTOR: usize = 512;

/// The store, and the memory below it.
fn store() -> (Volatile, Memory) {
    let memory = Memory::new(vec![0; BYTES], BYTES_MAX);
    (Volatile::new(Arc::new(memory.clone()), 1 << 20), memory)
}

fn as_store(store: &Volatile) -> Arc<dyn Store> {
    Arc::new(store.clone())
}

fn wrote(store: &Volatile, kind: QueueKind, offset: u64, data: &[u8]) -> Result<usize, i32> {
    one(&as_store(store), kind, write(1, offset, data)).result
}

fn synced(store: &Volatile, kind: QueueKind) -> Result<usize, i32> {
    one(&as_store(store), kind, op(OpKind::Sync, 1, 0, 0)).result
}

/// All that a reader sees.
fn contents(store: &Volatile) -> Vec<u8> {
    let done = one(&as_store(store), QueueKind::Caller, op(OpKind::Read, 1, 0, 2 * BYTES_MAX));
    let moved = done.result.unwrap();
    assert_eq!(store.bytes(), Ok(moved as u64));
    held(&done)[..moved].to_vec()
}

#[test]
fn what_was_synced_stays_and_what_was_not_goes() {
    for kind in KINDS {
        let (store, memory) = store();
        assert_eq!(wrote(&store, kind, 100, &[1; 1_000]), Ok(1_000));
        assert_eq!(memory.contents(), vec![0; BYTES], "it waits for a sync");
        assert_eq!(synced(&store, kind), Ok(0));
        assert_eq!(wrote(&store, kind, 600, &[2; 1_000]), Ok(1_000));
        let mut expected = vec![0; BYTES];
        expected[100..1_100].fill(1);
        assert_eq!(memory.contents(), expected);
        let durable = expected.clone();
        expected[600..1_600].fill(2);
        assert_eq!(contents(&store), expected, "a reader sees what waits");
        assert_eq!(store.crash(Keep::Nothing), Crash { sectors: 3, kept: 0 });
        assert_eq!(contents(&store), durable, "{kind:?}");
        assert_eq!(store.crash(Keep::Nothing), Crash::default());
        assert_eq!(store.waiting_bytes(), 0);
    }
}

#[test]
fn growth_that_was_not_synced_is_forgotten_too() {
    let (store, _) = store();
    assert_eq!(wrote(&store, QueueKind::Caller, 5_000, &[1; 10]), Ok(10));
    assert_eq!(store.bytes(), Ok(5_010));
    assert_eq!(contents(&store)[BYTES..5_000], [0; 5_000 - BYTES], "a gap is zeros");
    store.crash(Keep::Nothing);
    assert_eq!(store.bytes(), Ok(BYTES as u64));
}

#[test]
fn a_sync_covers_the_writes_reaped_before_it_was_submitted() {
    for kind in KINDS {
        let (store, _) = store();
        let queue = store.queue(kind);
        queue.submit(write(1, 0, &[1; 100]));
        drain(&queue);
        queue.submit(op(OpKind::Sync, 2, 0, 0));
        queue.submit(write(3, 0, &[3; 50]));
        queue.submit(write(4, 200, &[4; 50]));
        assert!(drain(&queue).iter().all(|done| done.result.is_ok()));
        store.crash(Keep::Nothing);
        // The later ones may be covered or not, each as a whole.
        let after = contents(&store);
        assert!(after[..50] == [1; 50] || after[..50] == [3; 50], "{kind:?}");
        assert_eq!(after[50..100], [1; 50], "{kind:?}");
        assert!(after[200..250] == [0; 50] || after[200..250] == [4; 50], "{kind:?}");
    }
}

#[test]
fn a_sync_of_another_queue_covers_them_as_well() {
    let (store, memory) = store();
    let [writes, other] = [(); 2].map(|()| store.queue(QueueKind::Caller));
    other.submit(op(OpKind::Sync, 1, 0, 0));
    writes.submit(write(1, 0, &[1; 100]));
    drain(&writes);
    drain(&other);
    assert_eq!(memory.contents()[0], 0, "it was submitted before the write was done");
    other.submit(op(OpKind::Sync, 2, 0, 0));
    drain(&other);
    assert_eq!(memory.contents()[..100], [1; 100]);
}

#[test]
fn a_crash_fails_what_was_submitted_before_it() {
    let (store, memory) = store();
    let queue = store.queue(QueueKind::Caller);
    queue.submit(write(1, 0, &[1; 100]));
    drain(&queue);
    for next in [write(2, 0, &[2; 100]), op(OpKind::Read, 3, 0, 64), op(OpKind::Sync, 4, 0, 0)] {
        queue.submit(next);
    }
    store.crash(Keep::Nothing);
    let results: Vec<_> = drain(&queue).iter().map(|done| done.result).collect();
    assert_eq!(results, [Err(EIO); 3]);
    assert_eq!(contents(&store), vec![0; BYTES]);
    assert_eq!(wrote(&store, QueueKind::Caller, 0, &[5; 100]), Ok(100), "life goes on");
    assert_eq!(synced(&store, QueueKind::Caller), Ok(0));
    assert_eq!(memory.contents()[..100], [5; 100]);
}

#[test]
fn a_sync_that_fails_covers_nothing_and_the_next_one_writes_again() {
    let memory = Memory::new(vec![0; BYTES], BYTES_MAX);
    let fail = Rule { fail: Some((When::Every(1), EIO)), ..Rule::default() };
    let faulty = Arc::new(Fault::new(Arc::new(memory), Faults::default(), 1));
    let record = Record::new(faulty.clone(), 100);
    let store = Volatile::new(Arc::new(record.clone()), 1 << 20);
    assert_eq!(wrote(&store, QueueKind::Caller, 0, &[1; 100]), Ok(100));
    faulty.set(Faults { syncs: fail, ..Faults::default() });
    let waiting = store.waiting_bytes();
    assert_eq!(synced(&store, QueueKind::Caller), Err(EIO));
    assert_eq!(store.waiting_bytes(), waiting);
    faulty.set(Faults::default());
    assert_eq!(synced(&store, QueueKind::Caller), Ok(0));
    assert_eq!(store.waiting_bytes(), 0);
    let log = record.take();
    assert_eq!((log.count(OpKind::Write), log.count(OpKind::Sync)), (2, 2));
}

#[test]
fn a_write_that_finds_no_room_is_refused_whole_until_a_sync() {
    let memory = Memory::new(vec![0; BYTES], BYTES_MAX);
    let store = Volatile::new(Arc::new(memory), 1_000);
    let kind = QueueKind::Caller;
    assert_eq!(wrote(&store, kind, 0, &[1; 600]), Ok(600));
    assert_eq!(wrote(&store, kind, 600, &[2; 600]), Err(ENOSPC));
    assert_eq!(contents(&store)[600..], [0; BYTES - 600]);
    assert_eq!(synced(&store, kind), Ok(0));
    assert_eq!(wrote(&store, kind, 600, &[2; 600]), Ok(600));
    let mut small = 0;
    while wrote(&store, kind, 0, &[3]) == Ok(1) {
        small += 1;
    }
    assert!(small < 10, "small writes are bounded by more than their bytes: {small}");
}

#[test]
fn a_read_that_is_cut_below_is_cut_above() {
    let memory = Memory::new(vec![9; BYTES], BYTES_MAX);
    let cut = Rule { cut: Some(When::Every(1)), ..Rule::default() };
    let faults = Faults { reads: cut.clone(), syncs: cut, ..Faults::default() };
    let below = Arc::new(Fault::new(Arc::new(memory), faults, 1));
    let store = Volatile::new(below, 1 << 20);
    assert_eq!(wrote(&store, QueueKind::Caller, 1_000, &[1; 10]), Ok(10));
    for _ in 0..20 {
        let done = one(&as_store(&store), QueueKind::Caller, op(OpKind::Read, 1, 0, 2_000));
        let moved = done.result.unwrap();
        let held = held(&done);
        let mut expected = vec![9; 2_000];
        expected[1_000..1_010].fill(1);
        assert_eq!(held[..moved], expected[..moved]);
        assert!(moved < 2_000 && held[moved..].iter().all(|byte| *byte == 0));
    }
}

/// What the store must hold: durable bytes, and what was written since, in order.
struct Model {
    durable: Vec<u8>,
    since: Vec<(usize, Vec<u8>)>,
}

impl Model {
    fn now(&self) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        self.since.iter().for_each(|write| lay(&mut bytes, write));
        bytes
    }

    /// Every content that each sector had since the last sync.
    fn histories(&self) -> BTreeMap<usize, Vec<Vec<u8>>> {
        let mut bytes = self.durable.clone();
        bytes.resize(BYTES_MAX, 0);
        let sectors = |bytes: &[u8]| bytes.chunks(SECTOR).map(<[u8]>::to_vec).collect::<Vec<_>>();
        let mut histories: BTreeMap<_, _> =
            sectors(&bytes).into_iter().map(|sector| vec![sector]).enumerate().collect();
        for write in &self.since {
            lay(&mut bytes, write);
            for (at, sector) in sectors(&bytes).into_iter().enumerate() {
                histories.get_mut(&at).unwrap().push(sector);
            }
        }
        histories
    }
}

fn lay(bytes: &mut Vec<u8>, (offset, data): &(usize, Vec<u8>)) {
    bytes.resize(bytes.len().max(offset + data.len()), 0);
    bytes[*offset..offset + data.len()].copy_from_slice(data);
}

#[test]
fn random_writes_syncs_and_crashes_agree_with_a_model() {
    let (mut kept, mut lost) = (0, 0);
    for seed in 0..60 {
        let mut prng = Prng::new(seed);
        let kind = KINDS[usize::try_from(seed).unwrap() % KINDS.len()];
        let (store, memory) = store();
        let mut model = Model { durable: vec![0; BYTES], since: Vec::new() };
        for step in 0..80 {
            let name = format!("seed {seed} step {step}");
            match prng.below(20) {
                0 => {
                    assert_eq!(synced(&store, kind), Ok(0), "{name}");
                    model.durable = model.now();
                    model.since.clear();
                    assert_eq!(memory.contents(), model.durable, "{name}");
                }
                1 => {
                    store.crash(Keep::Nothing);
                    model.since.clear();
                }
                2 => {
                    let crash = store.crash(Keep::Some(prng.below(u64::MAX)));
                    kept += crash.kept;
                    lost += crash.sectors - crash.kept;
                    let mut after = contents(&store);
                    let bytes = after.len();
                    after.resize(BYTES_MAX, 0);
                    for (at, history) in model.histories() {
                        let sector = &after[at * SECTOR..(at + 1) * SECTOR];
                        assert!(history.iter().any(|past| past == sector), "{name}: {at}");
                    }
                    after.truncate(bytes);
                    model = Model { durable: after, since: Vec::new() };
                }
                _ => {
                    let offset = usize::try_from(prng.below(6_000)).unwrap();
                    let bytes = 1 + usize::try_from(prng.below(1_500)).unwrap();
                    let data = vec![u8::try_from(prng.below(256)).unwrap(); bytes];
                    assert_eq!(wrote(&store, kind, offset as u64, &data), Ok(bytes), "{name}");
                    model.since.push((offset, data));
                }
            }
            assert_eq!(contents(&store), model.now(), "{name}");
        }
    }
    assert!(kept > 100 && lost > 100, "both happen: {kept} {lost}");
}

#[test]
fn a_seed_keeps_the_same_sectors_each_time() {
    let run = |seed| {
        let (store, memory) = store();
        for at in 0..8 {
            assert_eq!(wrote(&store, QueueKind::Caller, at * 512, &[7; 512]), Ok(512));
        }
        let crash = store.crash(Keep::Some(seed));
        assert_eq!(crash.sectors, 8);
        (memory.contents(), crash)
    };
    assert_eq!(run(1), run(1));
    assert!((2..20).any(|seed| run(seed) != run(1)));
}

#[test]
fn readers_beside_syncs_see_every_write_that_was_reaped() {
    let (store, _) = store();
    let syncing = store.clone();
    std::thread::scope(|scope| {
        let syncs = scope.spawn(move || {
            for _ in 0..300 {
                assert_eq!(synced(&syncing, QueueKind::Caller), Ok(0));
            }
        });
        for round in 0..300_u32 {
            let data = round.to_le_bytes();
            assert_eq!(wrote(&store, QueueKind::Caller, 1_000, &data), Ok(4));
            let done = one(&as_store(&store), QueueKind::Caller, op(OpKind::Read, 1, 1_000, 4));
            assert_eq!(held(&done)[..4], data, "round {round}");
        }
        syncs.join().unwrap();
    });
}
