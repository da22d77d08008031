//! Clients that do all that a client should not, many at a time, while others read and check
//! every byte.
//!
//! `FORERUN_HOSTILE_SECONDS` has them go on for so long, as `make hostile` does; without it each
//! does a number of things. What others waited meanwhile is printed, and beside it without any
//! hostile client.
//!
//! # Invariants
//! - Readers get right bytes, at any time; the server has no more connections than it may.
//! - Once the hostile ones have gone, nothing of them is left.

use std::{
    io::Write as _,
    os::unix::net::UnixStream,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use forerun_io::store::pattern::{self, Pattern};
use forerun_nbd::server::ServerSettings;
use forerun_testkit::{on_threads, until};

use crate::{
    client::{Client, READ, WRITE},
    rig::Rig,
};

const ATTACKERS: u64 = 6;
const ROUNDS: u64 = 150;
const CONNECTIONS_MAX: u32 = 24;
/// What one of them has open at a time, the newest.
const OPEN_MAX: usize = 16;
const BYTES: u64 = 8 << 20;

/// Numbers without an order.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn bytes(&mut self, count: u64) -> Vec<u8> {
        (0..count).flat_map(|_| self.next().to_le_bytes()).collect()
    }

    /// A number at an edge, or any.
    fn edge(&mut self) -> u64 {
        let edges = [0, 1, 511, 4096, BYTES - 1, BYTES, BYTES + 1, u64::MAX, u64::MAX - 4095];
        if self.below(4) == 0 { self.next() } else { edges[self.below(9) as usize] }
    }
}

/// One thing that a client should not do. The server may end the connection at any byte.
fn misbehave(rig: &Rig, random: &mut Random, open: &mut Vec<UnixStream>) {
    let Ok(mut stream) = UnixStream::connect(&rig.socket) else { return };
    let kind = random.below(9);
    if kind < 3 {
        let option = |number: u64, length: u64| {
            let number = (number as u32).to_be_bytes();
            [&b"IHAVEOPT"[..], &number, &(length as u32).to_be_bytes()].concat()
        };
        let _ = stream.write_all(&[0, 0, 0, 3]);
        let sent = match kind {
            0 => random.bytes(64),
            1 => {
                let (number, length) = (random.below(14), random.edge());
                [option(number, length), random.bytes(32)].concat()
            }
            _ => Vec::new(),
        };
        let _ = stream.write_all(&sent);
        // Half open, until others take its place or it is dropped.
        open.insert(0, stream);
        return;
    }
    drop(stream);
    let client = Client::open(&rig.socket, kind.is_multiple_of(2));
    let Some(Client { mut stream, .. }) = client else { return };
    let head = |command: u64, flags: u64, offset: u64, length: u64| {
        Client::head(command as u16, flags as u16, 7, offset, length as u32)
    };
    let sent = match kind {
        3 => random.bytes(200),
        4 => head(random.below(12), random.below(64), random.edge(), random.edge()),
        5 => (0..64).flat_map(|_| head(READ.into(), 0, 0, 1 << 20)).collect(),
        6 => [head(WRITE.into(), 0, random.below(BYTES), 1 << 16), random.bytes(8)].concat(),
        7 => {
            let mut all: Vec<u8> =
                (0..16).flat_map(|at| head(READ.into(), 0, at * 4096, 4096)).collect();
            let at = random.below(all.len() as u64) as usize;
            all[at] ^= 1 << random.below(8);
            all
        }
        _ => head(READ.into(), 0, 0, 4096)[..random.below(28) as usize].to_vec(),
    };
    for piece in sent.chunks(1 + random.below(600) as usize) {
        if stream.write_all(piece).is_err() {
            return;
        }
    }
    if random.below(3) == 0 {
        open.insert(0, stream);
    }
}

/// Reads and checks by `client` as long as it `goes_on` after so many reads; how long each took.
fn read_all(rig: &Rig, mut client: Client, goes_on: impl Fn(usize) -> bool) -> Vec<Duration> {
    let (mut random, mut took) = (Random(99), Vec::new());
    while goes_on(took.len()) {
        let offset = random.below(BYTES - (64 << 10));
        let began = Instant::now();
        let bytes = client.read(offset, 4096);
        took.push(began.elapsed());
        assert_eq!(pattern::verify(offset, &bytes), Ok(()), "{offset}");
        if took.len() % 64 == 0 {
            assert!(rig.count("connections") <= u64::from(CONNECTIONS_MAX));
        }
    }
    took.sort_unstable();
    took
}

#[test]
fn hostile_clients_end_alone_and_the_others_are_served() {
    let time = std::env::var("FORERUN_HOSTILE_SECONDS").ok();
    let time = time.map(|text| Duration::from_secs(text.parse().expect("a number of seconds")));
    let settings = ServerSettings {
        connections_max: CONNECTIONS_MAX,
        handshake_max: Duration::from_secs(1),
        send_max: Duration::from_millis(300),
        ..ServerSettings::default()
    };
    let rig = Rig::new(Arc::new(Pattern::new(BYTES)), settings);
    let reads = if time.is_some() { 100_000 } else { 200 };
    let alone = read_all(&rig, rig.client(), |count| count < reads);
    let is_over = AtomicBool::new(false);
    let goes_on = |count| count < reads || !is_over.load(Ordering::Relaxed);
    // Later the others may have all connections.
    let client = rig.client();
    let beside = thread::scope(|scope| {
        let reader = scope.spawn(|| read_all(&rig, client, goes_on));
        let began = Instant::now();
        on_threads(ATTACKERS, |number| {
            let (mut random, mut open) = (Random(number * 0x9e37_79b9 + 1), Vec::new());
            let mut round = 0;
            while time.map_or(round < ROUNDS, |time| began.elapsed() < time) {
                misbehave(&rig, &mut random, &mut open);
                open.truncate(OPEN_MAX);
                round += 1;
            }
        });
        is_over.store(true, Ordering::Relaxed);
        reader.join().unwrap()
    });
    let at = |all: &[Duration], percent: usize| all[(all.len() - 1) * percent / 100];
    println!("| | reads | median | 99 % |\n|---|---|---|---|");
    for (name, all) in [("alone", &alone), ("beside hostile clients", &beside)] {
        println!("| {name} | {} | {:?} | {:?} |", all.len(), at(all, 50), at(all, 99));
    }
    until(|| rig.count("connections") == 0);
    assert_eq!(pattern::verify(0, &rig.client().read(0, 4096)), Ok(()));
}
