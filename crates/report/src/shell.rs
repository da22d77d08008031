//! The document around the body of every page: style, policy, scripts, the switch of the theme.
//!
//! ```text
//!   head   content policy, style sheets, the script that counts errors
//!   body   <main>, the tip, the data as JSON, the shell's script, the page's own scripts
//! ```
//!
//! # Invariants
//! - The page makes no network request; its content policy forbids that.

use maud::{Markup, PreEscaped, html};

use crate::html::Text;

/// The parts of one kind of page beside the shell.
pub struct Assets {
    /// Style sheets, [`PAGE_CSS`] first.
    pub styles: &'static [&'static str],
    /// Scripts after the shell's own.
    pub scripts: &'static [&'static str],
}

/// The whole document. `data` is the JSON that the scripts read.
#[must_use]
pub fn document(title: &str, body: &Markup, data: String, assets: &Assets) -> String {
    let page = html! {
        (PreEscaped("<!doctype html>\n"))
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (Text(title)) }
                style { (PreEscaped(assets.styles.concat())) }
                script { (PreEscaped(ERRORS_JS)) }
            }
            body {
                main { (body) }
                div id="tip" hidden {}
                script type="application/json" id="data" { (PreEscaped(data)) }
                @for script in [SHELL_JS].iter().chain(assets.scripts) {
                    script { (PreEscaped(script)) }
                }
            }
        }
    };
    page.into_string() + "\n"
}

/// The head of the body; `without_script` is said where scripts do not run.
#[must_use]
pub fn header(title: &str, facts: &Markup, without_script: &str) -> Markup {
    html! {
        header {
            div { h1 { (Text(title)) } p.facts { (facts) } }
            button type="button" id="theme" hidden { "Theme: auto" }
        }
        noscript { p.note { (without_script) } }
    }
}

const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                      base-uri 'none'; form-action 'none'";
/// The style of every page.
pub const PAGE_CSS: &str = include_str!("../assets/page.css");
pub(crate) const SHELL_JS: &str = include_str!("../assets/shell.js");
pub(crate) const ERRORS_JS: &str = include_str!("../assets/errors.js");
