//! The page's part on waits by cause, and on walks over directory trees.
//!
//! ```text
//!   as it ran     |computing|open|stat|readdir|read  |fault|other|the rest  |
//!   forerun run   |computing|waiting |the rest|     <- predicted, at most or at best
//! ```
//! # Invariants
//! - Both bars have one scale, and the table below has their figures.
//! - Where there is no verdict, nothing is drawn as one.

use maud::{Markup, html};

use super::super::summary::{seconds, share};
use super::part;
use crate::explanation::{ExplainedCauses, ExplainedWalk, Explanation, Forecast, run_command};
use crate::html::{Text, figure_heads, figures, prose};
use crate::quantity::count;

/// Where the time went, by cause, and what is left of it under `run`.
pub(super) fn bars(explanation: &Explanation) -> Markup {
    let Times { computing, rest, waited, .. } = Times::of(explanation);
    let waits = explanation.causes.named().into_iter().zip(COLOURS);
    let mut now = vec![("computing", computing, "var(--ink-2)")];
    now.extend(waits.map(|((name, time), colour)| (name, time, colour)));
    now.push(("the rest", rest, "var(--grid)"));
    let command = run_command(explanation.is_preload());
    let predicted = predicted(&explanation.prediction).map(|(how, gain)| {
        let parts = [
            ("computing", computing, "var(--ink-2)"),
            ("waiting for storage", (waited - gain).max(0.0), "var(--demand)"),
            ("the rest", rest, "var(--grid)"),
        ];
        (format!("under {command}, {how}"), parts)
    });
    let scale = now.iter().map(|part| part.1).sum::<f64>().max(f64::MIN_POSITIVE);
    html! {
        section {
            h2 { "Now" @if predicted.is_some() { ", and under " (command) } }
            div style="background:var(--panel);border:1px solid var(--rule);padding:14px" {
                (bar("as it ran", &now, scale))
                @if let Some((title, parts)) = &predicted { (bar(title, parts, scale)) }
                ul.legend {
                    @for (name, time, colour) in now.iter().filter(|part| part.1 > 0.0) {
                        li {
                            i style={
                                "display:inline-block;width:10px;height:10px;background:" (colour)
                            } {}
                            " " (name) span { ", " (seconds(*time)) }
                        }
                    }
                }
            }
        }
    }
}

/// The gain under `run`, in seconds, and what is known of it; `None` where nothing is.
fn predicted(forecast: &Forecast) -> Option<(&'static str, f64)> {
    let Forecast { gain_seconds, gain_seconds_max, gain_is_lower_bound, .. } = *forecast;
    match forecast.verdict {
        "unknown" if gain_seconds_max <= 0.0 => None,
        "unknown" => Some(("at best: what the device can do is not known", gain_seconds_max)),
        _ if gain_is_lower_bound => Some(("predicted, at most", gain_seconds)),
        _ => Some(("predicted", gain_seconds)),
    }
}

/// The waits by cause.
fn causes(explanation: &Explanation) -> Markup {
    let ran = Times::of(explanation).ran;
    let heads = html! { th scope="col" {} (figure_heads(["Time", "Share of all"])) };
    let rows = html! {
        @for (name, time) in explanation.causes.named() {
            tr {
                th scope="row" { (name) }
                (figures([seconds(time), share(time / ran)]))
            }
        }
    };
    let note = html! {
        p.note {
            "Calls are those that polls met. A read of a followed file counts with the file \
             below; what could not be observed is other."
        }
    };
    part("What it waited in", &heads, &rows, &note)
}

/// Parts of the run time, in seconds.
struct Times {
    ran: f64,
    computing: f64,
    rest: f64,
    waited: f64,
}

impl Times {
    fn of(explanation: &Explanation) -> Self {
        let ran = explanation.seconds.max(f64::MIN_POSITIVE);
        let waited = explanation.storage_seconds;
        // Several threads may compute at a time.
        let computing = explanation.processor_seconds.min((ran - waited).max(0.0));
        let rest = (ran - computing - waited).max(0.0);
        Self { ran, computing, rest, waited }
    }
}

fn bar(title: &str, parts: &[(&str, f64, &str)], scale: f64) -> Markup {
    let total: f64 = parts.iter().map(|part| part.1).sum();
    let label = format!("{title}: {}", seconds(total).into_string());
    html! {
        p.note { (label) }
        div role="img" aria-label=(label) style="display:flex;height:18px;margin:4px 0 10px" {
            @for (name, time, colour) in parts.iter().filter(|part| part.1 > 0.0) {
                div title={ (name) ": " (seconds(*time)) }
                    style={
                        "width:" (format!("{:.2}", time / scale * 100.0)) "%;background:" (colour)
                    }
                {}
            }
        }
    }
}

/// The tables of waits by cause, of walks and of directories.
pub(super) fn tables(explanation: &Explanation) -> Markup {
    html! {
        (causes(explanation))
        (walks(explanation))
        (directories(explanation))
    }
}

/// The traps of the file systems that were read.
pub(super) fn traps(explanation: &Explanation) -> Markup {
    html! {
        @for trap in &explanation.traps {
            p.note {
                code { (Text(&trap.path)) } ": " (prose(trap.why)) ". "
                (seconds(trap.storage_seconds))
                " waited there."
            }
        }
    }
}

fn walks(explanation: &Explanation) -> Markup {
    let walks = explanation.walks.as_deref().unwrap_or_default();
    let heads = html! {
        th scope="col" { "Directory" }
        th scope="col" { "Order" }
        (figure_heads(["Entries", "Foreseen", "Waited"]))
        (cause_heads())
        (figure_heads(["Gain"]))
    };
    let rows = html! {
        @for walk in walks {
            tr {
                th scope="row" { (Text(&walk.directory)) }
                td { (Text(&walk.order)) }
                (figures([walk.entries, walk.predicted].map(count)))
                (figures([seconds(walk.storage_seconds)]))
                (figures(walk.causes.named().map(|(_, time)| seconds(time))))
                (figures([gain(walk)]))
            }
        }
    };
    let left_out = html! {
        @if explanation.walks_left_out > 0 {
            p.note { (count(explanation.walks_left_out)) " more walks are left out." }
        }
    };
    html! { @if !walks.is_empty() { (part("Walks", &heads, &rows, &left_out)) } }
}

fn directories(explanation: &Explanation) -> Markup {
    let heads = html! {
        th scope="col" { "Directory" }
        (figure_heads(["Calls met", "Waited"]))
        (cause_heads())
    };
    let rows = html! {
        @for directory in &explanation.directories {
            tr {
                th scope="row" { (Text(&directory.path)) }
                (figures([count(directory.calls)]))
                (figures([seconds(directory.storage_seconds)]))
                (figures(directory.causes.named().map(|(_, time)| seconds(time))))
            }
        }
    };
    let left_out = html! {
        @if explanation.directories_left_out > 0 {
            p.note { (count(explanation.directories_left_out)) " more are left out." }
        }
    };
    let is_empty = explanation.directories.is_empty();
    html! { @if !is_empty { (part("Directories", &heads, &rows, &left_out)) } }
}

fn cause_heads() -> Markup {
    figure_heads(ExplainedCauses::default().named().map(|(name, _)| name))
}

/// A colour for each cause.
const COLOURS: [&str; 6] = [
    "var(--sync)",
    "var(--initial)",
    "var(--async)",
    "var(--demand)",
    "var(--async-recovered)",
    "var(--random)",
];

/// What a walk would gain: at most, where that is all that is known.
fn gain(walk: &ExplainedWalk) -> Markup {
    html! {
        @if walk.gain_is_a_bound() {
            "up to " (seconds(walk.gain_seconds_max))
        } @else {
            (seconds(walk.gain_seconds))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explanation::{ExplainedDirectory, ExplainedTrap, ExplainedWalk, Forecast};

    #[test]
    fn bars_have_one_scale_and_tables_their_rows() {
        let causes = ExplainedCauses { stat_seconds: 3.0, read_seconds: 2.0, ..Default::default() };
        let told = Explanation {
            seconds: 8.0,
            processor_seconds: 2.0,
            storage_seconds: 5.0,
            causes,
            prediction: Forecast { gain_seconds: 4.0, ..Forecast::default() },
            walks: Some(vec![ExplainedWalk {
                directory: "/a<b".into(),
                order: "name".into(),
                causes,
                ..ExplainedWalk::default()
            }]),
            directories: vec![ExplainedDirectory { path: "/d&".into(), ..Default::default() }],
            traps: vec![ExplainedTrap { kind: "nfs", why: "it asks", ..Default::default() }],
            ..Explanation::default()
        };
        let html = bars(&told).into_string();
        for part in ["width:25.00%", "width:37.50%", "width:12.50%", "predicted: "] {
            assert!(html.contains(part), "{part}: {html}");
        }
        let html = tables(&told).into_string() + &traps(&told).into_string();
        for part in ["/a&lt;b", "name", "/d&amp;", "it asks"] {
            assert!(html.contains(part), "{part}: {html}");
        }
        let none = tables(&Explanation::default()).into_string();
        assert!(!none.contains("Walks") && !none.contains("Directories"), "{none}");
    }
}
