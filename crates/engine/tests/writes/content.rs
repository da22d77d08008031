//! What reads and the store hold after writes: all of them, and nothing else.

use std::{fs, sync::Arc};

use forerun_core::prng::Prng;
use forerun_engine::{Access, Backend, Cache, Settings, WriteError};
use forerun_io::store::pattern::Pattern;
use forerun_testkit::{Scratch, on_threads};

use crate::rig::{Model, PAGE, bytes, memory, range, settings};

#[test]
fn reads_see_each_write_at_once_and_the_store_holds_all_after_a_flush() {
    for (seed, frames) in (0..).zip([8, 16, 64, 512]) {
        let cache = Cache::new(settings(frames)).unwrap();
        let (store, file) = memory(&cache, 5_000);
        let (mut random, mut model) = (Prng::new(seed), Model(vec![0; 5_000]));
        for step in 0..400 {
            let (offset, count) = range(&mut random, 20_000, 6 * PAGE);
            if random.below(2) == 0 {
                let written = bytes(&mut random, count);
                file.write_at(&written, offset).unwrap();
                model.write(&written, offset);
            }
            model.check(&file, offset.saturating_sub(700), count + 1_400);
            assert_eq!(file.len(), model.0.len() as u64);
            if step % 100 == 99 {
                file.flush().unwrap();
                assert!(store.contents() == model.0, "seed {seed}, step {step}");
            }
        }
    }
}

#[test]
fn a_hole_before_a_write_is_zeros() {
    let cache = Cache::new(settings(64)).unwrap();
    let (store, file) = memory(&cache, 10);
    file.write_at(&[7; 10], 5_000).unwrap();
    let mut model = Model(vec![0; 10]);
    model.write(&[7; 10], 5_000);
    model.check(&file, 0, 6_000);
    file.flush().unwrap();
    assert!(store.contents() == model.0);
}

#[test]
fn files_on_every_interface_take_writes_of_any_place_and_length() {
    for backend in [Backend::Auto, Backend::Threads] {
        let scratch = Scratch::new("writes");
        let mut random = Prng::new(3);
        let mut model = Model(bytes(&mut random, 30_000));
        let path = scratch.file("data", &model.0);
        let mut settings = Settings { cache_bytes: 1 << 20, ..Settings::default() };
        settings.files.backend = backend;
        let Ok(cache) = Cache::new(settings) else {
            continue; // The system refuses it; `forerun-io` tests what is said then.
        };
        let file = cache.open_with(&path, Access::ReadWrite).unwrap();
        for step in 0..120 {
            let (offset, count) = range(&mut random, 200_000, 20_000);
            let written = bytes(&mut random, count);
            match step % 10 {
                0 => file.write_durable_at(&written, offset).unwrap(),
                _ => file.write_at(&written, offset).unwrap(),
            }
            model.write(&written, offset);
            if step % 10 == 0 {
                assert!(fs::read(&path).unwrap() == model.0, "{backend:?} {step}");
            }
            let (offset, count) = range(&mut random, 200_000, 20_000);
            model.check(&file, offset, count);
        }
        drop(file);
        assert!(fs::read(&path).unwrap() == model.0, "{backend:?}: the last handle flushes");
        let file = cache.open(&path).unwrap();
        model.check(&file, 0, 300_000);
        assert_eq!(cache.stats().files_changed, 0, "{backend:?}: own writes end no version");
    }
}

#[test]
fn another_open_of_a_file_that_is_being_written_shares_its_pages() {
    let scratch = Scratch::new("writes");
    let path = scratch.file("data", [1; 3_000]);
    let cache = Cache::builder().memory(1 << 20).build().unwrap();
    let reader = cache.open(&path).unwrap();
    assert_eq!(reader.write_at(&[2], 0), Err(WriteError::ReadOnly));
    let writer = cache.open_with(&path, Access::ReadWrite).unwrap();
    let mut buf = [0; 1];
    for round in 2..50 {
        writer.write_at(&[round], u64::from(round)).unwrap();
        if round % 3 == 0 {
            writer.flush().unwrap();
        }
        let other = cache.open(&path).unwrap();
        for file in [&reader, &other] {
            assert_eq!(file.read_at(&mut buf, u64::from(round)), Ok(1));
            assert_eq!(buf[0], round);
        }
    }
    assert_eq!(cache.stats().files_changed, 0);
}

#[test]
fn a_write_by_another_program_still_ends_a_file_that_is_written_here() {
    let scratch = Scratch::new("writes");
    let path = scratch.file("data", [1; 3_000]);
    let cache = Cache::builder().memory(1 << 20).build().unwrap();
    let file = cache.open_with(&path, Access::ReadWrite).unwrap();
    file.write_durable_at(&[2], 0).unwrap();
    fs::write(&path, [3; 4_000]).unwrap();
    let mut buf = [0; 8];
    forerun_testkit::until(|| file.read_at(&mut buf, 2_000).is_err());
    assert_eq!(file.write_at(&[4], 0), Err(WriteError::Changed));
    let anew = cache.open(&path).unwrap();
    assert_eq!((anew.read_at(&mut buf, 0), buf), (Ok(8), [3; 8]));
}

#[test]
fn writers_of_one_page_take_turns_and_no_read_sees_a_part() {
    let cache = Cache::new(settings(32)).unwrap();
    let (store, file) = memory(&cache, 4 * 512);
    let readers = |thread: u64| {
        let file = file.try_clone().unwrap();
        let mut random = Prng::new(thread);
        for _ in 0..300 {
            let page = random.below(4) * PAGE;
            if thread < 3 {
                let byte = u8::try_from(1 + random.below(255)).unwrap();
                file.write_at(&[byte; 512], page).unwrap();
                if random.below(20) == 0 {
                    file.flush().unwrap();
                }
            } else {
                let mut buf = [0; 512];
                assert_eq!(file.read_at(&mut buf, page), Ok(512));
                assert!(buf.iter().all(|&byte| byte == buf[0]), "a torn page: {buf:?}");
            }
        }
    };
    on_threads(6, readers);
    file.flush().unwrap();
    let contents = store.contents();
    assert!(contents.chunks(512).all(|page| page.iter().all(|&byte| byte == page[0])));
    let mut buf = vec![0; 2_048];
    assert_eq!(file.read_at(&mut buf, 0), Ok(2_048));
    assert!(buf == contents);
}

#[test]
fn what_cannot_be_written_is_refused_at_once() {
    let cache = Cache::new(settings(32)).unwrap();
    let (_, file) = memory(&cache, 100);
    assert_eq!(file.write_at(&[1; 2], u64::MAX), Err(WriteError::TooLong));
    assert_eq!(file.write_at(&[1; 2], i64::MAX as u64), Err(WriteError::TooLong));
    assert_eq!(file.write_at(&[], 1 << 40), Ok(()));
    assert_eq!(file.len(), 100);
    let pattern = cache.open_store_with(Arc::new(Pattern::new(1 << 10)), Access::ReadWrite);
    let pattern = pattern.unwrap();
    pattern.write_at(&[1; 4], 10).unwrap();
    assert_eq!(pattern.flush(), Err(WriteError::Writeback { errno: 30 }), "it takes no write");
    cache.close().unwrap_err();
}
