//! What is in the kernel, by the ticket that its completion carries.
//!
//! ```text
//!   slots:  [ - ][ item ][ item ][ - ]      ticket = uses of the slot before | its number
//! ```
//!
//! # Invariants
//! - An item lies in its slot from before the kernel learns of it until its completion was taken:
//!   the table owns the memory that the kernel writes to.
//! - A ticket names one use of one slot: that of an earlier use is found out.

/// A slot's number, and how often the slot was used before.
pub(super) type Ticket = u64;

/// See the module.
pub(super) struct InFlight<T> {
    slots: Vec<Slot<T>>,
    free: Vec<usize>,
}

struct Slot<T> {
    uses: u32,
    item: Option<T>,
}

impl<T> InFlight<T> {
    /// A table of `count` empty slots.
    pub(super) fn new(count: usize) -> Self {
        assert!(u32::try_from(count).is_ok(), "a slot's number is the lower half of a ticket");
        let slots = (0..count).map(|_| Slot { uses: 0, item: None }).collect();
        Self { slots, free: (0..count).rev().collect() }
    }

    /// Items that fit.
    pub(super) fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Items that are there.
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Puts `item` into a free slot.
    pub(super) fn insert(&mut self, item: T) -> (Ticket, &mut T) {
        let number = self.free.pop().expect("a slot is free");
        let slot = &mut self.slots[number];
        assert!(slot.item.is_none(), "a slot holds one item");
        (ticket(number, slot.uses), slot.item.insert(item))
    }

    /// Takes out what `ticket` names.
    pub(super) fn take(&mut self, ticket: Ticket) -> T {
        let number = usize::try_from(ticket & u64::from(u32::MAX)).expect("a slot's number");
        let slot = &mut self.slots[number];
        assert_eq!(u64::from(slot.uses), ticket >> 32, "a ticket is used once");
        slot.uses = (slot.uses + 1) % USES_MAX;
        self.free.push(number);
        slot.item.take().expect("a ticket names an item")
    }

    /// The tickets of all items that `which` holds for.
    pub(super) fn tickets(&self, which: impl Fn(&T) -> bool) -> Vec<Ticket> {
        let slots = self.slots.iter().enumerate();
        let ours = slots.filter(|(_, slot)| slot.item.as_ref().is_some_and(&which));
        ours.map(|(number, slot)| ticket(number, slot.uses)).collect()
    }
}

fn ticket(number: usize, uses: u32) -> Ticket {
    (u64::from(uses) << 32) | number as u64
}

/// Uses are counted up to here and from 0 again, so that no ticket is as high as other marks.
const USES_MAX: u32 = 1 << 31;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_of_three_takes_gives_each_item_back_once() {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut table = InFlight::new(3);
            let mut before = Vec::new();
            for round in 0..4 {
                let tickets = [0, 1, 2].map(|item| table.insert(item).0);
                assert_eq!(table.len(), table.capacity());
                assert_eq!(table.tickets(|item| *item == 1), [tickets[1]]);
                assert!(tickets.iter().all(|ticket| !before.contains(ticket)), "round {round}");
                for item in order {
                    assert_eq!(table.take(tickets[item]), item);
                }
                assert_eq!(table.len(), 0);
                before.extend(tickets);
            }
        }
    }
}
