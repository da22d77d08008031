//! `forerun sim figures`: the figures of the paper on 2Q*, on the mail workloads or any trace.
//!
//! ```text
//!   1a  pages by their uses        2a  LRU and 2Q            4     six policies
//!   1b  the mean gap by use        2b  the queues of 2Q      5a-c  each queue, 2Q and 2Q*
//!   1c  accesses by their gap
//! ```
//! Beside each stand the paper's statement and the result. The paper's curves themselves are not
//! known, and its traces are not public: `workload:mail` is a model after its statements.
//!
//! # Invariants
//! - 2Q is the paper's: A1in a tenth of the cache, A1out as many names as the cache has pages.
//! - The accesses are kept, 4 bytes each, up to a bound; everything runs over the same ones.
//! # Sources
//! Meng et al. 2009, sections 2 and 3; server 5 of its Table 1.

mod charts;

use std::convert::Infallible;
use std::path::{Path, PathBuf};

use crate::curves::{Section, Sheet};
use anyhow::{Context as _, Result, anyhow, bail};
use forerun_console::form::Form;
use forerun_console::{failure, machine, object};
use forerun_core::eviction::two_q::{TwoQ, TwoQParams};
use forerun_core::eviction::two_q_star::{TwoQStar, TwoQStarParams};
use forerun_core::params::Share;
use forerun_report::quantity;
use forerun_sim::queues::{self, QueueCounts};
use forerun_sim::replay::{self, Cell, Numbering, ReplayError, replay};
use forerun_sim::trace::survey::{Survey, SurveySettings, TraceSummary};

use super::memory;
use super::plot::Plot;
use super::source::{Reading, Source};
use crate::specs::{PAGE_BYTES, Size};
use crate::{parallel, specs};

/// What `sim figures` takes.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forerun sim figures -o mail.html\n  \
    forerun sim figures OLTP.lis.zst --size 1%,5%,10%,20% --json")]
pub(super) struct Args {
    /// Files or workload:NAME[,key=value...]
    #[arg(value_name = "TRACE", default_values = ["workload:mail,model=m1",
        "workload:mail,model=m2", "workload:mail,model=m3"])]
    traces: Vec<String>,
    #[command(flatten)]
    reading: Reading,
    /// Cache sizes [default: the paper's, 32M to 2G; for traces other than workload:mail 12 shares
    /// of their pages]
    #[arg(long, value_name = "SIZE,...")]
    size: Option<String>,
    /// Draw the figures on one page, or as one picture
    #[arg(short, long, value_name = "FILE.html|.svg")]
    output: Option<PathBuf>,
    #[command(flatten)]
    form: Form,
}

/// The counts of one trace.
struct TraceCounts {
    survey: TraceSummary,
    /// Ascending.
    pages: Vec<u32>,
    /// Of each policy of [`OTHERS`]: hit ratios by size.
    others: Vec<Vec<f64>>,
    /// By size: of 2Q, and of 2Q*.
    queues: Vec<[QueueCounts; 2]>,
}

/// Runs every trace and prints the paper's statements beside the counts.
pub(super) fn run(args: &Args) -> Result<()> {
    args.reading.check()?;
    let sources = Source::all(&args.traces)?;
    let sizes = args.size.as_deref().map(|text| specs::sizes("--size", text)).transpose()?;
    let plot = args.output.as_deref().map(|path| Plot::new("-o", path)).transpose()?;
    let written: Vec<&Path> = plot.iter().map(Plot::path).collect();
    super::require_places(&written, &sources)?;
    let (mut sections, mut failed) = (Vec::new(), Vec::new());
    for source in &sources {
        let name = source.name();
        let sizes = match &sizes {
            Some(sizes) => sizes.clone(),
            None if of_the_paper(&name) => specs::sizes("--size", PAPER_SIZES)?,
            None => specs::sizes("--size", super::plot::SIZES)?,
        };
        match count(source, &args.reading, &sizes).with_context(|| name.clone()) {
            Ok(counted) => sections.push(section(&name, &source.title(), &counted)),
            Err(error) => failed.push((name, error)),
        }
    }
    if !sections.is_empty() {
        let sheet = sheet(sections, sources.iter().any(|source| of_the_paper(&source.name())));
        let drawn = plot.map_or(Ok(()), |plot| plot.draw(&sheet));
        drawn.and(print(&sheet, args.form))?;
    }
    failure::all_done(failed, sources.len())
}

fn print(sheet: &Sheet, form: Form) -> Result<()> {
    if form.kind().is_of_rows() {
        let values = object! { values: charts::values(sheet) };
        return form.print(&values, &["values"], String::new);
    }
    form.print(sheet, &["sections"], || charts::text(sheet))
}

/// Whether `name` is the workload that stands for the paper's traces.
fn of_the_paper(name: &str) -> bool {
    name.starts_with(MAIL)
}

fn sheet(sections: Vec<Section>, of_the_paper: bool) -> Sheet {
    let names: Vec<&str> = sections.iter().map(|section| section.title.as_str()).collect();
    let (title, lead) = if of_the_paper {
        (format!("{}: the figures of the paper on 2Q*", names.join(", ")), PAPER_LEAD)
    } else {
        (format!("{}: 2Q, 2Q* and their queues", names.join(", ")), "")
    };
    let command = machine::command().join(" ");
    Sheet { title, lead: lead.to_owned(), command, sections }
}

fn section(name: &str, title: &str, counted: &TraceCounts) -> Section {
    let survey = &counted.survey;
    let mut section = Section::of_trace(title, survey.accesses, Some(survey.unique), PAGE_BYTES);
    section.facts += &charts::requests(survey);
    section.charts = charts::charts(counted, of_the_paper(name));
    section
}

/// Reads `source` once, and sends it through every cache.
fn count(source: &Source, reading: &Reading, sizes: &[Size]) -> Result<TraceCounts> {
    source.tell_guess(reading)?;
    let (survey, numbers) = read(source, reading)?;
    let mut pages: Vec<u32> = sizes.iter().map(|size| size.pages(survey.unique)).collect();
    pages.sort_unstable();
    pages.dedup();
    let cells: Vec<Cell> = OTHERS
        .iter()
        .flat_map(|&policy| pages.iter().map(move |&pages| Cell { policy: policy.into(), pages }))
        .collect();
    let mut chunks = numbers.chunks(CHUNK);
    let more = |keys: &mut Vec<u64>| {
        let chunk = chunks.next();
        keys.extend(chunk.into_iter().flatten().map(|&number| u64::from(number)));
        Ok::<bool, Infallible>(chunk.is_some())
    };
    let settings = replay::ReplaySettings {
        threads: machine::cores(),
        memory: memory::default(),
        sample: Share::percent(100),
        clock: &machine::now,
    };
    let counts = replay(more, &cells, &settings).map_err(|error| match error {
        ReplayError::Accesses(never) => match never {},
        ReplayError::Policy(error) => anyhow!("{error}"),
        ReplayError::Memory { bytes, .. } => anyhow!(
            "the caches need {} of memory, which is more than there is: give smaller sizes",
            quantity::bytes(bytes)
        ),
        ReplayError::Sample { .. } => unreachable!("it is no sample"),
    })?;
    let ratio = |accesses: u64, misses: u64| quantity::ratio(accesses - misses, accesses);
    let ratios: Vec<f64> = counts.iter().map(|it| ratio(it.accesses, it.misses)).collect();
    let others = ratios.chunks(pages.len()).map(<[f64]>::to_vec).collect();
    let queues = queues(&pages, &numbers);
    Ok(TraceCounts { survey, pages, others, queues })
}

/// The survey of a trace, and its pages by number.
fn read(source: &Source, reading: &Reading) -> Result<(TraceSummary, Vec<u32>)> {
    let (mut requests, mut batch) = (source.requests(reading)?, Vec::new());
    let (mut numbering, mut numbers) = (Numbering::default(), Vec::new());
    let mut more = requests.next_batch(&mut batch)?;
    let settings = SurveySettings { memory: SURVEY_MEMORY, sample: Share::percent(100) };
    let mut survey = Survey::new(settings, requests.facts().addresses);
    while more {
        for request in &batch {
            survey.add(request)?;
            for key in request.pages() {
                if numbers.len() == ACCESSES_MAX {
                    bail!("more than {ACCESSES_MAX} accesses, which are all kept: give --limit");
                }
                numbers.push(numbering.number(key));
            }
        }
        more = requests.next_batch(&mut batch)?;
    }
    Ok((survey.finish(), numbers))
}

/// Where accesses fall with each size, for 2Q and 2Q*; a size at a time on every processor.
fn queues(pages: &[u32], numbers: &[u32]) -> Vec<[QueueCounts; 2]> {
    let (kin, kout) = (Share::percent(10), Share::percent(100));
    parallel::map(pages, |&pages| {
        [
            queues::count::<TwoQ>(pages, TwoQParams { kin, kout }, numbers),
            queues::count::<TwoQStar>(pages, TwoQStarParams { kin, kout }, numbers),
        ]
    })
}

/// Beside 2Q and 2Q*.
const OTHERS: [&str; 4] = ["lru", "lfu", "arc", "lirs"];
const MAIL: &str = "workload:mail";
const PAPER_LEAD: &str = "Meng, Si, Liu, Xu 2009, Figs 1, 2, 4 and 5. Its HP OpenMail traces are \
                          not public any more; workload:mail is a model of what the paper states \
                          of them, and says nothing of anybody's mail.";
/// Small, middle and large, as in the paper's section 2.
const PAPER_SIZES: &str = "32M,64M,128M,256M,512M,768M,1G,1280M,1536M,1792M,2G";
/// Accesses that are kept: 1 GiB.
const ACCESSES_MAX: usize = 1 << 28;
/// Keys that the caches are given at a time.
const CHUNK: usize = 1 << 14;
/// For what a trace holds.
const SURVEY_MEMORY: u64 = 4 << 30;
