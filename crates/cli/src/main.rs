//! The forerun command: everything is in the library.
//!
//! Nothing is decided here, so that other programs can carry the same commands.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    forerun_cli::main()
}
