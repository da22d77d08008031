//! `forerun serve ctl`: the partitions of a running server.
//!
//! # Invariants
//! - What the server refuses is an error in its words, and changes nothing.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use forerun_console::form::Form;
use forerun_console::output;
use forerun_nbd::server::ask;
use forerun_report::quantity;
use serde_json::json;

/// Which server, and what of it.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The server's --socket
    #[arg(value_name = "SOCKET")]
    socket: PathBuf,
    #[command(flatten)]
    form: Form,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Print them (default)
    #[command(after_help = "Example:\n  forerun serve ctl disk.sock partitions")]
    Partitions,
    /// Give a partition so much memory, from the rest or to it
    #[command(after_help = "Example:\n  forerun serve ctl disk.sock resize boot 128M")]
    Resize {
        /// Its name
        name: String,
        /// Its memory from now on; with 0 it takes nothing
        #[arg(value_parser = super::bytes)]
        size: u64,
    },
    /// Move memory from one partition to another
    #[command(after_help = "Example:\n  forerun serve ctl disk.sock move rest boot 64M")]
    Move {
        /// The one that gives
        from: String,
        /// The one that gets
        to: String,
        /// How much
        #[arg(value_parser = super::bytes)]
        size: u64,
    },
}

/// Where the server of `socket` takes requests.
pub(super) fn place(socket: &Path) -> PathBuf {
    let mut place = socket.as_os_str().to_owned();
    place.push(".ctl");
    place.into()
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<()> {
    let request = match args.command.as_ref().unwrap_or(&Command::Partitions) {
        Command::Partitions => "partitions".to_owned(),
        Command::Resize { name, size } => format!("resize {name} {size}"),
        Command::Move { from, to, size } => format!("move {from} {to} {size}"),
    };
    let place = place(&args.socket);
    let answer = match ask(&place, &request) {
        Err(why) if why.kind() == io::ErrorKind::InvalidInput => bail!("{why}"),
        answer => answer.with_context(|| format!("no server answers at {}", place.display()))?,
    };
    let rows = answer.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    let rows: Vec<[&str; 5]> = rows.filter_map(|row| row.try_into().ok()).collect();
    let size = |text: &str| text.parse::<u64>().unwrap_or_default();
    let all = rows.iter().map(|&[name, bytes, used, policy, rule]| {
        let (bytes, used) = (size(bytes), size(used));
        json!({"name": name, "bytes": bytes, "used_bytes": used, "policy": policy, "rule": rule})
    });
    let all = json!({ "partitions": all.collect::<Vec<_>>() });
    args.form.print(&all, &["/partitions"], || {
        let cells = |&[name, bytes, used, policy, rule]: &[&str; 5]| {
            let [bytes, used] = [bytes, used].map(|text| quantity::bytes(size(text)));
            [name, &bytes, &used, policy, rule].map(str::to_owned).to_vec()
        };
        let cells: Vec<Vec<String>> = rows.iter().map(cells).collect();
        output::table(&["partition", "memory", "used", "policy", "rule"], &cells, 1)
    })
}
