//! A running `forerun serve`, and clients that run beside it.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
};

use forerun_testkit::{Scratch, forerun};
use rustix::process::{Pid, Signal, kill_process};

/// A server with a folder for its socket and its files.
pub(crate) struct Server {
    pub(crate) scratch: Scratch,
    child: Child,
    /// What it said until clients could come.
    pub(crate) said: Vec<String>,
}

impl Server {
    /// Serves `files`, each a name and what it holds, with further `arguments`.
    pub(crate) fn of(files: &[(&str, &[u8])], arguments: &str) -> Self {
        let scratch = Scratch::new("serve");
        let paths = files.iter().map(|(name, bytes)| scratch.file(name, bytes)).collect();
        Self::start(scratch, paths, arguments)
    }

    /// Serves the files at `paths`.
    pub(crate) fn start(scratch: Scratch, paths: Vec<PathBuf>, arguments: &str) -> Self {
        let mut command = forerun("serve --socket");
        command.env("XDG_STATE_HOME", scratch.join("state")).env_remove("FORERUN_LEARN");
        command.arg(scratch.join("socket")).args(arguments.split_whitespace()).args(paths);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut said = Vec::new();
        while !said.last().is_some_and(|line: &String| line.starts_with("forerun: serving ")) {
            let line = lines.next().unwrap_or_else(|| panic!("it ends: {said:?}")).unwrap();
            said.push(line);
        }
        Self { scratch, child, said }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.scratch.join("socket")
    }

    /// How clients name the export `name`.
    pub(crate) fn uri(&self, name: &str) -> String {
        format!("nbd+unix:///{name}?socket={}", self.socket().display())
    }

    /// What the server of the metrics answers.
    pub(crate) fn metrics(&self, path: &str) -> String {
        let line = self.said.iter().find(|line| line.contains("http://")).unwrap();
        let address = line.split("http://").nth(1).unwrap().strip_suffix("/metrics").unwrap();
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(format!("GET {path} HTTP/1.1\r\n\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Ends the server by SIGTERM.
    pub(crate) fn stop(self) -> ExitStatus {
        self.end_by(Signal::TERM)
    }

    pub(crate) fn end_by(mut self, signal: Signal) -> ExitStatus {
        self.ended_by(signal)
    }

    /// The same; what the server leaves in its folders is there.
    pub(crate) fn ended_by(&mut self, signal: Signal) -> ExitStatus {
        let pid = i32::try_from(self.child.id()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
        self.child.wait().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What `program` says on stdout, where it ends well.
pub(crate) fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().unwrap();
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(output.status.success(), "{program} {arguments:?}: {out}{err}");
    out.into_owned()
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Bytes that differ from page to page.
pub(crate) fn bytes(count: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut all = Vec::with_capacity(count + 8);
    while all.len() < count {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        all.extend(state.to_le_bytes());
    }
    all.truncate(count);
    all
}
