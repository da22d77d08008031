//! Calls of a store that may panic: the panic ends at the call.
//!
//! A store is the program's own code. Where it panics, the thread that called it still owes answers
//! to every request that waits for the operation, and goes on to give them.
//!
//! # Invariants
//! - What a store left half done is used no more: its queue is closed, its operations have failed.

use std::panic::{AssertUnwindSafe, catch_unwind};

use forerun_io::store::{Completion, Queue, Wait};

use crate::error::EIO;

/// The result of `call`, a call of a store; `None` where it panicked.
pub(crate) fn unless_panics<T>(call: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(call)).ok()
}

/// Closes a queue whose store has panicked; returns the operations that it still gives back.
pub(crate) fn salvage(queue: &dyn Queue) -> Vec<Completion> {
    let mut out = Vec::new();
    let _ = unless_panics(|| queue.close());
    loop {
        let before = out.len();
        let reaped = unless_panics(|| queue.reap(Wait::Never, &mut out));
        if reaped.is_none() || out.len() == before {
            break;
        }
    }
    for done in &mut out {
        done.result = done.result.map_err(|_| EIO); // Not cancelled: no caller closed the queue.
    }
    out
}
