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
//! - What is drawn is said in the table below it.

use super::group::{Group, Groups, Row};
use super::summary::{group_in_words, policy};
use crate::quantity::{figure, percent};
use crate::waits::Waits;
use std::fmt::Write;

/// The sections of `groups`, whose runs all have waits.
pub(super) fn sections(page: &Groups<'_>, groups: &[Group<'_>]) -> String {
    groups.iter().map(|group| section(page, group)).collect()
}

fn section(page: &Groups<'_>, group: &Group<'_>) -> String {
    let rows: Vec<(&Row<'_>, &Waits)> =
        group.rows.iter().filter_map(|row| Some((row, row.run.waits.as_ref()?))).collect();
    format!(
        "<section class=\"charts\">\n<h2>{}</h2>\n<div class=\"pair\">\n{}{}</div>\n{}</section>\n",
        group_in_words(group),
        distribution(&rows),
        processor(page, &rows),
        table(page, &rows),
    )
}

/// The latencies of all policies, as curves.
fn distribution(rows: &[(&Row<'_>, &Waits)]) -> String {
    let all = || rows.iter().flat_map(|(_, waits)| &waits.quantiles_us).filter(|us| us.is_finite());
    let least = all().copied().fold(f64::INFINITY, f64::min).clamp(US_MIN, US_MAX);
    let most = all().copied().fold(0.0, f64::max).clamp(least * 1.1, US_MAX * 2.0);
    let x = |us: f64| {
        let place = (us.clamp(least, most) / least).ln() / (most / least).ln();
        LEFT + place * WIDTH
    };
    let y = |permille: f64| TOP + HEIGHT - permille / 1e3 * HEIGHT;
    let mut svg = format!(
        "<figure><figcaption><div><h3>Latency <span class=\"unit\">us</span></h3>\
         <p>The share of I/Os that took no longer. Further left is better.</p></div></figcaption>\n\
         <svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"Distribution of latencies, as in the \
         table below.\" font-size=\"12\" fill=\"currentColor\">\n",
        LEFT + WIDTH + 24.0,
        TOP + HEIGHT + 24.0
    );
    for permille in [0.0, 500.0, 990.0] {
        let (at, share) = (y(permille), percent(permille / 1e3));
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\" \
             stroke=\"currentColor\" opacity=\"0.2\"/><text x=\"{:.1}\" y=\"{:.1}\" \
             text-anchor=\"end\">{share}</text>",
            LEFT + WIDTH,
            LEFT - 6.0,
            at + 4.0,
        );
    }
    for tick in ticks(least, most) {
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            x(tick),
            TOP + HEIGHT + 18.0,
            figure(tick)
        );
    }
    for (row, waits) in rows {
        let shares = Waits::PERMILLES.iter().map(|&permille| f64::from(permille));
        let points = waits.quantiles_us.iter().zip(shares).filter(|(us, _)| us.is_finite());
        let points: Vec<String> =
            points.map(|(&us, share)| format!("{:.1},{:.1}", x(us), y(share))).collect();
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>",
            points.join(" "),
            colour(row.policy)
        );
    }
    svg + "</svg>\n</figure>\n"
}

/// The processor time of an I/O, as bars.
fn processor(page: &Groups<'_>, rows: &[(&Row<'_>, &Waits)]) -> String {
    let most = rows.iter().map(|(_, waits)| waits.cpu_us_per_io).fold(0.0, f64::max);
    let mut text = String::from(
        "<figure><figcaption><div><h3>Processor time <span class=\"unit\">us an I/O</span></h3>\
         <p>Lower is better.</p></div></figcaption>\n<table><tbody>",
    );
    for (row, waits) in rows {
        let share = if most > 0.0 { (waits.cpu_us_per_io / most).clamp(0.0, 1.0) } else { 0.0 };
        let _ = writeln!(
            text,
            "<tr><th scope=\"row\">{}</th><td style=\"width:60%\"><div style=\"height:12px;\
             width:{:.1}%;background:{}\"></div></td><td class=\"n\">{}</td></tr>",
            policy(page, row.policy),
            share * 100.0,
            colour(row.policy),
            figure(waits.cpu_us_per_io),
        );
    }
    text + "</tbody></table>\n</figure>\n"
}

fn table(page: &Groups<'_>, rows: &[(&Row<'_>, &Waits)]) -> String {
    let mut text = String::from(
        "<div class=\"scroll\" tabindex=\"0\"><table><thead><tr><th scope=\"col\">Policy</th>",
    );
    for title in ["Threads", "Mean", "Trimmed", "p50", "p99", "CPU an I/O", "Late"] {
        let _ = write!(text, "<th scope=\"col\" class=\"n\">{title}</th>");
    }
    text += "</tr></thead><tbody>\n";
    for (row, waits) in rows {
        let _ = write!(text, "<tr><th scope=\"row\">{}</th>", policy(page, row.policy));
        let run = row.run;
        let times =
            [waits.mean_us, waits.trimmed_mean_us, run.p50_us, run.p99_us, waits.cpu_us_per_io];
        let _ = write!(text, "<td class=\"n\">{}</td>", run.streams);
        for us in times {
            let _ = write!(text, "<td class=\"n\">{} &micro;s</td>", figure(us));
        }
        let _ = writeln!(text, "<td class=\"n\">{}</td></tr>", percent(waits.late_share));
    }
    text + "</tbody></table></div>\n<p class=\"note\">Trimmed: the mean without the slowest \
            hundredth. Late: sleepers that woke after the completion.</p>\n"
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
    use crate::record::{Run, RunRecord};

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
        let text = sections(&page, &page.groups);
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
            let text = sections(&page, &page.groups);
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
