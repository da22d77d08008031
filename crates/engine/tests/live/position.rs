//! `Read` and `Seek`: the position of a handle, alone and shared by threads.

use std::{
    io::{self, ErrorKind, Read, Seek, SeekFrom},
    sync::Arc,
};

use forerun_engine::{Cache, ReadError};
use forerun_io::{
    store::pattern::{self, Pattern},
    wrap::fault::{Fault, Faults, Rule, When},
};
use forerun_testkit::{on_threads, within};
use parking_lot::Mutex;

use crate::rig::{PAGE, PAGE_BYTES, fixed, settings};

#[test]
fn a_shared_handle_reads_and_seeks_as_a_file_does() {
    let cache = Cache::new(settings(64, &fixed())).unwrap();
    let file = cache.open_store(Arc::new(Pattern::new(10_000))).unwrap();
    let (mut shared, mut buf) = (&file, [0; 100]);
    assert_eq!(shared.seek(SeekFrom::End(-50)).unwrap(), 9_950);
    assert_eq!(shared.read(&mut buf).unwrap(), 50);
    assert_eq!((shared.read(&mut buf).unwrap(), shared.stream_position().unwrap()), (0, 10_000));
    assert_eq!(shared.seek(SeekFrom::Current(-9_990)).unwrap(), 10);
    assert_eq!(shared.seek(SeekFrom::Current(-11)).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(shared.stream_position().unwrap(), 10, "a refused seek moves nothing");
    let mut rest = Vec::new();
    assert_eq!(io::copy(&mut shared, &mut rest).unwrap(), 9_990);
    assert_eq!(pattern::verify(10, &rest), Ok(()));
    assert_eq!(shared.seek(SeekFrom::Start(1 << 40)).unwrap(), 1 << 40, "past the end is no error");
    assert_eq!(shared.read(&mut buf).unwrap(), 0);
    let end = file.read_exact_at(&mut buf, 9_901).unwrap_err();
    assert_eq!(end.kind(), ErrorKind::UnexpectedEof);
    file.read_exact_at(&mut buf, 9_900).unwrap();
    assert_eq!(pattern::verify(9_900, &buf), Ok(()));
    let mut clone = file.try_clone().unwrap();
    assert_eq!(clone.stream_position().unwrap(), 0, "a clone has its own position");
}

#[test]
fn threads_that_share_a_position_get_parts_that_do_not_overlap() {
    within(|| {
        let cache = Cache::new(settings(64, &fixed())).unwrap();
        let file = cache.open_store(Arc::new(Pattern::new(400 * PAGE + 5))).unwrap();
        let parts = Mutex::new(Vec::new());
        on_threads(4, |thread| {
            let mut buf = vec![0; 700 + usize::try_from(thread).unwrap()];
            loop {
                let count = (&file).read(&mut buf).unwrap();
                if count == 0 {
                    break;
                }
                parts.lock().push(buf[..count].to_vec());
            }
        });
        let parts = parts.into_inner();
        assert_eq!(parts.iter().map(Vec::len).sum::<usize>() as u64, file.len());
        let mut whole = vec![0; usize::try_from(file.len()).unwrap()];
        pattern::fill(0, &mut whole);
        // Eight bytes of the pattern name their place: every part lies at one place of its own.
        let mut places: Vec<_> = parts
            .iter()
            .map(|part| {
                let at = whole.windows(part.len()).position(|window| window == part);
                (at.expect("bytes of the file"), part.len())
            })
            .filter(|&(_, bytes)| bytes >= 16)
            .collect();
        places.sort_unstable();
        assert!(places.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "{places:?}");
    });
}

#[test]
fn a_read_that_failed_leaves_the_position() {
    let cache = Cache::new(settings(64, "off")).unwrap();
    let reads = Rule { fail: Some((When::Every(2), 5)), ..Rule::default() };
    let faults = Faults { reads, ..Faults::default() };
    let store = Fault::new(Arc::new(Pattern::new(9 * PAGE)), faults, 3);
    let mut file = cache.open_store(Arc::new(store)).unwrap();
    let (mut page, mut errors, mut whole) = ([0; PAGE_BYTES as usize], 0, Vec::new());
    loop {
        match file.read(&mut page) {
            Ok(0) => break,
            Ok(count) => whole.extend_from_slice(&page[..count]),
            Err(error) => {
                let error: ReadError = error.downcast().expect("the cache's error");
                assert_eq!(error.errno(), 5);
                errors += 1;
            }
        }
    }
    assert_eq!((whole.len() as u64, errors > 2), (file.len(), true));
    assert_eq!(pattern::verify(0, &whole), Ok(()));
}
