//! Stores that fail to write or to sync: the bytes stay, and every handle hears of it once.

use std::{sync::Arc, time::Duration};

use forerun_engine::{Access, Cache, Partition, Rule, Settings, WriteError};
use forerun_io::{
    store::memory::Memory,
    wrap::fault::{Fault, Faults},
};
use forerun_testkit::{until, within};

use crate::rig::{self, EIO, ENOSPC, Model, PAGE, failing, faulty, settings};

#[test]
fn a_failed_write_is_reported_once_on_every_handle_and_written_again() {
    let cache = Cache::new(settings(32)).unwrap();
    let (memory, fault, file) = faulty(&cache, 1_000);
    let other = file.try_clone().unwrap();
    file.write_at(&[1; 1_000], 0).unwrap();
    fault.set(failing(Some(ENOSPC), None));
    let failed = Err(WriteError::Writeback { errno: ENOSPC });
    assert_eq!(file.flush(), failed);
    assert_eq!(memory.contents(), [0; 1_000]);
    Model(vec![1; 1_000]).check(&file, 0, 1_000);
    fault.set(failing(None, None));
    assert_eq!(other.flush(), failed, "it has not been reported here");
    assert_eq!(memory.contents(), [1; 1_000], "although it is written by now");
    assert_eq!((other.flush(), file.flush()), (Ok(()), Ok(())));
    let third = file.try_clone().unwrap();
    assert_eq!(third.flush(), Ok(()), "it was opened after the failure");
}

#[test]
fn after_a_failed_sync_the_bytes_are_written_again_before_the_next() {
    let cache = Cache::new(settings(32)).unwrap();
    let (memory, fault, file) = faulty(&cache, 1_000);
    file.write_at(&[1; 512], 0).unwrap();
    fault.set(failing(None, Some(EIO)));
    assert_eq!(file.flush(), Err(WriteError::Writeback { errno: EIO }));
    // What a kernel does to pages after a failed sync: it drops them, or marks them clean.
    memory.resize(0);
    memory.resize(1_000);
    fault.set(failing(None, None));
    let writes = fault.counts().writes;
    assert_eq!(file.flush(), Ok(()));
    assert_eq!(fault.counts().writes, writes + 1);
    assert_eq!(memory.contents()[..512], [1; 512]);
}

#[test]
fn what_failed_is_written_and_synced_again_long_before_it_is_old() {
    for faults in [failing(Some(EIO), None), failing(None, Some(EIO))] {
        within(move || {
            let dirty_age_max = Duration::from_secs(24 * 3_600);
            let cache = Cache::new(Settings { dirty_age_max, ..settings(32) }).unwrap();
            let (_, young) = rig::memory(&cache, 1_000);
            young.write_at(&[1], 0).unwrap();
            let (memory, fault, file) = faulty(&cache, 1_000);
            // Meanwhile the flusher goes to sleep, until the other file is old.
            for _ in 0..100 {
                file.write_at(&[1; 1_000], 0).unwrap();
                file.flush().unwrap();
            }
            fault.set(faults);
            file.write_at(&[2; 1_000], 0).unwrap();
            assert_eq!(file.flush(), Err(WriteError::Writeback { errno: EIO }));
            let syncs = fault.counts().syncs;
            fault.set(failing(None, None));
            until(|| fault.counts().syncs > syncs && memory.contents() == [2; 1_000]);
            young.flush().unwrap();
        });
    }
}

#[test]
fn a_durable_write_fails_where_its_bytes_are_not_durable() {
    let cache = Cache::new(settings(32)).unwrap();
    let (_, fault, file) = faulty(&cache, 1_000);
    for faults in [failing(Some(EIO), None), failing(None, Some(EIO))] {
        fault.set(faults);
        assert_eq!(file.write_durable_at(&[1], 0), Err(WriteError::Writeback { errno: EIO }));
        fault.set(failing(None, None));
        assert_eq!(file.write_durable_at(&[1], 0), Ok(()));
    }
}

#[test]
fn a_write_of_a_part_fails_where_the_rest_cannot_be_read() {
    use forerun_io::wrap::fault::{Faults, Rule, When};
    let cache = Cache::new(settings(32)).unwrap();
    let (memory, fault, file) = faulty(&cache, 2_000);
    let reads = Rule { fail: Some((When::Every(1), EIO)), ..Rule::default() };
    fault.set(Faults { reads, ..Faults::default() });
    assert_eq!(file.write_at(&[1; 4], 600), Err(WriteError::Store { offset: 512, errno: EIO }));
    file.write_at(&[2; 512], 1_024).unwrap();
    fault.set(Faults::default());
    file.flush().unwrap();
    let mut model = Model(vec![0; 2_000]);
    model.write(&[2; 512], 1_024);
    assert_eq!(memory.contents(), model.0);
    file.write_at(&[3; 4], 600).unwrap();
    model.write(&[3; 4], 600);
    model.check(&file, 0, 2_000);
}

/// A partition that is smaller than what may be dirty of all: what fails in it leaves room for
/// the reads and writes of others.
#[test]
fn a_file_that_fails_leaves_room_in_its_partition() {
    const PAGES: u64 = 32;
    within(|| {
        let partitions = vec![Partition::new("logs", PAGES * PAGE, Rule::Client("logs".into()))];
        let wait_max = Duration::from_secs(60);
        let cache = Cache::new(Settings { partitions, wait_max, ..settings(256) }).unwrap();
        let logs = cache.client("logs");
        let fault = Fault::new(Arc::new(Memory::new(vec![], 1 << 24)), Faults::default(), 1);
        fault.set(failing(Some(EIO), None));
        let bad = logs.open_store_with(Arc::new(fault), Access::ReadWrite).unwrap();
        let written = (0..2 * PAGES).map(|page| bad.write_at(&[1; 512], page * PAGE));
        let failed = written.filter(Result::is_err).count();
        assert!(failed > 0, "it may not take all");
        let memory = Memory::new(vec![7; 512 * 64], 1 << 24);
        let good = logs.open_store_with(Arc::new(memory.clone()), Access::ReadWrite).unwrap();
        for page in 0..64 {
            let mut buf = [0; 512];
            assert_eq!(good.read_at(&mut buf, page * PAGE), Ok(512));
            assert_eq!(buf, [7; 512]);
            good.write_at(&[2; 512], page * PAGE).unwrap();
        }
        good.flush().unwrap();
        assert!(memory.contents().iter().all(|&byte| byte == 2));
        assert_eq!(bad.flush(), Err(WriteError::Writeback { errno: EIO }));
        std::mem::forget(bad); // Its bytes cannot be made durable.
    });
}
