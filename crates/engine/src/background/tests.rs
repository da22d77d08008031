//! A reaper whose store panics while a submitter is still in its call.
//!
//! # Invariants
//! - The order is made by waiting for it: a submission returns after the reaper has ended its job.

use parking_lot::{Condvar, Mutex};

use super::*;
use forerun_io::store::OpKind;

/// A queue that panics as it is reaped; the second submission returns when both jobs have ended.
#[derive(Default)]
struct Broken {
    state: Mutex<Seen>,
    changed: Condvar,
}

#[derive(Default)]
struct Seen {
    submitted: u32,
    reaps: u32,
    ended: u32,
}

impl Broken {
    fn note(&self, note: impl FnOnce(&mut Seen)) {
        note(&mut self.state.lock());
        self.changed.notify_all();
    }

    fn wait_for(&self, holds: impl Fn(&Seen) -> bool) {
        let mut seen = self.state.lock();
        while !holds(&seen) {
            self.changed.wait(&mut seen);
        }
    }
}

impl Queue for Broken {
    fn submit(&self, _: Op) {
        self.note(|seen| seen.submitted += 1);
        if self.state.lock().submitted == 2 {
            self.wait_for(|seen| seen.ended == 2);
        }
    }

    fn reap(&self, wait: Wait, _: &mut Vec<Completion>) {
        if wait == Wait::One {
            self.note(|seen| seen.reaps += 1);
            self.wait_for(|seen| seen.submitted == 2);
            panic!("a panic in reap");
        }
    }

    fn close(&self) {}
}

impl Completions<u32> for Broken {
    fn take(self: &Arc<Self>, _: u32, done: Option<Completion>) {
        assert!(done.is_none(), "the store gives nothing back");
        self.note(|seen| seen.ended += 1);
    }
}

fn op(token: u64) -> Op {
    Op { token, kind: OpKind::Sync, offset: 0, bytes: 0, frames: Vec::new() }
}

#[test]
fn a_reaper_does_not_wait_for_a_job_that_ended_before_it_was_counted() {
    let broken = Arc::new(Broken::default());
    let queue: Arc<dyn Queue> = broken.clone();
    let background = Backgrounds::default().of(&queue);
    for token in 0..2 {
        let job = u32::try_from(token).expect("small");
        assert!(background.submit(&broken, &*queue, op(token), job).is_ok());
    }
    background.close();
    let seen = broken.state.lock();
    assert_eq!((seen.submitted, seen.ended), (2, 2));
    assert_eq!(seen.reaps, 1, "the reaper reaps nothing after both have ended");
    drop(seen);
    assert!(background.submit(&broken, &*queue, op(2), 2).is_err(), "it is closed");
}
