//! Every operation of a server of files, with everything that may be wrong with it: a program under
//! `run` does what it does alone, waits for no more, and ends.
//!
//! ```text
//!     lookup  attributes  open  read  write  sync  entries  flush  release  statistics
//!   hangs        the program is over, and so is the run, while it hangs
//!   takes turns  equal answers, and no more turns that the program waits for
//!   fails        equal answers: ESTALE, EIO, EACCES
//!   lies         equal answers: sizes, short reads, absent entries
//! ```
//! The server falls ill before the program begins, or once the program has its files open.
//!
//! # Invariants
//! - No time is compared. A server that takes turns answers all that it holds when the program
//!   waits and has nothing else to do: what counts is how often, whatever the machine does besides.
//! - Under `run` the observers have polled, or wait for the server, before the program goes on.
//! - The least of several is compared: the kernel reads ahead of a program as it likes. Of
//!   `explain` answers and ends alone are compared.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use forerun_testkit::{Scratch, installed, on_threads, until, within};
use fuser::Errno;
use rustix::fs::{Advice, fadvise};

use crate::rig::{Reader, explain, folder, is_waiting, observing, run, shim, waits};
use crate::server::{Illness, OPERATIONS, Operation, Server};

/// Does what each line says.
const PROGRAM: &str = "
import mmap, os, sys, zlib
folder, path = sys.argv[1:]
held = {}
def opens(): held['fd'] = os.open(path, os.O_RDONLY)
def reads():
    data = os.read(held['fd'], 1 << 20)
    return len(data), zlib.crc32(data)
def maps(): held['map'] = mmap.mmap(held['fd'], 0, prot=mmap.PROT_READ)
def begins():
    held['out'] = os.open(path, os.O_RDWR)
    return os.lseek(held['out'], 32 << 20, os.SEEK_SET)
def closes():
    if 'map' in held: held.pop('map').close()
    if 'out' in held: os.close(held.pop('out'))
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
    'begins': begins,
    'writes': lambda: os.write(held['out'], bytes(65536)),
    'syncs': lambda: os.fsync(held['out']),
    'closes': closes,
    'spins': lambda: sum(range(100000)),
    'number': os.getpid,
}
for line in sys.stdin:
    try: answer = does[line.strip()]()
    except OSError as error: answer = error.errno
    except (KeyError, IndexError, ValueError) as error: answer = type(error)
    print(answer, flush=True)
";

/// Before the server falls ill, and after.
const AT_FIRST: &[&str] =
    &["opens", "looks", "reads", "maps", "touches", "begins", "writes", "syncs"];
const THEN: &[&str] = &[
    "lists", "sizes", "counts", "opens", "looks", "reads", "reads", "reads", "reads", "reads",
    "reads", "looks", "maps", "touches", "begins", "writes", "writes", "writes", "syncs", "closes",
    "lists",
];

fn start(mut command: Command, server: &Server) -> Reader {
    let command = command.args(["python3", "-ISc", PROGRAM]).arg(&*server.folder);
    Reader::start(command.arg(server.path("large")))
}

/// What a program did.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Session {
    answers: Vec<String>,
    status: Option<i32>,
}

/// What a program does with a server of its own, of which nothing is cached, and how many of its
/// turns it waits for.
fn session(way: Way, ill: (Operation, Illness), when: When) -> (Session, u32) {
    let server = Server::mount("session").expect("another was mounted");
    let lists = Scratch::new("lists");
    if way == Way::Learned {
        learns(&lists, &server);
    }
    if when == When::AtFirst {
        server.falls_ill(ill.0, ill.1);
    }
    let mut reader = start(way.command(&lists), &server);
    let (program, mut answers, mut turns) = (reader.say("number"), Vec::new(), 0);
    let observing = (way != Way::Alone).then(|| observing(reader.child.id()));
    if when == When::Opened {
        answers.extend(AT_FIRST.iter().map(|line| reader.say_if_it_can(line)));
        server.falls_ill(ill.0, ill.1);
    }
    for line in THEN {
        if let (Some(observing), Illness::TakesTurns) = (observing, ill.1) {
            let enough = waits(observing) + 1;
            until(|| server.held() > 0 || waits(observing) >= enough);
        }
        answers.push(in_turns(&server, &mut reader, &program, line, &mut turns));
    }
    server.heals();
    (Session { answers, status: reader.end() }, turns)
}

/// The program runs once, and what it used is learned; nothing of the files is cached then.
fn learns(lists: &Path, server: &Server) {
    let mut reader = start(Way::Learned.command(lists), server);
    for line in AT_FIRST.iter().chain(THEN) {
        reader.say(line);
    }
    assert_eq!(reader.end(), Some(0));
    let file = File::open(server.path("large")).expect("the server is well");
    fadvise(&file, 0, None, Advice::DontNeed).expect("advice is taken");
}

/// Has the program do what `line` says; the server takes a turn each time that it waits.
fn in_turns(
    server: &Server,
    reader: &mut Reader,
    program: &str,
    line: &str,
    turns: &mut u32,
) -> String {
    if !reader.hears(line) {
        return String::new();
    }
    let program = format!("/proc/{program}");
    // It does not wait for a line before it has answered, so what it waits for is the server. A
    // request wakes the server before its sender sleeps: idle after the program was seen to wait,
    // the server has taken that request. So the order of the three matters.
    let is_held = || is_waiting(&program) && server.is_idle() && server.held() > 0;
    until(|| {
        if is_held() && !reader.has_answered() {
            *turns += 1;
            server.takes_a_turn();
        }
        reader.has_answered()
    });
    reader.answer()
}

/// How the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Alone,
    Run,
    Shim,
    Explain,
    /// With a list of what it used before.
    Learned,
}

impl Way {
    /// Runs what follows, and tells its exit status as `run` does.
    fn command(self, lists: &Path) -> Command {
        let mut command = match self {
            Self::Alone => Command::new("sh"),
            Self::Run => run(""),
            Self::Shim => run("--observe preload"),
            Self::Explain => explain(&format!("-o {}", lists.join("page.html").display())),
            Self::Learned => run("--learn auto"),
        };
        if self == Self::Alone {
            command.args(["-c", "\"$0\" \"$@\"; exit $?"]);
        }
        if self == Self::Explain {
            command.stderr(Stdio::null());
        }
        command.env("FORERUN_PRELOAD", shim()).env("XDG_STATE_HOME", lists);
        command
    }
}

/// When the server falls ill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    AtFirst,
    Opened,
}

/// What may be wrong with `operation` besides that it hangs.
fn illnesses(operation: Operation) -> Vec<Illness> {
    let fails = [Errno::ESTALE, Errno::EIO, Errno::EACCES].map(Illness::Fails);
    let lies: &[u64] = match operation {
        Operation::Attributes => &[0, 4097, 1 << 20, (64 << 20) + 1, 1 << 40],
        Operation::Lookup | Operation::Read => &[4097, 1 << 40],
        Operation::Write => &[0, 4096],
        Operation::Entries => &[1_000],
        Operation::Statistics => &[0, u64::MAX],
        Operation::Open | Operation::Sync | Operation::Flush | Operation::Release => &[],
    };
    let lies = lies.iter().map(|&size| Illness::Lies(size));
    fails.into_iter().chain(lies).chain([Illness::TakesTurns]).collect()
}

/// The ways that give equal answers. What a list has fetched while the server was well is read
/// well; and where a server tells two sizes the kernel believes the last, to any process.
fn ways(operation: Operation, illness: Illness, when: When) -> &'static [Way] {
    let is_of_size = match operation {
        Operation::Read => when == When::Opened || matches!(illness, Illness::Lies(_)),
        Operation::Lookup | Operation::Attributes => matches!(illness, Illness::Lies(_)),
        _ => false,
    };
    let takes_turns = matches!(illness, Illness::TakesTurns);
    if is_of_size && !takes_turns { &WAYS[..WAYS.len() - 1] } else { &WAYS }
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
fn programs_of_a_server_that_waits_fails_or_lies_do_what_they_do_alone() {
    let test = "programs_of_a_server_that_waits_fails_or_lies";
    let mut rows = Vec::new();
    for operation in OPERATIONS {
        for illness in illnesses(operation) {
            rows.extend([When::AtFirst, When::Opened].map(|when| (operation, illness, when)));
        }
    }
    within(move || {
        each(test, &rows, |(operation, illness, when)| {
            let why = format!("{operation:?} {illness:?} {when:?}");
            let ways = ways(operation, illness, when);
            let mut least = vec![u32::MAX; ways.len()];
            for _ in 0..TRIES_MAX {
                let (mut alone, mut turns) = (None, Vec::new());
                for way in ways {
                    let (ours, waited) = session(*way, (operation, illness), when);
                    let alone = alone.get_or_insert_with(|| ours.clone());
                    assert_eq!(ours, *alone, "{why} {way:?}");
                    // It looks the program's words up as that begins, which may look for them too.
                    turns.push(if *way == Way::Explain { 0 } else { waited });
                }
                for (least, waited) in least.iter_mut().zip(turns) {
                    *least = waited.min(*least);
                }
                if least.iter().all(|turns| *turns <= least[0]) {
                    println!("{why}: {least:?} turns");
                    return;
                }
            }
            panic!("{why}: {least:?} turns, alone and else");
        });
    });
}

#[test]
fn a_run_ends_whatever_operation_hangs() {
    let test = "a_run_ends_whatever_operation_hangs";
    let record = folder("whatever");
    let stats = format!("run --stats-json {}", record.join("stats.json").display());
    let page = format!("explain -o {}", record.join("page.html").display());
    let rows: Vec<_> = OPERATIONS
        .into_iter()
        .flat_map(|operation| {
            ["run", &*stats, "run --observe preload", "run --learn auto", &*page]
                .map(|flags| (operation, flags.to_owned()))
        })
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
            let lists = Scratch::new("lists");
            if flags.contains("--learn") {
                learns(&lists, &server);
            }
            let mut command = match flags.strip_prefix("explain") {
                Some(flags) => explain(flags),
                None => run(flags.strip_prefix("run").expect("it is one of the two")),
            };
            command.env("FORERUN_PRELOAD", shim()).env("XDG_STATE_HOME", &*lists);
            let mut reader = start(command, &server);
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

/// All ways; the first is what the others are compared with.
const WAYS: [Way; 5] = [Way::Alone, Way::Run, Way::Shim, Way::Explain, Way::Learned];
/// Most of the time servers are waited for.
const THREADS: u64 = 8;
/// Polls after which the observers have seen all that there is.
const POLLS: u64 = 40;
const TRIES_MAX: usize = 15;
