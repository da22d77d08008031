//! Calls that polls met, recorded with their times; the bound of the table.

use std::os::fd::AsFd as _;

use super::*;
use crate::observe::access::FileRead;
use crate::open::views::tests::with_fewer_rights;

fn recorder() -> (CallRecorder, Arc<Mutex<Calls>>) {
    let calls = Arc::new(Mutex::new(Calls::default()));
    (CallRecorder::new(Arc::clone(&calls)), calls)
}

fn taken(calls: &Mutex<Calls>) -> Vec<RecordedCall> {
    std::mem::take(&mut *calls.lock().expect("no test panics in it")).in_order()
}

#[test]
fn a_call_lasts_from_the_poll_before_to_the_last_that_met_it() {
    let own = File::open("/proc/self").expect("there is one");
    let (mut recorder, calls) = recorder();
    let access = |path: &'static [u8], call, read| {
        let process = own.as_fd();
        EntryAccess { pid: 7, thread: 8, process, path, call, read }
    };
    let whole = EntryCall::Read { to_end: true };
    let read = |file_bytes, moves| Some(FileRead { file_bytes, offset: 5, bytes: 9, moves });
    let large = FOLLOWED_BYTES_MIN;
    for at in 1..=6 {
        recorder.begin_poll(Nanos(at * 10));
        let (now, met) = (Nanos(at * 10), BlockedIn::Entry(whole));
        match at {
            2 => recorder.entry(now, &access(b"/x", EntryCall::Open, None)),
            4 => {
                recorder.entry(now, &access(b"/\xff", whole, read(99, true)));
                recorder.entry(now, &access(b"/large", whole, read(large, true)));
            }
            5 => recorder.met(7, 8, BlockedIn::Other),
            6 => recorder.entry(now, &access(b"/large", whole, read(large, false))),
            _ => {}
        }
        if at != 5 {
            recorder.met(7, 8, met);
        }
    }
    let calls = taken(&calls);
    let shown: Vec<_> = calls
        .iter()
        .map(|it| (it.kind, &it.path[..], it.begin.0, it.end.0, it.offset, it.bytes))
        .collect();
    #[rustfmt::skip]
    let expected = [
        (RecordedKind::Open, &b"/x"[..],     10, 30, 0, 0),
        (RecordedKind::Read, &b"/\xff"[..],  30, 40, 5, 9),
        (RecordedKind::Read, &b"/large"[..], 50, 60, 5, 9),
    ];
    assert_eq!(shown, expected);
}

#[test]
fn positions_are_reads_and_all_files_are_closed() {
    let (mut recorder, calls) = recorder();
    let path = std::env::current_exe().expect("a test is a file");
    let file = File::open(&path).expect("it is there");
    let stat = crate::kernel::stat(&file).expect("it is open");
    recorder.process(7, None);
    let one = recorder.open(Nanos(0), file, &stat, 0).expect("there is room");
    let two = recorder.open_again(one, 0).expect("there is room");
    recorder.begin_poll(Nanos(10));
    recorder.read(Nanos(10), one, &(0..4096), true);
    recorder.mapped(two);
    recorder.read(Nanos(10), two, &(8192..12_288), false);
    for cursor in [one, two] {
        assert!(recorder.file(cursor).is_some());
        recorder.close(Nanos(11), cursor);
    }
    assert!(recorder.files.is_empty() && recorder.file(one).is_none());
    let calls = taken(&calls);
    let shown: Vec<_> = calls.iter().map(|it| (it.kind, it.offset, it.bytes)).collect();
    assert_eq!(shown, [(RecordedKind::Read, 0, 4096), (RecordedKind::Map, 8192, 4096)]);
    assert_eq!(calls[0].path, path.as_os_str().as_bytes());
}

#[test]
fn the_table_is_bounded_and_goes_to_another_process_whole() {
    let mut calls = Calls::default();
    let path = vec![b'x'; 1 << 20];
    let call = |at| RecordedCall {
        is_ours: true,
        begin: Nanos(at),
        end: Nanos(at),
        thread: at,
        kind: RecordedKind::Exec,
        path: path.clone(),
        offset: 1,
        bytes: 2,
    };
    for at in 0..140 {
        calls.add(call(at));
    }
    assert_eq!((calls.rows.len() as u64, calls.left_out), (PATH_BYTES_MAX >> 20, 12));
    calls.rows.truncate(2);
    let bytes = crate::wire::to_bytes(&calls);
    let again: Calls = crate::wire::from_bytes(&bytes).expect("it is whole");
    assert_eq!(again.rows, [call(0), call(1)]);
}

#[test]
fn calls_by_fewer_rights_are_none_of_ours() {
    let test = "calls_by_fewer_rights_are_none_of_ours";
    let Some(mut child) = with_fewer_rights(test) else { return };
    let pid = i32::try_from(child.id()).expect("it is small");
    let own = i32::try_from(std::process::id()).expect("it is small");
    let (mut recorder, calls) = recorder();
    for pid in [own, pid] {
        let folder = File::open(format!("/proc/{pid}")).expect("it is there");
        let file = File::open(std::env::current_exe().expect("a test is a file")).expect("it is");
        let stat = crate::kernel::stat(&file).expect("it is open");
        recorder.process(pid, None);
        let (process, path, call) = (folder.as_fd(), b"/a".as_slice(), EntryCall::Stat);
        let access = EntryAccess { pid, thread: pid, process, path, call, read: None };
        recorder.entry(Nanos(0), &access);
        let cursor = recorder.open(Nanos(0), file, &stat, 0).expect("there is room");
        recorder.read(Nanos(0), cursor, &(0..4096), true);
    }
    let is_ours: Vec<bool> = taken(&calls).iter().map(|call| call.is_ours).collect();
    assert_eq!(is_ours, [true, true, false, false]);
    let _ = child.kill();
    let _ = child.wait();
}
