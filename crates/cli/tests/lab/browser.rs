//! A page in a headless browser, as wide as a reader's window, light or dark.
//!
//! ```text
//!   page + a script that looks --> frame of N pixels in headless Chromium --> root's attributes
//! ```
//! The page is shown in a frame, since a headless window is never narrower than 500 pixels.
//! Screenshots are kept where `FORERUN_SCREENSHOTS` names a folder.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use forerun_testkit::Scratch;

/// Widths in pixels: a telephone, a window, a large screen; each light and dark.
pub(crate) const VIEWS: [(u32, bool); 6] =
    [(400, false), (400, true), (1_000, false), (1_000, true), (1_600, false), (1_600, true)];

/// The attributes of a page's root.
pub(crate) struct Root(String);

impl Root {
    /// The value of `name`.
    pub(crate) fn get(&self, name: &str) -> &str {
        let key = format!(" {name}=\"");
        let from = self.0.find(&key).unwrap_or_else(|| panic!("{name}: {}", self.0)) + key.len();
        let value = &self.0[from..];
        &value[..value.find('"').expect("it ends")]
    }
}

/// The root of `html` after `script`, which runs last; the page is `width` pixels wide. `name` is
/// that of the screenshot.
pub(crate) fn look(
    browser: &str,
    name: &str,
    html: &str,
    (width, dark): (u32, bool),
    script: &str,
) -> Root {
    let folder = Scratch::on_disk("browser");
    folder.file(
        "page.html",
        html.replace("</body>", &format!("<script>{{{script}}}</script></body>")),
    );
    let frame = folder.file(
        "frame.html",
        format!(
            "<!doctype html><style>body{{margin:0}}iframe{{border:0;display:block}}</style>\
             <iframe src=\"page.html\" width=\"{width}\" height=\"{HEIGHT}\"></iframe><script>\
             let turns = 0;\
             const copy = () => {{\
             const from = document.querySelector('iframe').contentDocument.documentElement;\
             if (from.dataset.ready !== '1' && ++turns < 200) return setTimeout(copy, 50);\
             const to = document.createElement('page-root');\
             for (const it of from.attributes) to.setAttribute(it.name, it.value);\
             document.body.append(to);}};addEventListener('load', copy);</script>"
        ),
    );
    let run = |what: &str| {
        let output = Command::new(browser)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update"])
            .args(["--disable-sync", "--allow-file-access-from-files", "--hide-scrollbars"])
            .arg("--virtual-time-budget=20000")
            .arg(format!("--user-data-dir={}", folder.join("profile").display()))
            .arg(format!("--window-size={},{HEIGHT}", width.max(500)))
            .arg(format!("--blink-settings=preferredColorScheme={}", u8::from(!dark)))
            .arg(what)
            .arg(format!("file://{}", frame.display()))
            .stdin(Stdio::null())
            .output()
            .expect("the browser was found and starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    if let Some(shots) = std::env::var_os("FORERUN_SCREENSHOTS").map(PathBuf::from) {
        let scheme = if dark { "dark" } else { "light" };
        let shot = shots.join(format!("{name}-{width}-{scheme}.png"));
        run(&format!("--screenshot={}", shot.display()));
    }
    let dom = run("--dump-dom");
    let root = &dom[dom.find("<page-root").expect("the frame has loaded")..];
    Root(root[..root.find('>').expect("it ends")].to_owned())
}

/// What holds of every page: its scripts ended without an error, it follows light and dark, and
/// nothing of it lies outside of the window or of its picture.
pub(crate) fn check(browser: &str, name: &str, html: &str, script: &str) {
    for view in VIEWS {
        let root = look(browser, name, html, view, &format!("{WHOLE}{script}"));
        let seen = format!("{name} at {} pixels, dark: {}", view.0, view.1);
        assert_eq!(root.get("data-errors"), "0", "{seen}");
        assert_eq!(root.get("data-ready"), "1", "{seen}");
        assert_eq!(root.get("data-overflow"), "0", "{seen}");
        assert_eq!(root.get("data-clipped"), "", "{seen}");
        assert_eq!(root.get("data-overlaps"), "", "{seen}");
        let paper = if view.1 { "rgb(20, 21, 23)" } else { "rgb(251, 251, 250)" };
        assert_eq!(root.get("data-paper"), paper, "{seen}");
    }
}

/// Texts that are cut off, names of curves that lie on each other, and the colour of the page.
const WHOLE: &str = "
    const root = document.documentElement;
    const clipped = [], overlaps = [];
    const box = (element) => element.getBoundingClientRect();
    for (const element of document.querySelectorAll('main *')) {
        if (!element.checkVisibility()) continue;
        const { left, right, width } = box(element);
        const inside = element.closest('svg');
        const within = inside && inside !== element ? box(inside) : { left: 0, right: innerWidth };
        const outside = left < within.left - 1 || right > within.right + 1;
        const scrolls = element.parentElement.closest('.scroll');
        if (width > 0 && outside && !(scrolls && innerWidth > 560)) {
            clipped.push(element.tagName + ':' + element.textContent.slice(0, 30));
        }
    }
    for (const picture of document.querySelectorAll('svg')) {
        const names = [...picture.querySelectorAll('[data-name] text')].map(box)
            .filter((name) => name.width > 0).sort((a, b) => a.top - b.top);
        names.slice(1).forEach((name, n) => {
            if (name.top - names[n].top < 0.7 * name.height) overlaps.push(name.top);
        });
    }
    root.dataset.clipped = clipped.slice(0, 5).join(' ').replaceAll(/[\"<>&]/g, '_');
    root.dataset.overlaps = overlaps.join(' ');
    root.dataset.paper = getComputedStyle(document.body).backgroundColor;";
/// Of a window: as high as a long page.
const HEIGHT: u32 = 4_600;
