//! Queues on shared links beside queues of the standard library, under random use.

use super::*;
use crate::prng::Prng;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Head first, by the links towards the tail; the links towards the head must agree.
pub(super) fn listed(queue: &Queue, links: &Links) -> VecDeque<u32> {
    let mut seen = VecDeque::new();
    let mut at = queue.head();
    while let Some(index) = at {
        assert_eq!(links.newer(index), seen.back().copied());
        seen.push_back(index);
        at = links.older(index);
    }
    assert_eq!(queue.tail(), seen.back().copied());
    assert_eq!(queue.len() as usize, seen.len());
    assert_eq!(queue.is_empty(), seen.is_empty());
    seen
}

fn panics(code: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(code)).is_err()
}

#[test]
fn two_queues_on_shared_links_behave_as_two_deques() {
    for seed in 0..40 {
        let mut prng = Prng::new(seed);
        let mut links = Links::new(4);
        let mut queues = [Queue::new(), Queue::default()];
        let mut deques = [VecDeque::new(), VecDeque::new()];
        for _ in 0..300 {
            let (side, index) = (usize::from(prng.chance(40)), u32::from(prng.chance(50)));
            let index = index * 9 + u32::try_from(prng.below(9)).unwrap();
            let (queue, deque) = (&mut queues[side], &mut deques[side]);
            let place = usize::try_from(prng.below(20)).unwrap();
            match prng.below(8) {
                0 | 1 if !links.is_linked(index) => {
                    queue.push_front(&mut links, index);
                    deque.push_front(index);
                }
                2 if !links.is_linked(index) => {
                    queue.push_back(&mut links, index);
                    deque.push_back(index);
                }
                3 if deque.contains(&index) => {
                    queue.remove(&mut links, index);
                    deque.retain(|&other| other != index);
                }
                4 if deque.contains(&index) => {
                    queue.move_to_front(&mut links, index);
                    deque.retain(|&other| other != index);
                    deque.push_front(index);
                }
                5 if prng.chance(20) => {
                    assert_eq!(queue.pop_back(&mut links), deque.pop_back());
                }
                6 if !links.is_linked(index) && place < deque.len() => {
                    queue.insert_before(&mut links, deque[place], index);
                    deque.insert(place, index);
                }
                7 if !links.is_linked(index) && place < deque.len() => {
                    queue.replace(&mut links, deque[place], index);
                    deque[place] = index;
                }
                _ => {}
            }
            for (queue, deque) in queues.iter().zip(&deques) {
                assert_eq!(&listed(queue, &links), deque, "seed {seed}");
            }
            for index in 0..20 {
                let linked = deques.iter().any(|deque| deque.contains(&index));
                assert_eq!(links.is_linked(index), linked);
            }
        }
    }
}

#[test]
fn misuse_is_found() {
    let (mut links, mut queue, mut other) = (Links::new(0), Queue::new(), Queue::new());
    queue.push_front(&mut links, 1);
    queue.push_front(&mut links, 2);
    queue.push_front(&mut links, 3);
    other.push_front(&mut links, 4);
    assert!(panics(|| queue.clone().push_front(&mut links, 2)), "pushed twice");
    assert!(panics(|| other.clone().push_back(&mut links, 1)), "pushed to a second queue");
    assert!(panics(|| queue.clone().remove(&mut links, 0)), "in no queue");
    assert!(panics(|| queue.clone().remove(&mut links, 77)), "never seen");
    assert!(panics(|| other.clone().remove(&mut links, 1)), "the tail of another");
    assert!(panics(|| other.clone().remove(&mut links, 3)), "the head of another");
    let moved = |links: &mut Links, index| panics(|| other.clone().move_to_front(links, index));
    assert!(moved(&mut links, 0), "in no queue");
    assert!(moved(&mut links, 77), "never seen");
    assert!(moved(&mut links, 1), "the tail of another");
    assert!(moved(&mut links, 3), "the head of another");
    assert!(panics(|| Queue::new().move_to_front(&mut links, 4)), "of an empty queue");
    assert!(!moved(&mut links, 4), "its own head");
    let before =
        |links: &mut Links, at, index| panics(|| other.clone().insert_before(links, at, index));
    assert!(before(&mut links, 0, 9), "before what is in no queue");
    assert!(before(&mut links, 3, 9), "before the head of another");
    assert!(before(&mut links, 4, 2), "what is in a queue already");
    assert!(panics(|| _ = links.newer(0)), "no neighbours without a queue");
    assert!(panics(|| _ = links.older(0)), "no neighbours without a queue");
    for index in [u32::MAX, u32::MAX - 1] {
        assert!(panics(|| queue.clone().push_front(&mut links, index)), "reserved");
        assert!(!links.is_linked(index));
    }
}

#[test]
fn a_table_reads_as_default_where_nothing_was_written() {
    let mut table = Table::<u8>::new(1);
    assert_eq!(table.get(7), 0);
    *table.at(3) = 9;
    assert_eq!([0, 1, 2, 3, 4].map(|index| table.get(index)), [0, 0, 0, 9, 0]);
    *table.at(3) += 1;
    assert_eq!(table.get(3), 10);
}
