//! The steps of a transfer: what is asked for, and what each answer leads to.

use super::*;
use crate::{frames::Frame, store::file::Access};

/// A transfer of `bytes` over `count` frames of 64 bytes, of a file of 1,000 bytes or more.
fn transfer(kind: OpKind, count: usize, bytes: usize) -> Transfer {
    let frames = (0..count).map(|_| Frame::new(64).unwrap()).collect();
    let running = std::env::current_exe().unwrap();
    let file = Arc::new(OpenFile::open(running, Access::Read).unwrap());
    let op = Op { token: 0, kind, offset: 0, bytes, frames };
    Transfer::begin(op, &file).expect("there is something to move")
}

fn asked(transfer: &mut Transfer) -> usize {
    transfer.prepare().unwrap().runs.iter().map(|run| run.iov_len).sum()
}

#[test]
fn what_the_kernel_cancels_is_given_up_sooner_than_what_it_puts_off() {
    for (errno, tries) in [(Errno::CANCELED, 1), (Errno::AGAIN, 64), (Errno::INTR, 64)] {
        let mut transfer = transfer(OpKind::Read, 1, 64);
        for _ in 0..tries {
            assert_eq!(transfer.settle(Err(errno)), Next::Again);
        }
        assert_eq!(transfer.settle(Err(errno)), Next::Done(Err(errno)));
    }
}

#[test]
fn a_call_asks_for_the_bytes_that_count_in_at_most_so_many_runs() {
    #[rustfmt::skip]
    let rows = [ // why                   kind           frames  bytes
        ("a tail is cut",                 OpKind::Read,      4,    130),
        ("frames beyond are left out",    OpKind::Read,      4,     64),
        ("a write's tail is cut",         OpKind::Write,     4,    130),
        ("all of it",                     OpKind::Write,     4,    256),
    ];
    for (why, kind, frames, bytes) in rows {
        let mut transfer = transfer(kind, frames, bytes);
        assert_eq!(asked(&mut transfer), bytes, "{why}");
        assert_eq!(transfer.asked, bytes, "{why}");
    }
    let mut long = transfer(OpKind::Write, 3_000, 3_000 * 64);
    for calls in 1.. {
        assert!(long.prepare().unwrap().runs.len() <= BUFFERS_MAX);
        if let Next::Done(result) = long.settle(Ok(long.asked)) {
            assert_eq!((result, calls <= 3), (Ok(3_000 * 64), true), "{calls}");
            break;
        }
    }
}

#[test]
fn what_stopped_short_is_asked_for_from_there() {
    let mut transfer = transfer(OpKind::Read, 4, 200);
    asked(&mut transfer);
    for (now, left) in [(10, 190), (54, 136), (1, 135)] {
        assert_eq!(transfer.settle(Ok(now)), Next::Again, "short, and not the end");
        assert_eq!(asked(&mut transfer), left, "{now}");
    }
    assert_eq!(transfer.offset(), Ok(65));
}

#[test]
fn an_answer_leads_to_the_right_step() {
    use OpKind::{Read, Write};
    use Route::{Buffered, Direct};
    let done = |result| Next::Done(result);
    let (inval, eio, intr, again) = (Errno::INVAL, Errno::IO, Errno::INTR, Errno::AGAIN);
    #[rustfmt::skip]
    let rows = [ // why            kind   route     answer         step              route
        ("all that counts",        Read,  Direct,   Ok(100),       done(Ok(100)),    Direct),
        ("nothing: the end",       Read,  Direct,   Ok(0),         done(Ok(0)),      Direct),
        ("short, before the end",  Read,  Direct,   Ok(64),        Next::Again,      Direct),
        ("nothing was written",    Write, Buffered, Ok(0),         done(Err(eio)),   Buffered),
        ("written in part",        Write, Buffered, Ok(99),        Next::Again,      Buffered),
        ("written",                Write, Buffered, Ok(100),       done(Ok(100)),    Buffered),
        ("a signal",               Read,  Direct,   Err(intr),     Next::Again,      Direct),
        ("blocks in the way",      Read,  Direct,   Err(inval),    Next::Again,      Buffered),
        ("blocks in no way",       Read,  Buffered, Err(inval),    done(Err(inval)), Buffered),
        ("put off by the kernel",  Write, Direct,   Err(again),    Next::Again,      Direct),
        ("the device fails",       Read,  Direct,   Err(eio),      done(Err(eio)),   Direct),
    ];
    for (why, kind, route, answer, step, then) in rows {
        let mut transfer = transfer(kind, 2, 100);
        asked(&mut transfer);
        transfer.route = route;
        assert_eq!((transfer.settle(answer), transfer.route), (step, then), "{why}");
    }
}

#[test]
fn an_offset_that_no_file_has_is_not_for_the_kernel() {
    let file = Arc::clone(&transfer(OpKind::Read, 1, 64).file);
    for (offset, begins) in [(i64::MAX as u64, true), (1 << 63, false)] {
        let frames = vec![Frame::new(64).unwrap()];
        let op = Op { token: 0, kind: OpKind::Read, offset, bytes: 64, frames };
        let begun = Transfer::begin(op, &file).map_err(|done| done.result);
        assert_eq!(begun.is_ok(), begins);
        assert!(begun.is_ok() || begun.err() == Some(Err(Errno::INVAL.raw_os_error())));
    }
}

#[test]
fn a_stretch_takes_its_part_of_each_frame() {
    #[rustfmt::skip]
    let rows = [ // why            from  bytes  parts of four frames of 10
        ("nothing",                  0,    0, [None, None, None, None]),
        ("all",                      0,   30, [Some(0..10), Some(0..10), Some(0..10), None]),
        ("more than there is",      35,   40, [None, None, None, Some(5..10)]),
        ("within one",              12,    3, [None, Some(2..5), None, None]),
        ("across two",              18,    4, [None, Some(8..10), Some(0..2), None]),
        ("up to a border",           5,   15, [Some(5..10), Some(0..10), None, None]),
    ];
    for (why, from, bytes, parts) in rows {
        let mut stretch = Stretch::new(from, bytes);
        assert_eq!(parts.clone().map(|_| stretch.part(10)), parts, "{why}");
    }
}
