//! Curves in the lab, end to end: `sim --plot` and `sim figures`.
//!
//! Where there is a browser, the page is shown in it: every picture tells its values, a click takes
//! a line away, and nothing is cut off at any width.

use std::fs;
use std::process::{Command, Output, Stdio};

use forerun_core::eviction;
use forerun_testkit::Scratch;
use serde_json::Value;

use crate::browser;

fn sim(words: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forerun"));
    command.arg("sim").args(words.split_whitespace()).stdin(Stdio::null());
    command.output().expect("it starts")
}

fn done(words: &str) -> String {
    let output = sim(words);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

fn drawn(words: &str, name: &str) -> String {
    let scratch = Scratch::new("plot");
    let path = scratch.join(name);
    let table = done(&format!("{words} --plot {}", path.display()));
    assert!(table.contains("hit ratio"), "the table is printed, too: {table}");
    fs::read_to_string(&path).expect("it was written")
}

/// The rows of `sim --json`.
fn rows(words: &str) -> Vec<Value> {
    let value: Value = serde_json::from_str(&done(&format!("{words} --json"))).expect("JSON");
    value["runs"].as_array().expect("a list").clone()
}

#[test]
fn the_smallest_size_of_so_many_hits_is_a_point_of_the_curve() {
    let trace = "workload:mail,model=m1,requests=20000";
    let ratio = |row: &Value| row["hit_ratio"].as_f64().expect("a number");
    let half = ratio(&rows(&format!("{trace} --size 50%"))[0]) / 2.0;
    let found = rows(&format!("{trace} --policy lru,s3-fifo,belady --hits {half:.6}"));
    let policies: Vec<_> = found.iter().map(|row| row["policy"].as_str().unwrap()).collect();
    assert_eq!(policies, ["lru", "s3-fifo", "belady"]);
    let pages = |row: &Value| row["cache_pages"].as_u64().expect("a number");
    for row in &found {
        let (policy, pages) = (&row["policy"].as_str().unwrap(), pages(row));
        let there = rows(&format!("{trace} --policy {policy} --size {pages}"));
        assert_eq!(there[0]["misses"], row["misses"], "{policy}: it is a run of that size");
        assert!(ratio(row) >= half - 1e-6, "{policy}: {row}");
    }
    let smaller = pages(&found[0]) - pages(&found[0]) / 100 - 1;
    assert!(ratio(&rows(&format!("{trace} --size {smaller}"))[0]) < half, "one is large enough");
    assert!(pages(&found[2]) < pages(&found[0]), "the bound needs less");
    // The same command goes on with what is there.
    let scratch = Scratch::new("hits");
    let path = scratch.join("hits.csv");
    done(&format!("{trace} --hits {half:.6} -o {}", path.display()));
    let lines = fs::read_to_string(&path).expect("it was written");
    assert!(lines.lines().nth(1).is_some_and(|line| line.contains(&pages(&found[0]).to_string())));

    let all = sim(&format!("{trace} --policy lru --hits 100%"));
    assert!(all.status.success() && String::from_utf8_lossy(&all.stdout).contains("lru"));
    let errors = String::from_utf8_lossy(&all.stderr);
    assert!(errors.contains("hits with all pages in the cache"), "{errors}");
    for words in ["--hits 0", "--hits 101%", "--hits x", "--hits 9% --size 9", "--hits 9% --bytes"]
    {
        assert_eq!(sim(&format!("{trace} {words}")).status.code(), Some(2), "{words}");
    }
    let piped = sim("- --format lis --hits 9%");
    let errors = String::from_utf8_lossy(&piped.stderr);
    assert!(piped.status.code() == Some(2) && errors.contains("several times"), "{errors}");
}

#[test]
fn a_plot_of_all_policies_has_a_curve_each_and_the_bound() {
    let trace = "workload:mail,model=m1,requests=10000 --policy all";
    let (page, picture) = (drawn(trace, "all.html"), drawn(trace, "all.svg"));
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    assert!(picture.starts_with("<svg xmlns=") && picture.ends_with("</svg>\n"));
    // The bound has no difference to LRU; a page has three widths of everything.
    let curves = 2 * eviction::NAMES.len() + 1;
    for (text, widths) in [(&page, 3), (&picture, 1)] {
        assert_eq!(lines(text), widths * curves);
        assert_eq!(
            text.matches("ended\" data-name=").count(),
            widths * curves,
            "each has its name"
        );
        assert!(text.contains("requests=10000: hit ratio by cache size"), "the trace is named");
        assert!(text.contains("Difference to lru") && text.contains("class=\"best\""));
        for name in eviction::NAMES.iter().chain(&["belady"]) {
            assert!(text.contains(&format!(">{name}</")), "{name}");
        }
        assert!(text.contains("unique pages of 4 KiB") && text.contains("requests=10000"));
        assert!(text.contains("Belady knows the future"));
    }
}

/// Lines of plots; those of legends lie within 26 units.
fn lines(text: &str) -> usize {
    let legend = text.matches("points=\"0.0,0.0 26.0,0.0\"").count();
    text.matches("<polyline class=\"line\"").count() - legend
}

#[test]
fn what_differs_between_runs_is_a_line_of_its_own() {
    let trace = "workload:streams,n=2,each=400K";
    let words = "--policy 2q:kin=0.1,2q:kin=0.5,lru --size 10,20,20,1M";
    let picture = drawn(&format!("{trace} {words}"), "params.svg");
    assert_eq!(lines(&picture), 2 * 3, "three policies, and their differences to one");
    for name in [">lru<", ">2q:kin=0.1,kout=0.5<", ">2q:kin=0.5,kout=0.5<"] {
        assert!(picture.contains(name), "{name}");
    }
    assert!(!picture.contains("belady"), "it was not asked for");
    let timed = "--device ssd --readahead off,linux-6 --size 512,4M";
    let picture = drawn(&format!("{trace} {timed}"), "timed.svg");
    assert!(picture.contains(">lru + off<") && picture.contains(">lru + linux-6<"), "{picture}");
}

#[test]
fn figures_of_the_paper_stand_beside_what_it_states() {
    let scratch = Scratch::new("plot-figures");
    let path = scratch.join("figures.html");
    let mail = "figures workload:mail,model=m1,requests=20000 --size 1M,512M,1280M,1792M";
    let words = format!("{mail} --json -o {}", path.display());
    let json: Value = serde_json::from_str(&done(&words)).expect("one JSON object");
    let charts = json["sections"][0]["charts"].as_array().expect("charts");
    let titles: Vec<&str> = charts.iter().filter_map(|chart| chart["title"].as_str()).collect();
    let named = ["1a", "1b", "1c", "2a", "2b", "4", "5a", "5b", "5c"];
    assert_eq!(titles.len(), named.len());
    for (title, name) in titles.iter().zip(named) {
        assert!(title.starts_with(&format!("Fig. {name}:")), "{title}");
    }
    assert!(charts.iter().all(|chart| !chart["claims"].as_array().expect("a list").is_empty()));
    let values = |chart: usize, series: usize| -> Vec<f64> {
        let y = &charts[chart]["series"][series]["y"];
        y.as_array().expect("values").iter().map(|y| y.as_f64().expect("a value")).collect()
    };
    let sum: f64 = values(0, 1).iter().sum();
    assert!((sum - 1.0).abs() < 1e-9, "every page is used some number of times: {sum}");
    for at in 0..4 {
        let hits = values(4, 0)[at] + values(4, 2)[at];
        assert!((hits - values(3, 1)[at]).abs() < 1e-9, "hits of 2Q are those of its queues");
        assert!(values(5, 5)[at] <= 1.0 && values(5, 5)[at] > 0.0);
    }
    let page = fs::read_to_string(&path).expect("it was written");
    assert_eq!(page.matches("<figure").count(), named.len());
    let table = done(mail);
    assert!(table.contains("2Q against LRU at 0.5 GB, points"), "{table}");
}

#[test]
fn the_paper_does_not_stand_beside_a_trace_that_is_not_its_own() {
    let scratch = Scratch::new("plot-other");
    let path = scratch.join("other.html");
    let trace = scratch.file("other.txt", "1\n2\n3\n1\n2\n4\n5\n1\n".repeat(40));
    let words = format!("figures {} --format keys --size 2,4", trace.display());
    let table = done(&format!("{words} -o {}", path.display()));
    let page = fs::read_to_string(&path).expect("it was written");
    let main = &page[page.find("<main>").expect("a body")..page.find("</main>").expect("an end")];
    for text in [main, &table] {
        for other in ["paper", "Paper", "Fig.", "35 %", "OpenMail"] {
            assert!(!text.contains(other), "{other}: {text}");
        }
        assert!(text.contains("other.txt") && text.contains("pages used more than five times"));
    }
    assert!(page.contains("<h1>other.txt: 2Q, 2Q* and their queues</h1>"));
}

#[test]
fn what_cannot_be_drawn_is_refused_with_the_reason() {
    let scratch = Scratch::new("plot-refused");
    let folder = scratch.join("is-a-folder.svg");
    fs::create_dir(&folder).expect("the folder takes a folder");
    let trace = scratch.file("is-a-trace.html", "1\n2\n1\n");
    #[rustfmt::skip]
    let rows = [ // words, exit, reason
        ("workload:streams --plot a.png",                   2, "name a file that ends with .html"),
        ("workload:streams --plot a",                       2, "name a file that ends with .html"),
        ("workload:streams --plot .html",                   2, "name a file that ends with .html"),
        ("workload:streams --plot /nowhere/a.svg",          1, "there is no such folder; make it"),
        ("workload:streams --plot /dev/null/a.svg",         1, "there is no such folder; make it"),
        ("workload:streams --plot a.html/",                 1, "it is a folder; name a file"),
        ("workload:streams --plot FOLDER",                  1, "it is a folder; name a file"),
        ("workload:streams --plot /proc/a.html",            1, "name another place"),
        ("TRACE --format keys --plot TRACE",                2, "named twice"),
        ("workload:streams --device ssd -o FOLDER/",        1, "it is a folder; name a file"),
        ("- --plot /tmp/a.svg",                             2, "give --size in pages or bytes"),
        ("workload:streams --device ssd --plot a.svg -o ./a.svg", 2, "named twice"),
        ("figures --size 0",                                2, "--size 0"),
        ("figures workload:none",                           2, "there are"),
        ("figures -o /nowhere/a.html",                      1, "there is no such folder"),
        ("figures -o a.png",                                2, "-o a.png: name a file that ends"),
        ("figures -o FOLDER",                               1, "it is a folder; name a file"),
        ("figures -o a.svg/",                               1, "it is a folder; name a file"),
        ("figures -o /proc/a.html",                         1, "name another place"),
        ("figures TRACE --format keys -o TRACE",            2, "named twice"),
        ("figures /nowhere/a.lis",                          1, "cannot open"),
    ];
    for (words, exit, reason) in rows {
        let words = words.replace("FOLDER", &folder.display().to_string());
        let output = sim(&words.replace("TRACE", &trace.display().to_string()));
        let error = String::from_utf8(output.stderr).expect("text");
        assert!(error.contains(reason), "{words}: {error}");
        assert_eq!(output.status.code(), Some(exit), "{words}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(output.stdout.is_empty(), "{words}: it is refused before anything is run");
    }
    assert_eq!(fs::read_to_string(&trace).expect("it is there still"), "1\n2\n1\n");
}

#[test]
fn in_a_browser_the_pointer_tells_values_and_a_click_takes_a_line_away() {
    let test = "in_a_browser_the_pointer_tells_values_and_a_click_takes_a_line_away";
    let Some(browser) = forerun_testkit::browser(test) else { return };
    let page = drawn("workload:mail,model=m1,requests=10000 --policy lru,arc", "looked-at.html");
    let reader = "
        const picture = [...document.querySelectorAll('[data-picture]')]
            .find((svg) => getComputedStyle(svg).display !== 'none');
        const over = () => picture.dispatchEvent(new PointerEvent('pointermove',
            { clientX: box(picture).left + box(picture).width / 2, clientY: 50 }));
        over();
        root.dataset.tip = document.getElementById('tip').textContent;
        document.querySelector('[data-switch=\"1\"]').click();
        over();
        root.dataset.after = document.getElementById('tip').textContent;
        root.dataset.shown = [...picture.querySelectorAll('[data-series], [data-name]')]
            .filter((part) => getComputedStyle(part).display !== 'none').length;";
    let script = format!(
        "const root = document.documentElement;
        const box = (element) => element.getBoundingClientRect();{reader}"
    );
    let root = browser::look(&browser, test, &page, (1_000, false), &script);
    for (name, wanted) in
        [("errors", "0"), ("ready", "1"), ("curves", "1"), ("shown", "2"), ("overflow", "0")]
    {
        assert_eq!(root.get(&format!("data-{name}")), wanted, "{name}");
    }
    let (tip, after) = (root.get("data-tip"), root.get("data-after"));
    assert!(tip.contains("lru") && tip.contains("arc"), "{tip}");
    assert!(after.contains("lru") && !after.contains("arc"), "{after}");
}

#[test]
fn a_dozen_curves_are_whole_and_named_apart_at_every_width_light_and_dark() {
    let test = "a_dozen_curves_are_whole_and_named_apart_at_every_width_light_and_dark";
    let Some(browser) = forerun_testkit::browser(test) else { return };
    let page = drawn("workload:mail,model=m1,requests=10000 --policy all", "dozen.html");
    browser::check(&browser, test, &page, "");
    let scratch = Scratch::new("plot-figures-looked-at");
    let path = scratch.join("figures.html");
    let mail = "figures workload:mail,model=m1,requests=20000 --size 1M,512M,1280M,1792M";
    done(&format!("{mail} -o {}", path.display()));
    let page = fs::read_to_string(&path).expect("it was written");
    browser::check(&browser, "figures_of_the_paper", &page, "");
}
