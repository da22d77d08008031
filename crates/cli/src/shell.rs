//! `forerun completions` and `forerun man`: what shells and `man` know of the commands, made of the
//! definitions that the help is made of.
//!
//! # Invariants
//! - Every command that the help shows has a page and is completed.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap_complete::Shell;
use forerun_console::output;

/// What `completions` takes.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  \
        forerun completions bash > ~/.local/share/bash-completion/completions/forerun")]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// What `man` takes.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  forerun man ~/.local/share/man/man1")]
pub(crate) struct ManArgs {
    /// The folder to write the pages into, which is made where there is none
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

/// Prints the completions.
pub(crate) fn completions(args: &CompletionsArgs, mut commands: clap::Command) -> Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut commands, "forerun", &mut text);
    output::print(&String::from_utf8(text).context("the completions are text")?)
}

/// Writes `forerun.1`, and `forerun-COMMAND.1` for each command.
pub(crate) fn man(args: &ManArgs, mut commands: clap::Command) -> Result<()> {
    let folder = &args.folder;
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    commands.build();
    write(folder, &commands)
}

/// The page of `command`, and those of the ones below it.
fn write(folder: &Path, command: &clap::Command) -> Result<()> {
    // A built command is displayed by its whole name, as `forerun-trace-record`.
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut page).context("a page in memory")?;
    output::file(&folder.join(format!("{name}.1")), &page)?;
    let below = command.get_subcommands();
    below
        .filter(|one| !one.is_hide_set() && one.get_name() != "help")
        .try_for_each(|one| write(folder, one))
}
