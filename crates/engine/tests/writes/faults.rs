//! Stores that fail to write or to sync: the bytes stay, and every handle hears of it once.

use forerun_engine::{Cache, WriteError};

use crate::rig::{EIO, ENOSPC, Model, failing, faulty, settings};

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
