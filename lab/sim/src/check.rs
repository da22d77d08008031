//! The core against a shadow file, under everything that can go wrong.
//!
//! A seed picks a cache (frames, partitions, sizing, policies, bounds) and a run: reads,
//! prefetches, writes, flushes, changes that the store makes itself, cancellations, resizes,
//! truncations, outside changes, hits without a lock,
//! readers that hold pages, a store that answers in any order, in parts, with errors, and that
//! loses unsynced writes when a sync fails. Everything is checked as it happens:
//!
//! ```text
//!   Serve    the frame holds what the shadow file says, and no other operation has the frame
//!   Fetch    no reader has the frame pinned; the page is in no other fetch
//!   Done     once a request; a flush: all that was acknowledged before it is durable
//!   always   the statistics balance, every bound holds; a power cut leaves nothing older than
//!            what was called durable: not in the store, nor by a write in flight
//!   the end  every request was answered, the store equals the shadow, no frame is lost
//! ```
//!
//! Each seed runs twice to one digest of all events and actions, and its journal, decoded and
//! sent to a fresh core, gives the same actions again.

use forerun_core::cache::{Cache, PartitionSettings, Rule, Settings, Sizing};
use forerun_core::event::codec;
use forerun_core::prng::Prng;
use forerun_core::units::Nanos;
use forerun_core::{eviction, readahead};
use thiserror::Error;

mod driver_state;
mod run;
mod store;

pub use run::CheckOutcome;

/// A difference that a seed shows.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("seed {seed}: {what}")]
pub struct Difference {
    /// The seed that repeats it.
    pub seed: u64,
    /// The observed value and the expected one.
    pub what: String,
}

/// Runs `seed` twice and replays its journal.
///
/// # Errors
/// Something differed from the shadow, between the two runs, or in the replay.
pub fn check(seed: u64) -> Result<CheckOutcome, Difference> {
    let differs = |what: String| Difference { seed, what };
    let first = caught(seed)?;
    let second = caught(seed)?;
    if first.digest != second.digest {
        return Err(differs("two runs of one seed took different actions".into()));
    }
    replay(seed, &first).map_err(differs)?;
    Ok(first)
}

/// Runs a seed; a panic is a broken assertion of the core, and counts as a difference.
fn caught(seed: u64) -> Result<CheckOutcome, Difference> {
    let run = std::panic::catch_unwind(|| run::run(seed));
    let what = match run {
        Ok(Ok(outcome)) => return Ok(outcome),
        Ok(Err(what)) => what,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            format!("panic: {}", text.unwrap_or("without a message"))
        }
    };
    Err(Difference { seed, what })
}

/// Sends the journal of `outcome` to a fresh core: the actions must be the same, byte for byte.
fn replay(seed: u64, outcome: &CheckOutcome) -> Result<(), String> {
    let mut cache =
        Cache::new(settings(&mut Prng::new(seed))).map_err(|error| error.to_string())?;
    let (mut at, mut hits, mut bytes) = (0, Vec::new(), Vec::new());
    let mut actions = forerun_core::event::Actions::new();
    while at < outcome.journal.len() {
        let decoded = codec::decode(&outcome.journal[at..], &mut hits);
        let (now, event, used) = decoded.map_err(|error| format!("journal at {at}: {error}"))?;
        actions.clear();
        cache.handle(now, event, &mut actions);
        codec::encode_actions(&actions, &mut bytes);
        at += used;
    }
    if bytes == outcome.actions {
        return Ok(());
    }
    let first = bytes.iter().zip(&outcome.actions).position(|(a, b)| a != b);
    Err(format!(
        "replay differs at byte {}",
        first.unwrap_or(bytes.len().min(outcome.actions.len()))
    ))
}

/// The cache of a seed: small, so that each event happens often.
fn settings(random: &mut Prng) -> Settings {
    let mut pick = |from: u64, to: u64| {
        u32::try_from(from + random.below(to - from + 1)).expect("small bounds")
    };
    let frames = pick(4, 48);
    let window = pick(1, (u64::from(frames) / 2).max(1));
    let policies = eviction::NAMES;
    let policy = |at: u32| policies[at as usize % policies.len()];
    let readaheads: Vec<&str> = readahead::NAMES.to_vec();
    let name = readaheads[pick(0, 1_000) as usize % readaheads.len()];
    let spec = readahead_spec(name, window * 4096);
    let mut settings = Settings::new(frames, policy(pick(0, 1_000)), &spec);
    let part = |name, frames, at| PartitionSettings::new(name, frames, policy(at));
    let count = frames / window.max(2);
    if count >= 2 && pick(0, 2) == 0 {
        let share = frames / count.min(3);
        settings.partitions = vec![
            part("rest", share, pick(0, 1_000)),
            part("other", frames - share, pick(0, 1_000)),
        ];
        if count >= 3 && pick(0, 2) > 0 {
            settings.partitions[1].frames -= share;
            let readahead = (pick(0, 1) == 0).then(|| spec.clone());
            let rule = Rule::Offsets(8 << 12..24 << 12);
            let range = part("range", share, pick(0, 1_000));
            settings.partitions.push(PartitionSettings { readahead, rule, ..range });
        }
        if pick(0, 2) > 0 {
            settings.sizing = Sizing::Auto;
            settings.partitions[1].frames_min = pick(0, u64::from(share));
        }
    }
    settings.request_pages_max = pick(1, 9);
    settings.ahead_pages_max = pick(0, u64::from(frames));
    settings.pool_high = pick(0, 3);
    settings.pool_low = pick(0, settings.pool_high.into());
    settings.waiters_max = if pick(0, 9) == 0 { pick(1, 8) } else { 256 };
    settings.dirty_pages_max = pick(1, u64::from(frames));
    settings.wait_max = Nanos(u64::from(pick(1, 200)));
    settings.dirty_age_max = Nanos(u64::from(pick(1, 2_000)));
    settings.retry_delay = Nanos(u64::from(pick(1, 60)));
    settings.explain = pick(0, 1) == 0;
    settings.handles_max = 8;
    settings.files_max = 4;
    settings
}

/// `name` with its largest window set to `bytes`, under the keys that it has for it.
fn readahead_spec(name: &str, bytes: u32) -> String {
    [format!("max={bytes},io={bytes}"), format!("max={bytes}"), format!("size={bytes}")]
        .into_iter()
        .map(|pairs| format!("{name}:{pairs}"))
        .find(|spec| readahead::make(spec, 4096).is_ok())
        .unwrap_or_else(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn seeds_agree_with_the_shadow() {
        let mut reached = super::CheckOutcome::default();
        for seed in 0..60 {
            match check(seed) {
                Ok(outcome) => reached.add(&outcome),
                Err(difference) => panic!("{difference}"),
            }
        }
        // The seeds must reach every event: a check that reaches none proves nothing.
        assert!(reached.unreached().is_empty(), "never seen: {:?}", reached.unreached());
    }
}
