//! Handles for tasks: the bytes, the wake-ups, cancelling, on an executor of one thread.

use std::{
    future::Future,
    num::NonZeroUsize,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::Duration,
};

use forerun_engine::{Cache, ReadError, ReaderThreads, Settings};
use forerun_io::{
    store::pattern::{self, Pattern},
    wrap::fault::{Fault, Faults, Rule, When},
};
use forerun_testkit::{until, within};
use futures_util::{AsyncReadExt as _, AsyncSeekExt as _, future, io::SeekFrom};

use crate::rig::{Gated, PAGE, PAGE_BYTES, settings};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// An executor of one future, on this thread.
fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let (mut context, mut future) = (Context::from_waker(&waker), pin!(future));
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

fn threads(count: usize) -> ReaderThreads {
    ReaderThreads::new(NonZeroUsize::new(count).unwrap())
}

/// A store whose every read takes a while, so that polls are pending.
fn slow(bytes: u64) -> Arc<Fault> {
    let delay = Some((When::Every(1), Duration::from_micros(300)));
    let faults = Faults { reads: Rule { delay, ..Rule::default() }, ..Faults::default() };
    Arc::new(Fault::new(Arc::new(Pattern::new(bytes)), faults, 1))
}

#[test]
fn a_task_reads_and_seeks_what_the_file_has() {
    within(|| {
        let cache = Cache::new(Settings::default()).unwrap();
        let file = cache.open_store(slow(1_000_003)).unwrap();
        let mut file = threads(2).wrap(file);
        block_on(async {
            let mut whole = Vec::new();
            file.read_to_end(&mut whole).await.unwrap();
            assert_eq!(whole.len(), 1_000_003);
            assert_eq!(pattern::verify(0, &whole), Ok(()));
            assert_eq!(file.seek(SeekFrom::End(-10)).await.unwrap(), 999_993);
            let mut end = [0; 10];
            file.read_exact(&mut end).await.unwrap();
            assert_eq!(pattern::verify(999_993, &end), Ok(()));
            assert_eq!(file.read(&mut end).await.unwrap(), 0);
            assert!(file.seek(SeekFrom::Current(-2_000_000)).await.is_err());
        });
        let stats = cache.stats();
        assert!(stats.core.balanced() && stats.misses() > 0 && stats.hits() > 0, "{stats:?}");
    });
}

#[test]
fn reads_at_once_share_few_threads_and_all_are_answered() {
    within(|| {
        let cache = Cache::new(Settings { cache_bytes: 1 << 20, ..Settings::default() }).unwrap();
        let file = threads(3).wrap(cache.open_store(slow(8 << 20)).unwrap());
        let reads = (0..200).map(|at| file.read_at(vec![0; 5_000], at * 40_009 + 7));
        let ends = block_on(future::join_all(reads));
        for (at, (result, bytes)) in (0..).zip(ends) {
            assert_eq!((result, bytes.len()), (Ok(5_000), 5_000), "{at}");
            assert_eq!(pattern::verify(at * 40_009 + 7, &bytes), Ok(()), "{at}");
        }
        let (result, bytes) = block_on(file.read_at(vec![1; 9], 8 << 20));
        assert_eq!((result, bytes), (Ok(0), vec![1; 9]), "at the end");
    });
}

#[test]
fn an_error_is_the_tasks_and_the_next_read_goes_on() {
    within(|| {
        let cache =
            Cache::new(Settings { readahead: "off".into(), ..Settings::default() }).unwrap();
        let fail = Some((When::Every(2), 5));
        let faults = Faults { reads: Rule { fail, ..Rule::default() }, ..Faults::default() };
        let store = Arc::new(Fault::new(Arc::new(Pattern::new(1 << 20)), faults, 1));
        let mut file = threads(1).wrap(cache.open_store(store).unwrap());
        let (mut errors, mut whole, mut room) = (0, Vec::new(), [0; 4096]);
        while whole.len() < 1 << 20 {
            match block_on(file.read(&mut room)) {
                Ok(count) => whole.extend_from_slice(&room[..count]),
                Err(error) => {
                    let error: ReadError = error.downcast().expect("the cache's error");
                    assert_eq!(error.errno(), 5);
                    errors += 1;
                }
            }
        }
        assert_eq!((pattern::verify(0, &whole), errors), (Ok(()), 255));
        cache.close().unwrap();
        assert_eq!(block_on(file.read_at(vec![0; 10], 77)).0, Err(ReadError::Closed));
    });
}

#[test]
fn as_many_reads_as_threads_wait_for_the_store_and_dropped_ones_never_reach_it() {
    within(|| {
        let cache = Cache::new(settings(64, "off")).unwrap();
        let (store, gate) = Gated::new(100 * PAGE);
        let file = threads(2).wrap(cache.open_store(store).unwrap());
        let mut reads: Vec<_> = (0..9).map(|at| file.read_at(vec![0; 10], at * PAGE)).collect();
        until(|| gate.submitted(false) == 2);
        let dropped = reads.split_off(2);
        let last = file.read_at(vec![0; 10], 50 * PAGE);
        assert_eq!(gate.submitted(false), 2, "the third waits for a thread");
        drop(dropped);
        gate.set(true, true);
        for (at, (result, bytes)) in (0..).zip(block_on(future::join_all(reads))) {
            assert_eq!((result, pattern::verify(at * PAGE, &bytes)), (Ok(10), Ok(())));
        }
        // Its threads live on with it, and so does the file.
        drop(file);
        assert_eq!(block_on(last).0, Ok(10));
        assert_eq!(gate.submitted(false), 3, "{:?}", gate.log());
    });
}

#[test]
fn what_is_cached_is_read_without_a_thread() {
    within(|| {
        let cache = Cache::new(settings(64, "off")).unwrap();
        let file = cache.open_store(Arc::new(Pattern::new(20 * PAGE))).unwrap();
        let mut page = [0; PAGE_BYTES as usize];
        file.read_at(&mut page, 0).unwrap();
        let mut file = threads(1).wrap(file);
        let before = cache.stats();
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        let mut read = file.read(&mut page);
        let Poll::Ready(Ok(count)) = pin!(&mut read).poll(&mut context) else {
            panic!("a poll copies what is cached")
        };
        assert_eq!((count as u64, pattern::verify(0, &page)), (PAGE, Ok(())));
        let now = cache.stats();
        assert_eq!((now.requests, now.unlocked), (before.requests + 1, before.unlocked + 1));
        // Of a read that is cached in part, a poll gives that part.
        assert_eq!(block_on(file.seek(SeekFrom::Start(100))).unwrap(), 100);
        let mut long = [0; 2 * PAGE_BYTES as usize];
        assert_eq!(block_on(file.read(&mut long)).unwrap() as u64, PAGE - 100);
    });
}
