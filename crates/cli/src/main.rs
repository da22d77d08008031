//! The forerun command: everything is in the library.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    forerun_cli::main()
}
