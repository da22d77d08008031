//! The document around the body of every page: style, policy, scripts, the switch of the theme.
//!
//! ```text
//!   head   content policy, style sheets, the script that counts errors
//!   body   <main>, the tip, the data as JSON, the shell's script, the page's own scripts
//! ```
//!
//! # Invariants
//! - The page asks the network for nothing; its content policy forbids that.

use crate::html::escape;

/// What one kind of page has beside the shell.
pub(crate) struct Assets {
    pub(crate) styles: &'static [&'static str],
    pub(crate) scripts: &'static [&'static str],
}

/// The whole document. `body` is markup, `data` the JSON that the scripts read.
pub(crate) fn document(title: &str, body: &str, data: &str, assets: &Assets) -> String {
    let scripts = assets.scripts.join("</script>\n<script>\n");
    [
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n",
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; ",
        "style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; ",
        "form-action 'none'\">\n",
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n",
        "<meta name=\"color-scheme\" content=\"light dark\">\n<title>",
        &escape(title),
        "</title>\n<style>\n",
        &assets.styles.concat(),
        "</style>\n<script>\n",
        ERRORS_JS,
        "</script>\n</head>\n<body>\n<main>\n",
        body,
        "</main>\n<div id=\"tip\" hidden></div>\n<script type=\"application/json\" id=\"data\">",
        data,
        "</script>\n<script>\n",
        SHELL_JS,
        "</script>\n<script>\n",
        &scripts,
        "</script>\n</body>\n</html>\n",
    ]
    .concat()
}

/// The head of the body; `facts` is markup.
pub(crate) fn header(title: &str, facts: &str, without_script: &str) -> String {
    format!(
        "<header>\n<div>\n<h1>{}</h1>\n<p class=\"facts\">{facts}</p>\n</div>\n\
         <button type=\"button\" id=\"theme\" hidden>Theme: auto</button>\n</header>\n\
         <noscript><p class=\"note\">{without_script}</p></noscript>\n",
        escape(title),
    )
}

/// The look of every page.
pub(crate) const PAGE_CSS: &str = include_str!("../assets/page.css");
pub(crate) const SHELL_JS: &str = include_str!("../assets/shell.js");
pub(crate) const ERRORS_JS: &str = include_str!("../assets/errors.js");
