//! What all panels of charts have in common: caption, legend, place, and what a table leaves out.
//!
//! # Invariants
//! - Nothing here knows what a panel shows.

use crate::html::cut;
use crate::quantity::count;
use maud::{Markup, html};

/// What stands above panels.
pub(super) struct Caption {
    pub(super) title: &'static str,
    pub(super) note: &'static str,
    pub(super) hint: Option<&'static str>,
}

/// Panels under their caption and legend.
pub(super) fn captioned(
    caption: &Caption,
    streams: u32,
    legend: &Markup,
    panels: &Markup,
) -> Markup {
    let plural = if streams == 1 { "stream" } else { "streams" };
    html! {
        div.caption {
            div {
                h3 { (caption.title) ", " (count(streams.into())) " " (plural) }
                p { (caption.note) @if let Some(hint) = caption.hint { " " span.hint { (hint) } } }
            }
            (own_time())
        }
        ul.legend { (legend) }
        div.panels { (panels) }
    }
}

/// Colours, by the names that are their classes, and what each means.
pub(super) fn legend(kinds: impl IntoIterator<Item = (&'static str, &'static str)>) -> Markup {
    html! {
        @for (name, meaning) in kinds {
            li { i class={ "kind " (name) } {} (name) span { ", " (meaning) } }
        }
    }
}

/// How many of `total` are shown, where that is not all.
pub(super) fn first_of(shown: usize, total: u64, what: &str) -> Markup {
    let shown = shown as u64;
    cut((total > shown).then(|| format!("The first {} of {} {what}.", count(shown), count(total))))
}

/// The place of a chart, and its words for readers without sight.
pub(super) fn plot(words: &Markup) -> Markup {
    html! { div.plot role="img" aria-label=(words) {} }
}

/// What of `rows` a table leaves out.
pub(super) fn more_in_record(rows: usize) -> Option<String> {
    let more = rows.checked_sub(TABLE_ROWS_MAX).filter(|&more| more > 0)?;
    Some(format!("{} more are in the record.", count(more as u64)))
}

/// A switch for all panels of a set; where there are two in it, both say the same.
pub(super) fn own_time() -> Markup {
    html! { label hidden { input type="checkbox" class="own"; " each on its own time" } }
}

/// The reader's controls of a panel.
pub(super) const HINT: &str = "Drag to zoom, double-click to go back.";
/// Requests or windows in the table behind a panel; the record has them all.
pub(super) const TABLE_ROWS_MAX: usize = 100;
