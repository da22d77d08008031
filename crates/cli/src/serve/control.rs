//! `forerun serve ctl`: the partitions of a running server.
//!
//! # Invariants
//! - What the server refuses is an error in its words, and changes nothing.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use forerun_console::form::Output;
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
    output: Output,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Print them, and what moved between them (default)
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
    /// Give a partition another replacement policy; its pages stay
    #[command(after_help = "Example:\n  forerun serve ctl disk.sock policy boot lru")]
    Policy {
        /// Its name
        name: String,
        /// The policy, one of `forerun sim --list-policies`, without parameters
        policy: String,
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
    args.output.check()?;
    let request = match args.command.as_ref().unwrap_or(&Command::Partitions) {
        Command::Partitions => "partitions".to_owned(),
        Command::Resize { name, size } => format!("resize {name} {size}"),
        Command::Move { from, to, size } => format!("move {from} {to} {size}"),
        Command::Policy { name, policy } => format!("policy {name} {policy}"),
    };
    let place = place(&args.socket);
    let answer = match ask(&place, &request) {
        Err(why) if why.kind() == io::ErrorKind::InvalidInput => bail!("{why}"),
        answer => answer.with_context(|| format!("no server answers at {}", place.display()))?,
    };
    let (rows, moves) = (fields::<6>(&answer), fields::<7>(&answer));
    let all = rows.iter().map(|&[name, bytes, least, used, policy, rule]| {
        let [bytes, least, used] = [bytes, least, used].map(number);
        json!({"name": name, "bytes": bytes, "bytes_min": least, "used_bytes": used,
               "policy": policy, "rule": rule})
    });
    let shown = moves.iter().map(|&[second, from, to, bytes, reason, before, after]| {
        let [second, bytes, before, after] = [second, bytes, before, after].map(number);
        json!({"second": second, "from": from, "to": to, "bytes": bytes, "reason": reason,
               "expected_hits_before": before, "expected_hits_after": after})
    });
    let (all, shown): (Vec<_>, Vec<_>) = (all.collect(), shown.collect());
    let all = json!({ "partitions": all, "moves": shown });
    args.output.print(&all, &["partitions"], || {
        let cells = |&[name, bytes, _, used, policy, rule]: &[&str; 6]| {
            let [bytes, used] = [bytes, used].map(|text| quantity::bytes(number(text)));
            [name, &bytes, &used, policy, rule].map(str::to_owned).to_vec()
        };
        let cells: Vec<Vec<String>> = rows.iter().map(cells).collect();
        let table = output::table(&["partition", "memory", "used", "policy", "rule"], &cells, 1);
        if moves.is_empty() { table } else { format!("{table}\n{}", moves_table(&moves)) }
    })
}

/// The last moves of sizing.
fn moves_table(moves: &[[&str; 7]]) -> String {
    let percent = |millionths: &str| {
        let hundredths = number(millionths) / 100;
        format!("{}.{:02} %", hundredths / 100, hundredths % 100)
    };
    let cells = |&[second, from, to, bytes, reason, before, after]: &[&str; 7]| {
        let hits = format!("{} to {}", percent(before), percent(after));
        [second, from, to, &quantity::bytes(number(bytes)), reason, &hits]
            .map(str::to_owned)
            .to_vec()
    };
    let last = &moves[moves.len().saturating_sub(MOVES_SHOWN)..];
    let cells: Vec<Vec<String>> = last.iter().map(cells).collect();
    output::table(&["second", "from", "to", "memory", "reason", "expected hits"], &cells, 3)
}

/// The lines of `answer` that have so many fields.
fn fields<const N: usize>(answer: &str) -> Vec<[&str; N]> {
    let rows = answer.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    rows.filter_map(|row| row.try_into().ok()).collect()
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_default()
}

/// Moves that the table has; JSON has all that the server remembers.
const MOVES_SHOWN: usize = 12;
