//! Replay: sends the events of a journal to a fresh core and compares its actions byte for byte.
//!
//! ```text
//!   group:  event -> actions == recorded[..a] ?
//!           Pinned -> actions == recorded[a..b] ?      a difference belongs to one event
//!           Settled -> actions == recorded[b..] ?
//! ```
//!
//! # Invariants
//! - Each action is compared at once, so a replay reports the first difference.
//! - Any contents of a journal replay or are refused: the memory of the core is bounded, numbers
//!   that the core trusts are checked, and a panic of the core is an error.

use std::{
    io::Read,
    panic::{AssertUnwindSafe, catch_unwind},
};

use forerun_core::{
    cache::{Cache, Settings, Sizing, Stats},
    event::{Actions, Event, Hit, codec},
    eviction,
    params::{Param as _, Share},
    units::Nanos,
};

use super::read::{Block, JournalError, Part, Reader};
use super::show;

/// The result of a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// The runs, in order.
    pub runs: Vec<Run>,
    /// Bytes after the last whole block of a file that was cut.
    pub cut_bytes: u64,
}

impl Replayed {
    /// Whether all actions of all runs are the same bytes.
    #[must_use]
    pub fn byte_equal(&self) -> bool {
        self.runs.iter().all(|run| run.difference.is_none())
    }
}

/// The result of replaying one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The settings of the core.
    pub settings: Settings,
    /// Events sent, up to the first difference.
    pub events: u64,
    /// Actions of the core.
    pub actions: u64,
    /// The time of the first event.
    pub first: Nanos,
    /// The time of the last event.
    pub last: Nanos,
    /// The core's counters.
    pub stats: Stats,
    /// The first difference from the recorded actions.
    pub difference: Option<Difference>,
}

/// The first event with other actions than recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The event's number in the run, from 1.
    pub event: u64,
    /// The event's time.
    pub now: Nanos,
    /// The event.
    pub what: String,
    /// The number of the first action that differs, from 1.
    pub action: u64,
    /// The recorded action.
    pub recorded: String,
    /// The replayed action.
    pub came: String,
}

/// Replays all runs of a journal; `progress` gets the number of its bytes that were read.
///
/// # Errors
/// The journal cannot be read or used. Actions that differ are not an error.
pub fn replay(input: impl Read, mut progress: impl FnMut(u64)) -> Result<Replayed, JournalError> {
    let mut reader = Reader::new(input);
    let (mut runs, mut last) = (Vec::new(), None::<Replay>);
    loop {
        match reader.part()? {
            Part::Run(settings) => {
                runs.extend(last.take().map(Replay::end));
                last = Some(Replay::new(&settings)?);
            }
            Part::Block(block) => {
                let run = last.as_mut().expect("a reader has blocks in runs only");
                run.block(&block)?;
            }
            Part::End { cut_bytes } => {
                runs.extend(last.take().map(Replay::end));
                return Ok(Replayed { runs, cut_bytes });
            }
        }
        progress(reader.at());
    }
}

/// A run that is being replayed.
struct Replay {
    core: Cache,
    /// Handles opened so far: numbers are dense, so none is larger.
    opened: u32,
    run: Run,
    actions: Actions,
    came: Vec<u8>,
    hits: Vec<Hit>,
}

impl Replay {
    fn new(settings: &Settings) -> Result<Self, JournalError> {
        check_memory(settings)?;
        let why = |error: forerun_core::cache::SettingsError| JournalError::NotOfThisCore {
            why: error.to_string(),
        };
        let core = Cache::new(settings.clone()).map_err(why)?;
        let run = Run {
            settings: settings.clone(),
            events: 0,
            actions: 0,
            first: Nanos(0),
            last: Nanos(0),
            stats: Stats::default(),
            difference: None,
        };
        let (came, hits) = (Vec::new(), Vec::new());
        Ok(Self { core, opened: 0, run, actions: Actions::new(), came, hits })
    }

    fn end(self) -> Run {
        let stats = *self.core.stats();
        Run { stats, ..self.run }
    }

    /// Sends the events of a block, up to the first difference.
    fn block(&mut self, block: &Block) -> Result<(), JournalError> {
        let malformed = |why: &str| JournalError::Malformed { at: block.at, why: why.to_owned() };
        let (mut input, mut left) = (block.payload.as_slice(), u64::from(block.events));
        while !input.is_empty() && self.run.difference.is_none() {
            let sizes = (codec::take_varint(&mut input), codec::take_varint(&mut input));
            let (Ok(count), Ok(bytes)) = sizes else {
                return Err(malformed("a group is cut off"));
            };
            left = left.checked_sub(count.max(1)).ok_or_else(|| malformed("too many events"))?;
            let mut hits = std::mem::take(&mut self.hits);
            let mut events = input;
            for _ in 0..count {
                let (_, _, used) = codec::decode(events, &mut hits)
                    .map_err(|error| malformed(&error.to_string()))?;
                events = &events[used..];
            }
            let actions_at = input.len() - events.len();
            let bytes = usize::try_from(bytes).ok().filter(|&bytes| bytes <= events.len());
            let bytes = bytes.ok_or_else(|| malformed("a group is cut off"))?;
            let group = Group { events: &input[..actions_at], count, recorded: &events[..bytes] };
            input = &events[bytes..];
            self.hits = hits;
            self.group(&group)?;
        }
        let counted = left == 0 || self.run.difference.is_some();
        if counted { Ok(()) } else { Err(malformed("events are missing")) }
    }

    fn group(&mut self, group: &Group<'_>) -> Result<(), JournalError> {
        let (mut input, mut recorded) = (group.events, group.recorded);
        let mut hits = std::mem::take(&mut self.hits);
        for number in 1..=group.count {
            let (now, event, used) =
                codec::decode(input, &mut hits).expect("it was decoded when the group was cut out");
            input = &input[used..];
            self.send(now, event)?;
            let rest = recorded.strip_prefix(self.came.as_slice());
            match rest {
                Some(rest) if number < group.count || rest.is_empty() => recorded = rest,
                Some(_) | None => {
                    self.differs(now, &event, recorded);
                    break;
                }
            }
        }
        self.hits = hits;
        Ok(())
    }

    /// Sends one event; its encoded actions are in `came`.
    fn send(&mut self, now: Nanos, event: Event<'_>) -> Result<(), JournalError> {
        if self.run.events == 0 {
            self.run.first = now;
        }
        self.run.events += 1;
        self.run.last = now;
        self.opened = self.opened.saturating_add(u32::from(matches!(event, Event::Open { .. })));
        let number = self.run.events;
        let not_of_this_core = |why: &str| {
            let seconds = now.0 / 1_000_000_000;
            let nanos = now.0 % 1_000_000_000;
            let what = shown(&event);
            let why = format!("event {number} at {seconds}.{nanos:09} s, {what}: {why}");
            JournalError::NotOfThisCore { why }
        };
        if !self.plausible(&event) {
            return Err(not_of_this_core("a number is out of bounds"));
        }
        self.actions.clear();
        self.came.clear();
        let (core, actions) = (&mut self.core, &mut self.actions);
        catch_unwind(AssertUnwindSafe(|| core.handle(now, event, actions))).map_err(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            not_of_this_core(text.unwrap_or("it is refused"))
        })?;
        self.run.actions += self.actions.list.len() as u64;
        codec::encode_actions(&self.actions, &mut self.came);
        Ok(())
    }

    fn differs(&mut self, now: Nanos, event: &Event<'_>, recorded: &[u8]) {
        let (action, recorded, came) = show::difference(recorded, &self.came);
        let (event, what) = (self.run.events, shown(event));
        self.run.difference = Some(Difference { event, now, what, action, recorded, came });
    }

    /// Whether the event's numbers keep the core's memory in proportion to its settings.
    fn plausible(&self, event: &Event<'_>) -> bool {
        let frames = self.core.settings().frames;
        let waiting = self.core.settings().waiters_max.max(frames);
        match *event {
            Event::Open { handle, file, .. } => {
                handle.0 < self.opened && self.core.check_open(handle, file).is_ok()
            }
            Event::Close { handle }
            | Event::Flush { handle, .. }
            | Event::Change { handle, .. } => handle.0 < self.opened,
            Event::Read { handle, count, first, .. }
            | Event::Write { handle, count, first, .. } => {
                let ends = first.checked_add(count.into()).is_some();
                handle.0 < self.opened && count <= waiting && ends
            }
            Event::Marker { handle, hit, count, .. } => {
                handle.0 < self.opened && hit.frame.0 < frames && count <= waiting
            }
            Event::Arrived { first, count }
            | Event::Failed { first, count, .. }
            | Event::Written { first, count }
            | Event::WriteFailed { first, count, .. } => first.0 < frames && count <= frames,
            Event::Prefetch { handle, first, count } => {
                handle.0 < self.opened && first.checked_add(count.into()).is_some()
            }
            Event::Filled { frame, .. } | Event::Pinned { frame } => frame.0 < frames,
            Event::Hits { hits } => hits.iter().all(|hit| hit.frame.0 < frames),
            Event::Cancel { .. }
            | Event::Synced { .. }
            | Event::Changed { .. }
            | Event::Truncate { .. }
            | Event::Invalidate { .. }
            | Event::Settled
            | Event::Resize { .. }
            | Event::Policy { .. }
            | Event::Tick => true,
        }
    }
}

/// An encoded event with the events of its retractions, and the recorded actions.
struct Group<'b> {
    events: &'b [u8],
    count: u64,
    recorded: &'b [u8],
}

/// An event as text of bounded length.
fn shown(event: &Event<'_>) -> String {
    if let Event::Hits { hits } = event {
        format!("a batch of {} hits", hits.len())
    } else {
        format!("{event:?}")
    }
}

/// Refuses a core whose memory exceeds the bound of a replay, or cannot be allocated.
fn check_memory(settings: &Settings) -> Result<(), JournalError> {
    let frames = u64::from(settings.frames);
    let waiters = u64::from(settings.waiters_max);
    let shares: u64 = settings.partitions.iter().map(|row| shares_ppm(&row.policy)).sum();
    let ghosts = frames.saturating_mul(shares) / 1_000_000;
    let sizing = match settings.sizing {
        Sizing::Auto => settings.partitions.len() as u64 * SIZING_BYTES,
        Sizing::Manual => 0,
    };
    let wanted =
        sizing + frames * FRAME_BYTES + waiters * WAITER_BYTES + ghosts.saturating_mul(GHOST_BYTES);
    let room = usize::try_from(wanted).map(|bytes| Vec::<u8>::new().try_reserve_exact(bytes));
    if wanted <= MEMORY_BYTES_MAX && matches!(room, Ok(Ok(()))) {
        return Ok(());
    }
    let why = format!("its tables may take {wanted} bytes, more than there is for a replay");
    Err(JournalError::NotOfThisCore { why })
}

/// The sum of the shares of the cache that a policy's parameters name: the policy may have as many
/// ghost entries. An unknown policy has none; the core refuses it.
fn shares_ppm(policy: &str) -> u64 {
    let params = eviction::show(policy).unwrap_or_default();
    let share = |(_, value): &(&str, String)| Share::parse(value).map_or(0, |share| share.ppm);
    params.iter().map(|param| u64::from(share(param))).sum()
}

/// The most bytes of the core's tables for a frame, a waiter and a ghost entry.
const FRAME_BYTES: u64 = 512;
const WAITER_BYTES: u64 = 64;
const GHOST_BYTES: u64 = 128;
/// The most bytes of the tables by which a partition is sized.
const SIZING_BYTES: u64 = 8 << 20;
/// The most memory of a replay: enough for a cache of 120 GiB.
const MEMORY_BYTES_MAX: u64 = 16 << 30;
