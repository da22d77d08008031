//! Text made safe for the page, in markup and in the script's data.
//!
//! # Invariants
//! - No text from a record can open a tag, end an attribute or close a script.
//! - Controls and marks that turn the direction of writing are shown, never obeyed.

use maud::{Markup, PreEscaped, Render, html};
use serde::Serialize;
use std::fmt::Write;

use crate::plain::misleads;

/// Text from a record, for an element or a quoted attribute of a template.
pub struct Text<T>(pub T);

impl<T: AsRef<str>> Render for Text<T> {
    fn render_to(&self, safe: &mut String) {
        for c in self.0.as_ref().chars() {
            match c {
                '&' => safe.push_str("&amp;"),
                '<' => safe.push_str("&lt;"),
                '>' => safe.push_str("&gt;"),
                '"' => safe.push_str("&quot;"),
                '\'' => safe.push_str("&#39;"),
                c if misleads(c) => safe.push(char::REPLACEMENT_CHARACTER),
                c => safe.push(c),
            }
        }
    }
}

/// `text` as markup.
#[must_use]
pub fn escape(text: &str) -> String {
    Text(text).render().into_string()
}

/// `text` with its words between backticks as code.
#[must_use]
pub fn prose(text: &str) -> Markup {
    html! {
        @for (nth, part) in text.split('`').enumerate() {
            @if nth % 2 == 1 { code { (Text(part)) } } @else { (Text(part)) }
        }
    }
}

/// Heads of columns of figures.
pub fn figure_heads(titles: impl IntoIterator<Item = impl Render>) -> Markup {
    html! { @for title in titles { th scope="col" class="n" { (title) } } }
}

/// Cells of figures.
pub(crate) fn figures(values: impl IntoIterator<Item = impl Render>) -> Markup {
    html! { @for value in values { td.n { (value) } } }
}

/// A table that scrolls within the page.
#[must_use]
pub fn scrolled(class: Option<&str>, heads: &Markup, rows: &Markup) -> Markup {
    html! {
        div.scroll tabindex="0" {
            table class=[class] { thead { tr { (heads) } } tbody { (rows) } }
        }
    }
}

/// A table that is folded away under `title`, and the count of its missing rows.
pub(crate) fn folded(title: &str, heads: &Markup, rows: &Markup, cut: Option<String>) -> Markup {
    html! {
        details {
            summary { (title) }
            (scrolled(None, heads, rows))
            (self::cut(cut))
        }
    }
}

/// A note on what is left out.
pub(crate) fn cut(words: Option<String>) -> Markup {
    html! { @if let Some(words) = words { p.cut { (words) } } }
}

/// The text of a missing figure.
pub const DASH: PreEscaped<&str> = PreEscaped("&ndash;");

/// `value` as JSON that may stand in a script element.
///
/// # Panics
/// `value` has no form in JSON: a key that is no text.
pub fn script_json(value: &impl Serialize) -> String {
    let json = serde_json::to_string(value).expect("plain structs with text keys");
    let mut safe = String::with_capacity(json.len());
    for c in json.chars() {
        // Outside of its strings JSON has none of these, and inside this form means the same.
        if matches!(c, '<' | '>' | '&' | '\u{2028}' | '\u{2029}') || misleads(c) {
            let _ = write!(safe, "\\u{:04x}", u32::from(c));
        } else {
            safe.push(c);
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_is_shown_and_not_obeyed() {
        #[rustfmt::skip]
        let rows = [
            ("<b>&\"'", "&lt;b&gt;&amp;&quot;&#39;"),
            ("a\0b\nc\u{202e}d\u{2066}e\u{200f}", "a\u{fffd}b\u{fffd}c\u{fffd}d\u{fffd}e\u{fffd}"),
            ("plain \u{fc} text", "plain \u{fc} text"),
        ];
        for (text, safe) in rows {
            assert_eq!(escape(text), safe);
        }
    }

    #[test]
    fn words_between_backticks_are_code() {
        #[rustfmt::skip]
        let rows = [
            ("run `a -- b` then", "run <code>a -- b</code> then"),
            ("`<b>`",             "<code>&lt;b&gt;</code>"),
            ("none",              "none"),
        ];
        for (text, expected) in rows {
            let html = prose(text).into_string();
            assert!(html.contains(expected), "{html}");
        }
    }

    #[test]
    fn json_cannot_end_its_script_and_means_the_same() {
        let text = "</script><!-- & \u{2028}\u{2029} \u{202e} \u{7f} \n \"\\";
        let json = script_json(&text);
        assert_eq!(
            json,
            r#""\u003c/script\u003e\u003c!-- \u0026 \u2028\u2029 \u202e \u007f \n \"\\""#
        );
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
    }
}
