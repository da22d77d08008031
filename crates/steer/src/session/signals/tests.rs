//! What is taken at a time, and what of it is forwarded.
//!
//! # Invariants
//! - Signals are sent to the thread of a test alone: others of this process do not block them.

use std::ptr;

use super::*;

#[test]
fn of_a_number_that_is_pending_the_first_is_forwarded_but_where_each_counts() {
    let (usr1, cont, tstp) = (libc::SIGUSR1, libc::SIGCONT, libc::SIGTSTP);
    let real = libc::SIGRTMIN();
    #[rustfmt::skip]
    let rows: &[(&str, &[i32], &[i32])] = &[ // why, what came, what is forwarded
        ("nothing",                    &[],                       &[]),
        ("each of another number",     &[usr1, libc::SIGUSR2],    &[usr1, libc::SIGUSR2]),
        ("one number",                 &[usr1, usr1, usr1],       &[usr1]),
        ("others between",             &[usr1, libc::SIGHUP, usr1], &[usr1, libc::SIGHUP]),
        ("CONT undoes the stop",       &[cont, tstp, cont],       &[cont, tstp, cont]),
        ("the stop undoes CONT",       &[tstp, cont, tstp],       &[tstp, cont, tstp]),
        ("a queue",                    &[real, real, real + 1],   &[real, real, real + 1]),
    ];
    for (why, came, forwarded) in rows {
        let mut batch: Vec<Forwarded> = Vec::new();
        for signal in came.iter().copied().map(Forwarded::plain) {
            batch.extend(Some(signal).filter(|signal| !signal.is_pending(&batch)));
        }
        let numbers: Vec<i32> = batch.iter().map(|signal| signal.number).collect();
        assert_eq!(numbers, *forwarded, "{why}");
    }
}

#[test]
fn many_are_taken_at_a_time_with_their_values_and_in_order() {
    let mut signals = Signals::block().unwrap();
    assert_eq!(signals.take(), []);
    let real = libc::SIGRTMIN();
    for _ in 0..3 {
        // SAFETY: calls on numbers.
        unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGUSR1) };
    }
    let count = BATCH + 10;
    for value in 0..count {
        let sival_ptr = ptr::without_provenance_mut(value);
        // SAFETY: the value is an address that nothing follows.
        unsafe { libc::pthread_sigqueue(libc::pthread_self(), real, libc::sigval { sival_ptr }) };
    }
    let mut taken = signals.take();
    assert_eq!(taken.len(), BATCH, "all at once");
    taken.extend(signals.take());
    assert_eq!(signals.take(), []);
    let queued =
        (0..count as u64).map(|value| Forwarded { value: Some(value), ..Forwarded::plain(real) });
    let usr1 = Forwarded::plain(libc::SIGUSR1);
    assert_eq!(taken, [usr1].into_iter().chain(queued).collect::<Vec<_>>());
}
