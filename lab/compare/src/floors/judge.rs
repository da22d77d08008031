//! Runs in virtual time, judged by the aims of their rows.
//!
//! # Invariants
//! - A mean is judged, at its bound too; the worst run stands beside it.
//! - A missing figure is an error, never 0.

use serde::Deserialize;

use super::row::Aim;
use crate::device::{DEVICES, Device};

/// What `forerun sim --json` prints.
#[derive(Debug, Deserialize)]
pub(super) struct SimOutput {
    pub(super) runs: Vec<SimRun>,
}

#[derive(Debug, Deserialize)]
pub(super) struct SimRun {
    pub(super) device: VirtualRun,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct VirtualRun {
    pub(super) mb_per_second: f64,
    /// The throughput of perfect readahead, where it is known.
    #[serde(rename = "limit_mb_per_second")]
    pub(super) online: Option<f64>,
    pub(super) bytes_read: f64,
    pub(super) bytes_wanted: f64,
    pub(super) requests: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    pub(super) reads_late: f64,
    pub(super) late_max_us: f64,
}

/// The mean of a figure over runs, and its ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Mean {
    pub(super) value: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Mean {
    /// The mean of at least one run.
    pub(super) fn of(figures: impl IntoIterator<Item = f64>) -> Self {
        let (mut sum, mut count, mut min, mut max) = (0.0, 0.0, f64::INFINITY, f64::NEG_INFINITY);
        for figure in figures {
            (sum, count) = (sum + figure, count + 1.0);
            (min, max) = (f64::min(min, figure), f64::max(max, figure));
        }
        assert!(count > 0.0, "a run at least");
        Self { value: sum / count, min, max }
    }

    /// The mean ratio of a figure of each run of `ours` to the run of `theirs` beside it.
    fn of_ratios(
        ours: &[VirtualRun],
        theirs: &[VirtualRun],
        of: impl Fn(&VirtualRun) -> f64,
    ) -> Self {
        assert_eq!(ours.len(), theirs.len(), "a run each");
        Self::of(ours.iter().zip(theirs).map(|(ours, theirs)| of(ours) / of(theirs)))
    }

    /// The mean and the lowest run.
    pub(super) fn lowest(self) -> String {
        format!("{:.3} ({:.2})", self.value, self.min)
    }

    /// The mean and the highest run.
    pub(super) fn highest(self) -> String {
        format!("{:.3} ({:.2})", self.value, self.max)
    }
}

/// The judgement of a policy on a row and device.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Verdict {
    /// The aim, or the note beside the figure.
    pub(super) aim: String,
    /// `None` without an aim, or where it cannot be judged.
    pub(super) is_met: Option<bool>,
}

/// Shares of a device's throughput in order, and of that of perfect readahead.
pub(super) fn shares(runs: &[VirtualRun], limit_mb_per_second: f64) -> (Mean, Option<Mean>) {
    let plain = Mean::of(runs.iter().map(|run| run.mb_per_second / limit_mb_per_second));
    let online = runs.iter().map(|run| Some(run.mb_per_second / run.online?));
    (plain, online.collect::<Option<Vec<f64>>>().map(Mean::of))
}

/// Judges `ours` on `device`; `rivals` are those of the aim.
pub(super) fn judge(
    aim: Aim,
    device: &Device,
    (plain, online): (Mean, Option<Mean>),
    ours: &[VirtualRun],
    rivals: &[(&str, Vec<VirtualRun>)],
) -> Verdict {
    let at = DEVICES.iter().position(|one| one.name == device.name).expect("one of them");
    match aim {
        Aim::Plain(floors) => {
            let floor = floors[at];
            Verdict { aim: format!("plain >= {floor}"), is_met: Some(plain.value >= floor) }
        }
        Aim::Online(floors) => {
            let floor = floors[at];
            let is_met = online.map(|online| online.value >= floor);
            let unknown = if is_met.is_none() { ", **which is not known**" } else { "" };
            Verdict { aim: format!("online >= {floor}{unknown}"), is_met }
        }
        Aim::Beside => {
            let rate =
                |runs: &[VirtualRun]| Mean::of(runs.iter().map(|run| run.mb_per_second)).value;
            let best = rivals.iter().max_by(|a, b| rate(&a.1).total_cmp(&rate(&b.1)));
            let (name, best) = best.expect("Linux stands beside it");
            let share = Mean::of_ratios(ours, best, |run| run.mb_per_second);
            Verdict { aim: format!("{} of {name}", share.lowest()), is_met: None }
        }
        Aim::Pace(pace) => {
            let share = Mean::of(ours.iter().map(|run| run.mb_per_second / pace));
            let late = Mean::of(ours.iter().map(|run| run.reads_late));
            let most = Mean::of(ours.iter().map(|run| run.late_max_us / 1e3));
            let (share_told, late, most) = (share.lowest(), late.value, most.max);
            let told = format!("{share_told} of the pace; {late:.0} reads late, by {most:.0} ms");
            Verdict { aim: told, is_met: Some(share.value >= PACE_SHARE) }
        }
        Aim::Requests => {
            let (name, theirs) = &rivals[0];
            let share = Mean::of_ratios(ours, theirs, |run| run.requests);
            let told = format!("requests {} of {name}'s", share.highest());
            Verdict { aim: told, is_met: Some(share.value <= 1.0) }
        }
        Aim::Bytes(most) => {
            let bytes = Mean::of(ours.iter().map(|run| run.bytes_read / run.bytes_wanted));
            Verdict { aim: format!("bytes <= {most}"), is_met: Some(bytes.value <= most) }
        }
        Aim::Random => {
            let (name, theirs) = &rivals[0];
            let bytes = Mean::of(ours.iter().map(|run| run.bytes_read / run.bytes_wanted));
            let p50 = Mean::of_ratios(ours, theirs, |run| run.p50_us);
            let p99 = Mean::of_ratios(ours, theirs, |run| run.p99_us);
            let is_met = bytes.value <= BYTES_MAX && p50.value.max(p99.value) <= WAIT_MAX;
            let waits = format!("p50 {}, p99 {} of {name}", p50.highest(), p99.highest());
            Verdict { aim: format!("bytes <= {BYTES_MAX}; {waits}"), is_met: Some(is_met) }
        }
    }
}

/// The share of a pace to keep: the last reads complete a little after they are due.
const PACE_SHARE: f64 = 0.99;
/// Bytes read to bytes wanted, at most, for random reads.
const BYTES_MAX: f64 = 1.05;
/// The latency of a random read to its latency without readahead, at most.
const WAIT_MAX: f64 = 1.02;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn figures(mb_per_second: f64, online: Option<f64>) -> VirtualRun {
        VirtualRun {
            mb_per_second,
            online,
            bytes_read: 105.0,
            bytes_wanted: 100.0,
            requests: 10.0,
            p50_us: 100.0,
            p99_us: 200.0,
            reads_late: 0.0,
            late_max_us: 5_000.0,
        }
    }

    #[test]
    fn a_run_of_sim_has_all_figures_or_is_an_error() {
        let run = json!({ "device": { "mb_per_second": 9.0, "limit_mb_per_second": 10.0,
            "bytes_read": 105, "bytes_wanted": 100, "requests": 10, "p50_us": 100.0,
            "p99_us": 200.0, "reads_late": 0, "late_max_us": 5000.0 } });
        let told = |run| serde_json::from_value::<SimOutput>(json!({ "runs": [run] }));
        assert_eq!(told(run).unwrap().runs[0].device, figures(9.0, Some(10.0)));
        let error = told(json!({ "device": { "mb_per_second": 9.0 } })).unwrap_err();
        assert_eq!(error.to_string(), "missing field `bytes_read`");
    }

    #[test]
    fn means_are_judged_at_their_bound_too() {
        let ours = [figures(9.0, Some(10.0)), figures(10.0, Some(10.0))];
        let slower = |by: f64| VirtualRun { p99_us: 200.0 / by, ..figures(9.5, None) };
        let busier = |more| VirtualRun { requests: 10.0 + more, ..figures(20.0, None) };
        let both = |one: VirtualRun| vec![one.clone(), one];
        let beside = vec![("small", both(busier(0.0))), ("large", both(busier(1.0)))];
        #[rustfmt::skip]
        let rows = [ // aim                  rivals                               is met
            (Aim::Plain([0.95; 4]),          vec![],                              Some(true)),
            (Aim::Plain([0.96; 4]),          vec![],                              Some(false)),
            (Aim::Online([0.95; 4]),         vec![],                              Some(true)),
            (Aim::Online([0.96; 4]),         vec![],                              Some(false)),
            (Aim::Beside,                    beside,                              None),
            (Aim::Bytes(1.05),               vec![],                              Some(true)),
            (Aim::Bytes(1.04),               vec![],                              Some(false)),
            (Aim::Pace(9.5),                 vec![],                              Some(true)),
            (Aim::Pace(9.7),                 vec![],                              Some(false)),
            (Aim::Requests,                  vec![("a", both(busier(0.0)))],      Some(true)),
            (Aim::Requests,                  vec![("a", both(busier(-1.0)))],     Some(false)),
            (Aim::Random,                    vec![("off", both(slower(1.02)))],   Some(true)),
            (Aim::Random,                    vec![("off", both(slower(1.03)))],   Some(false)),
        ];
        for (aim, rivals, is_met) in rows {
            let verdict = judge(aim, &DEVICES[0], shares(&ours, 10.0), &ours, &rivals);
            assert_eq!(verdict.is_met, is_met, "{aim:?}: {}", verdict.aim);
        }
        let unknown = [figures(9.0, None)];
        let verdict =
            judge(Aim::Online([0.5; 4]), &DEVICES[0], shares(&unknown, 10.0), &unknown, &[]);
        assert_eq!(verdict.is_met, None, "without a limit nothing is judged");
        assert!(verdict.aim.contains("**which is not known**"), "{}", verdict.aim);
    }
}
