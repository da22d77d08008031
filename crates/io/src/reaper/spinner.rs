//! Spins for something other than a device's completion, within the reaper's budget.
//!
//! # Invariants
//! - As in the reaper, a share of the time at most is spun, and none while other threads want the
//!   processor.
//! - A wait ends with what its caller blocks for, at the latest.

use std::{marker::PhantomData, rc::Rc};

use forerun_core::{
    reap::{RequestGap, SpinBudget},
    units::Nanos,
};

use super::{SPIN_SHARE, clock::now, contention::ContentionMonitor};

/// See the module. For the thread that made it.
pub struct Spinner {
    gap: RequestGap,
    /// When the wait began.
    begun: Nanos,
    budget: SpinBudget,
    contention: ContentionMonitor,
    /// The usage is that of this thread.
    _bound: PhantomData<Rc<()>>,
}

impl Default for Spinner {
    /// With a quarter of a processor to spin.
    fn default() -> Self {
        let begun = now();
        let (gap, budget) = (RequestGap::default(), SpinBudget::new(SPIN_SHARE, begun));
        Self { gap, begun, budget, contention: ContentionMonitor::new(begun), _bound: PhantomData }
    }
}

impl Spinner {
    /// Begins a wait: asks `look` for the next request without a pause, where and as long as that
    /// is likely to pay. `None`: the caller blocks.
    pub fn spin<T>(&mut self, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        let begun = now();
        self.begun = begun;
        if self.contention.is_contended(begun) {
            self.budget.disturbed(begun);
        }
        let most = self.gap.spin().filter(|_| self.budget.open(begun))?;
        loop {
            let found = look();
            let spun = now().since(begun);
            if found.is_some() || spun >= most {
                self.budget.spent(spun);
                return found;
            }
            std::hint::spin_loop();
        }
    }

    /// The request that a wait was for has come.
    pub fn came(&mut self) {
        self.gap.learn(now().since(self.begun));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spinner() -> Spinner {
        Spinner { contention: ContentionMonitor::blind(), ..Spinner::default() }
    }

    #[test]
    fn what_came_soon_is_spun_for_and_no_spin_is_endless() {
        let mut spinner = spinner();
        assert_eq!(spinner.spin(|| -> Option<()> { unreachable!("nothing is known") }), None);
        spinner.gap.learn(Nanos(0));
        let mut looks = 0;
        let third = || {
            looks += 1;
            (looks == 3).then_some("third")
        };
        assert_eq!(spinner.spin(third), Some("third"));
        spinner.gap.learn(Nanos(0));
        assert_eq!(spinner.spin(|| None::<()>), None);
        spinner.came();
        assert_eq!(spinner.spin(|| -> Option<()> { unreachable!("a long gap") }), None);
    }

    #[test]
    fn an_empty_budget_is_not_spun_from() {
        let mut spinner = spinner();
        spinner.budget.spent(Nanos::from_millis(60_000));
        spinner.gap.learn(Nanos(0));
        assert_eq!(spinner.spin(|| -> Option<()> { unreachable!("nothing is left") }), None);
    }
}
