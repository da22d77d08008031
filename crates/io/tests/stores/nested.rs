//! Closing a wrapper's queue reaches the store below it, however long that would take.

use std::sync::{Arc, Condvar, Mutex, mpsc};

use forerun_core::device;
use forerun_io::{
    store::{Completion, ECANCELED, Op, OpKind, Queue, QueueKind, Store, StoreError, Wait},
    wrap::{
        fault::{Fault, Faults},
        latency::Latency,
        record::Record,
        volatile::Volatile,
    },
};
use forerun_testkit::within;

use crate::rig::{KINDS, op, reaping};

/// A store whose operations never end by themselves. Says when a thread waits for one.
struct Stuck(mpsc::Sender<()>);

impl Store for Stuck {
    fn bytes(&self) -> Result<u64, StoreError> {
        Ok(1 << 20)
    }

    fn queue(&self, _: QueueKind) -> Arc<dyn Queue> {
        let state = Mutex::new((Vec::new(), false));
        Arc::new(StuckQueue { waits: self.0.clone(), state, closed: Condvar::new() })
    }
}

struct StuckQueue {
    waits: mpsc::Sender<()>,
    state: Mutex<(Vec<Op>, bool)>,
    closed: Condvar,
}

impl Queue for StuckQueue {
    fn submit(&self, op: Op) {
        self.state.lock().unwrap().0.push(op);
    }

    fn reap(&self, _: Wait, out: &mut Vec<Completion>) {
        self.waits.send(()).unwrap();
        let state = self.state.lock().unwrap();
        let mut state = self.closed.wait_while(state, |state| !state.1).unwrap();
        out.extend(state.0.drain(..).map(Op::cancelled));
    }

    fn close(&self) {
        self.state.lock().unwrap().1 = true;
        self.closed.notify_all();
    }
}

#[test]
fn an_operation_that_is_stuck_below_is_cancelled() {
    for kind in KINDS {
        let (sender, waits) = mpsc::channel();
        let device = device::make("optane", 1).unwrap();
        let stores: [Arc<dyn Store>; 4] = [
            Arc::new(Fault::new(Arc::new(Stuck(sender.clone())), Faults::default(), 1)),
            Arc::new(Record::new(Arc::new(Stuck(sender.clone())), 10)),
            Arc::new(Volatile::new(Arc::new(Stuck(sender.clone())), 1 << 20)),
            Arc::new(Latency::new(Arc::new(Stuck(sender)), device)),
        ];
        for store in stores {
            let queue = store.queue(kind);
            queue.submit(op(OpKind::Read, 1, 0, 64));
            let reaper = reaping(&queue);
            waits.recv().expect("it is being carried out");
            queue.close();
            let done = within(move || reaper.join().unwrap());
            assert_eq!((done.len(), done[0].result), (1, Err(ECANCELED)), "{kind:?}");
        }
    }
}
