//! Signals by which the parent reaches all of a run: the program has them, and they are not
//! forwarded.
//!
//! ```text
//!   the parent --TERM--> this process            would forward it
//!              --TERM--> the observing process   tells this one so
//!              --TERM--> the program
//! ```
//! So a service manager ends all processes of a control group, and a shell or a supervisor a group.
//! What comes to the observing process from the parent is not for that: nothing else knows of it.
//!
//! # Invariants
//! - A signal counts as the program's where the parent has sent the same to the observing process a
//!   moment ago, and all three are in one process group. Where that cannot be told it is forwarded:
//!   a signal twice is noticed, one that is lost has a program run on for ever.
//! - A wait for what the observing process tells ends with the program, and after one in vain the
//!   next is [`ASKS_EVERY`] later: a storm of signals is forwarded nearly as fast as without.
//! - Neither process waits for the other to read.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;

use forerun_core::units::Nanos;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use rustix::process::{Pid, getpgid, getpgrp, getppid};

use super::program::Program;
use super::signals::{Forwarded, messages_of, number_of, pending_of, read, sender_of, set_of};
use crate::aside::Aside;
use crate::clock::{monotonic, timespec};
use crate::wire::{from_bytes, to_bytes, wire};

/// What this process was told of.
#[derive(Debug, Default)]
pub(super) struct Reached {
    told: Vec<Told>,
    /// No answer is waited for before.
    asks_from: Nanos,
}

/// A signal that a process has sent to the observing process.
#[derive(Debug)]
struct Told {
    number: u8,
    sender: u64,
    at: Nanos,
}

wire! { Told { number, sender, at } }

impl Told {
    fn message(&self) -> Vec<u8> {
        let bytes = to_bytes(self);
        assert_eq!(bytes.len(), TOLD_BYTES, "the other process reads so many at a time");
        [&[SIGNAL], &*bytes].concat()
    }
}

impl Reached {
    /// Whether the parent has sent `signal` to the program as well as to this process.
    pub(super) fn program(
        &mut self,
        signal: Forwarded,
        program: &Program,
        observing: &mut Aside,
    ) -> bool {
        let Some(parent) = getppid() else { return false };
        let number = signal.number_from(parent).filter(|number| REACHING.contains(number));
        let Some(number) = number.and_then(|number| u8::try_from(number).ok()) else {
            return false;
        };
        if getpgid(Some(program.pid())) != Ok(getpgrp()) {
            return false;
        }
        assert!((1..=64).contains(&number), "the kernel numbers signals from 1 on");
        let began = monotonic();
        loop {
            let is_pending = pending_of(observing.pid()) >> (number - 1) & 1 == 1;
            self.take_in(observing);
            if self.takes(number, parent) {
                return true;
            }
            let (now, within) = (monotonic(), if is_pending { READ_WITHIN } else { SENT_WITHIN });
            let left = within.since(now.since(began));
            if now < self.asks_from {
                return false;
            }
            if left == Nanos(0) || ends(program, observing, left) {
                self.asks_from = now + ASKS_EVERY;
                return false;
            }
        }
    }

    /// Takes in what the observing process has told.
    fn take_in(&mut self, observing: &mut Aside) {
        let mut bytes = [0; 1 + TOLD_BYTES];
        while self.told.len() < TOLD_MAX && observing.read_now(&mut bytes) == bytes.len() {
            let told = bytes.strip_prefix(&[SIGNAL]).and_then(from_bytes::<Told>);
            self.told.extend(told);
        }
    }

    /// Whether the process `sender` has sent `number`, a moment ago: all that it sent counts once.
    fn takes(&mut self, number: u8, sender: Pid) -> bool {
        let now = monotonic();
        self.told.retain(|told| now.since(told.at) < COUNTS_FOR);
        let (count, sender) = (self.told.len(), as_number(sender));
        self.told.retain(|told| (told.number, told.sender) != (number, sender));
        self.told.len() < count
    }
}

/// Whether the program ends, or the observing process, before that tells of something or the time
/// `left` is over, of which a while is waited for at most.
fn ends(program: &Program, observing: &Aside, left: Nanos) -> bool {
    let mut awaited = vec![PollFd::new(observing, PollFlags::IN)];
    awaited.extend(program.end().map(|end| PollFd::from_borrowed_fd(end, PollFlags::IN)));
    match poll(&mut awaited, Some(&timespec(left.min(LOOKS_EVERY)))) {
        Ok(_) => {
            awaited[0].revents().contains(PollFlags::HUP)
                || awaited[1..].iter().any(|end| !end.revents().is_empty())
        }
        Err(errno) => errno != Errno::INTR,
    }
}

/// What the observing process hears of.
#[derive(Debug)]
pub(super) struct Hearing {
    messages: File,
}

impl Hearing {
    /// From now on the signals, which are blocked, are heard of.
    pub(super) fn begin() -> io::Result<Self> {
        Ok(Self { messages: messages_of(&set_of(REACHING))? })
    }

    /// Tells by `socket` of each signal that comes, until a message can be read there.
    pub(super) fn tell_until_message(&mut self, socket: &UnixStream) {
        loop {
            let (signals, messages) = (self.messages.as_fd(), socket.as_fd());
            let mut awaited =
                [signals, messages].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
            match poll(&mut awaited, None) {
                Err(Errno::INTR) => continue,
                // Some filter refuses it: nothing is told.
                Err(_) => return,
                Ok(_) if !awaited[1].revents().is_empty() => return,
                Ok(_) => {}
            }
            for info in read(&mut self.messages) {
                let sender = sender_of(&info).filter(|_| info.ssi_code == libc::SI_USER);
                let (Some(sender), Some(number)) = (sender, number_of(&info)) else { continue };
                let number = u8::try_from(number).expect("the kernel has 64 signals");
                let told = Told { number, sender: as_number(sender), at: monotonic() };
                // Where there is no room the other process forwards what it gets.
                let _ = send(socket, &told.message(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
            }
        }
    }
}

fn as_number(pid: Pid) -> u64 {
    u64::from(pid.as_raw_nonzero().get().unsigned_abs())
}

/// A report, as it follows what was told of signals.
pub(super) fn report(bytes: &[u8]) -> Vec<u8> {
    [&[REPORT], bytes].concat()
}

/// The report in what the observing process has written to its end.
pub(super) fn reported(mut bytes: &[u8]) -> Option<&[u8]> {
    while let Some((&SIGNAL, rest)) = bytes.split_first() {
        bytes = rest.get(TOLD_BYTES..)?;
    }
    bytes.strip_prefix(&[REPORT])
}

/// Signals that end a program unless it has a handler: one more may end it before it is ready to.
const REACHING: &[libc::c_int] = &[libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];
/// What a message from the observing process begins with.
const REPORT: u8 = 0;
const SIGNAL: u8 = 1;
const TOLD_BYTES: usize = 17;
/// More are never there at a time but in a storm.
const TOLD_MAX: usize = 256;
/// A sender that goes from process to process has reached the last by then.
const SENT_WITHIN: Nanos = Nanos::from_millis(10);
/// The observing process has got a signal, and waits for a processor to read it.
const READ_WITHIN: Nanos = Nanos::from_millis(200);
const LOOKS_EVERY: Nanos = Nanos::from_millis(1);
const ASKS_EVERY: Nanos = Nanos::from_millis(100);
/// How long what was told counts for a signal that this process reads later.
const COUNTS_FOR: Nanos = Nanos::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    fn told(number: u8, sender: u64, ago: Nanos) -> Told {
        Told { number, sender, at: Nanos(monotonic().0 - ago.0) }
    }

    #[test]
    fn a_report_follows_what_was_told_of_signals() {
        let signal = told(15, 7, Nanos(0)).message();
        let report = report(b"seen");
        #[rustfmt::skip]
        let rows = [ // why, what was written, the report
            ("nothing was told",       report.clone(),                              Some("seen")),
            ("one",                    [&*signal, &report].concat(),                Some("seen")),
            ("many",                   [&*signal, &signal, &report].concat(), Some("seen")),
            ("no report",              signal.clone(),                              None),
            ("nothing",                vec![],                                      None),
            ("a signal that is cut",   signal[..9].to_vec(),                        None),
            ("none of both",           b"\x02seen".to_vec(),                        None),
        ];
        for (why, written, is_reported) in rows {
            assert_eq!(reported(&written), is_reported.map(str::as_bytes), "{why}");
        }
    }

    #[test]
    fn all_that_a_process_has_told_of_a_signal_counts_once_and_for_a_while() {
        let sender = Pid::from_raw(7).unwrap();
        let now = Nanos(0);
        #[rustfmt::skip]
        let rows: Vec<(&str, Vec<Told>, bool)> = vec![ // why, what was told, whether TERM counts
            ("nothing",          vec![],                                      false),
            ("it",               vec![told(15, 7, now)],                      true),
            ("it, twice",        vec![told(15, 7, now), told(15, 7, now)],    true),
            ("another signal",   vec![told(2, 7, now)],                       false),
            ("another sender",   vec![told(15, 8, now)],                      false),
            ("too long ago",     vec![told(15, 7, COUNTS_FOR)],               false),
        ];
        for (why, told, counts) in rows {
            let mut reached = Reached { told, ..Reached::default() };
            assert_eq!(reached.takes(15, sender), counts, "{why}");
            assert!(!reached.takes(15, sender), "{why}, once more");
        }
    }
}
