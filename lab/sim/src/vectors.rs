//! Readahead decision vectors: access sequences with the exact decisions that a kernel made.
//!
//! Each scenario is run through the real cache, with fetches that arrive at once, once for every
//! historic policy that it has rows for; decisions, pages read and the pages cached at the end
//! must be those of the vectors.
//!
//! ```text
//!   scenario: file_pages, ra_pages, io_pages.small, ops [read|read:FD page n | reopen | drop a b]
//!   expect:   KEY -> [op, trigger, trigger page, start, size, async_size|null, [[first,last]...]]
//!   final_cached: KEY -> [[first, last]...]
//! ```
//!
//! Rows of other kinds (traced large-folio decisions) are not run and not counted. Rows traced on
//! a kernel carry no pages read, so only the decisions of those are compared.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::decisions::{DecisionError, PAGE_BYTES, Replay, WindowDecision, ranges};

/// The vectors' key of each historic policy, and whether its rows were traced on a kernel.
const KEYS: &[(&str, &str, bool)] = &[
    ("linux-2.6.22", "linux-2.6.22", false),
    ("ondemand-2007", "lkml-2007-patch5/9", false),
    ("linux-2.6.24", "linux-2.6.24", false),
    ("linux-6", "linux-6.18-smallfolio-kernel-observed", true),
];

/// The reason why vectors could not be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VectorError {
    /// The text is not of this form.
    #[error("not readahead vectors: {0}")]
    Form(#[from] serde_json::Error),
    /// The text names another schema.
    #[error("the schema is `{0}`; this reads forerun-readahead-vectors/1")]
    Schema(String),
    /// A scenario that no cache can run.
    #[error("scenario {id}: {what}")]
    Scenario {
        /// Its name.
        id: String,
        /// The violation.
        what: String,
    },
    /// An unknown historic policy.
    #[error("`{0}` has no vectors; there are: linux-2.6.22 ondemand-2007 linux-2.6.24 linux-6")]
    Policy(String),
}

/// The counts of matching scenarios by policy, and the differences.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Scenarios with every row as expected.
    pub passed: u32,
    /// The others.
    pub failed: u32,
    /// A line for each row that was not.
    pub lines: Vec<String>,
}

#[derive(Deserialize)]
struct Vectors {
    schema: String,
    scenarios: Vec<Scenario>,
}

#[derive(Deserialize)]
struct Scenario {
    id: String,
    file_pages: u64,
    ra_pages: u32,
    #[serde(default)]
    io_pages: BTreeMap<String, u32>,
    ops: Vec<Vec<Value>>,
    expect: BTreeMap<String, Vec<Vec<Value>>>,
    #[serde(default)]
    final_cached: BTreeMap<String, Vec<(u64, u64)>>,
}

/// Runs the vectors in `text`, for `policy` alone if one is named.
///
/// # Errors
/// The text is no vectors, a scenario cannot be run, or the policy has none.
pub fn run(text: &str, policy: Option<&str>) -> Result<Verdict, VectorError> {
    let vectors: Vectors = serde_json::from_str(text)?;
    if vectors.schema != "forerun-readahead-vectors/1" {
        return Err(VectorError::Schema(vectors.schema));
    }
    if let Some(name) = policy.filter(|name| KEYS.iter().all(|key| key.0 != *name)) {
        return Err(VectorError::Policy(name.into()));
    }
    let mut verdict = Verdict::default();
    for scenario in &vectors.scenarios {
        for &(name, key, traced) in KEYS {
            let rows = scenario.expect.get(key);
            let Some(rows) = rows.filter(|_| policy.is_none_or(|only| only == name)) else {
                continue;
            };
            let before = verdict.lines.len();
            let seen = replay(scenario, name)?;
            let expected: Vec<Row> = rows
                .iter()
                .map(|row| Row::parse(row, traced))
                .collect::<Option<_>>()
                .ok_or_else(|| scenario.broken("a row of `expect` does not parse"))?;
            compare(scenario, name, &expected, &seen, key, &mut verdict.lines);
            if verdict.lines.len() == before {
                verdict.passed += 1;
            } else {
                verdict.failed += 1;
            }
        }
    }
    Ok(verdict)
}

/// A decision, as far as rows of one kind tell.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    op: u64,
    trigger: String,
    page: u64,
    start: u64,
    size: u64,
    async_size: Option<u64>,
    read: Option<Vec<(u64, u64)>>,
}

impl Row {
    fn of(decided: &WindowDecision) -> Self {
        let window = decided.window;
        Self {
            op: decided.read.into(),
            trigger: decided.cause.name().into(),
            page: decided.page,
            start: window.start,
            size: window.size.into(),
            async_size: Some(window.async_size.into()),
            read: Some(decided.fetched.clone()),
        }
    }

    fn parse(row: &[Value], traced: bool) -> Option<Self> {
        let number = |at: usize| row.get(at)?.as_u64();
        let read = |value: &Value| serde_json::from_value(value.clone()).ok();
        Some(Self {
            op: number(0)?,
            trigger: row.get(1)?.as_str()?.to_owned(),
            page: number(2)?,
            start: number(3)?,
            size: number(4)?,
            async_size: number(5),
            read: if traced { None } else { Some(row.get(6).and_then(read)?) },
        })
    }
}

fn compare(
    scenario: &Scenario,
    name: &str,
    expected: &[Row],
    seen: &Replay,
    key: &str,
    lines: &mut Vec<String>,
) {
    for at in 0..expected.len().max(seen.decided().len()) {
        let want = expected.get(at);
        let got = seen.decided().get(at).map(|decided| {
            let mut row = Row::of(decided);
            // The legacy kernel has no asynchronous tail, a traced one no list of pages.
            row.async_size = row.async_size.filter(|_| want.is_none_or(|w| w.async_size.is_some()));
            row.read = row.read.filter(|_| want.is_none_or(|w| w.read.is_some()));
            row
        });
        if want != got.as_ref() {
            let id = &scenario.id;
            lines.push(format!(
                "{id} {name} row {at}: expected {}, got {}",
                text(want),
                text(got.as_ref())
            ));
        }
    }
    if let Some(want) = scenario.final_cached.get(key) {
        let got = ranges(seen.cached());
        if *want != got {
            let id = &scenario.id;
            lines.push(format!("{id} {name} cached at the end: expected {want:?}, got {got:?}"));
        }
    }
}

fn text(row: Option<&Row>) -> String {
    let Some(row) = row else { return "no decision".into() };
    let tail = row.async_size.map_or("-".into(), |size| size.to_string());
    let read = row.read.as_ref().map_or(String::new(), |read| format!(" reads {read:?}"));
    let Row { op, trigger, page, start, size, .. } = row;
    format!("[op {op} {trigger} at {page}: start {start} size {size} async {tail}{read}]")
}

impl Scenario {
    fn broken(&self, what: &str) -> VectorError {
        VectorError::Scenario { id: self.id.clone(), what: what.into() }
    }

    /// The policy called `name` as the scenario sets it.
    fn spec(&self, name: &str) -> String {
        let bytes = |pages: u32| u64::from(pages) * PAGE_BYTES;
        let max = bytes(self.ra_pages);
        match self.io_pages.get("small").filter(|_| name == "linux-6") {
            Some(&io) => format!("{name}:max={max},io={}", bytes(io)),
            None => format!("{name}:max={max}"),
        }
    }
}

/// Runs a scenario through the cache under the policy called `name`.
fn replay(scenario: &Scenario, name: &str) -> Result<Replay, VectorError> {
    let broken = |error: DecisionError| scenario.broken(&error.to_string());
    let mut run = Replay::new(&scenario.spec(name), scenario.file_pages).map_err(broken)?;
    for (op, what) in (0..).zip(&scenario.ops) {
        step(&mut run, scenario, op, what)?;
    }
    Ok(run)
}

fn step(run: &mut Replay, scenario: &Scenario, at: u32, op: &[Value]) -> Result<(), VectorError> {
    let broken = || {
        let op = Value::from(op);
        scenario.broken(&format!("op {op} is none of [read:FD page n], [reopen:FD], [drop a b]"))
    };
    let name = op.first().and_then(Value::as_str).ok_or_else(broken)?;
    let number = |at: usize| op.get(at).and_then(Value::as_u64).ok_or_else(broken);
    let (verb, descriptor) = name.split_once(':').unwrap_or((name, "a"));
    let letter = descriptor.bytes().next().ok_or_else(broken)?;
    let handle = u32::from(letter.wrapping_sub(b'a'));
    match verb {
        "read" => {
            let (first, count) = (number(1)?, number(2)?);
            let end = first.checked_add(count).ok_or_else(broken)?.min(scenario.file_pages);
            let bytes = first.min(end) * PAGE_BYTES..end * PAGE_BYTES;
            let refused = |error: DecisionError| scenario.broken(&error.to_string());
            run.read(at, handle, bytes).map_err(refused)?;
        }
        "reopen" => run.close(handle),
        "drop" => {
            let (first, last) = (number(1)?, number(2)?);
            let end = last.checked_add(1).filter(|&end| end >= first).ok_or_else(broken)?;
            run.invalidate(first..end);
        }
        _ => return Err(broken()),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{VectorError, run};

    const TINY: &str = r#"{"schema":"forerun-readahead-vectors/1","scenarios":[{
        "id":"cp","file_pages":100,"ra_pages":32,"ops":[["read",0,1],["read",1,1],["drop",4,11]],
        "expect":{"linux-2.6.24":[[0,"sync",0,0,4,3,[[0,3]]],[1,"async",1,4,8,8,[[4,11]]]],
                  "someone-elses":[[0,"sync",0,0,9,9,[]]]},
        "final_cached":{"linux-2.6.24":[[0,3]]}}]}"#;

    #[test]
    fn rows_that_hold_pass_and_rows_of_other_kinds_do_not_count() {
        let verdict = run(TINY, None).unwrap();
        assert_eq!((verdict.passed, verdict.failed), (1, 0), "{:?}", verdict.lines);
        assert_eq!(run(TINY, Some("linux-6")).unwrap().passed, 0);
    }

    #[test]
    fn each_wrong_row_is_shown_with_both_sides() {
        let wrong = TINY.replace("4,8,8", "4,9,8").replace("[[0,3]]}}]", "[[0,4]]}}]");
        let verdict = run(&wrong, None).unwrap();
        assert_eq!((verdict.passed, verdict.failed), (0, 1));
        assert_eq!(verdict.lines.len(), 2);
        assert!(verdict.lines[0].contains("size 9") && verdict.lines[0].contains("size 8"));
        let missing = TINY.replace(r#",[1,"async",1,4,8,8,[[4,11]]]"#, "");
        assert!(run(&missing, None).unwrap().lines[0].contains("expected no decision"));
    }

    #[test]
    fn foreign_text_is_refused() {
        assert!(matches!(run("{", None), Err(VectorError::Form(_))));
        let other = TINY.replace("vectors/1", "vectors/2");
        assert!(matches!(run(&other, None), Err(VectorError::Schema(_))));
        assert!(matches!(run(TINY, Some("lru")), Err(VectorError::Policy(_))));
    }

    #[test]
    fn a_scenario_that_cannot_be_run_is_told_and_never_passes() {
        #[rustfmt::skip]
        let rows: &[(&str, &str, &str)] = &[ // why, what stands there, what comes in its place
            ("no such op",               "\"drop\",4,11",      "\"leap\",4,11"),
            ("no op at all",             "\"drop\",4,11",      ""),
            ("a read without a count",   "\"read\",1,1",       "\"read\",1"),
            ("a read past every page",   "\"read\",1,1",       "\"read\",1,18446744073709551615"),
            ("a read below no page",     "\"read\",1,1",       "\"read\",-1,1"),
            ("a drop that ends first",   "\"drop\",4,11",      "\"drop\",4,2"),
            ("a drop past every page",   "\"drop\",4,11",      "\"drop\",0,18446744073709551615"),
            ("a file beyond all memory", "\"file_pages\":100", "\"file_pages\":4194305"),
            ("a read beyond the cache",
             r#"100,"ra_pages":32,"ops":[["read",0,1]"#,
             r#"4194304,"ra_pages":32,"ops":[["read",0,4194304]"#),
            ("a window beyond the file", "\"ra_pages\":32",    "\"ra_pages\":4294967295"),
            ("a row that is too short",  "[0,\"sync\",0,0,4,3,[[0,3]]]", "[0,\"sync\",0]"),
        ];
        for (why, there, instead) in rows {
            let odd = TINY.replace(there, instead);
            assert_ne!(odd, TINY, "{why}");
            assert!(matches!(run(&odd, None), Err(VectorError::Scenario { .. })), "{why}");
        }
    }
}
