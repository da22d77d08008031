//! `forerun serve`: files and block devices through a cache, for clients of the NBD protocol.
//!
//! ```text
//!   FILE...  --> exports, by file name or --name
//!   --socket, --listen, LISTEN_FDS --> clients        --metrics --> counts, for Prometheus
//! ```
//!
//! # Invariants
//! - One line on stderr says that clients may come, and where; a service manager that asks for it
//!   gets a notice too.
//! - Beyond this machine it is served only to clients with a certificate, by TLS, or with
//!   `--insecure`: the protocol has no password.
//! - SIGTERM, SIGINT and SIGHUP end it with status 0, after what was received is answered and what
//!   was written is durable; with status 1 where it cannot be.

mod control;

use std::{
    io,
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
use forerun_core::{eviction, readahead};
use forerun_engine::{BuildError, Cache, DeviceKey, DeviceStore, Partition, Settings, Sizing};
use forerun_io::{files::Backend, passed};
use forerun_nbd::server::{
    Control, Disk, Listener, Metrics, Mode, Server, ServerSettings, TlsSettings,
};
use forerun_nbd::{BlockSizes, Export};
use forerun_report::quantity;

use crate::learned;

/// The flags and files.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = "Examples:\n  forerun serve --socket /run/user/1000/disk.sock disk.img\n  \
                        forerun serve --listen 127.0.0.1:10809 --cache 1G /dev/sdb images/*.raw\n  \
                        nbdcopy 'nbd+unix:///disk.img?socket=/run/user/1000/disk.sock' copy.img")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Files and block devices; each is an export by its file name, the first one by the empty
    /// name too
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Listen on this unix socket, for programs of this user
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Listen on this address of this machine
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Let other machines in, unencrypted, to read all that is served
    #[arg(long)]
    insecure: bool,
    #[command(flatten)]
    tls: TlsFiles,
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
    #[arg(long, value_name = "NAME", default_value = eviction::DEFAULT)]
    policy: String,
    /// The readahead policy, NAME[:key=value,...]
    #[arg(long, value_name = "NAME", default_value = readahead::DEFAULT)]
    readahead: String,
    /// A share of the cache for the pages of some files (file=PATTERN), offsets (offset=A..B) or
    /// clients (client=user:ID or its address), with a policy of its own; may be repeated
    #[arg(long = "partition", value_name = "NAME=SIZE[,min=SIZE]:POLICY[+READAHEAD]:RULE")]
    partitions: Vec<Partition>,
    /// Whether memory moves between partitions by itself (auto), to where it brings more hits
    #[arg(long, value_name = "auto|manual", requires = "partitions", default_value = "manual",
          value_parser = sizing)]
    sizing: Sizing,
    /// Memory that sizing leaves at least to the rest: to what no partition takes
    #[arg(long, value_name = "SIZE", requires = "partitions", value_parser = bytes)]
    rest_min: Option<u64>,
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

#[derive(clap::Subcommand)]
enum Command {
    /// Print or change the partitions of a running server
    #[command(
        after_help = "Example:\n  forerun serve ctl /run/user/1000/disk.sock resize boot 128M"
    )]
    Ctl(control::Args),
}

/// Files of `--listen` by TLS, all three or none.
#[derive(clap::Args)]
struct TlsFiles {
    /// The certificate of this server, and those that sign it, in PEM: clients of --listen have to
    /// begin TLS, with a certificate of theirs
    #[arg(long = "tls-cert", value_name = "FILE", requires_all = ["key", "client_ca"])]
    cert: Option<PathBuf>,
    /// Its private key, in PEM
    #[arg(long = "tls-key", value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// The certificates that sign those of the clients, in PEM
    #[arg(long = "tls-client-ca", value_name = "FILE", requires = "cert")]
    client_ca: Option<PathBuf>,
}

impl TlsFiles {
    fn settings(&self) -> Result<Option<TlsSettings>> {
        let (Some(cert), Some(key), Some(ca)) = (&self.cert, &self.key, &self.client_ca) else {
            return Ok(None);
        };
        Ok(Some(TlsSettings::from_files(cert, key, ca).context("cannot serve by TLS")?))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Interface {
    Auto,
    Uring,
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

fn sizing(text: &str) -> Result<Sizing, String> {
    Sizing::parse(text).ok_or_else(|| format!("expected {}", Sizing::FORM))
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
    if let Some(Command::Ctl(args)) = &args.command {
        return control::run(args);
    }
    let tls = args.tls.settings()?;
    let is_safe = args.insecure || tls.is_some();
    require_here("--listen", args.listen, is_safe)?;
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
    let mut tcp: Vec<Listener> = args.listen.map(Listener::tcp).transpose()?.into_iter().collect();
    for listener in passed()? {
        require_here("a socket that was passed", listener.address(), is_safe)?;
        if listener.address().is_some() {
            tcp.push(listener);
        } else {
            listeners.push(listener);
            places.push("a socket that was passed".to_owned());
        }
    }
    if tls.is_some() && tcp.is_empty() {
        return Err(usage("--tls-cert is for clients of --listen"));
    }
    for listener in tcp {
        let address = listener.address().map_or_else(String::new, |address| address.to_string());
        places.push(format!("{address}{}", if tls.is_some() { " by TLS" } else { "" }));
        listeners.push(match &tls {
            Some(tls) => listener.with_tls(tls.clone()),
            None => listener,
        });
    }
    if listeners.is_empty() {
        return Err(usage("name --socket PATH or --listen ADDRESS:PORT, where clients come to"));
    }
    let metrics = args.metrics.map(metrics).transpose()?;
    // Without partitions there is nothing to change.
    let socket = args.socket.as_ref().filter(|_| !args.partitions.is_empty());
    let control = socket.map(|path| Control::listen(&control::place(path))).transpose()?;
    let stops = server.clone();
    interrupt::stops(move || stops.stop());
    note(&ready(&sizes, args.mode, args.cache, &places));
    tell_manager("READY=1");
    let ended = serve(&server, listeners, metrics, control);
    tell_manager("STOPPING=1");
    let closed = server.close().context("bytes that clients wrote are lost");
    ended.and(closed)
}

/// The sockets of the service manager, or of a client that starts its own server.
fn passed() -> Result<Vec<Listener>> {
    let sockets = passed::descriptors().and_then(|sockets| {
        sockets.into_iter().map(Listener::passed).collect::<io::Result<Vec<_>>>()
    });
    sockets.context("cannot use a socket that was passed (LISTEN_FDS)")
}

/// Serves until a signal.
fn serve(
    server: &Server,
    listeners: Vec<Listener>,
    metrics: Option<Metrics>,
    control: Option<Control>,
) -> Result<()> {
    thread::scope(|scope| {
        let metrics = metrics.map(|it| scope.spawn(move || it.run(server)));
        let control = control.map(|it| scope.spawn(move || it.run(server)));
        let ended = server.run(listeners);
        server.stop();
        let others = [metrics, control].into_iter().flatten();
        others.fold(ended, |ended, other| {
            ended.and(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })
    })
    .context("cannot wait for clients")
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
             take 127.0.0.1, a --socket, --tls-cert where clients have certificates, or say \
             --insecure"
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
        partitions: args.partitions.clone(),
        sizing: args.sizing,
        rest_bytes_min: args.rest_min.unwrap_or(0),
        ..Settings::default()
    };
    settings.files.backend = match args.io {
        Interface::Auto => Backend::Auto,
        Interface::Uring => Backend::Uring,
        Interface::Threads => Backend::Threads,
    };
    let mut builder = Cache::builder().settings(settings);
    if let Some((devices, key)) = remembered(&args.files) {
        builder = builder.remember(devices, key);
    }
    builder.build().map_err(|error| match error {
        BuildError::Settings(error) => usage(error),
        error => error.into(),
    })
}

/// Where what is learnt of the one device on which all of `files` lie is kept.
fn remembered(files: &[PathBuf]) -> Option<(DeviceStore, DeviceKey)> {
    if learned::is_off() {
        return None;
    }
    let mut keys = files.iter().map(|path| DeviceKey::of_file(path));
    let key = keys.next()?.ok()?;
    let alone = keys.all(|other| other.is_ok_and(|other| other == key));
    alone.then(DeviceStore::of_user)?.ok().map(|devices| (devices, key))
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
