//! A server on a unix socket, over stores that tests hold back or let fail.

use std::{
    path::PathBuf,
    sync::Arc,
    thread::{self, JoinHandle},
};

use forerun_engine::{Cache, Settings};
use forerun_io::store::{
    Completion, Op, Queue, QueueKind, Store, StoreError, Wait, pattern::Pattern,
};
use forerun_nbd::server::{Disk, Listener, Mode, Server, ServerSettings};
use forerun_nbd::{BlockSizes, Export};
use forerun_testkit::Scratch;
use parking_lot::{Condvar, Mutex};

use crate::client::Client;

/// A running server. Its one export is `disk`, unless more are given.
pub(crate) struct Rig {
    pub(crate) server: Server,
    pub(crate) socket: PathBuf,
    running: Option<JoinHandle<()>>,
    _scratch: Scratch,
}

impl Rig {
    /// A server of `store`, without readahead.
    pub(crate) fn new(store: Arc<dyn Store>, settings: ServerSettings) -> Self {
        Self::of(store, settings, BlockSizes::default(), Mode::ReadOnly)
    }

    /// A server of `store` that is written to.
    pub(crate) fn writable(store: Arc<dyn Store>, mode: Mode) -> Self {
        Self::of(store, ServerSettings::default(), BlockSizes::default(), mode)
    }

    pub(crate) fn of(
        store: Arc<dyn Store>,
        settings: ServerSettings,
        blocks: BlockSizes,
        mode: Mode,
    ) -> Self {
        let scratch = Scratch::new("nbd");
        let socket = scratch.join("s");
        let cache = Settings { readahead: "off".into(), ..Settings::default() };
        let cache = Cache::new(cache).unwrap();
        let disk = Disk::open_store(&cache, store, mode).unwrap();
        let bytes = disk.bytes();
        let (name, description) = ("disk".into(), String::new());
        let export = Export { name, description, bytes, writable: mode != Mode::ReadOnly, blocks };
        let server = Server::new(cache, vec![(export, disk)], settings).unwrap();
        let listener = Listener::unix(&socket).unwrap();
        let runs = server.clone();
        let running = thread::spawn(move || runs.run(vec![listener]).unwrap());
        Self { server, socket, running: Some(running), _scratch: scratch }
    }

    /// A server of a pattern of `bytes`.
    pub(crate) fn pattern(bytes: u64) -> Self {
        Self::new(Arc::new(Pattern::new(bytes)), ServerSettings::default())
    }

    /// A client with structured replies.
    pub(crate) fn client(&self) -> Client {
        Client::structured(&self.socket)
    }

    /// Stops the server, and waits for its end.
    pub(crate) fn stop(&mut self) {
        self.server.stop();
        if let Some(running) = self.running.take() {
            running.join().unwrap();
        }
    }

    /// A count of the metrics.
    pub(crate) fn count(&self, name: &str) -> u64 {
        let metrics = self.server.metrics();
        let line = metrics.lines().find(|line| line.starts_with(&format!("forerun_serve_{name} ")));
        let line = line.unwrap_or_else(|| panic!("no {name}: {metrics}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A pattern whose operations complete while the gate is open.
pub(crate) struct Gated {
    inner: Pattern,
    gate: Arc<Gate>,
}

#[derive(Default)]
pub(crate) struct Gate {
    closed: Mutex<(bool, usize)>,
    changed: Condvar,
}

impl Gate {
    pub(crate) fn close(&self) {
        self.closed.lock().0 = true;
    }

    pub(crate) fn open(&self) {
        self.closed.lock().0 = false;
        self.changed.notify_all();
    }

    /// Waits until `count` threads wait at the gate.
    pub(crate) fn wait_for(&self, count: usize) {
        let mut closed = self.closed.lock();
        while closed.1 < count {
            self.changed.wait(&mut closed);
        }
    }

    fn pass(&self) {
        let mut closed = self.closed.lock();
        closed.1 += 1;
        self.changed.notify_all();
        while closed.0 {
            self.changed.wait(&mut closed);
        }
        closed.1 -= 1;
    }
}

impl Gated {
    pub(crate) fn new(bytes: u64) -> (Arc<Self>, Arc<Gate>) {
        let gate = Arc::new(Gate::default());
        (Arc::new(Self { inner: Pattern::new(bytes), gate: Arc::clone(&gate) }), gate)
    }
}

impl Store for Gated {
    fn bytes(&self) -> Result<u64, StoreError> {
        self.inner.bytes()
    }

    fn queue(&self, kind: QueueKind) -> Arc<dyn Queue> {
        let inner = self.inner.queue(kind);
        Arc::new(GatedQueue { inner, gate: Arc::clone(&self.gate) })
    }
}

struct GatedQueue {
    inner: Arc<dyn Queue>,
    gate: Arc<Gate>,
}

impl Queue for GatedQueue {
    fn submit(&self, op: Op) {
        self.inner.submit(op);
    }

    fn reap(&self, wait: Wait, out: &mut Vec<Completion>) {
        if wait != Wait::Never {
            self.gate.pass();
        }
        self.inner.reap(wait, out);
    }

    fn close(&self) {
        self.inner.close();
    }
}
