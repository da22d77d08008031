//! Every operation of a server of files, with everything that may be wrong with it: a program under
//! `run` does what it does alone, as fast, and ends.
//!
//! ```text
//!              lookup  attributes  open  read  entries  flush  release  statistics
//!   hangs        the program is over, and so is the run, while it hangs
//!   delays       equal answers, and no later
//!   fails        equal answers: ESTALE, EIO, EACCES
//!   lies         equal answers: sizes, short reads, absent entries
//! ```
//! The server falls ill before the program begins, or once the program has its files open.
//!
//! # Invariants
//! - Times are compared with those of the same program alone, and the least of several: what the
//!   machine does besides makes a time longer, never shorter.

use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use forerun_testkit::{installed, on_threads, within};
use fuser::Errno;

use crate::rig::{Reader, folder, observing, run, waits};
use crate::server::{Illness, OPERATIONS, Operation, Server};

/// Does what each line says, and tells at the end how long that took.
const PROGRAM: &str = "
import mmap, os, sys, time, zlib
folder, path = sys.argv[1:]
held, took = {}, 0
def opens(): held['fd'] = os.open(path, os.O_RDONLY)
def reads():
    data = os.read(held['fd'], 1 << 20)
    return len(data), zlib.crc32(data)
def maps(): held['map'] = mmap.mmap(held['fd'], 0, prot=mmap.PROT_READ)
def closes():
    if 'map' in held: held.pop('map').close()
    os.close(held.pop('fd'))
does = {
    'lists': lambda: sorted(os.listdir(folder)),
    'sizes': lambda: os.stat(path).st_size,
    'counts': lambda: os.statvfs(folder).f_blocks,
    'opens': opens,
    'looks': lambda: os.fstat(held['fd']).st_size,
    'reads': reads,
    'maps': maps,
    'touches': lambda: sum(held['map'][at] for at in range(0, 1 << 20, 4096)),
    'closes': closes,
    'spins': lambda: sum(range(100000)),
    'took': lambda: took,
}
for line in sys.stdin:
    began = time.monotonic()
    try: answer = does[line.strip()]()
    except OSError as error: answer = error.errno
    except (KeyError, IndexError, ValueError) as error: answer = type(error)
    took += time.monotonic() - began
    print(answer, flush=True)
";

/// Before the server falls ill, and after.
const AT_FIRST: &[&str] = &["opens", "looks", "reads", "maps", "touches"];
const THEN: &[&str] = &[
    "lists", "sizes", "counts", "opens", "looks", "reads", "reads", "reads", "reads", "reads",
    "reads", "looks", "maps", "touches", "closes", "lists",
];

fn start(mut command: Command, server: &Server) -> Reader {
    let command = command.args(["python3", "-ISc", PROGRAM]).arg(&*server.folder);
    Reader::start(command.arg(server.path("large")))
}

/// What a program answers, how it ends, and how long it took, with a server of its own, of which
/// nothing is cached.
fn session(
    command: Command,
    ill: (Operation, Illness),
    when: When,
) -> (Vec<String>, Option<i32>, f64) {
    let server = Server::mount("session").expect("another was mounted");
    let mut reader = start(command, &server);
    let mut answers = Vec::new();
    if when == When::Opened {
        answers.extend(AT_FIRST.iter().map(|line| reader.say_if_it_can(line)));
    }
    server.falls_ill(ill.0, ill.1);
    answers.extend(THEN.iter().map(|line| reader.say_if_it_can(line)));
    let took = reader.say_if_it_can("took").parse().unwrap_or(0.0);
    (answers, reader.end(), took)
}

/// Runs what follows, and tells its exit status as `run` does.
fn alone() -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "\"$0\" \"$@\"; exit $?"]);
    command
}

/// When the server falls ill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    AtFirst,
    Opened,
}

/// What may be wrong with `operation` besides that it hangs.
fn illnesses(operation: Operation, nth: usize) -> Vec<Illness> {
    let fails = [Errno::ESTALE, Errno::EIO, Errno::EACCES].map(Illness::Fails);
    let lies: &[u64] = match operation {
        Operation::Attributes => &[0, 4097, 1 << 20, (64 << 20) + 1, 1 << 40],
        Operation::Lookup | Operation::Read => &[4097, 1 << 40],
        Operation::Entries => &[1_000],
        Operation::Statistics => &[0, u64::MAX],
        Operation::Open | Operation::Flush | Operation::Release => &[],
    };
    let delay = DELAYS[nth % DELAYS.len()];
    let lies = lies.iter().map(|&size| Illness::Lies(size));
    fails.into_iter().chain(lies).chain([Illness::Delays(delay)]).collect()
}

/// Calls `check` for each row, on one of a few threads.
fn each<R: Copy + Sync>(test: &str, rows: &[R], check: impl Fn(R) + Sync) {
    if Server::mount(test).is_none() || !installed(test, "python3") {
        return;
    }
    let next = Mutex::new(rows.iter());
    on_threads(THREADS, |_| {
        loop {
            let row = next.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some(row) = row else { return };
            check(*row);
        }
    });
}

#[test]
fn programs_of_a_server_that_delays_fails_or_lies_do_what_they_do_alone() {
    let test = "programs_of_a_server_that_delays_fails_or_lies";
    let mut rows = Vec::new();
    for (nth, operation) in OPERATIONS.into_iter().enumerate() {
        for illness in illnesses(operation, nth) {
            rows.extend([When::AtFirst, When::Opened].map(|when| (operation, illness, when)));
        }
    }
    within(move || {
        each(test, &rows, |(operation, illness, when)| {
            let why = format!("{operation:?} {illness:?} {when:?}");
            let (mut least_alone, mut least) = (f64::MAX, f64::MAX);
            for _ in 0..TRIES_MAX {
                let ill = (operation, illness);
                let alone = session(alone(), ill, when);
                let ours = session(run(""), ill, when);
                assert_eq!((&ours.0, ours.1), (&alone.0, alone.1), "{why}");
                (least_alone, least) = (least_alone.min(alone.2), least.min(ours.2));
                let Illness::Delays(delay) = illness else { return };
                // Less than one request more, whatever the number of them.
                if least <= least_alone * NOISE + delay.as_secs_f64() / 2.0 {
                    return;
                }
            }
            panic!("{why}: {least} s, alone {least_alone} s");
        });
    });
}

#[test]
fn a_run_ends_whatever_operation_hangs() {
    let test = "a_run_ends_whatever_operation_hangs";
    let record = folder("whatever");
    let stats = format!("--stats-json {}", record.join("stats.json").display());
    let rows: Vec<_> = OPERATIONS
        .into_iter()
        .flat_map(|operation| ["", &*stats].map(|flags| (operation, flags.to_owned())))
        .flat_map(|(operation, flags)| {
            [true, false].map(|closes| (operation, flags.clone(), closes))
        })
        // The program's own end would hang.
        .filter(|(operation, _, closes)| *closes || *operation != Operation::Flush)
        .collect();
    within(move || {
        let rows: Vec<_> = rows.iter().map(|(o, f, c)| (*o, f.as_str(), *c)).collect();
        each(test, &rows, |(operation, flags, closes)| {
            let server = Server::mount(test).expect("another was mounted");
            let mut reader = start(run(flags), &server);
            let lines = AT_FIRST.iter().chain(closes.then_some(&"closes"));
            for line in lines {
                let answer = reader.say(line);
                assert!(!answer.contains("class"), "{operation:?} {line}: {answer}");
            }
            let observing = observing(reader.child.id());
            server.falls_ill(operation, Illness::Hangs);
            let enough = waits(observing) + POLLS;
            while server.held() == 0 && waits(observing) < enough {
                reader.say("spins");
            }
            assert_eq!(reader.end(), Some(0), "{operation:?} {flags} {closes}");
        });
    });
}

/// Most of the time servers are waited for.
const THREADS: u64 = 8;
/// Polls after which the observers have seen all that there is.
const POLLS: u64 = 40;
const DELAYS: [Duration; 4] = [
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(150),
    Duration::from_millis(200),
];
const TRIES_MAX: usize = 15;
const NOISE: f64 = 1.25;
