//! The static page in a real browser: every chart is drawn, whole, in light, dark and narrow.
//!
//! ```text
//!   synthetic records -> page.html -> frame of N pixels in headless Chromium -> its DOM, as text
//!                                                                 |
//!       data-drawn   points or bars that the page's script put on a canvas
//!       data-inked   those whose middle really has one of the chart's colours
//!       data-errors, data-overflow                     both must be 0
//! ```
//!
//! # Invariants
//! - Without a browser every test here is skipped by name.

use forerun_core::readahead::Cause;
use forerun_report::{
    DeviceRequest, ExplainedCauses, ExplainedDirectory, ExplainedFile, ExplainedTrap,
    ExplainedWalk, Explanation, Forecast, Machine, ReadMoment, RequestKind, Run, RunRecord, Spread,
    Window, page,
};
use std::collections::BTreeMap;

use crate::browser::{self, TELL};

/// How the page is looked at.
#[derive(Clone, Copy)]
struct View {
    name: &'static str,
    width: u32,
    dark: bool,
}

const WIDE: View = View { name: "wide", width: 1280, dark: false };
const DARK: View = View { name: "dark", width: 1280, dark: true };
const NARROW: View = View { name: "narrow", width: 400, dark: false };

/// A page's opening tags as the browser left them: the root and every chart.
struct Seen(String);

impl Seen {
    /// An attribute of the root.
    fn root(&self, name: &str) -> Option<String> {
        self.attribute("<page-root", name)
    }

    /// An attribute of one chart.
    fn chart(&self, id: &str, name: &str) -> Option<String> {
        self.attribute(&format!("<page-chart id=\"{id}\""), name)
    }

    fn attribute(&self, tag: &str, name: &str) -> Option<String> {
        let from = &self.0[self.0.find(tag)?..];
        let tag = &from[..from.find('>')?];
        let value = &tag[tag.find(&format!(" {name}=\""))? + name.len() + 3..];
        Some(value[..value.find('"')?].to_owned())
    }
}

#[test]
fn every_chart_is_drawn_whole_in_light_dark_and_narrow() {
    let test = "every_chart_is_drawn_whole_in_light_dark_and_narrow";
    let Some(browser) = forerun_testkit::browser(test) else { return };
    let records = [plausible()];
    let html = page::render(&records, "Readahead on a slow disk").expect("there are runs");
    browser::check(&browser, test, &html, "");
    let drawn = drawn(&records[0]);
    for view in [WIDE, DARK, NARROW] {
        let seen = look(&browser, test, &html, view);
        check(&seen, view, drawn.len());
        for (id, count) in &drawn {
            let count = Some(count.to_string());
            assert_eq!(seen.chart(id, "data-drawn"), count, "{id} drawn, {}", view.name);
            assert_eq!(seen.chart(id, "data-inked"), count, "{id} inked, {}", view.name);
        }
    }
}

#[test]
fn pointing_tells_figures_and_dragging_zooms_all_panels_of_a_set() {
    let test = "pointing_tells_figures_and_dragging_zooms_all_panels_of_a_set";
    let Some(browser) = forerun_testkit::browser(test) else { return };
    let record = plausible();
    let html = page::render(std::slice::from_ref(&record), "Pointing").expect("there are runs");
    let seen = look(&browser, test, &html, WIDE);
    let tip = seen.attribute("<page-tip", "text").expect("the frame has pointed");
    for part in ["streams", "linux-2.6.22", "device limit28.5 MB/s"] {
        assert!(tip.contains(part), "{part}: {tip}");
    }
    let drawn = drawn(&record);
    let windows = seen.attribute("<page-window", "text").expect("the frame has pointed");
    for part in ["offset", "tail", "fresh", "wasted", "unread0 B", "opened at", "last use after"] {
        assert!(windows.contains(part), "{part}: {windows}");
    }
    let requests = (0..3).map(|policy| format!("requests-0-10-{policy}"));
    for id in requests.chain((1..3).map(|policy| format!("windows-0-10-{policy}"))) {
        let tag = format!("<page-zoomed id=\"{id}\"");
        let zoomed = seen.attribute(&tag, "data-drawn").expect("the frame has dragged");
        let zoomed: usize = zoomed.parse().expect("a count");
        assert!(0 < zoomed && zoomed < drawn[&id], "{zoomed} of {} in {id}", drawn[&id]);
        let tag = format!("<page-back id=\"{id}\"");
        assert_eq!(seen.attribute(&tag, "data-drawn"), Some(drawn[&id].to_string()), "{id}");
    }
    assert_eq!(seen.attribute("<page-end", "data-errors").as_deref(), Some("0"));
}

#[test]
fn the_page_of_a_program_is_drawn_in_light_dark_and_narrow() {
    let test = "the_page_of_a_program_is_drawn_in_light_dark_and_narrow";
    let Some(browser) = forerun_testkit::browser(test) else { return };
    let moment = |at: u64| ReadMoment {
        from_us: at * 9_000,
        to_us: at * 9_000 + 7_000,
        offset: at << 20,
        bytes: 1 << 20,
        waited_us: if at.is_multiple_of(3) { 7_000 } else { 0 },
    };
    let file = |path: &str, count| ExplainedFile {
        path: path.to_owned(),
        pattern: "sequential",
        start: "cold",
        moments: (0..count).map(moment).collect(),
        ..ExplainedFile::default()
    };
    let directory = |nth: u32| ExplainedDirectory {
        path: format!("/a/directory/with/a/name/that/is/longer/than/a/narrow/page/is-wide/{nth}"),
        calls: 12_345,
        storage_seconds: 0.123,
        ..ExplainedDirectory::default()
    };
    let causes = ExplainedCauses { read_seconds: 0.8, open_seconds: 0.1, ..Default::default() };
    let path = || "/srv/a/tree/with/a/name/that/is/longer/than/a/narrow/page/is-wide".to_owned();
    let walk = ExplainedWalk {
        directory: path(),
        order: "name".to_owned(),
        entries: 12_345,
        causes,
        ..ExplainedWalk::default()
    };
    let trap = ExplainedTrap { path: path(), why: "`nfs` asks its server", ..Default::default() };
    let told = Explanation {
        command: vec!["gzip".to_owned(), "-3k".to_owned(), "backup.tar".to_owned()],
        seconds: 1.5,
        processor_seconds: 0.4,
        storage_seconds: 0.9,
        causes,
        prediction: Forecast {
            verdict: "gain",
            why: "`forerun run` would take about 600 ms instead of 1.50 s".to_owned(),
            gain_seconds: 0.9,
            gain_seconds_max: 0.9,
            ..Forecast::default()
        },
        notes: vec![format!("of 9 MiB from devices, 5 MiB are beyond; `forerun warm {}`", path())],
        walks: Some(vec![walk]),
        traps: vec![trap],
        directories: (0..3).map(directory).collect(),
        files: vec![file("/data/backup.tar", 40), file("/data/</script><b>", 5)],
        ..Explanation::default()
    };
    let html = page::explained(&told, &Machine::default(), 1_795_203_000);
    browser::check(&browser, test, &html, "");
    for view in [WIDE, DARK, NARROW] {
        let seen = look(&browser, test, &html, view);
        check(&seen, view, 2);
        for (id, count) in [("file-0", "40"), ("file-1", "5")] {
            assert_eq!(seen.chart(id, "data-drawn").as_deref(), Some(count), "{id} {}", view.name);
            assert_eq!(seen.chart(id, "data-inked").as_deref(), Some(count), "{id} {}", view.name);
        }
    }
}

#[test]
fn hostile_text_is_shown_and_runs_nothing() {
    let test = "hostile_text_is_shown_and_runs_nothing";
    let Some(browser) = forerun_testkit::browser(test) else { return };
    let attack = "</script><script>document.documentElement.dataset.errors='hacked'</script>\
                  <img src=x onerror=\"document.documentElement.dataset.errors='hacked'\">'\"<!--";
    let mut record = plausible();
    for run in &mut record.runs {
        run.readahead += attack;
        run.device = attack.to_owned();
        run.workload = attack.to_owned();
        run.params.insert(attack.to_owned(), attack.to_owned());
    }
    record.commit = attack.to_owned();
    record.device = attack.to_owned();
    record.command = vec![attack.to_owned()];
    record.machine.cpu = attack.to_owned();
    record.machine.kernel = attack.to_owned();
    record.settings.insert(attack.to_owned(), attack.to_owned());
    let html = page::render(&[record.clone()], attack).expect("there are runs");
    assert!(!html.contains("<img"), "markup from a record stands in the page");
    check(&look(&browser, test, &html, NARROW), NARROW, drawn(&record).len());
}

#[test]
fn odd_records_are_drawn_too() {
    let test = "odd_records_are_drawn_too";
    let Some(browser) = forerun_testkit::browser(test) else { return };
    for (name, record) in odd_records() {
        let drawn = drawn(&record);
        let html = page::render(&[record], name).expect("there are runs");
        let seen = look(&browser, test, &html, NARROW);
        check(&seen, NARROW, drawn.len());
        for (id, count) in &drawn {
            let seen = seen.chart(id, "data-drawn");
            assert_eq!(seen, Some(count.to_string()), "{id} of {name}");
        }
    }
}

/// Records that no run would leave, with their names.
fn odd_records() -> Vec<(&'static str, RunRecord)> {
    let one = || {
        let mut record = plausible();
        record.runs.truncate(1);
        record.runs[0].requests.clear();
        record.runs[0].windows.clear();
        record
    };
    let with = |change: &dyn Fn(&mut RunRecord)| {
        let mut record = one();
        change(&mut record);
        record
    };
    let request = |n: u64| DeviceRequest {
        at_us: n,
        done_us: n + 1,
        offset: n * 4_096,
        bytes: 4_096,
        kind: RequestKind::Demand,
    };
    #[rustfmt::skip]
    let rows = vec![ // name            record
        ("one run, no requests",        one()),
        ("nothing but zeros",           with(&|r| r.runs = vec![Run::default()])),
        ("huge figures", with(&|r| {
            let run = &mut r.runs[0];
            (run.mb_per_second, run.delay_seconds, run.streams) = (1e300, 1e300, u32::MAX);
            run.limit_mb_per_second = Some(f64::MAX);
            let (at_us, offset) = (u64::MAX - 1, u64::MAX - 1);
            run.requests = vec![DeviceRequest { at_us, done_us: u64::MAX, offset,
                bytes: u64::MAX, kind: RequestKind::Write }, request(0)];
        })),
        ("tiny beside huge", with(&|r| {
            let mut tiny = r.runs[0].clone();
            (tiny.streams, tiny.mb_per_second, tiny.delay_seconds) = (1_000_000, 1e-300, 0.0);
            r.runs[0].mb_per_second = 1e9;
            r.runs.push(tiny);
        })),
        ("negative figures", with(&|r| {
            (r.runs[0].mb_per_second, r.runs[0].delay_seconds) = (-5.0, -0.001);
        })),
        ("figures that are no numbers", with(&|r| {
            (r.runs[0].mb_per_second, r.runs[0].delay_seconds) = (f64::NAN, f64::INFINITY);
        })),
        ("a request of no length", with(&|r| {
            r.runs[0].requests = vec![DeviceRequest { at_us: 0, done_us: 0, offset: 0, bytes: 0,
                kind: RequestKind::Demand }];
        })),
        ("windows without requests", with(&|r| {
            let window = Window { cause: Cause::Page, bytes: 4_096, ..Window::default() };
            r.runs[0].windows = vec![window; 2];
        })),
        ("windows of huge and of no size", with(&|r| {
            let huge = Window { at_us: u64::MAX, last_use_us: u64::MAX, offset: u64::MAX,
                bytes: u64::MAX, wasted_bytes: u64::MAX, used_bytes: u64::MAX,
                ..Window::default() };
            r.runs[0].windows = vec![huge, Window { wasted_bytes: 1, ..Window::default() }];
        })),
        ("thousands of requests",
            with(&|r| r.runs[0].requests = (0..30_000).map(request).collect())),
        ("a dozen policies", with(&|r| {
            r.runs = (0..12).map(|n| Run { readahead: format!("policy-{n}"),
                mb_per_second: 1.0 + f64::from(n), ..r.runs[0].clone() }).collect();
        })),
    ];
    rows
}

/// What holds for every page.
fn check(seen: &Seen, view: View, charts: usize) {
    let root = |name| seen.root(name).unwrap_or_default();
    let name = view.name;
    assert_eq!(root("data-errors"), "0", "script errors, {name}: {}", root("data-error"));
    assert_eq!(root("data-ready"), "1", "the script ended, {name}");
    assert_eq!(root("data-overflow"), "0", "pixels too wide, {name}");
    assert_eq!(root("data-charts"), charts.to_string(), "charts drawn, {name}");
    assert_eq!(root("data-scheme"), if view.dark { "dark" } else { "light" }, "{name}");
    let width: u32 = root("data-width").parse().expect("the page knows its width");
    assert!((view.width - 20..=view.width).contains(&width), "{name} is {width} pixels wide");
}

/// The charts of a record of one group, by id, each with the number of points that it must show.
fn drawn(record: &RunRecord) -> BTreeMap<String, usize> {
    let mut charts = BTreeMap::new();
    let (mut policies, mut limits) = (Vec::new(), Vec::new());
    let finite = |value: f64| usize::from(value.is_finite());
    for run in &record.runs {
        if !policies.contains(&&run.readahead) {
            policies.push(&run.readahead);
        }
        *charts.entry("throughput-0".to_owned()).or_insert(0) += finite(run.mb_per_second);
        *charts.entry("delay-0".to_owned()).or_insert(0) += finite(run.delay_seconds);
        if run.limit_mb_per_second.is_some() && !limits.contains(&run.streams) {
            limits.push(run.streams);
        }
        let policy = policies.iter().position(|&known| *known == run.readahead).unwrap();
        if !run.requests.is_empty() {
            let id = format!("requests-0-{}-{policy}", run.streams);
            charts.insert(id, run.requests.len().min(20_000));
        }
        if !run.windows.is_empty() {
            let id = format!("windows-0-{}-{policy}", run.streams);
            charts.insert(id, run.windows.len().min(20_000));
        }
    }
    *charts.get_mut("throughput-0").unwrap() += limits.len();
    charts
}

/// A record like that of a demo: three policies, up to ten streams, a disk with its cache off.
fn plausible() -> RunRecord {
    let policies = [("linux-2.6.22", 0.81), ("linux-2.6.24", 21.8), ("streams", 26.9)];
    let mut runs = Vec::new();
    for streams in [1, 2, 3, 5, 10] {
        for (policy, at_ten) in policies {
            runs.push(run(policy, at_ten, streams));
        }
    }
    let settings = [("cache", "64M"), ("page_bytes", "4096"), ("queue_depth", "32")];
    RunRecord {
        commit: "8fd6de2c19a04b7e55f0c3d2".to_owned(),
        machine: Machine {
            cpu: "Intel Xeon Platinum 8375C".to_owned(),
            cores: 2,
            memory_bytes: 24 << 30,
            kernel: "Linux 6.18.44".to_owned(),
        },
        date: 1_795_203_000,
        command: ["forerun", "demo", "--seconds", "20"].map(str::to_owned).to_vec(),
        device: "t7k250".to_owned(),
        settings: settings.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        seed: 1,
        warm_up: 1,
        repeats: 3,
        runs,
        ..RunRecord::default()
    }
}

fn run(policy: &str, at_ten: f64, streams: u32) -> Run {
    let alone = at_ten.max(25.0);
    let legacy = at_ten < 1.0;
    let share = f64::from(streams - 1) / 9.0;
    let mb_per_second = if legacy {
        alone / f64::from(streams).powf(1.49)
    } else {
        alone - (alone - at_ten) * share
    };
    let requests = if streams == 10 || streams == 1 { requests(streams, legacy) } else { vec![] };
    let mean_request_bytes = if legacy && streams > 1 { 6_200 } else { 478_000 };
    let bytes_wanted = u64::from(streams) * (10 << 20);
    Run {
        readahead: policy.to_owned(),
        params: [("max".to_owned(), "1M".to_owned())].into(),
        device: "t7k250".to_owned(),
        emulated: true,
        drive_cache: Some(false),
        streams,
        workload: format!("workload:streams,n={streams},each=10M,request=4K,seed=1"),
        mb_per_second,
        delay_seconds: f64::from(streams) * 10.5 / mb_per_second,
        device_requests: bytes_wanted / mean_request_bytes,
        mean_request_bytes,
        bytes_read: bytes_wanted * if policy == "streams" { 101 } else { 108 } / 100,
        bytes_wanted,
        limit_mb_per_second: Some(28.5),
        ratio_to_limit: Some(mb_per_second / 28.5),
        p50_us: 0.6,
        p99_us: if legacy { 13_100.0 } else { 410.0 },
        late_max_seconds: None,
        waits: None,
        spread: Some(Spread { min: mb_per_second * 0.96, max: mb_per_second * 1.03 }),
        windows: if policy == "linux-2.6.22" { vec![] } else { windows(&requests) },
        windows_left_out: u64::from(streams),
        requests,
        requests_left_out: if legacy && streams == 10 { 12_345 } else { 0 },
    }
}

/// Interleaved streams, 20 MiB apart, read in small pieces or in growing windows.
fn requests(streams: u32, legacy: bool) -> Vec<DeviceRequest> {
    let mut requests = Vec::new();
    let mut now = 0;
    let mut at = vec![0_u64; streams as usize];
    for turn in 0..if legacy { 900_u64 } else { 24 * u64::from(streams) } {
        let stream = turn.wrapping_mul(2_654_435_761) / 7 % u64::from(streams);
        let done = &mut at[usize::try_from(stream).unwrap()];
        let window = if legacy {
            16_384
        } else {
            (16_384 << (turn / u64::from(streams)).min(5)).min(524_288)
        };
        if *done + window > 10 << 20 {
            continue;
        }
        let took = 3_000 + turn * 7_919 % 9_000 + window / 52;
        let demand = *done == 0 || (legacy && turn % 4 != 0);
        requests.push(DeviceRequest {
            at_us: now,
            done_us: now + took,
            offset: stream * (20 << 20) + *done,
            bytes: window,
            kind: if demand { RequestKind::Demand } else { RequestKind::Readahead },
        });
        *done += window;
        now += took;
    }
    requests
}

/// A window for each request, of every cause, some of them wasted.
fn windows(requests: &[DeviceRequest]) -> Vec<Window> {
    let window = |(request, cause): (&DeviceRequest, Cause)| {
        let DeviceRequest { at_us, done_us, offset, bytes, .. } = *request;
        let wasted_bytes = if offset % 3 == 0 { bytes / 2 } else { 0 };
        Window {
            at_us,
            last_use_us: done_us + 30_000,
            stream: (cause == Cause::Async).then_some(7),
            cause,
            offset,
            bytes,
            tail_bytes: bytes / 2,
            fresh_bytes: bytes,
            used_bytes: bytes - wasted_bytes,
            wasted_bytes,
            ..Window::default()
        }
    };
    requests.iter().zip(Cause::ALL.into_iter().cycle()).map(window).collect()
}

/// The page in a frame of the view's width, as the browser left it.
fn look(browser: &str, test: &str, html: &str, view: View) -> Seen {
    let name = format!("{test}-{}", view.name);
    let frame = frame(view.width);
    Seen(browser::told(browser, &name, (view.width, view.dark), &frame, html.to_owned()))
}

/// A document that shows the page `width` pixels wide and copies what the page says of itself.
fn frame(width: u32) -> String {
    format!(
        "<!doctype html><style>body{{margin:0}}iframe{{border:0;display:block}}</style>
<iframe src=\"page.html#check\" width=\"{width}\" height=\"4600\"></iframe><script>
const copy = (from, name) => {{
  const to = document.createElement(name);
  for (const {{ name, value }} of from.attributes) to.setAttribute(name, value);
  document.body.append(to);
}};
const mouse = (on, type, x, y) => {{
  const box = on.getBoundingClientRect();
  const at = {{ clientX: box.left + x * box.width, clientY: box.top + y * box.height }};
  on.dispatchEvent(new MouseEvent(type, {{ bubbles: true, movementX: 1, movementY: 1,
    view: on.ownerDocument.defaultView, ...at }}));
}};
const rest = () => new Promise((done) => setTimeout(done, 60));
const use = async (page) => {{
  const all = (name) => page.querySelectorAll('figure:not([data-chart=lines])').forEach((f) =>
    copy(f, name));
  const line = page.querySelector('#throughput-0 .u-over');
  for (const x of [0.5, 0.6]) mouse(line, 'mousemove', x, 0.5);
  await rest();
  const tip = document.createElement('page-tip');
  tip.setAttribute('text', page.getElementById('tip').textContent);
  document.body.append(tip);
  const row = page.querySelector('#windows-0-10-1 .u-over');
  for (let y = 0.02; row && y < 1; y += 0.02) {{
    mouse(row, 'mousemove', 0.03, y);
    await rest();
    const tip = page.getElementById('tip');
    if (!tip.hidden && tip.textContent.includes('tail')) {{
      const told = document.createElement('page-window');
      told.setAttribute('text', tip.textContent);
      document.body.append(told);
      break;
    }}
  }}
  const over = page.querySelector('#requests-0-10-1 .u-over');
  if (over) {{
    for (const [type, x, y] of [['mousemove', 0.1, 0.1], ['mousedown', 0.1, 0.1], ['mousemove',
      0.3, 0.6]]) mouse(over, type, x, y);
    await rest();
    mouse(over, 'mouseup', 0.3, 0.6);
    await rest();
    all('page-zoomed');
    mouse(over, 'dblclick', 0.2, 0.2);
    await rest();
    all('page-back');
  }}
  copy(page.documentElement, 'page-end');
}};
const wait = () => {{
  const page = document.querySelector('iframe').contentDocument;
  const {{ ready, errors }} = page.documentElement.dataset;
  if (ready !== '1' && errors === '0') return setTimeout(wait, 20);
  copy(page.documentElement, 'page-root');
  for (const chart of page.querySelectorAll('figure[data-chart]')) copy(chart, 'page-chart');
  use(page).finally(() => {{ {TELL} }});
}};
addEventListener('load', wait);
</script>"
    )
}
