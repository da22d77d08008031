//! `forerun serve`: files and block devices through a cache, for clients of the NBD protocol.
//!
//! ```text
//!   FILE...  --> exports, by file name or --name
//!   --socket, --listen --> clients        --metrics --> counts, for Prometheus
//! ```
//!
//! # Invariants
//! - One line on stderr says that clients may come, and where; a service manager that asks for it
//!   gets a notice too.
//! - Beyond this machine it is served only with `--insecure`: the protocol has no password.
//! - SIGTERM, SIGINT and SIGHUP end it with status 0, after what was received is answered and what
//!   was written is durable; with status 1 where it cannot be.

use std::{
    net::SocketAddr,
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{self, UnixDatagram},
    },
    path::{Path, PathBuf},
    thread,
};

use anyhow::{Context as _, Result};
use forerun_console::failure::{note, usage};
use forerun_console::interrupt;
use forerun_core::params::{Bytes, Param as _};
use forerun_engine::{BuildError, Cache, Settings};
use forerun_io::files::Backend;
use forerun_nbd::server::{Disk, Listener, Metrics, Mode, Server, ServerSettings};
use forerun_nbd::{BlockSizes, Export};
use forerun_report::quantity;

/// The flags and files.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  forerun serve --socket /run/user/1000/disk.sock disk.img\n  \
                        forerun serve --listen 127.0.0.1:10809 --cache 1G /dev/sdb images/*.raw\n  \
                        nbdcopy 'nbd+unix:///disk.img?socket=/run/user/1000/disk.sock' copy.img")]
pub(crate) struct Args {
    /// Files and block devices; each is an export by its file name, the first one by the empty
    /// name too
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Listen on this unix socket, for programs of this user
    #[arg(long, value_name = "PATH", required_unless_present = "listen")]
    socket: Option<PathBuf>,
    /// Listen on this address of this machine
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Let other machines in, unencrypted, to read all that is served
    #[arg(long)]
    insecure: bool,
    /// The name of the export, where FILE is one
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// What clients may do: read; write, durably at once; or write into the cache, durably at the
    /// next flush, as to a disk
    #[arg(long, value_name = "MODE", value_enum, default_value_t = ModeName::ReadOnly)]
    mode: ModeName,
    /// Memory for the cache
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = bytes)]
    cache: u64,
    /// The replacement policy, NAME[:key=value,...]
    #[arg(long, value_name = "NAME", default_value = "2q-star")]
    policy: String,
    /// The readahead policy, NAME[:key=value,...]
    #[arg(long, value_name = "NAME", default_value = "streams")]
    readahead: String,
    /// The system interface that reads files
    #[arg(long, value_name = "INTERFACE", value_enum, default_value_t = Interface::Auto)]
    io: Interface,
    /// Sectors of this size alone: 512 or 4096; without it clients may read any byte
    #[arg(long, value_name = "BYTES", value_parser = sector)]
    sector: Option<u32>,
    /// Connections at a time
    #[arg(long, value_name = "N", default_value_t = 64,
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    max_connections: u32,
    /// Answer with counts of what is served, for Prometheus, at this address of this machine
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Interface {
    Auto,
    Uring,
    Aio,
    Threads,
}

/// The names of [`Mode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ModeName {
    ReadOnly,
    WriteThrough,
    WriteBack,
}

impl ModeName {
    fn mode(self) -> Mode {
        match self {
            Self::ReadOnly => Mode::ReadOnly,
            Self::WriteThrough => Mode::WriteThrough,
            Self::WriteBack => Mode::WriteBack,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only",
            Self::WriteThrough => "write-through",
            Self::WriteBack => "write-back",
        }
    }
}

fn bytes(text: &str) -> Result<u64, String> {
    Bytes::parse(text).map(|bytes| bytes.0).ok_or_else(|| format!("expected {}", Bytes::FORM))
}

fn sector(text: &str) -> Result<u32, String> {
    match text {
        "512" => Ok(512),
        "4096" | "4K" => Ok(4096),
        _ => Err("expected 512 or 4096".into()),
    }
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<()> {
    require_here("--listen", args.listen, args.insecure)?;
    require_here("--metrics", args.metrics, args.insecure)?;
    let names = names(args)?;
    let cache = cache(args)?;
    let mut exports = Vec::new();
    for (path, name) in args.files.iter().zip(names) {
        let disk = Disk::open(&cache, path, args.mode.mode());
        let disk = disk.with_context(|| format!("cannot serve {}", path.display()))?;
        exports.push((export(args, name, disk.bytes()), disk));
    }
    let settings =
        ServerSettings { connections_max: args.max_connections, ..ServerSettings::default() };
    let sizes: Vec<u64> = exports.iter().map(|(export, _)| export.bytes).collect();
    let server = Server::new(cache, exports, settings).map_err(usage)?;
    let mut listeners = Vec::new();
    let mut places = Vec::new();
    if let Some(path) = &args.socket {
        listeners.push(Listener::unix(path)?);
        places.push(path.display().to_string());
    }
    if let Some(address) = args.listen {
        let listener = Listener::tcp(address)?;
        places.push(listener.address().unwrap_or(address).to_string());
        listeners.push(listener);
    }
    let metrics = args.metrics.map(metrics).transpose()?;
    let stops = server.clone();
    interrupt::stops(move || stops.stop());
    note(&ready(&sizes, args.mode, args.cache, &places));
    tell_manager("READY=1");
    let ended = serve(&server, listeners, metrics);
    tell_manager("STOPPING=1");
    let closed = server.close().context("bytes that clients wrote are lost");
    ended.and(closed)
}

/// Serves until a signal.
fn serve(server: &Server, listeners: Vec<Listener>, metrics: Option<Metrics>) -> Result<()> {
    thread::scope(|scope| {
        let counting = metrics.map(|metrics| {
            scope.spawn(move || metrics.run(server).context("cannot wait for clients of --metrics"))
        });
        let ended = server.run(listeners).context("cannot wait for clients");
        server.stop();
        let counted = counting.map_or(Ok(()), |counting| {
            counting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        ended.and(counted)
    })
}

fn metrics(address: SocketAddr) -> Result<Metrics> {
    let metrics = Metrics::listen(address)
        .with_context(|| format!("cannot listen on {address} for --metrics"))?;
    note(&format!("metrics at http://{}/metrics", metrics.address()?));
    Ok(metrics)
}

/// Refuses an address that other machines reach, unless they may.
fn require_here(flag: &str, address: Option<SocketAddr>, insecure: bool) -> Result<()> {
    match address {
        Some(address) if !address.ip().is_loopback() && !insecure => Err(usage(format!(
            "{flag} {address} lets any machine that reaches it read what is served, unencrypted: \
             take 127.0.0.1, a --socket, or say --insecure"
        ))),
        Some(_) | None => Ok(()),
    }
}

/// The name of each export.
fn names(args: &Args) -> Result<Vec<String>> {
    match (&args.name, args.files.len()) {
        (Some(name), 1) => return Ok(vec![name.clone()]),
        (Some(_), _) => return Err(usage("--name names one FILE: there are several")),
        (None, _) => {}
    }
    args.files.iter().map(|path| name_of(path)).collect()
}

fn name_of(path: &Path) -> Result<String> {
    let name = path.file_name().and_then(|name| name.to_str());
    name.map(str::to_owned).ok_or_else(|| {
        usage(format!("{} has no name that clients could use: give it a --name", path.display()))
    })
}

fn export(args: &Args, name: String, bytes: u64) -> Export {
    let default = BlockSizes::default();
    let min = args.sector.unwrap_or(default.min);
    let blocks = BlockSizes { min, ..default };
    Export {
        name,
        description: String::new(),
        bytes,
        writable: args.mode != ModeName::ReadOnly,
        blocks,
    }
}

fn cache(args: &Args) -> Result<Cache> {
    let mut settings = Settings {
        cache_bytes: args.cache,
        policy: args.policy.clone(),
        readahead: args.readahead.clone(),
        ..Settings::default()
    };
    settings.files.backend = match args.io {
        Interface::Auto => Backend::Auto,
        Interface::Uring => Backend::Uring,
        Interface::Aio => Backend::Aio,
        Interface::Threads => Backend::Threads,
    };
    Cache::new(settings).map_err(|error| match error {
        BuildError::Settings(error) => usage(error),
        error => error.into(),
    })
}

/// The line that says that clients may come.
fn ready(sizes: &[u64], mode: ModeName, cache_bytes: u64, places: &[String]) -> String {
    let bytes = quantity::bytes(sizes.iter().sum());
    let exports = match sizes.len() {
        1 => format!("1 export of {bytes}"),
        count => format!("{count} exports of {bytes}"),
    };
    let cache = quantity::bytes(cache_bytes);
    format!("serving {exports}, {}, cache {cache}, on {}", mode.name(), places.join(" and "))
}

/// Tells the service manager, where there is one.
fn tell_manager(state: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let address = match name.to_str().and_then(|name| name.strip_prefix('@')) {
        Some(name) => net::SocketAddr::from_abstract_name(name),
        None => net::SocketAddr::from_pathname(&name),
    };
    let told = address.and_then(|address| {
        UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
    });
    if let Err(error) = told {
        note(&format!("cannot tell the service manager: {error}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_machines_come_in_only_where_they_may() {
        #[rustfmt::skip]
        let rows = [ // address         insecure   served
            ("127.0.0.1:1",             false,     true),
            ("[::1]:1",                 false,     true),
            ("0.0.0.0:1",               false,     false),
            ("[::]:1",                  false,     false),
            ("192.168.0.1:1",           false,     false),
            ("192.168.0.1:1",           true,      true),
        ];
        for (address, insecure, served) in rows {
            let found = require_here("--listen", Some(address.parse().unwrap()), insecure);
            assert_eq!(found.is_ok(), served, "{address} {insecure}");
        }
    }

    #[test]
    fn the_line_says_what_and_where() {
        let places = ["/run/s".to_owned(), "127.0.0.1:1".to_owned()];
        let line = ready(&[1 << 20, 1 << 20], ModeName::ReadOnly, 4 << 20, &places);
        let says = "serving 2 exports of 2 MiB, read-only, cache 4 MiB, on /run/s and ";
        assert_eq!(line, says.to_owned() + "127.0.0.1:1");
    }
}
