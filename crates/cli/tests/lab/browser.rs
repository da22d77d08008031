//! A page in a headless browser, as wide as a reader's window, light or dark.
//!
//! ```text
//!   page + a script that looks --> frame of N pixels --> POST /told --> root's attributes
//!            served from this process to a headless Chromium, which is killed once it has told
//! ```
//! The page is shown in a frame, since a headless window is never narrower than 500 pixels.
//! Screenshots are kept where `FORERUN_SCREENSHOTS` names a folder.
//!
//! # Invariants
//! - What a page takes is waited for: no budget of virtual time ends before its scripts do.
//! - A frame that never tells hangs, and the deadline of the runner names it.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, TryRecvError, channel};

use forerun_testkit::{Scratch, until, within};

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
    let page = html.replace("</body>", &format!("<script>{{{script}}}</script></body>"));
    let frame = format!(
        "<!doctype html><style>body{{margin:0}}iframe{{border:0;display:block}}</style>\
         <iframe src=\"page.html\" width=\"{width}\" height=\"{HEIGHT}\"></iframe><script>\
         const copy = () => {{\
         const from = document.querySelector('iframe').contentDocument.documentElement;\
         if (from.dataset.ready !== '1' && from.dataset.errors === '0') \
         return setTimeout(copy, 20);\
         const to = document.createElement('page-root');\
         for (const it of from.attributes) to.setAttribute(it.name, it.value);\
         document.body.append(to);{TELL}}};addEventListener('load', copy);</script>"
    );
    let scheme = if dark { "dark" } else { "light" };
    let told = told(browser, &format!("{name}-{width}-{scheme}"), (width, dark), &frame, page);
    let root = &told[told.find("<page-root").expect("the frame has loaded")..];
    Root(root[..root.find('>').expect("it ends")].to_owned())
}

/// What a frame does last: its document is what [`told`] returns.
pub(crate) const TELL: &str =
    "fetch('told', { method: 'POST', body: document.documentElement.outerHTML });";

/// The document of `frame` once it has told: `page` lies beside it, as `page.html`. `name` is that
/// of the screenshot.
pub(crate) fn told(
    browser: &str,
    name: &str,
    (width, dark): (u32, bool),
    frame: &str,
    page: String,
) -> String {
    let folder = Scratch::on_disk("browser");
    let server = TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
    let port = server.local_addr().expect("it is bound").port();
    let (tell, told) = channel();
    let frame = frame.to_owned();
    std::thread::spawn(move || {
        for connection in server.incoming() {
            let (tell, frame, page) = (tell.clone(), frame.clone(), page.clone());
            // The browser opens some that it does not use.
            std::thread::spawn(move || connection.and_then(|it| serve(&it, &frame, &page, &tell)));
        }
    });
    let run = |what: &[&str], errors: &str| {
        let errors = std::fs::File::create(folder.join(errors)).expect("the folder is ours");
        Command::new(browser)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update"])
            .args(["--disable-sync", "--disable-quic", "--hide-scrollbars"])
            .arg(format!("--user-data-dir={}", folder.join("profile").display()))
            .arg(format!("--window-size={},{HEIGHT}", width.max(500)))
            .arg(format!("--blink-settings=preferredColorScheme={}", u8::from(!dark)))
            .args(what)
            .arg(format!("http://127.0.0.1:{port}/"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(errors)
            .process_group(0)
            .spawn()
            .expect("the browser was found and starts")
    };
    let mut shown = Group(run(&["--remote-debugging-port=0"], "errors"));
    let errors = folder.join("errors");
    let document = within(move || {
        let mut document = Err(TryRecvError::Empty);
        until(|| {
            document = told.try_recv();
            let ended = shown.0.try_wait().expect("it is a child");
            let errors = || std::fs::read_to_string(&errors).unwrap_or_default();
            assert!(document.is_ok() || ended.is_none(), "the browser has ended: {}", errors());
            document.is_ok()
        });
        document.expect("it was waited for")
    });
    if let Some(shots) = std::env::var_os("FORERUN_SCREENSHOTS").map(PathBuf::from) {
        let shot = format!("--screenshot={}", shots.join(format!("{name}.png")).display());
        let mut drawn = run(&[&shot, "--virtual-time-budget=20000"], "shot");
        drawn.wait().expect("it is a child");
    }
    document
}

/// A process and its children, killed in the end.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        let group = format!("-{}", self.0.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = self.0.wait();
    }
}

/// Answers the one request of a connection.
fn serve(to: &TcpStream, frame: &str, page: &str, tell: &Sender<String>) -> io::Result<()> {
    let mut from = BufReader::new(to);
    let mut request = String::new();
    from.read_line(&mut request)?;
    let (mut length, mut line) = (0, String::new());
    while from.read_line(&mut line)? > 0 && line != "\r\n" {
        let header = line.to_ascii_lowercase();
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse().map_err(io::Error::other)?;
        }
        line.clear();
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body)?;
    let answer = match request.split(' ').nth(1) {
        Some("/") => frame,
        Some("/page.html") => page,
        Some("/told") => {
            // A second one, for the screenshot, is not waited for.
            let _ = tell.send(String::from_utf8_lossy(&body).into_owned());
            ""
        }
        _ => "",
    };
    let length = answer.len();
    write!(
        &mut &*to,
        "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n{answer}"
    )
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
