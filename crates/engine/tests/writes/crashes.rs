//! Crashes: what a flush or a durable write has answered for is there afterwards.
//!
//! ```text
//!   a slot     [n][n][n][n] ...     87 numbers, all of one write; slots cross pages
//!   after      every number of a slot: at least the last durable, at most the last begun
//! ```
//!
//! Each of four writers has its own slots, side by side in the same pages. A process is killed
//! (`FORERUN_KILLS` times, else a few), or the power of a volatile store fails.

use std::{
    env,
    fs::{self, OpenOptions},
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use forerun_core::prng::Prng;
use forerun_engine::{Access, Cache, Handle, Settings};
use forerun_io::{
    store::{Store, memory::Memory},
    wrap::{
        fault::{Fault, Faults},
        volatile::{Keep, Volatile},
    },
};
use forerun_testkit::{Scratch, on_threads, until};

use crate::rig::{EIO, failing, settings};

const WRITERS: u64 = 4;
const SLOTS: u64 = 64;
const SLOT_NUMBERS: usize = 87;
const SLOT_BYTES: u64 = SLOT_NUMBERS as u64 * 8;

/// What is known of a slot: the last write that began, and the last that is durable.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    begun: u64,
    durable: u64,
}

/// What a writer does next, before it does it; `Durable` is said afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Begun,
    Durable,
}

/// Writes to its slots until an error; `say` hears what begins and what is durable.
fn write_slots(file: &Handle, writer: u64, seed: u64, say: &dyn Fn(Said, u64, u64)) {
    let mut random = Prng::new(seed ^ writer << 32);
    let mut written = vec![0; usize::try_from(SLOTS).unwrap()];
    for number in 1.. {
        let slot = random.below(SLOTS / WRITERS) * WRITERS + writer;
        let bytes: Vec<u8> =
            [number; SLOT_NUMBERS].iter().flat_map(|n: &u64| n.to_le_bytes()).collect();
        say(Said::Begun, slot, number);
        let durable = random.below(8) == 0;
        let offset = slot * SLOT_BYTES;
        let wrote = if durable {
            file.write_durable_at(&bytes, offset)
        } else {
            file.write_at(&bytes, offset)
        };
        if wrote.is_err() {
            return;
        }
        written[usize::try_from(slot).unwrap()] = number;
        if durable {
            say(Said::Durable, slot, number);
        }
        if random.below(16) == 0 {
            if file.flush().is_err() {
                return;
            }
            for (slot, &number) in (0..).zip(&written).filter(|(_, number)| **number > 0) {
                say(Said::Durable, slot, number);
            }
        }
    }
}

/// Compares what the file holds with what is known of its slots.
fn check(contents: &[u8], slots: &[Slot], why: &str) {
    let numbers: Vec<u64> = contents
        .chunks(8)
        .map(|bytes| bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
        .collect();
    for (at, slot) in slots.iter().enumerate() {
        for nth in 0..SLOT_NUMBERS {
            let found = numbers.get(at * SLOT_NUMBERS + nth).copied().unwrap_or(0);
            let fits = slot.durable <= found && found <= slot.begun;
            assert!(fits, "{why}: number {nth} of slot {at} is {found}: {slot:?}");
        }
    }
}

#[test]
fn nothing_that_was_durable_is_lost_when_the_process_is_killed() {
    if let Some(path) = env::var_os(CHILD) {
        return write_until_killed(Path::new(&path));
    }
    let rounds = env::var("FORERUN_KILLS").map_or(4, |rounds| rounds.parse().unwrap());
    let scratch = Scratch::on_disk("kills");
    let mut random = Prng::new(u64::from(std::process::id()));
    for round in 0..rounds {
        let path = scratch.file("data", []);
        let said = said_path(&path);
        fs::write(&said, []).unwrap();
        let mut child = Command::new(env::current_exe().unwrap())
            .args([
                "--exact",
                "crashes::nothing_that_was_durable_is_lost_when_the_process_is_killed",
            ])
            .env(CHILD, &path)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // A random time, as a number of things that were said.
        let bytes = (1 + random.below(4_000)) * SAID_BYTES;
        until(|| {
            fs::metadata(&said).unwrap().len() >= bytes || child.try_wait().unwrap().is_some()
        });
        child.kill().unwrap();
        let status = child.wait().unwrap();
        assert!(status.code().is_none(), "it ended by itself: {status}");
        let slots = slots_of(&fs::read(&said).unwrap());
        check(&fs::read(&path).unwrap(), &slots, &format!("round {round}"));
    }
}

/// The child's part of the test above.
fn write_until_killed(path: &Path) {
    let settings = Settings { cache_bytes: 1 << 20, ..Settings::default() };
    let cache = Cache::new(settings).unwrap();
    let file = cache.open_with(path, Access::ReadWrite).unwrap();
    let said = OpenOptions::new().append(true).open(said_path(path)).unwrap();
    let say = |what: Said, slot: u64, number: u64| {
        let mut record = [0; 24];
        record[..8].copy_from_slice(&u64::from(what == Said::Durable).to_le_bytes());
        record[8..16].copy_from_slice(&slot.to_le_bytes());
        record[16..].copy_from_slice(&number.to_le_bytes());
        (&said).write_all(&record).unwrap();
    };
    let say: &(dyn Fn(Said, u64, u64) + Sync) = &say;
    on_threads(WRITERS, |writer| {
        let file = file.try_clone().unwrap();
        write_slots(&file, writer, u64::from(std::process::id()), &say);
    });
    unreachable!("a sound file takes every write");
}

fn said_path(path: &Path) -> PathBuf {
    path.with_extension("said")
}

fn slots_of(said: &[u8]) -> Vec<Slot> {
    let mut slots = vec![Slot::default(); usize::try_from(SLOTS).unwrap()];
    for record in said.chunks_exact(24) {
        let number = |at: usize| u64::from_le_bytes(record[at..at + 8].try_into().unwrap());
        let slot = &mut slots[usize::try_from(number(8)).unwrap()];
        let known = if number(0) == 1 { &mut slot.durable } else { &mut slot.begun };
        *known = number(16).max(*known);
    }
    slots
}

#[test]
fn nothing_that_was_durable_is_lost_when_the_power_fails() {
    let mut kept = 0;
    for seed in 0..40 {
        let memory = Memory::new(Vec::new(), 1 << 20);
        let volatile = Volatile::new(Arc::new(memory.clone()), 1 << 24);
        let fault = Arc::new(Fault::new(Arc::new(volatile.clone()), Faults::default(), seed));
        let cache = Cache::new(settings(48)).unwrap();
        let store = Arc::clone(&fault) as Arc<dyn Store>;
        let file = cache.open_store_with(store, Access::ReadWrite).unwrap();
        let slots = Mutex::new(vec![Slot::default(); usize::try_from(SLOTS).unwrap()]);
        let (said, most) = (Mutex::new(0), 200 + Prng::new(seed).below(1_500));
        let off = AtomicBool::new(false);
        on_threads(WRITERS, |writer| {
            let file = file.try_clone().unwrap();
            write_slots(&file, writer, seed, &|what, slot, number| {
                let slot = &mut slots.lock().unwrap()[usize::try_from(slot).unwrap()];
                let known = if what == Said::Durable { &mut slot.durable } else { &mut slot.begun };
                *known = number.max(*known);
                let mut said = said.lock().unwrap();
                *said += 1;
                // The store answers no more: writers end with their next flush, at the latest.
                if *said > most && !off.swap(true, Ordering::SeqCst) {
                    fault.set(failing(Some(EIO), Some(EIO)));
                }
            });
        });
        kept += volatile.crash(Keep::Some(seed)).kept;
        check(&memory.contents(), &slots.lock().unwrap(), &format!("seed {seed}"));
        cache.close().unwrap_err();
    }
    assert!(kept > 0, "no crash kept a part of what was not synced");
}

/// The file that a child of this test writes.
const CHILD: &str = "FORERUN_TEST_WRITES_TO";
const SAID_BYTES: u64 = 24;
