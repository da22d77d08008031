//! A ring that one thread has for itself, to wait on as it likes.
//!
//! ```text
//!   submit:  group --> transfers --one enter--> ring --poll, wait--> completions
//!                 \--> nothing for a ring to do -----------------> completions at once
//! ```
//!
//! A *polled* ring is one of `IORING_SETUP_IOPOLL`: the thread that enters polls its device, which
//! raises no interrupt. It is made where the block layer says that the device's queues are polled
//! and a read has shown it, as neither tells the whole truth alone.
//!
//! # Invariants
//! - What the ring cannot take is carried out blocking, with the same result.
//! - On a polled ring there is nothing but reads past the page cache.
//! # Sources
//! Linux `io_uring_setup(2)`, `IORING_SETUP_IOPOLL`; `Documentation/ABI/stable/sysfs-block`,
//! `queue/io_poll`.

use std::{fs, os::unix::fs::MetadataExt as _, sync::Arc, time::Duration};

use rustix::{
    fs::{major, minor},
    io::Errno,
};

use super::ring::{Flavour, Ring};
use crate::{
    reaper::port::{Port, PortFeatures},
    store::{
        Completion, Op,
        file::{OpenFile, Route, Transfer},
    },
};

/// See the module.
pub(crate) struct RingPort {
    ring: Ring,
    file: Arc<OpenFile>,
    is_polled: bool,
}

impl RingPort {
    /// A port of this thread to `file`, for `depth` operations at once or somewhat more.
    ///
    /// # Errors
    /// The system makes no ring.
    pub(crate) fn new(file: Arc<OpenFile>, depth: u32) -> Result<Self, Errno> {
        let ring = Ring::newest(depth, &mut Flavour::newest())?;
        Ok(Self { ring, file, is_polled: false })
    }

    /// The same without interrupts.
    ///
    /// # Errors
    /// Why not, in words.
    pub(crate) fn polled(file: Arc<OpenFile>, depth: u32) -> Result<Self, String> {
        let Some(direct) = &file.direct else {
            return Err("the file cannot be read past the page cache".to_owned());
        };
        let number = direct.metadata().map(|found| (found.dev(), found.rdev()));
        let (dev, rdev) = number.map_err(|error| error.to_string())?;
        let number = if file.is_device() { rdev } else { dev };
        if !is_polled(number) {
            return Err("the device's queue/io_poll is not 1".to_owned());
        }
        let tried = Ring::newest(depth, &mut Flavour::Polled).and_then(|mut ring| {
            ring.try_out(Some(direct))?;
            Ok(ring)
        });
        let ring = tried.map_err(|errno| format!("a polled read failed: {errno}"))?;
        Ok(Self { ring, file, is_polled: true })
    }
}

/// Whether the block layer polls the device of this number, or the one it is a part of.
fn is_polled(number: u64) -> bool {
    let path = format!("/sys/dev/block/{}:{}", major(number), minor(number));
    let Ok(folder) = fs::canonicalize(path) else { return false };
    let mut folders = folder.ancestors().take(2);
    let polls = folders.find_map(|folder| fs::read_to_string(folder.join("queue/io_poll")).ok());
    polls.is_some_and(|polls| polls.trim() == "1")
}

impl Port for RingPort {
    fn name(&self) -> &'static str {
        if self.is_polled { "io_uring, polled" } else { "io_uring" }
    }

    fn features(&self) -> PortFeatures {
        PortFeatures { poll: true, timed: !self.is_polled && self.ring.is_timed() }
    }

    fn capacity(&self) -> usize {
        self.ring.capacity()
    }

    fn submit(&mut self, group: Vec<Op>, out: &mut Vec<Completion>) {
        assert!(self.ring.in_flight() == 0, "a group is reaped before the next one");
        let mut batch = Vec::with_capacity(group.len());
        for op in group {
            match Transfer::begin(op, &self.file) {
                Ok(transfer) if self.takes(&transfer) => batch.push(transfer),
                Ok(transfer) => out.push(transfer.carry()),
                Err(done) => out.push(done),
            }
        }
        if !batch.is_empty() {
            self.ring.begin(batch.into_iter());
            self.ring.submit();
        }
    }

    fn in_flight(&self) -> usize {
        self.ring.in_flight()
    }

    fn poll(&mut self, out: &mut Vec<Completion>) {
        self.ring.poll(out);
    }

    fn wait(&mut self, time: Option<Duration>, out: &mut Vec<Completion>) {
        match time {
            Some(time) => self.ring.wait_for(time, out),
            None => self.ring.finish(out),
        }
    }
}

impl RingPort {
    fn takes(&self, transfer: &Transfer) -> bool {
        self.ring.is_sound() && (!self.is_polled || transfer.route() == Route::Direct)
    }
}
