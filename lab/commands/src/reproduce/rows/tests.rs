//! Each row stands in the docs, and its figures are taken from what commands print.

use super::*;

/// The page of the docs.
fn page() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reproduction.md");
    std::fs::read_to_string(path).expect("the page is there")
}

#[test]
fn rows_have_names_of_their_own_and_stand_in_the_docs() {
    let page = page();
    for (at, row) in ROWS.iter().enumerate() {
        assert!(ROWS[..at].iter().all(|other| other.name != row.name), "{}", row.name);
        assert!(page.contains(&format!("`{}`", row.name)), "{} is not in the docs", row.name);
        let words: Vec<&str> = row.command.split_whitespace().collect();
        assert_eq!(row.command, words.join(" "), "{}", row.name);
        assert!(!words.contains(&"--json"), "{}", row.name);
    }
}

#[test]
fn figures_are_taken_from_what_a_command_prints() {
    let json = serde_json::json!({ "runs": [
        { "device": { "mb_per_second": 28.206 } }, { "device": { "mb_per_second": 28.3 } },
    ]});
    let found = streams(&json, &[1, 2], &["24.95", "28.32", "7.05"]);
    let shown: Vec<(&str, &str)> =
        found.iter().map(|it| (it.what.as_str(), it.here.as_str())).collect();
    let expected = [
        ("1 stream, legacy, MB/s", "28.21"),
        ("1 stream, demand, MB/s", "28.30"),
        ("2 streams, legacy, MB/s", "not printed"),
    ];
    assert_eq!(shown, expected);
    let run = |policy: &str, size: u64, us: f64| -> Value {
        serde_json::json!({ "policy": policy, "size": size, "mean_us": us })
    };
    let runs = [run("a", 1, 9.0), run("a", 2, 11.0), run("b", 1, 10.0), run("b", 2, 10.0)];
    let json = serde_json::json!({ "runs": runs });
    assert_eq!(reap(&json, "a", "b", "mean_us"), Some(1.0));
    assert_eq!(reap(&json, "a", "c", "mean_us"), None);
}

#[test]
fn replays_are_compared_size_by_size() {
    let run = |pages: u64, policy: &str, readahead: &str, us: f64| -> Value {
        serde_json::json!({ "cache_pages": pages, "policy": policy, "readahead": readahead,
            "mean_response_us": us, "mean_window_bytes": 40_960.0 })
    };
    let runs = [
        run(512, "lru", "off", 10.0),
        run(256, "lru", "off", 30.0),
        run(512, "2q-star", "off", 8.0),
        run(512, "2q-star", "streams", 7.0),
    ];
    let json = serde_json::json!({ "runs": runs });
    let sizes = by_size(&json);
    let names: Vec<&str> = sizes.iter().map(|(size, _)| size.as_str()).collect();
    assert_eq!(names, ["1 MiB", "2 MiB"]);
    assert_eq!(to_the_best(&sizes[0].1), None, "2Q* was not run");
    assert_eq!(to_the_best(&sizes[1].1), Some(0.8));
    let found = by_prefetch("2 MiB", &sizes[1].1[1..]);
    let shown = found.each_ref().map(|it| (it.what.as_str(), it.here.as_str()));
    let expected = [("2 MiB: by prefetch", "-12.5 %"), ("2 MiB: mean window, KiB", "40")];
    assert_eq!(shown, expected);
}
