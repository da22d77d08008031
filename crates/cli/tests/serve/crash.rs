//! `kill -9` in the middle of writes: what was answered as durable is in the file afterwards, and
//! no block is torn.
//!
//! ```text
//!   4 connections, each with blocks of its own: WRITE, WRITE with FUA, FLUSH, in random order
//!   a block holds its version everywhere; the model knows which was sent and which is durable
//!   killed after a random number of answers:  durable <= version found <= sent
//! ```
//! `FORERUN_KILLS` sets the number of rounds.

use std::{
    fs,
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use forerun_testkit::Scratch;

use crate::rig::Server;

const BLOCK: usize = 4096;
const BLOCKS: u64 = 64;
const CONNECTIONS: u64 = 4;
const FUA: u16 = 1;

/// Xorshift (Marsaglia, 2003).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// The versions of one connection's blocks.
#[derive(Clone, Default)]
struct Model {
    sent: Vec<u64>,
    answered: Vec<u64>,
    durable: Vec<u64>,
}

/// The whole block `number` of `version`.
fn block(number: u64, version: u64) -> Vec<u8> {
    (number << 32 | version).to_le_bytes().repeat(BLOCK / 8)
}

fn connect(socket: &Path) -> Option<UnixStream> {
    let mut stream = UnixStream::connect(socket).ok()?;
    stream.read_exact(&mut [0; 18]).ok()?;
    let export_name = [&[0, 0, 0, 3][..], b"IHAVEOPT", &[0, 0, 0, 1, 0, 0, 0, 0]].concat();
    stream.write_all(&export_name).ok()?;
    stream.read_exact(&mut [0; 10]).ok()?;
    Some(stream)
}

/// One request, and whether it was answered; `None` once the server is killed.
fn ask(stream: &mut UnixStream, command: u16, flags: u16, offset: u64, data: &[u8]) -> Option<()> {
    let mut request = 0x2560_9513_u32.to_be_bytes().to_vec();
    request.extend(flags.to_be_bytes());
    request.extend(command.to_be_bytes());
    request.extend(offset.to_be_bytes());
    request.extend(offset.to_be_bytes());
    request.extend(u32::try_from(data.len()).unwrap().to_be_bytes());
    request.extend(data);
    stream.write_all(&request).ok()?;
    let mut reply = [0; 16];
    stream.read_exact(&mut reply).ok()?;
    assert_eq!(reply[4..8], [0; 4], "no error");
    Some(())
}

/// Writes until the server is killed.
fn client(socket: &Path, number: u64, model: &mut Model, answers: &AtomicU64, seed: u64) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let Some(mut stream) = connect(socket) else { return };
    loop {
        let at = random.below(BLOCKS);
        let index = usize::try_from(at).unwrap();
        let global = number * BLOCKS + at;
        let answered = if random.below(8) == 0 {
            // What was answered before the flush is durable after it.
            let before = model.answered.clone();
            ask(&mut stream, 3, 0, 0, &[]).map(|()| model.durable = before)
        } else {
            let flags = if random.below(4) == 0 { FUA } else { 0 };
            model.sent[index] += 1;
            let version = model.sent[index];
            let data = block(global, version);
            ask(&mut stream, 1, flags, global * BLOCK as u64, &data).map(|()| {
                model.answered[index] = version;
                if flags == FUA {
                    model.durable[index] = version;
                }
            })
        };
        if answered.is_none() {
            return;
        }
        answers.fetch_add(1, Ordering::Relaxed);
    }
}

/// Compares the file with the model, and has the model go on from the file.
fn check(path: &Path, models: &mut [Model], round: u64) {
    let file = fs::read(path).unwrap();
    for (number, model) in models.iter_mut().enumerate() {
        for index in 0..model.sent.len() {
            let global = number as u64 * BLOCKS + index as u64;
            let start = usize::try_from(global).unwrap() * BLOCK;
            let found = &file[start..start + BLOCK];
            let word = u64::from_le_bytes(found[..8].try_into().unwrap());
            let version = word & 0xffff_ffff;
            assert!(found == block(global, version), "round {round}: block {global} is torn");
            let (durable, sent) = (model.durable[index], model.sent[index]);
            assert!(
                (durable..=sent).contains(&version),
                "round {round}: block {global} has version {version}; {durable} was durable, and \
                 {sent} was sent"
            );
            (model.sent[index], model.answered[index], model.durable[index]) =
                (version, version, version);
        }
    }
}

#[test]
fn what_was_durable_survives_a_kill() {
    let kills = std::env::var("FORERUN_KILLS");
    let rounds: u64 = kills.map_or(3, |text| text.parse().unwrap());
    let scratch = Scratch::on_disk("crash");
    let first: Vec<u8> = (0..CONNECTIONS * BLOCKS).flat_map(|number| block(number, 0)).collect();
    let path = scratch.file("disk", first);
    let zeroes = || vec![0; usize::try_from(BLOCKS).unwrap()];
    let model = Model { sent: zeroes(), answered: zeroes(), durable: zeroes() };
    let mut models = vec![model; usize::try_from(CONNECTIONS).unwrap()];
    let mut durable = 0;
    for round in 0..rounds {
        // A cache of half the disk: writes are also evicted.
        let arguments = ["--mode write-back --cache 512K", "--mode write-through --cache 512K"];
        let arguments = arguments[usize::from(round % 8 == 7)];
        let server = Server::start(Scratch::new("crash"), vec![path.clone()], arguments);
        let (socket, answers) = (server.socket(), AtomicU64::new(0));
        let mut random = Random((round + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let kill_after = 1 + random.below(400);
        thread::scope(|scope| {
            for (number, model) in (0..).zip(&mut models) {
                let (socket, answers) = (&socket, &answers);
                scope.spawn(move || client(socket, number, model, answers, round * 31 + number));
            }
            forerun_testkit::until(|| answers.load(Ordering::Relaxed) >= kill_after);
            drop(server); // By SIGKILL.
        });
        durable += models.iter().flat_map(|model| &model.durable).filter(|&&it| it > 0).count();
        check(&path, &mut models, round);
    }
    assert!(durable > 0, "some writes were durable before a kill");
}
