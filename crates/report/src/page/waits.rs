//! Ways of waiting for I/O: how long each took, as a distribution, and its processor time beside.
//!
//! ```text
//!   99 % |        __--      interrupt  ==========
//!        |     .-/ /        spin       ==========================
//!    0 % |____/__/____      nio        =====
//!         10 us   40 us                processor time of an I/O
//! ```
//!
//! Both are drawn here, as SVG and as bars, so they are there without the script.
//!
//! # Invariants
//! - All policies of a group share its axes; the axis of times is logarithmic.
//! - The table below a drawing has its figures.

use super::group::{Group, Groups, Row};
use super::summary::{group_in_words, policy};
use crate::html::{figure_heads, figures, scrolled};
use crate::quantity::{figure, percent};
use crate::record::Run;
use crate::waits::Waits;
use maud::{Markup, PreEscaped, html};

/// The sections of `groups`; all of their runs have waits.
pub(super) fn sections(page: &Groups<'_>, groups: &[Group<'_>]) -> Markup {
    html! { @for group in groups { (section(page, group)) } }
}

fn section(page: &Groups<'_>, group: &Group<'_>) -> Markup {
    let rows: Vec<(&Row<'_>, &Waits)> =
        group.rows.iter().filter_map(|row| Some((row, row.run.waits.as_ref()?))).collect();
    html! {
        section.charts {
            h2 { (group_in_words(group)) }
            div.pair { (distribution(&rows)) (processor(page, &rows)) }
            (table(page, &rows))
        }
    }
}

/// The latencies of all policies, as curves.
fn distribution(rows: &[(&Row<'_>, &Waits)]) -> Markup {
    let all = || rows.iter().flat_map(|(_, waits)| &waits.quantiles_us).filter(|us| us.is_finite());
    let least = all().copied().fold(f64::INFINITY, f64::min).clamp(US_MIN, US_MAX);
    let most = all().copied().fold(0.0, f64::max).clamp(least * 1.1, US_MAX * 2.0);
    let x = |us: f64| {
        let place = (us.clamp(least, most) / least).ln() / (most / least).ln();
        LEFT + place * WIDTH
    };
    let y = |permille: f64| TOP + HEIGHT - permille / 1e3 * HEIGHT;
    let points = |waits: &Waits| {
        let shares = Waits::PERMILLES.iter().map(|&permille| f64::from(permille));
        let points = waits.quantiles_us.iter().zip(shares).filter(|(us, _)| us.is_finite());
        let points = points.map(|(&us, share)| format!("{:.1},{:.1}", x(us), y(share)));
        points.collect::<Vec<String>>().join(" ")
    };
    html! {
        figure {
            figcaption {
                div {
                    h3 { "Latency " span.unit { "us" } }
                    p { "The share of I/Os that took no longer. Further left is better." }
                }
            }
            svg viewBox={ "0 0 " (LEFT + WIDTH + 24.0) " " (TOP + HEIGHT + 24.0) } role="img"
                aria-label="Distribution of latencies, as in the table below."
                font-size="12" fill="currentColor"
            {
                @for permille in [0.0, 500.0, 990.0] {
                    @let at = y(permille);
                    line x1=(LEFT) x2=(tenth(LEFT + WIDTH)) y1=(tenth(at)) y2=(tenth(at))
                        stroke="currentColor" opacity="0.2" {}
                    text x=(tenth(LEFT - 6.0)) y=(tenth(at + 4.0)) text-anchor="end" {
                        (percent(permille / 1e3))
                    }
                }
                @for tick in ticks(least, most) {
                    text x=(tenth(x(tick))) y=(tenth(TOP + HEIGHT + 18.0)) text-anchor="middle" {
                        (figure(tick))
                    }
                }
                @for (row, waits) in rows {
                    polyline points=(points(waits)) fill="none" stroke=(colour(row.policy))
                        stroke-width="2" {}
                }
            }
        }
    }
}

/// A coordinate.
fn tenth(place: f64) -> String {
    format!("{place:.1}")
}

/// The processor time of an I/O, as bars.
fn processor(page: &Groups<'_>, rows: &[(&Row<'_>, &Waits)]) -> Markup {
    let most = rows.iter().map(|(_, waits)| waits.cpu_us_per_io).fold(0.0, f64::max);
    let width = |waits: &Waits| {
        let share = if most > 0.0 { (waits.cpu_us_per_io / most).clamp(0.0, 1.0) } else { 0.0 };
        tenth(share * 100.0)
    };
    html! {
        figure {
            figcaption {
                div {
                    h3 { "Processor time " span.unit { "us an I/O" } }
                    p { "Lower is better." }
                }
            }
            table {
                tbody {
                    @for (row, waits) in rows {
                        tr {
                            th scope="row" { (policy(page, row.policy)) }
                            td style="width:60%" {
                                div style={
                                    "height:12px;width:" (width(waits)) "%;background:"
                                    (colour(row.policy))
                                } {}
                            }
                            (figures([figure(waits.cpu_us_per_io)]))
                        }
                    }
                }
            }
        }
    }
}

fn table(page: &Groups<'_>, rows: &[(&Row<'_>, &Waits)]) -> Markup {
    let heads = html! {
        th scope="col" { "Policy" }
        (figure_heads(["Threads", "Mean", "Trimmed", "p50", "p99", "CPU an I/O", "Late"]))
    };
    let times = |run: &Run, waits: &Waits| {
        [waits.mean_us, waits.trimmed_mean_us, run.p50_us, run.p99_us, waits.cpu_us_per_io]
    };
    let rows = html! {
        @for (row, waits) in rows {
            tr {
                th scope="row" { (policy(page, row.policy)) }
                (figures([row.run.streams]))
                @for us in times(row.run, waits) { td.n { (figure(us)) " " (MICROSECONDS) } }
                (figures([percent(waits.late_share)]))
            }
        }
    };
    html! {
        (scrolled(None, &heads, &rows))
        p.note {
            "Trimmed: the mean without the slowest hundredth. Late: sleepers that woke after the \
             completion."
        }
    }
}

/// 1, 2 and 5 times powers of ten between the two.
fn ticks(least: f64, most: f64) -> Vec<f64> {
    let decades = (-3..=9).map(|power| 10_f64.powi(power));
    let all = decades.flat_map(|ten| [ten, 2.0 * ten, 5.0 * ten]);
    let mut ticks: Vec<f64> = all.filter(|&tick| tick >= least && tick <= most).collect();
    while ticks.len() > TICKS_MAX {
        ticks = ticks.into_iter().step_by(2).collect();
    }
    ticks
}

/// As the script and the legend have it.
fn colour(policy: usize) -> String {
    format!("var(--p{})", policy % COLOURS)
}

const MICROSECONDS: PreEscaped<&str> = PreEscaped("&micro;s");
/// Of the drawing.
const LEFT: f64 = 48.0;
const TOP: f64 = 8.0;
const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 220.0;
const TICKS_MAX: usize = 8;
/// Times that can be drawn: from a nanosecond to a quarter of an hour.
const US_MIN: f64 = 1e-3;
const US_MAX: f64 = 1e9;
/// Colours of policies in the style sheet.
const COLOURS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::RunRecord;

    fn run(policy: &str, quantiles_us: Vec<f64>) -> Run {
        let waits =
            Waits { cpu_us_per_io: 5.0, late_share: 0.25, quantiles_us, ..Waits::default() };
        Run {
            readahead: policy.to_owned(),
            workload: "reap,size=4K,group=1,load=quiet".to_owned(),
            waits: Some(waits),
            ..Run::default()
        }
    }

    #[test]
    fn each_policy_has_a_curve_a_bar_and_a_line_of_figures() {
        let runs = vec![run("spin", vec![10.0; 13]), run("nio", vec![12.0; 13])];
        let records = [RunRecord { runs, ..RunRecord::default() }];
        let page = Groups::new(&records);
        let text = sections(&page, &page.groups).into_string();
        for (part, count) in [("<polyline", 2), ("height:12px", 2), ("25", 2), ("<section", 1)] {
            assert!(text.matches(part).count() >= count, "{part}: {text}");
        }
        assert!(text.contains("var(--p0)") && text.contains("var(--p1)"));
    }

    #[test]
    fn what_cannot_be_drawn_is_left_out() {
        for odd in [vec![], vec![f64::NAN; 13], vec![0.0; 13], vec![f64::INFINITY; 13]] {
            let records = [RunRecord { runs: vec![run("spin", odd)], ..RunRecord::default() }];
            let page = Groups::new(&records);
            let text = sections(&page, &page.groups).into_string();
            assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
        }
    }

    #[test]
    fn ticks_are_few_and_round() {
        assert_eq!(ticks(9.0, 60.0), [10.0, 20.0, 50.0]);
        assert!(ticks(1e-3, 1e9).len() <= TICKS_MAX);
        assert!(ticks(11.0, 12.0).is_empty());
    }
}
