//! The checker's locks and conditions, called as those of `parking_lot` are.
//!
//! # Invariants
//! - A guard holds its lock but while its condition is waited for, when it cannot be reached.
//! - A lock whose holder panicked can be taken: the panic itself fails the model.

use std::{
    ops::{Deref, DerefMut},
    sync::{PoisonError, TryLockError},
    time::Duration,
};

use shuttle::sync::{self, WaitTimeoutResult};

/// See `parking_lot::Mutex`.
#[derive(Debug, Default)]
pub struct Mutex<T>(sync::Mutex<T>);

/// See `parking_lot::MutexGuard`.
pub struct MutexGuard<'a, T>(Option<sync::MutexGuard<'a, T>>);

/// See `parking_lot::Condvar`.
#[derive(Debug, Default)]
pub struct Condvar(sync::Condvar);

impl<T> Mutex<T> {
    /// A lock that is free.
    pub fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(MutexGuard(Some(guard))),
            Err(TryLockError::Poisoned(error)) => Some(MutexGuard(Some(error.into_inner()))),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect(HELD)
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect(HELD)
    }
}

impl Condvar {
    /// A condition without waiters.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Releases the lock until notified.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.0.take().expect(HELD);
        guard.0 = Some(self.0.wait(held).unwrap_or_else(PoisonError::into_inner));
    }

    /// As [`Condvar::wait`]: no limit comes.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, limit: Duration) -> WaitTimeoutResult {
        let held = guard.0.take().expect(HELD);
        let (held, result) =
            self.0.wait_timeout(held, limit).unwrap_or_else(PoisonError::into_inner);
        guard.0 = Some(held);
        result
    }

    /// Wakes one waiter.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// Why a guard's lock is there.
const HELD: &str = "a guard has its lock but while its condition is waited for";
