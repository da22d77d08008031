//! `forerun trace convert`: a trace in another format.
//!
//! ```text
//!   strace's text, --tree --> accesses with paths --> OUT
//!   IN --requests--> Writer --> .OUT.PID.part --> next uses, where the format has them --> OUT
//! ```
//! # Invariants
//! - OUT is the whole new file or unchanged, also after a signal. Memory follows the
//!   distinct pages, and only where the format needs to know them.
//! - A closed stdout ends the command quietly.

use std::fs::File;
use std::io::{self, BufWriter, Seek as _, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use forerun_console::failure::{note, usage};
use forerun_console::names;
use forerun_console::{interrupt, output};
use forerun_measure::pattern_file;
use forerun_report::NewFile;
use forerun_sim::trace::write::{Writer, link_next_uses};

use super::{Input, strace};
use crate::sim::source::Requests;

/// What `trace convert` takes.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forerun trace convert OLTP.lis.zst oltp.oracleGeneral --to oracleGeneral\n  \
    forerun trace convert hm_0.csv.gz - --to fio | head\n  \
    forerun trace convert workload:mail,requests=100000 mail.csv --to csv\n  \
    forerun trace convert tar.strace tar.jsonl --to accesses --tree tree\n\n\
    All reads of a program, for a cache's size:\n  \
    strace -f -ttt -T -y -s 0 -o p.strace PROGRAM ARGS\n  \
    forerun trace convert p.strace p.jsonl --to accesses --tree /\n  \
    forerun sim p.jsonl --policy lru,s3-fifo,belady --size 1%,10%,50%")]
pub(crate) struct Args {
    #[command(flatten)]
    input: Input,
    /// The new file, `-` for stdout
    #[arg(value_name = "OUT")]
    output: PathBuf,
    /// The new format: keys, csv, lis[:unit=512], fio[:version=2] or oracleGeneral; of the text of
    /// `strace -f -ttt` accesses, which `sim walks` runs
    #[arg(long, value_name = "FORMAT")]
    to: String,
    /// The tree that strace's text is about, as it was when the program began
    #[arg(long, value_name = "DIR")]
    tree: Option<PathBuf>,
    /// Where the program was started that strace followed [default: here]
    #[arg(long, value_name = "DIR", requires = "tree")]
    cwd: Option<PathBuf>,
    /// The program, for the head of that trace [default: the file's name]
    #[arg(long, value_name = "TEXT", requires = "tree")]
    program: Option<String>,
}

/// Converts, and says on stderr how much.
pub(crate) fn run(args: &Args) -> Result<()> {
    match (args.to.as_str(), &args.tree) {
        (ACCESSES, Some(tree)) => return write_accesses(args, tree),
        (ACCESSES, None) => return Err(usage("--to accesses takes a --tree")),
        (_, Some(_)) => return Err(usage("a --tree is for --to accesses alone")),
        (_, None) => {}
    }
    Writer::check(&args.to).map_err(|error| names::refused("--to", &error, names::FORMATS))?;
    let is_stdout = args.output == Path::new("-");
    if !is_stdout {
        output::require_place(&args.output)?;
        output::require_apart(&[Path::new(&args.input.trace), &args.output])?;
    }
    let (source, reading) = args.input.open()?;
    let mut work = Work { requests: source.requests(&reading)?, to: &args.to, pages: 0, count: 0 };
    let memory = args.input.memory;
    if is_stdout {
        work.write_stdout(memory)?;
    } else {
        let name = args.output.display();
        let cannot = || format!("cannot write {name}");
        let mut file = NewFile::create(&args.output).with_context(cannot)?;
        if file.part().is_none() && work.needs_next_uses()? {
            bail!("{name} is no file, and {} is written twice over: name a file, or -", args.to);
        }
        work.write(file.file(), memory).with_context(cannot)?;
        interrupt::unbroken(|| file.keep()).with_context(cannot)?;
    }
    note(&format!("{}: {} requests, {} pages", args.output.display(), work.count, work.pages));
    Ok(())
}

/// Writes the calls of strace's text as a trace of accesses.
fn write_accesses(args: &Args, tree: &Path) -> Result<()> {
    let input = Path::new(&args.input.trace);
    let is_stdout = args.output == Path::new("-");
    if !is_stdout {
        output::require_place(&args.output)?;
        output::require_apart(&[input, &args.output])?;
    }
    let named = || input.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let program = args.program.clone().unwrap_or_else(named);
    let trace = strace::accesses(input, tree, args.cwd.as_deref(), program)?;
    let mut bytes = Vec::new();
    trace.write(&mut bytes)?;
    if is_stdout {
        return output::print(&String::from_utf8(bytes).context("a trace is text")?);
    }
    output::file(&args.output, &bytes)?;
    let (calls, entries) = (trace.calls.len(), trace.tree.count() - 1);
    note(&format!("{}: {calls} calls; {entries} entries of directories", args.output.display()));
    Ok(())
}

/// A running conversion.
struct Work<'a> {
    requests: Requests,
    to: &'a str,
    pages: u64,
    count: u64,
}

impl Work<'_> {
    fn needs_next_uses(&self) -> Result<bool> {
        Ok(Writer::new(self.to, self.requests.facts())?.needs_next_uses())
    }

    /// Output that is written in two passes goes to a nameless file first.
    fn write_stdout(&mut self, memory: u64) -> Result<()> {
        if self.needs_next_uses()? {
            let mut file = pattern_file::nameless(&std::env::temp_dir())?;
            self.write(&mut file, memory)?;
            file.rewind()?;
            io::copy(&mut file, &mut io::stdout().lock()).context("cannot write to stdout")?;
        } else {
            self.stream(&mut io::stdout().lock())?;
        }
        io::stdout().flush().context("cannot write to stdout")
    }

    fn write(&mut self, file: &mut File, memory: u64) -> Result<()> {
        if self.stream(file)? {
            link_next_uses(file, memory)?;
        }
        Ok(())
    }

    /// Writes every request; whether next uses are still to be found.
    fn stream(&mut self, out: &mut impl Write) -> Result<bool> {
        let mut out = BufWriter::with_capacity(BUFFER_BYTES, out);
        let mut batch = Vec::new();
        let mut more = self.requests.next_batch(&mut batch)?;
        let mut writer = Writer::new(self.to, self.requests.facts())?;
        writer.begin(&mut out)?;
        while more {
            for request in &batch {
                writer.add(request, &mut out)?;
                self.pages += u64::from(request.count);
            }
            self.count += batch.len() as u64;
            more = self.requests.next_batch(&mut batch)?;
        }
        out.flush()?;
        Ok(writer.needs_next_uses())
    }
}

/// The name of traces with paths.
const ACCESSES: &str = "accesses";
const BUFFER_BYTES: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use clap::Args as _;
    use forerun_sim::trace::write::FORMATS;

    #[test]
    fn every_format_that_can_be_written_is_in_the_help() {
        let command = super::Args::augment_args(clap::Command::new("convert"));
        let to = command.get_arguments().find(|argument| argument.get_id() == "to");
        let help = to.and_then(|argument| argument.get_help()).expect("it has help").to_string();
        for (name, _) in FORMATS {
            assert!(help.contains(name), "{name}");
        }
    }
}
