//! Repository chores, run as `cargo xtask COMMAND` from anywhere in the tree.
//!
//! Plain programs and plain code: what can be written as a shell line stays one in `ci`; what
//! needs thought (the tidy checks, the sample of mutants) is a pure function with a table test.
//! Exit codes: 0 done, 1 the chore found something, 2 bad usage.
#![forbid(unsafe_code)]

mod bench;
mod ci;
mod mutants;
mod range_server;
mod sanitize;
mod soak;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  tidy                                    the checks that rustc and clippy do not make
  ci [--no-skips]                         everything that a change must pass
  python [--full] [--no-skips]            the Python package; in full, beside all it works with
  wheel                                   the release wheel, into target/wheels
  mutants [--count N] [--seed N] [--jobs N]
                                          a sample of small faults in core: do its tests notice?
  soak [--minutes M] [--reads N] ...      the live engine at full speed, everything checked:
                                          10 minutes and 100M reads unless said otherwise
  sanitize [address|shim|valgrind]        io, engine and the shim under AddressSanitizer, io under
                                          valgrind
  bench engine [--quick] [--out DIR] [--file F] [--rounds N]
                                          the engine beside fio and pread, side by side
  bench streams [--quick|--full] [--out DIR] [--device D,...] [--pattern P,...]
                [--readahead R]... [--ra KIB,...] [--folios large|small] [--seconds N]
                [--rounds N] [--log] [--forerun PROGRAM]
                                          the kernel's readahead beside ours, on emulated devices
  bench programs [--out DIR] [--device D,...] [--program P,...] [--rounds N] [--size MIB]
                 [--ra KIB] [--python PROGRAM] [--forerun PROGRAM]
                                          programs alone and under `forerun run`, on those devices
  bench virtual [--quick] [--out DIR] [--device D,...] [--row R,...] [--readahead R]...
                [--seeds N,...] [--lengths PERCENT,...] [--all-limits] [--jobs N]
                [--forerun PROGRAM]       readahead in virtual time, against its floors
  bench lab [--out DIR] [--python PROGRAM] [--cachesim PROGRAM] [--traces DIR] [--rounds N]
            [--only NAME,...] [--form FORM,...] [--forerun PROGRAM]
                                          the lab's simulator beside libCacheSim: its library, if
                                          Python has it, and its program, if one is named
  range-server (--pattern SIZE | --dir DIR) [--port N] [--latency 30ms] [--rate 90M]
               [--fault KIND[:EVERY]] [--stay]
                                          a local HTTP server, slow and faulty if asked to; ends
                                          with its standard input unless it is to stay
";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some((command, rest)) = words.split_first() else {
        eprint!("{USAGE}");
        return ExitCode::from(2);
    };
    let done = match (command.as_str(), rest) {
        ("tidy", []) => tidy::run(&root()),
        ("ci", []) => ci::run(&root(), ci::Skips::Allowed),
        ("ci", [flag]) if flag == "--no-skips" => ci::run(&root(), ci::Skips::Fail),
        ("python", flags) if flags.iter().all(|f| f == "--full" || f == "--no-skips") => {
            let has = |flag: &str| flags.iter().any(|f| f == flag);
            let skips = if has("--no-skips") { ci::Skips::Fail } else { ci::Skips::Allowed };
            let run = if has("--full") { ci::python_full } else { ci::python };
            run(&root(), skips)
        }
        ("wheel", []) => ci::wheel(&root()),
        ("sanitize", tools) if sanitize::knows(tools) => sanitize::run(&root(), tools),
        ("mutants", options) => match mutants::Options::parse(options) {
            Ok(options) => mutants::run(&root(), &options),
            Err(error) => {
                eprintln!("{error:#}\n{USAGE}");
                return ExitCode::from(2);
            }
        },
        ("soak", options) => soak::run(&root(), options),
        ("bench", [what, options @ ..]) if what == "engine" => {
            match bench::Options::parse(options) {
                Ok(options) => bench::run(&root(), &options),
                Err(error) => {
                    eprintln!("{error:#}\n{USAGE}");
                    return ExitCode::from(2);
                }
            }
        }
        ("bench", [what, options @ ..]) if what == "streams" => {
            match bench::streams::Options::parse(options) {
                Ok(options) => bench::streams::run(&root(), &options),
                Err(error) => {
                    eprintln!("{error:#}\n{USAGE}");
                    return ExitCode::from(2);
                }
            }
        }
        ("bench", [what, options @ ..]) if what == "programs" => {
            match bench::programs::Options::parse(options) {
                Ok(options) => bench::programs::run(&root(), &options),
                Err(error) => {
                    eprintln!("{error:#}\n{USAGE}");
                    return ExitCode::from(2);
                }
            }
        }
        ("bench", [what, options @ ..]) if what == "virtual" => {
            match bench::floors::Options::parse(options) {
                Ok(options) => bench::floors::run(&root(), &options),
                Err(error) => {
                    eprintln!("{error:#}\n{USAGE}");
                    return ExitCode::from(2);
                }
            }
        }
        ("bench", [what, options @ ..]) if what == "lab" => {
            match bench::lab::Options::parse(options) {
                Ok(options) => bench::lab::run(&root(), &options),
                Err(error) => {
                    eprintln!("{error:#}\n{USAGE}");
                    return ExitCode::from(2);
                }
            }
        }
        ("range-server", options) => match range_server::Options::parse(options) {
            Ok(options) => range_server::run(options),
            Err(error) => {
                eprintln!("{error:#}\n{USAGE}");
                return ExitCode::from(2);
            }
        },
        ("help" | "--help" | "-h", _) => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprint!("unknown: {}\n{USAGE}", words.join(" "));
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask {command}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The root of the repository: this package lies one folder below it.
fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().expect("the package lies in a folder of the repository").to_path_buf()
}

/// The cargo that runs us, so that every step uses one toolchain.
fn cargo() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}
