//! Figures and verdicts of rounds that were made up.

use super::*;

/// A cell of a round for each of `latencies`, in microseconds, all alike.
fn cell(policy: usize, latencies: &[u64], cpu: u64) -> Cell {
    let slice = |&micros: &u64| Slice {
        latencies: vec![micros * 1_000; 10],
        counts: ReapCounts {
            groups: [10, 0, 0],
            operations: 10,
            cpu: Nanos(cpu * 10_000),
            late: 1,
            ..ReapCounts::default()
        },
        waking: Nanos(10_000),
        wall: Nanos(micros * 20_000),
    };
    let slices = latencies.iter().map(slice).collect();
    Cell { shape: 0, policy, slices, fallen: None }
}

fn load(name: &'static str) -> Load {
    Load { name, threads: 1, hogs: 0, shapes: vec![vec![4_096]], group: 1 }
}

fn measured(nio: &[u64], nio_cpu: u64) -> Vec<Row> {
    let policies = ["interrupt", "spin", "nio"].map(str::to_owned);
    let cells =
        vec![cell(0, &[100, 200, 100], 9), cell(1, &[50, 100, 50], 49), cell(2, nio, nio_cpu)];
    rows(&load("quiet"), &policies, cells)
}

#[test]
fn figures_are_of_all_rounds_and_ratios_within_one() {
    let rows = measured(&[60, 120, 60], 19);
    let ratios = &Ratios::all(&rows)[2];
    assert_eq!((ratios.to_interrupt, ratios.to_spin), (Some(0.6), Some(1.2)));
    assert_eq!((ratios.cpu_to_spin, ratios.cpu_to_interrupt), (Some(0.4), Some(2.0)));
    let row = &rows[2];
    assert_eq!((row.mean_us, row.p50_us, row.p99_us), (80.0, 60.0, 120.0));
    assert_eq!((row.cpu_us_per_io, row.late_share), (20.0, 0.1));
    assert_eq!((row.wall_us_per_group, ratios.wall_to_interrupt), (160.0, Some(0.6)));
    assert_eq!((row.spread_us, row.size, row.groups), ([60.0, 120.0], 4_096, 30));
}

#[test]
fn a_verdict_names_what_was_aimed_at_and_a_noisy_run_has_none() {
    #[rustfmt::skip]
    let rows: [(&[u64], u64, bool, [&str; 3]); 3] = [
        (&[50, 100, 50], 19, false, ["met", "met", "met"]),
        (&[90, 180, 90], 49, false, ["missed", "missed", "missed"]),
        (&[50, 100, 50], 19, true,  ["noisy", "noisy", "noisy"]),
    ];
    for (nio, cpu, noisy, expected) in rows {
        let mut noise = Noise::default().since(&Noise::default(), "quiet", true);
        if noisy {
            noise.unsteady(&[9.0]);
        }
        let verdicts = verdicts(&measured(nio, cpu), &[noise]);
        assert_eq!(verdicts.len(), 3);
        for (verdict, expected) in verdicts.iter().zip(expected) {
            assert!(verdict.ends_with(expected), "{verdict}");
        }
    }
    assert!(verdicts(&measured(&[50, 100, 50], 1)[..2], &[]).is_empty(), "nio did not run");
}

#[test]
fn the_steadiest_policy_tells_of_the_machine() {
    let cells = [cell(0, &[100, 300], 1), cell(1, &[100, 110], 1)];
    assert_eq!(unsteady(&cells), [1.1]);
}
