//! A store in memory: bytes that grow as they are written, up to a bound.
//!
//! For tests, for the demo, and under the wrappers. A write past the end fills the gap with
//! zeros, as a file does.
//!
//! # Invariants
//! - The length never passes `bytes_max`; a write that would is refused whole, with `ENOSPC`.
//! - A read or a write is atomic: it sees all of another write or none of it.

use std::sync::Arc;

use parking_lot::RwLock;
use rustix::io::Errno;

use super::{Change, Completion, Op, OpKind, Queue, QueueKind, Store, StoreError};
use crate::queue::{Carry, open};

/// See the module.
#[derive(Clone, Debug)]
pub struct Memory {
    bytes: Arc<RwLock<Vec<u8>>>,
    bytes_max: usize,
}

impl Memory {
    /// A store that holds `contents` and may grow to `bytes_max`.
    #[must_use]
    pub fn new(contents: Vec<u8>, bytes_max: usize) -> Self {
        assert!(contents.len() <= bytes_max, "longer than its bound from the start");
        Self { bytes: Arc::new(RwLock::new(contents)), bytes_max }
    }

    /// A copy of all it holds.
    #[must_use]
    pub fn contents(&self) -> Vec<u8> {
        self.bytes.read().clone()
    }

    /// Cuts it or pads it with zeros, as another program may do to a file.
    pub fn resize(&self, bytes: usize) {
        assert!(bytes <= self.bytes_max, "longer than its bound");
        self.bytes.write().resize(bytes, 0);
    }

    fn read(&self, op: &mut Op) -> usize {
        let bytes = self.bytes.read();
        let from = usize::try_from(op.offset).map_or(bytes.len(), |at| at.min(bytes.len()));
        let mut source = &bytes[from..];
        let mut moved = 0;
        for piece in op.pieces_mut() {
            let (now, rest) = source.split_at(piece.len().min(source.len()));
            piece[..now.len()].copy_from_slice(now);
            moved += now.len();
            source = rest;
        }
        drop(bytes);
        assert!(moved <= op.bytes, "a read moves what was asked for");
        op.zero_past(moved);
        moved
    }

    fn write(&self, op: &Op) -> Result<usize, i32> {
        let from = usize::try_from(op.offset).map_err(|_| ENOSPC)?;
        let end = from.checked_add(op.bytes).filter(|end| *end <= self.bytes_max).ok_or(ENOSPC)?;
        if op.bytes == 0 {
            return Ok(0);
        }
        let mut bytes = self.bytes.write();
        if end > bytes.len() {
            let more = end - bytes.len();
            bytes.try_reserve(more).map_err(|_| ENOSPC)?;
            bytes.resize(end, 0);
        }
        let mut at = from;
        for piece in op.pieces() {
            bytes[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        }
        assert_eq!(at, end, "a write moves all of its bytes");
        Ok(op.bytes)
    }
}

impl Store for Memory {
    fn bytes(&self) -> Result<u64, StoreError> {
        Ok(self.bytes.read().len() as u64)
    }

    fn queue(&self, kind: QueueKind) -> Arc<dyn Queue> {
        open(self.clone(), kind)
    }

    fn bytes_max(&self) -> Option<u64> {
        Some(self.bytes_max as u64)
    }

    fn change(&self, change: Change) -> Result<(), i32> {
        let mut bytes = self.bytes.write();
        match change {
            Change::Length(length) => {
                let length = usize::try_from(length).map_err(|_| ENOSPC)?;
                if length > self.bytes_max {
                    return Err(ENOSPC);
                }
                bytes.resize(length, 0);
            }
            Change::Zero { offset, bytes: count, .. }
            | Change::Discard { offset, bytes: count } => {
                let at =
                    |at: u64| usize::try_from(at).map_or(bytes.len(), |at| at.min(bytes.len()));
                let (from, to) = (at(offset), at(offset.saturating_add(count)));
                bytes[from..to].fill(0);
            }
        }
        Ok(())
    }
}

impl Carry for Memory {
    type Plan = ();

    fn carry(&self, mut op: Op, (): ()) -> Completion {
        let result = match op.kind {
            OpKind::Read => Ok(self.read(&mut op)),
            OpKind::Write => self.write(&op),
            OpKind::Sync => Ok(0),
        };
        Completion { op, result }
    }
}

const ENOSPC: i32 = Errno::NOSPC.raw_os_error();
