//! Commands as functions: for a program that runs the lab in its own process and takes rows as
//! values, as the Python package does.
//!
//! ```text
//!   words of the command line + traces --> sim    --> rows, as JSON
//!   a trace                            --> info   --> one JSON object
//!                                      --> Pages  --> columns, a batch at a time
//!   a sheet of charts                  --> page   --> HTML
//! ```
//! A command that is called prints nothing, writes no file and takes over no signal: its
//! [`Control`] stops it and tells how far it is.
//!
//! # Invariants
//! - The rows are those that the command prints with `--json`: the same plan runs.
//! - After [`Control::stop`] a call returns an error within a batch of accesses.

use crate::curves::Sheet;
use anyhow::{Result, bail};
use clap::FromArgMatches;
use forerun_console::failure::{self, usage};
use forerun_sim::trace::{Op, Request};

pub use crate::given::{Columns, Control, Input, Opener, Progress};
use crate::sim::source::{Requests, Source};
use crate::{sim, trace};

/// Runs `forerun sim` with the flags `words` on `inputs`; its rows, a JSON array.
///
/// # Errors
/// The words or an input cannot be ([`is_usage`]), a run failed, or it was stopped.
pub fn sim(words: &[String], inputs: Vec<Input>, control: &Control) -> Result<String> {
    let args: Box<sim::Args> = parsed("sim", words)?;
    let mut sources = Vec::new();
    for input in inputs {
        sources.extend(sources_of(input)?);
    }
    let rows = sim::rows_of(&args, sources, control)?;
    if control.is_stopped() {
        bail!("stopped");
    }
    Ok(rows)
}

/// What `forerun trace info` prints with `--json` of `input`, with the flags `words`.
///
/// # Errors
/// As [`sim`].
pub fn info(words: &[String], input: Input, control: &Control) -> Result<String> {
    let args: Box<trace::info::Args> = parsed("info", words)?;
    let info = trace::info::json(&args, &source_of(input)?, control)?;
    if control.is_stopped() {
        bail!("stopped");
    }
    Ok(info)
}

/// The pages of a trace, a batch at a time.
pub struct Pages {
    requests: Requests,
    batch: Vec<Request>,
    /// Requests of the batch that were given out, and pages of the next one.
    sent: usize,
    sent_of_next: u32,
}

impl Pages {
    /// Opens `input`, with those flags of `forerun trace info` that say how a trace is read.
    ///
    /// # Errors
    /// As [`sim`].
    pub fn open(words: &[String], input: Input, control: &Control) -> Result<Self> {
        let args: Box<trace::info::Args> = parsed("info", words)?;
        let requests = trace::info::requests(&args, &source_of(input)?, control)?;
        Ok(Self { requests, batch: Vec::new(), sent: 0, sent_of_next: 0 })
    }

    /// The next pages, at most `count`; none at the end. Columns that the trace lacks are empty.
    ///
    /// # Errors
    /// The trace is broken there, or ends early.
    pub fn next(&mut self, count: usize) -> Result<Option<Columns>> {
        let mut out = Columns::default();
        while out.pages.len() < count {
            if self.sent == self.batch.len() {
                self.sent = 0;
                if !self.requests.next_batch(&mut self.batch)? {
                    break;
                }
            }
            self.take(count, &mut out);
        }
        let facts = self.requests.facts();
        if !facts.sizes {
            out.bytes.clear();
        }
        if !facts.times {
            out.times.clear();
        }
        if !facts.ops {
            out.writes.clear();
        }
        Ok((!out.pages.is_empty()).then_some(out))
    }

    /// Moves pages of the batch to `out`, until it has `count`.
    fn take(&mut self, count: usize, out: &mut Columns) {
        while let Some(request) = self.batch.get(self.sent)
            && out.pages.len() < count
        {
            let page = self.sent_of_next;
            out.pages.push(request.first + u64::from(page));
            out.bytes.push(request.page_bytes(page));
            out.times.push(request.time.0);
            out.writes.push(u8::from(request.op == Op::Write));
            self.sent_of_next += 1;
            if self.sent_of_next == request.count {
                (self.sent, self.sent_of_next) = (self.sent + 1, 0);
            }
        }
    }
}

/// The page of `sheet`, which is JSON of `curves::Sheet`.
///
/// # Errors
/// It is none.
pub fn page(sheet: &str) -> Result<String> {
    let sheet: Sheet = serde_json::from_str(sheet).map_err(usage)?;
    Ok(sheet.page())
}

/// Whether `error` says that the words or an input cannot be.
#[must_use]
pub fn is_usage(error: &anyhow::Error) -> bool {
    failure::is_usage(error)
}

/// `error` and its causes in one line, as the command prints it.
#[must_use]
pub fn message(error: &anyhow::Error) -> String {
    failure::plain(&failure::message(error))
}

/// The sources of `input`: of a workload with ranges, one for each value.
fn sources_of(input: Input) -> Result<Vec<Source>> {
    match input {
        Input::Named(text) => Source::all(&[text]),
        Input::Columns { ref name, ref columns } => {
            columns.check(name)?;
            Ok(vec![Source::Given(input)])
        }
        Input::Opened { .. } => Ok(vec![Source::Given(input)]),
    }
}

fn source_of(input: Input) -> Result<Source> {
    let mut sources = sources_of(input)?;
    if sources.len() != 1 {
        return Err(usage("a trace is one, and a workload with ranges is several"));
    }
    Ok(sources.remove(0))
}

/// The arguments that `words` are, without a trace.
fn parsed<A: clap::Args + FromArgMatches>(name: &'static str, words: &[String]) -> Result<Box<A>> {
    let command = A::augment_args(clap::Command::new(name).no_binary_name(true));
    let words = words.iter().map(String::as_str).chain([IN_PLACE_OF_A_TRACE]);
    let matches = command.try_get_matches_from(words).and_then(|it| A::from_arg_matches(&it));
    matches.map(Box::new).map_err(|error| {
        let text = error.render().to_string();
        let lines = text.lines().map(str::trim).take_while(|line| !line.is_empty());
        let line = lines.collect::<Vec<_>>().join(" ");
        usage(line.strip_prefix("error: ").unwrap_or(&line))
    })
}

/// The inputs of a call come beside its words.
const IN_PLACE_OF_A_TRACE: &str = "given";

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn columns(pages: &[u64]) -> Input {
        let columns = Columns { pages: pages.to_vec(), ..Columns::default() };
        Input::Columns { name: "given".into(), columns: Arc::new(columns) }
    }

    /// The rows without the time that they took.
    fn rows(flags: &str, input: Input) -> Vec<serde_json::Value> {
        let text = sim(&words(flags), vec![input], &Control::default()).expect(flags);
        let mut rows: Vec<serde_json::Value> = serde_json::from_str(&text).expect("JSON");
        for row in &mut rows {
            let row = row.as_object_mut().expect("an object");
            row.retain(|key, _| !["seconds", "accesses_per_second", "trace"].contains(&&**key));
        }
        rows
    }

    #[test]
    fn a_trace_gives_the_same_rows_by_name_by_bytes_and_in_memory() {
        let name = "workload:streams,n=3,each=1M,order=alternate";
        let mut pages =
            Pages::open(&[], Input::Named(name.into()), &Control::default()).expect("a workload");
        let mut all = Vec::new();
        while let Some(more) = pages.next(100).expect("no trace") {
            assert!(more.pages.len() <= 100 && more.bytes.len() == more.pages.len());
            all.extend(more.pages);
        }
        assert_eq!(all.len(), 3 * 256);
        let text = all.iter().map(u64::to_string).collect::<Vec<_>>().join("\n");
        let open: Opener = Arc::new(move || Ok(Box::new(io::Cursor::new(text.clone())) as _));
        let opened = Input::Opened { name: "a.txt".into(), open };
        for flags in ["--policy=all --size=100,10%", "--policy=lru --size=400 --readahead=linux-6"]
        {
            let named = rows(flags, Input::Named(name.into()));
            assert!(!named.is_empty());
            if flags.contains("all") {
                assert_eq!(rows(flags, opened.clone()), named, "{flags}");
            } else {
                // To readahead these are one file, the workload three.
                assert_eq!(rows(flags, opened.clone()), rows(flags, columns(&all)), "{flags}");
                continue;
            }
            assert_eq!(rows(flags, columns(&all)), named, "{flags}");
        }
    }

    #[test]
    fn what_cannot_be_is_bad_usage_and_what_cannot_be_read_is_not() {
        let fails = |flags: &str, input| {
            let error = sim(&words(flags), vec![input], &Control::default()).expect_err(flags);
            (is_usage(&error), message(&error))
        };
        let (is_usage, said) = fails("--policy=lur", columns(&[1]));
        assert!(is_usage && said.contains("the nearest is `lru`"), "{said}");
        assert!(fails("--memory=x", columns(&[1])).0);
        assert!(fails("--size=0", columns(&[1])).0);
        let (is_usage, said) = fails("--size=1", Input::Named("/no/such".into()));
        assert!(!is_usage && said.contains("/no/such"), "{said}");
        let open: Opener = Arc::new(|| Err(io::Error::other("it is away")));
        let (is_usage, said) = fails("--size=1", Input::Opened { name: "a".into(), open });
        assert!(!is_usage && said.contains("it is away"), "{said}");
        let uneven = Columns { pages: vec![1, 2], bytes: vec![1], ..Columns::default() };
        let uneven = Input::Columns { name: "a".into(), columns: Arc::new(uneven) };
        assert!(fails("--size=1", uneven).0);
    }

    #[test]
    fn a_call_that_is_stopped_ends_early_with_an_error() {
        let control = Control::default();
        control.stop();
        for flags in ["--size=1000", "--size=1000 --device=hdd"] {
            let input = Input::Named("workload:random,bytes=100G,file=100G".into());
            assert!(sim(&words(flags), vec![input], &control).is_err(), "{flags}");
        }
    }
}
