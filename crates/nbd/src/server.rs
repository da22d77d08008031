//! The server: clients in, a thread each, exports behind the cache.
//!
//! ```text
//!   Listener... --accept--> table of connections --thread--> handshake --> requests
//!   Stop        --wakes---> no more clients, input ends, what was received is answered
//! ```
//!
//! # Invariants
//! - Connections, and through them threads and memory, are bounded by [`ServerSettings`]. A new
//!   client takes the place of the oldest one that is still in its handshake, or is refused: those
//!   that read and write are never ended for others.
//! - A connection's fault ends that connection alone.
//! - [`Server::run`] returns when all connections have ended; one that does not end by itself
//!   within the time of the settings is cut off.
//! # Locking
//! The table's lock, over no call of the system but `shutdown` and the start of a thread.

mod connection;
mod control;
mod counters;
mod disk;
mod inbox;
mod job;
mod metrics;
mod outbox;
mod socket;
mod table;
mod tls;
mod workers;

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
    sync::Arc,
    thread::{self, Scope},
    time::Duration,
};

use forerun_engine::{Cache, WriteError};
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, eventfd, poll},
    io::{Errno, write},
};

pub use control::{Control, ask};
pub use disk::{Disk, DiskError, Mode};
pub use metrics::Metrics;
pub use socket::{ListenError, Listener};
pub use tls::{TlsError, TlsSettings};

use crate::export::{Export, Exports, ExportsError};
use connection::{NoExport, Requests, RequestsEnd, shake_hands};
use counters::{ConnectionCounters, RequestCounters};
use job::Session;
use outbox::Outbox;
use table::{Table, Ticket};
use workers::Workers;

/// The bounds of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSettings {
    /// Connections at a time, those in a handshake included.
    pub connections_max: u32,
    /// Requests of one connection that wait for a device at a time.
    pub depth_max: u32,
    /// The time from a client's coming to the end of its handshake.
    pub handshake_max: Duration,
    /// How long a reply waits for a client that does not read, without any progress.
    pub send_max: Duration,
    /// How long the end of the server waits for clients to take their last replies.
    pub end_max: Duration,
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            connections_max: 64,
            depth_max: 32,
            handshake_max: Duration::from_secs(10),
            send_max: Duration::from_secs(30),
            end_max: Duration::from_secs(2),
        }
    }
}

/// A server. Clones are the same server.
#[derive(Clone)]
pub struct Server(Arc<Shared>);

struct Shared {
    cache: Cache,
    exports: Exports,
    disks: Vec<Disk>,
    requests: Vec<RequestCounters>,
    connections: ConnectionCounters,
    settings: ServerSettings,
    table: Table,
    stop: OwnedFd,
}

impl Server {
    /// A server of `exports`, each with its disk.
    ///
    /// # Errors
    /// The list cannot be served.
    ///
    /// # Panics
    /// The system has no descriptor left.
    pub fn new(
        cache: Cache,
        exports: Vec<(Export, Disk)>,
        settings: ServerSettings,
    ) -> Result<Self, ExportsError> {
        let (exports, disks): (Vec<_>, Vec<_>) = exports.into_iter().unzip();
        let exports = Exports::new(exports)?;
        let requests = disks.iter().map(|_| RequestCounters::default()).collect();
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let stop = stop.expect("a process that begins has a descriptor left");
        let (connections, table) =
            (ConnectionCounters::default(), Table::new(settings.connections_max));
        let shared = Shared { cache, exports, disks, requests, connections, settings, table, stop };
        Ok(Self(Arc::new(shared)))
    }

    /// Serves the clients of `listeners` until [`Server::stop`].
    ///
    /// # Errors
    /// The system cannot wait for clients.
    pub fn run(&self, listeners: Vec<Listener>) -> io::Result<()> {
        let shared = &*self.0;
        thread::scope(|scope| {
            let waited = shared.accept(scope, &listeners);
            drop(listeners);
            shared.table.end(shared.settings.end_max);
            waited
        })
    }

    /// Makes all that was written durable, and closes the cache: nothing is served after it.
    ///
    /// # Errors
    /// Written bytes cannot be made durable, and are lost with the cache.
    pub fn close(&self) -> Result<(), WriteError> {
        self.0.cache.close()
    }

    /// Ends [`Server::run`]. Idempotent; may be called from any thread.
    pub fn stop(&self) {
        // A full counter is a stop as well.
        let _ = write(&self.0.stop, &1_u64.to_ne_bytes());
    }
}

impl Shared {
    fn accept<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        listeners: &[Listener],
    ) -> io::Result<()> {
        loop {
            let fds = listeners.iter().map(|it| it.as_fd()).chain([self.stop.as_fd()]);
            let mut events: Vec<PollFd<'_>> =
                fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
            match poll(&mut events, None) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            }
            if !events[listeners.len()].revents().is_empty() {
                return Ok(());
            }
            for (listener, event) in listeners.iter().zip(&events) {
                if !event.revents().is_empty() {
                    self.client(scope, listener);
                }
            }
        }
    }

    fn client<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, listener: &Listener) {
        let Ok(socket) = listener.accept() else {
            // The client has gone, or no descriptor is left: one that ends frees some.
            self.table.wait_for_an_end(ACCEPT_RETRY);
            return;
        };
        self.connections.accepted.add(1);
        let Some(ticket) = self.table.enter(Arc::new(socket)) else {
            self.connections.refused.add(1);
            return;
        };
        let builder = thread::Builder::new().stack_size(STACK_BYTES);
        if builder.spawn_scoped(scope, move || self.connection(&ticket)).is_err() {
            // The ticket went with the thread that was not started.
            self.connections.refused.add(1);
        }
    }

    fn connection(&self, ticket: &Ticket<'_>) {
        let socket = ticket.socket();
        let (agreed, received) = match shake_hands(socket, &self.exports, &self.settings) {
            Ok(agreed) => agreed,
            Err(end) => {
                self.connections.ended_in_handshake.add(1);
                self.connections.violations.add(u64::from(matches!(end, NoExport::Violation)));
                return;
            }
        };
        ticket.agreed(agreed.export);
        let disk = &self.disks[agreed.export];
        let Ok(handle) = disk.handle(&socket.client()) else { return };
        let session = Session {
            disk,
            handle: &handle,
            export: &self.exports.all()[agreed.export],
            agreed,
            outbox: Outbox::new(socket),
            counters: &self.requests[agreed.export],
            client: ticket.counts(),
        };
        let workers = Workers::new(self.settings.depth_max as usize);
        let end = thread::scope(|scope| {
            Requests::new(scope, &session, &workers, socket, &received).run()
        });
        socket.say_end();
        self.connections.violations.add(u64::from(end == RequestsEnd::Violation));
    }
}

/// The most memory of one request: longer ones are carried out in pieces.
const PIECE_BYTES: usize = 256 << 10;
/// The stack of a thread: no recursion, no large arrays.
const STACK_BYTES: usize = 256 << 10;
/// How long a client waits while the system has no descriptor for it.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
