//! When a program computes and when it waits: the state of its process, asked every few ms.
//!
//! ```text
//!   state   R R S S D S R R ...   a wait is a run of samples that are not R
//! ```
//! Under `forerun run` the program is a process below the one that was started; it is known by its
//! command line.
//!
//! # Invariants
//! - A run's spans of waiting lie within it, ascend and do not overlap.

use std::fs;
use std::process::{Child, ExitStatus};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use forerun_console::machine;
use forerun_report::{ProgramRun, quantity};

/// Watches `child`, of which `program` is the process to follow, until its end; none where it takes
/// longer than `most`.
pub(super) fn until_end(
    child: &mut Child,
    program: &[String],
    most: Duration,
) -> Result<Option<(ProgramRun, ExitStatus)>> {
    let begun = machine::now();
    let mut followed = None;
    let mut waits = Waits::default();
    loop {
        let at = quantity::seconds(machine::now().since(begun));
        if let Some(status) = child.try_wait().context("cannot wait for a program")? {
            let run = ProgramRun { seconds: at, waits: waits.end(at) };
            return Ok(Some((run, status)));
        }
        if at > most.as_secs_f64() {
            return Ok(None);
        }
        followed = followed.or_else(|| find(child.id(), program));
        // What has not begun yet waits: for its own file, as a rule.
        waits.sample(at, followed.is_none_or(|id| !computes(id)));
        thread::sleep(BETWEEN);
    }
}

/// Spans of waiting, from samples.
#[derive(Default)]
struct Waits {
    spans: Vec<(f64, f64)>,
    since: Option<f64>,
}

impl Waits {
    fn sample(&mut self, at: f64, waits: bool) {
        if waits {
            self.since.get_or_insert(at);
        } else if let Some(since) = self.since.take() {
            self.spans.push((since, at));
        }
    }

    fn end(mut self, at: f64) -> Vec<(f64, f64)> {
        self.sample(at, false);
        self.spans
    }
}

/// The process of `program`: `id`, or one below it.
fn find(id: u32, program: &[String]) -> Option<u32> {
    let wanted: Vec<u8> =
        program.iter().flat_map(|word| [word.as_bytes(), b"\0"].concat()).collect();
    let is = |id: &u32| fs::read(format!("/proc/{id}/cmdline")).is_ok_and(|it| it == wanted);
    let below = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
    let below = below.split_whitespace().filter_map(|id| id.parse().ok());
    std::iter::once(id).chain(below).find(is)
}

/// Whether process `id` has a processor, or waits for one.
fn computes(id: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    // The name between parentheses may hold anything, such as a parenthesis.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('R'))
}

/// From one look at a process to the next.
const BETWEEN: Duration = Duration::from_millis(3);

#[cfg(test)]
mod tests {
    use super::*;

    type Sample = (f64, bool);
    type Span = (f64, f64);

    #[test]
    fn a_wait_is_a_run_of_samples_that_do_not_compute() {
        let of = |samples: &[Sample], end| {
            let mut waits = Waits::default();
            for &(at, waiting) in samples {
                waits.sample(at, waiting);
            }
            waits.end(end)
        };
        #[rustfmt::skip]
        let rows: [(&[Sample], f64, &[Span]); 4] = [
            (&[(0.0, true), (1.0, true), (2.0, false), (3.0, true)],
                                            4.0, &[(0.0, 2.0), (3.0, 4.0)]),
            (&[(0.0, false), (1.0, false)], 2.0, &[]),
            (&[(0.0, true)],                2.0, &[(0.0, 2.0)]),
            (&[],                           2.0, &[]),
        ];
        for (samples, end, spans) in rows {
            assert_eq!(of(samples, end), spans);
        }
    }

    #[test]
    fn this_process_is_found_by_its_command_line_and_computes() {
        let words: Vec<String> = std::env::args().collect();
        let id = std::process::id();
        assert_eq!(find(id, &words), Some(id));
        assert_eq!(find(id, &["no such program".to_owned()]), None);
        assert!(!computes(u32::MAX), "there is no such process");
    }
}
