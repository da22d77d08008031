//! What a policy remembers of each open handle.
//!
//! Handle numbers are dense from 0 and are used again, so a vector is the whole index.
//!
//! # Invariants
//! - A handle that was just opened, and one that was never seen, is in the default state.

use alloc::vec::Vec;

use crate::units::HandleId;

/// One `S` a handle.
#[derive(Clone, Debug, Default)]
pub struct Handles<S> {
    states: Vec<S>,
}

impl<S: Default> Handles<S> {
    /// The state of `handle`.
    pub fn of(&mut self, handle: HandleId) -> &mut S {
        let index = handle.0 as usize;
        if index >= self.states.len() {
            self.states.resize_with(index + 1, S::default);
        }
        &mut self.states[index]
    }

    /// Forgets what was known of `handle`.
    pub fn forget(&mut self, handle: HandleId) {
        if let Some(state) = self.states.get_mut(handle.0 as usize) {
            *state = S::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forgotten_handle_is_as_new_and_its_neighbours_are_not() {
        let mut handles = Handles::<u32>::default();
        *handles.of(HandleId(3)) = 30;
        *handles.of(HandleId(1)) = 10;
        handles.forget(HandleId(3));
        handles.forget(HandleId(9));
        let seen: Vec<u32> = (0..5).map(|handle| *handles.of(HandleId(handle))).collect();
        assert_eq!(seen, [0, 10, 0, 0, 0]);
    }
}
