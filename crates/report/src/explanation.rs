//! The result of `forerun explain` on a program, for JSON and for the page.
//!
//! ```text
//!   where its time went      seconds: computing, waiting for storage, for a processor, otherwise
//!   its files, their streams bytes, pattern, waits, how much was in memory at first
//!   the gain of prefetching, and its reason
//! ```
//! # Invariants
//! - A figure that is not known is `null`, and what says how one is known stands beside it.
//! - Seconds are of real time; `*_share` is of 1; MB/s are 10^6 bytes.

use serde::Serialize;

/// See the module.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Explanation {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The program's exit status.
    pub status: u8,
    /// How long it ran.
    pub seconds: f64,
    /// Processor time of it and of the children that it waited for.
    pub processor_seconds: f64,
    /// The time that it waited for storage.
    pub storage_seconds: f64,
    /// The way of measuring that.
    pub storage_basis: String,
    /// The time that it was runnable without a processor.
    pub queue_seconds: Option<f64>,
    /// Bytes of its observed reads.
    pub bytes_read: u64,
    /// Bytes that came from devices.
    pub device_bytes: u64,
    /// The observers: `proc` or `preload`.
    pub observer: String,
    /// Observed processes.
    pub processes: u64,
    /// Of these, the skipped processes.
    pub processes_skipped: u64,
    /// Records of the shim that were lost.
    pub records_lost: u64,
    /// Polls of the observers.
    pub polls: u64,
    /// Processor time of polling.
    pub polling_seconds: f64,
    /// Processes whose calls the system does not let be observed.
    pub calls_refused: u64,
    /// How often a call of a 32-bit program was met, which is not decoded.
    pub calls_foreign: u64,
    /// The time that it waited for storage, by what it waited in.
    pub causes: ExplainedCauses,
    /// The gain of prefetching.
    pub prediction: Forecast,
    /// What is to be said beside it, in sentences: what it leaves out, what hid waits, what a
    /// learned list would gain.
    pub notes: Vec<String>,
    /// Calls on files and directories that its threads were met in.
    pub entries_met: u64,
    /// Of these, those that were too many to be looked at.
    pub entries_left_out: u64,
    /// Its walks over directory trees, by waiting time; unknown where file systems did not answer.
    pub walks: Option<Vec<ExplainedWalk>>,
    /// Walks that are left out.
    pub walks_left_out: u64,
    /// Directories, by the time that it waited in calls on them and on their entries.
    pub directories: Vec<ExplainedDirectory>,
    /// Directories that are left out.
    pub directories_left_out: u64,
    /// File systems on which walks gain less than elsewhere.
    pub traps: Vec<ExplainedTrap>,
    /// Its files, by waiting time, the longest first.
    pub files: Vec<ExplainedFile>,
    /// Files that are left out.
    pub files_left_out: u64,
}

impl Explanation {
    /// Whether a shim observed the program too.
    #[must_use]
    pub fn is_preload(&self) -> bool {
        self.observer == PRELOAD
    }
}

/// The observers where a shim is one of them.
pub const PRELOAD: &str = "preload";

/// The command that sees what was observed, and fetches ahead by it.
#[must_use]
pub fn run_command(is_preload: bool) -> &'static str {
    if is_preload { "forerun run --observe preload" } else { "forerun run" }
}

/// The gain of prefetching.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Forecast {
    /// `gain`, `nothing` or `unknown`.
    pub verdict: &'static str,
    /// The reason, in a word.
    pub reason: &'static str,
    /// The reason, in a sentence.
    pub why: String,
    /// The predicted run time; at most, where the gain is a bound.
    pub seconds: f64,
    /// The predicted saving of time.
    pub gain_seconds: f64,
    /// The same as a share of its time.
    pub gain_share: f64,
    /// Whether that is a lower bound: what the device can do is not known.
    pub gain_is_lower_bound: bool,
    /// The gain if the device had no limit, where that is not known.
    pub gain_seconds_max: f64,
    /// How long the device took for a request of the program's, by its waits in calls.
    pub answer_seconds: Option<f64>,
    /// A file by which `forerun profile` finds out what the device can do.
    pub profile_path: Option<String>,
    /// The predicted run time at the next start, with a learned list.
    pub learned_seconds: f64,
    /// The saving of that, and the same if the device had no limit.
    pub learned_gain_seconds: f64,
    /// See `learned_gain_seconds`.
    pub learned_gain_seconds_max: f64,
    /// The device's throughput.
    pub limit_mb_per_second: Option<f64>,
    /// The source of that: `profile`, or `run`, which is a lower bound.
    pub limit_basis: Option<&'static str>,
}

/// Waiting for storage, by the kind of the system call.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct ExplainedCauses {
    /// In opening files and directories.
    pub open_seconds: f64,
    /// For facts of inodes.
    pub stat_seconds: f64,
    /// In listing directories.
    pub readdir_seconds: f64,
    /// In reading bytes, and in starting programs.
    pub read_seconds: f64,
    /// In page faults.
    pub fault_seconds: f64,
    /// In other calls, and in those that could not be observed.
    pub other_seconds: f64,
}

/// A walk over a directory tree.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ExplainedWalk {
    /// The highest directory that it was seen in.
    pub directory: String,
    /// The order in which it goes over entries.
    pub order: String,
    /// Its entries, as far as they were met.
    pub entries: u64,
    /// Of these, those that `run` would have requested before.
    pub predicted: u64,
    /// The time that the program waited for them.
    pub storage_seconds: f64,
    /// The same, by cause.
    pub causes: ExplainedCauses,
    /// The time that `run` would save in it.
    pub gain_seconds: f64,
    /// The same, if the device can do more than is known of it.
    pub gain_seconds_max: f64,
}

impl ExplainedWalk {
    /// Whether all that is known of the gain is its bound.
    #[must_use]
    pub fn gain_is_a_bound(&self) -> bool {
        self.gain_seconds < GAIN_SHOWN_MIN && self.gain_seconds_max >= GAIN_SHOWN_MIN
    }
}

/// Less is no gain, in seconds.
const GAIN_SHOWN_MIN: f64 = 0.001;

/// A directory.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ExplainedDirectory {
    /// Its path.
    pub path: String,
    /// Calls that were met on it and on its entries.
    pub calls: u64,
    /// The time that the program waited in them.
    pub storage_seconds: f64,
    /// The same, by cause.
    pub causes: ExplainedCauses,
}

/// A file system on which walks gain less than elsewhere.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ExplainedTrap {
    /// `nfs`, `fuse` or `overlayfs`.
    pub kind: &'static str,
    /// A directory on it.
    pub path: String,
    /// The time that the program waited for entries on it.
    pub storage_seconds: f64,
    /// What that means, in a sentence.
    pub why: &'static str,
}

/// A file that was read.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ExplainedFile {
    /// Its name.
    pub path: String,
    /// Its device, `major:minor`.
    pub device: String,
    /// Its size.
    pub bytes: u64,
    /// Bytes of observed reads.
    pub bytes_read: u64,
    /// The pattern of most of them: `sequential`, `backward`, `stride` or `random`.
    pub pattern: &'static str,
    /// Whether it was read by page faults.
    pub mapped: bool,
    /// The share of the bytes that was read in order.
    pub sequential_share: f64,
    /// The time that the program waited for storage before the reads of this file.
    pub storage_seconds: f64,
    /// `cold`, `warm`, `part`, or `unknown`.
    pub start: &'static str,
    /// The share of its pages that was in memory at first.
    pub start_share: Option<f64>,
    /// The time of that check: `before` the program began, or a little after its `opening`.
    pub start_basis: Option<&'static str>,
    /// Its streams, as they began.
    pub streams: Vec<ExplainedStream>,
    /// Streams that are left out.
    pub streams_left_out: u64,
    /// For the page: when what was read.
    #[serde(skip)]
    pub moments: Vec<ReadMoment>,
    /// More moments than are kept.
    #[serde(skip)]
    pub moments_left_out: u64,
}

/// Reads that continue each other; all other reads form one stream.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ExplainedStream {
    /// How.
    pub pattern: &'static str,
    /// Bytes that were read.
    pub bytes: u64,
    /// The lowest byte.
    pub offset: u64,
    /// Behind the highest.
    pub end: u64,
    /// When it was first seen.
    pub from_seconds: f64,
    /// When it was last seen.
    pub to_seconds: f64,
    /// The time that the program waited for storage before its reads.
    pub storage_seconds: f64,
}

/// An access, or several joined ones, between two polls.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadMoment {
    /// The poll before.
    pub from_us: u64,
    /// The poll that observed it.
    pub to_us: u64,
    /// Where.
    pub offset: u64,
    /// How much.
    pub bytes: u64,
    /// The time that the program waited for storage meanwhile.
    pub waited_us: u64,
}

impl ExplainedCauses {
    /// Each time by its name.
    #[must_use]
    pub fn named(&self) -> [(&'static str, f64); 6] {
        [
            ("open", self.open_seconds),
            ("stat", self.stat_seconds),
            ("readdir", self.readdir_seconds),
            ("read", self.read_seconds),
            ("fault", self.fault_seconds),
            ("other", self.other_seconds),
        ]
    }
}
