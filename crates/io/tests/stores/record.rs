//! The log of a store: what reached it, in order, bounded, shared by clones.

use std::sync::Arc;

use forerun_io::{
    store::{ECANCELED, OpKind, QueueKind, Store, memory::Memory},
    wrap::{
        fault::{Fault, Faults, Rule, When},
        record::{OpLog, OpRecord, Record},
    },
};

use crate::rig::{KINDS, drain, op, write};

const EIO: i32 = rustix::io::Errno::IO.raw_os_error();

fn entry(kind: OpKind, offset: u64, bytes: usize, result: Result<usize, i32>) -> OpRecord {
    OpRecord { kind, offset, bytes, result }
}

fn memory() -> Arc<dyn Store> {
    Arc::new(Memory::new(vec![7; 1_000], 1_000))
}

#[test]
fn what_reached_the_store_is_logged_with_what_came_of_it() {
    let rule = Rule { fail: Some((When::Every(2), EIO)), ..Rule::default() };
    let faulty = Fault::new(memory(), Faults { syncs: rule, ..Faults::default() }, 1);
    let record = Record::new(Arc::new(faulty), 100);
    let queue = record.queue(QueueKind::Caller);
    for next in [
        op(OpKind::Read, 1, 900, 200),
        write(2, 10, &[1; 20]),
        op(OpKind::Sync, 3, 0, 0),
        op(OpKind::Sync, 4, 0, 0),
    ] {
        queue.submit(next);
    }
    assert_eq!(record.log(), OpLog::default(), "nothing was carried out yet");
    drain(&queue);
    let expected = OpLog {
        entries: vec![
            entry(OpKind::Read, 900, 200, Ok(100)),
            entry(OpKind::Write, 10, 20, Ok(20)),
            entry(OpKind::Sync, 0, 0, Ok(0)),
            entry(OpKind::Sync, 0, 0, Err(EIO)),
        ],
        dropped: 0,
    };
    assert_eq!(record.log(), expected);
    assert_eq!((expected.count(OpKind::Sync), expected.bytes_moved(OpKind::Read)), (2, 100));
}

#[test]
fn a_full_log_counts_what_it_drops_until_it_is_taken() {
    for kind in KINDS {
        let record = Record::new(memory(), 5);
        let store: Arc<dyn Store> = Arc::new(record.clone());
        let queue = store.queue(kind);
        (0..12).for_each(|token| queue.submit(op(OpKind::Read, token, 0, 64)));
        drain(&queue);
        let log = record.take();
        assert_eq!((log.entries.len(), log.dropped), (5, 7), "{kind:?}");
        queue.submit(op(OpKind::Read, 1, 64, 64));
        drain(&queue);
        let again = OpLog { entries: vec![entry(OpKind::Read, 64, 64, Ok(64))], dropped: 0 };
        assert_eq!(record.take(), again, "{kind:?}");
        assert_eq!(record.take(), OpLog::default(), "{kind:?}");
    }
}

#[test]
fn what_never_reached_the_store_is_not_logged() {
    let record = Record::new(memory(), 5);
    let queue = record.queue(QueueKind::Caller);
    queue.submit(op(OpKind::Read, 1, 0, 64));
    queue.close();
    assert_eq!(drain(&queue)[0].result, Err(ECANCELED));
    assert_eq!(record.log(), OpLog::default());
}
