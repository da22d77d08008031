//! When the store gets what was written: write-back, write-through, and pins in the way.

use std::{sync::Arc, thread, time::Duration};

use forerun_engine::{Access, Cache, ReadError, Settings, WriteError};
use forerun_io::{
    store::memory::Memory,
    wrap::fault::{Faults, Rule, When},
};
use forerun_testkit::{until, within};

use crate::rig::{EIO, failing, faulty, memory, settings};

#[test]
fn write_back_waits_for_a_flush_and_write_through_for_nothing() {
    let cache = Cache::new(settings(64)).unwrap();
    let (store, file) = memory(&cache, 1_000);
    file.write_at(&[1; 1_000], 0).unwrap();
    assert_eq!(store.contents(), [0; 1_000]);
    file.write_durable_at(&[2], 0).unwrap();
    assert_eq!(store.contents()[..2], [2, 1], "a durable write takes along what was before it");
    let through = Cache::new(Settings { write_through: true, ..settings(64) }).unwrap();
    let (store, file) = memory(&through, 1_000);
    file.write_at(&[1; 1_000], 0).unwrap();
    assert_eq!(store.contents(), [1; 1_000]);
}

#[test]
fn a_pinned_page_is_written_when_its_pin_is_dropped() {
    let cache = Cache::new(settings(64)).unwrap();
    let (_, file) = memory(&cache, 1_000);
    let pinned = file.pin(0).unwrap();
    let shared = Arc::new(file.try_clone().unwrap());
    let writer = Arc::clone(&shared);
    let writing = thread::spawn(move || writer.write_at(&[1; 100], 0));
    until(|| cache.stats().core.written == 1);
    assert_eq!(pinned[..100], [0; 100], "a pin keeps its bytes");
    drop(pinned);
    assert_eq!(writing.join().unwrap(), Ok(()));
    let mut buf = [0; 100];
    assert_eq!((shared.read_at(&mut buf, 0), buf), (Ok(100), [1; 100]));
}

/// The reader comes while the writer waits for the pin, so it waits for the writer.
#[test]
fn a_reader_that_waits_for_a_writer_is_served_though_another_read_fails_meanwhile() {
    let read = within(|| {
        let cache = Cache::new(settings(64)).unwrap();
        let ((_, file), (_, fault, other)) = (memory(&cache, 1_000), faulty(&cache, 1_000));
        let fails = Rule { fail: Some((When::Every(1), EIO)), ..Rule::default() };
        fault.set(Faults { reads: fails, ..Faults::default() });
        let pinned = file.pin(0).unwrap();
        thread::scope(|scope| {
            let writing = scope.spawn(|| file.write_at(&[1; 100], 0));
            until(|| cache.stats().core.written == 1);
            let before = cache.stats().core.demanded;
            let reading = scope.spawn(|| {
                let mut buf = [0; 100];
                (file.read_at(&mut buf, 0), buf)
            });
            until(|| cache.stats().core.demanded > before);
            let failed = other.read_at(&mut [0; 1], 0);
            drop(pinned);
            assert_eq!(writing.join().unwrap(), Ok(()));
            assert!(matches!(failed, Err(ReadError::Store { errno: EIO, .. })), "{failed:?}");
            reading.join().unwrap()
        })
    });
    assert_eq!(read, (Ok(100), [1; 100]));
}

#[test]
fn a_write_to_a_page_that_its_own_thread_has_pinned_fails_after_the_wait() {
    let settings = Settings { wait_max: Duration::from_millis(30), ..settings(64) };
    let cache = Cache::new(settings).unwrap();
    let (store, file) = memory(&cache, 2_000);
    let pinned = file.pin(600).unwrap();
    assert_eq!(file.write_at(&[1; 2_000], 0), Err(WriteError::Pinned));
    assert_eq!(pinned[..10], [0; 10]);
    let mut buf = [0; 512];
    assert_eq!((file.read_at(&mut buf, 512), buf), (Ok(512), [0; 512]), "it is still read");
    drop(pinned);
    file.write_at(&[2; 2_000], 0).unwrap();
    file.flush().unwrap();
    assert_eq!(store.contents(), [2; 2_000]);
}

#[test]
fn more_than_may_be_dirty_is_written_without_a_flush() {
    let cache = Cache::new(settings(16)).unwrap();
    let store = Memory::new(vec![0; 64 << 10], 64 << 10);
    let file = cache.open_store_with(Arc::new(store.clone()), Access::ReadWrite).unwrap();
    file.write_at(&vec![1; 64 << 10], 0).unwrap();
    until(|| store.contents()[..56 << 10] == vec![1; 56 << 10]);
    file.flush().unwrap();
    assert_eq!(store.contents(), vec![1; 64 << 10]);
}

#[test]
fn a_file_that_cannot_be_written_refuses_writes_beyond_the_bound() {
    let cache = Cache::new(settings(16)).unwrap();
    let (_, fault, file) = faulty(&cache, 64 << 10);
    fault.set(failing(Some(28), None));
    let refused = file.write_at(&vec![1; 64 << 10], 0);
    assert_eq!(refused, Err(WriteError::Writeback { errno: 28 }));
    fault.set(failing(None, None));
    until(|| file.flush().is_ok());
    file.write_at(&vec![1; 64 << 10], 0).unwrap();
    file.flush().unwrap();
}
