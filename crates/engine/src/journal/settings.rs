//! A core's settings as the text at the head of a journal: a `key=value` line a field.
//!
//! ```text
//!   events=2
//!   page_bytes=4096
//!   ...
//!   partition=rest 16384 0 2q-star - rest    a line each, in order, with tabs: name, frames,
//!                                            frames at least, policy, readahead or -, rule
//! ```
//!
//! # Invariants
//! - Decoding gives the encoded settings. Every field has its line: a missing, repeated or unknown
//!   line is an error, as a default in its place would build another core.

use forerun_core::{
    cache::{PartitionSettings, Rule, Settings, Sizing},
    device::{DeviceKind, estimate::DeviceProfile, remembered::DeviceRecord},
    event::codec,
    params::Param as _,
    units::Nanos,
};

/// The text of `settings`.
pub(super) fn encode(settings: &Settings) -> String {
    // Named one by one, so that a new field needs its line.
    let Settings {
        page_bytes,
        frames,
        partitions,
        readahead,
        request_pages_max,
        ahead_pages_max,
        pool_low,
        pool_high,
        sizing,
        waiters_max,
        handles_max,
        files_max,
        dirty_pages_max,
        dirty_age_max,
        retry_delay,
        wait_max,
        explain,
        device,
        remembered,
    } = settings;
    let mut lines = vec![
        format!("events={}", codec::VERSION),
        format!("page_bytes={page_bytes}"),
        format!("frames={frames}"),
        format!("readahead={readahead}"),
        format!("request_pages_max={request_pages_max}"),
        format!("ahead_pages_max={ahead_pages_max}"),
        format!("pool_low={pool_low}"),
        format!("pool_high={pool_high}"),
        format!("sizing={}", sizing.show()),
        format!("waiters_max={waiters_max}"),
        format!("handles_max={handles_max}"),
        format!("files_max={files_max}"),
        format!("dirty_pages_max={dirty_pages_max}"),
        format!("dirty_age_max_ns={}", dirty_age_max.0),
        format!("retry_delay_ns={}", retry_delay.0),
        format!("wait_max_ns={}", wait_max.0),
        format!("explain={explain}"),
        format!("device={}", device.as_ref().map_or_else(|| LEARNT.into(), profile_text)),
        format!("remembered={}", shown(remembered.as_ref())),
    ];
    let partition = |row: &PartitionSettings| {
        let PartitionSettings { name, frames, frames_min, policy, readahead, rule } = row;
        let readahead = readahead.as_deref().unwrap_or(NONE);
        format!("partition={name}\t{frames}\t{frames_min}\t{policy}\t{readahead}\t{rule}")
    };
    lines.extend(partitions.iter().map(partition));
    let one_line = lines.iter().all(|line| !line.contains('\n'));
    assert!(one_line, "no core is built of a policy whose text has several lines: {lines:?}");
    lines.join("\n") + "\n"
}

/// The lines of a text that are not decoded yet.
struct Lines<'t> {
    left: Vec<(&'t str, &'t str)>,
}

/// The version of the events, and the settings if this program supports it.
pub(super) fn decode(text: &str) -> Result<(u32, Option<Settings>), String> {
    let mut left = Vec::new();
    for line in text.lines() {
        left.push(line.split_once('=').ok_or_else(|| format!("`{}`", line.escape_debug()))?);
    }
    let mut lines = Lines { left };
    let events: u32 = lines.number("events")?;
    if events != u32::from(codec::VERSION) {
        return Ok((events, None));
    }
    let settings = Settings {
        page_bytes: lines.number("page_bytes")?,
        frames: lines.number("frames")?,
        partitions: lines.partitions()?,
        readahead: lines.one("readahead")?.to_owned(),
        request_pages_max: lines.number("request_pages_max")?,
        ahead_pages_max: lines.number("ahead_pages_max")?,
        pool_low: lines.number("pool_low")?,
        pool_high: lines.number("pool_high")?,
        sizing: lines.sizing()?,
        waiters_max: lines.number("waiters_max")?,
        handles_max: lines.number("handles_max")?,
        files_max: lines.number("files_max")?,
        dirty_pages_max: lines.number("dirty_pages_max")?,
        dirty_age_max: Nanos(lines.number("dirty_age_max_ns")?),
        retry_delay: Nanos(lines.number("retry_delay_ns")?),
        wait_max: Nanos(lines.number("wait_max_ns")?),
        explain: lines.number("explain")?,
        device: lines.profile()?,
        remembered: lines.record()?,
    };
    match lines.left.first() {
        Some((key, _)) => Err(format!("`{}` is twice or unknown", key.escape_debug())),
        None => Ok((events, Some(settings))),
    }
}

impl<'t> Lines<'t> {
    fn one(&mut self, key: &str) -> Result<&'t str, String> {
        let at = self.left.iter().position(|line| line.0 == key);
        at.map(|at| self.left.remove(at).1).ok_or_else(|| format!("{key} is missing"))
    }

    fn number<T: std::str::FromStr>(&mut self, key: &str) -> Result<T, String> {
        let value = self.one(key)?;
        value.parse().map_err(|_| format!("{key}={}", value.escape_debug()))
    }

    fn sizing(&mut self) -> Result<Sizing, String> {
        let text = self.one("sizing")?;
        Sizing::parse(text).ok_or_else(|| format!("sizing={}", text.escape_debug()))
    }

    fn profile(&mut self) -> Result<Option<DeviceProfile>, String> {
        let text = self.one("device")?;
        let profile = || {
            let mut words = text.split(' ');
            let kind = match words.next()? {
                POSITIONAL => DeviceKind::SeekBound,
                PARALLEL => DeviceKind::Parallel,
                _ => return None,
            };
            let mut number = || words.next()?.parse::<u64>().ok();
            let (access, bytes_per_second) = (Nanos(number()?), number()?);
            let mut small = || u32::try_from(number()?).ok();
            let (depth, request_bytes) = (small()?, small()?);
            let profile = DeviceProfile { kind, access, bytes_per_second, depth, request_bytes };
            words.next().is_none().then_some(profile)
        };
        if text == LEARNT {
            return Ok(None);
        }
        profile().map(Some).ok_or_else(|| format!("device={}", text.escape_debug()))
    }

    fn record(&mut self) -> Result<Option<DeviceRecord>, String> {
        let text = self.one("remembered")?;
        let wrong = |_| format!("remembered={}", text.escape_debug());
        if text == NONE { Ok(None) } else { text.parse().map(Some).map_err(wrong) }
    }

    fn partitions(&mut self) -> Result<Vec<PartitionSettings>, String> {
        let mut partitions = Vec::new();
        while let Ok(value) = self.one("partition") {
            let wrong = || format!("partition={}", value.escape_debug());
            let words: Vec<&str> = value.splitn(6, '\t').collect();
            let &[name, frames, frames_min, policy, readahead, rule] = words.as_slice() else {
                return Err(wrong());
            };
            let number = |text: &str| text.parse::<u32>().map_err(|_| wrong());
            let (frames, frames_min) = (number(frames)?, number(frames_min)?);
            let rest = Rule::Rest.to_string();
            let rule = if rule == rest { Some(Rule::Rest) } else { Rule::parse(rule) };
            partitions.push(PartitionSettings {
                readahead: Some(readahead).filter(|&spec| spec != NONE).map(str::to_owned),
                rule: rule.ok_or_else(wrong)?,
                frames_min,
                ..PartitionSettings::new(name, frames, policy)
            });
        }
        Ok(partitions)
    }
}

fn shown(record: Option<&DeviceRecord>) -> String {
    record.map_or_else(|| NONE.into(), DeviceRecord::to_string)
}

/// Kind, access time in ns, bytes a second, depth, bytes of a request.
fn profile_text(profile: &DeviceProfile) -> String {
    let DeviceProfile { kind, access, bytes_per_second, depth, request_bytes } = profile;
    let kind = match kind {
        DeviceKind::SeekBound => POSITIONAL,
        DeviceKind::Parallel => PARALLEL,
    };
    format!("{kind} {} {bytes_per_second} {depth} {request_bytes}", access.0)
}

/// A partition without a readahead policy of its own, a device that is not remembered.
const NONE: &str = "-";
const LEARNT: &str = "learnt";
const POSITIONAL: &str = "positional";
const PARALLEL: &str = "parallel";

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        let mut settings = Settings::new(1_000, "2q:kin=25%", "linux-6:max=64K");
        settings.partitions[0].frames = 600;
        settings.partitions.push(PartitionSettings {
            readahead: Some("off".into()),
            rule: Rule::File("a b".into()),
            frames_min: 70,
            ..PartitionSettings::new("db", 400, "lru")
        });
        settings.sizing = Sizing::Auto;
        settings.remembered = "parallel 50000 9 2 4096 ar 1".parse().ok();
        assert!(settings.remembered.is_some());
        Settings { pool_low: 3, pool_high: 7, explain: true, wait_max: Nanos(u64::MAX), ..settings }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let version = u32::from(codec::VERSION);
        assert_eq!(decode(&encode(&settings())), Ok((version, Some(settings()))));
    }

    #[test]
    fn a_text_that_is_not_whole_is_refused_by_its_key() {
        let text = encode(&settings());
        for line in text.lines() {
            let without = text.replacen(&format!("{line}\n"), "", 1);
            let key = line.split_once('=').unwrap().0;
            let refused = decode(&without);
            assert!(key == "partition" || refused.is_err_and(|why| why.contains(key)), "{line}");
            if key != "partition" {
                let twice = format!("{text}{line}\n");
                assert!(decode(&twice).is_err_and(|why| why.contains(key)), "{line} twice");
            }
        }
        for (line, says) in [
            ("no pair", "`no pair`"),
            ("later=1", "`later` is twice"),
            ("partition=7", "partition=7"),
            ("partition=a\tx\t0\tlru\t-\trest", "partition=a\\tx"),
            ("partition=a\t1\tx\tlru\t-\trest", "partition=a\\t1"),
            ("partition=a\t1\t0\tlru\t-\tnone", "partition=a\\t1"),
            ("remembered=7", "`remembered` is twice"),
            ("\u{1b}=1", "\\u{1b}"),
        ] {
            let refused = decode(&format!("{text}{line}\n")).unwrap_err();
            assert!(refused.contains(says), "{refused}");
        }
        let other = text.replacen("frames=1000", "frames=-1", 1);
        assert_eq!(decode(&other), Err("frames=-1".to_owned()));
        let other = text.replacen("sizing=auto", "sizing=fast", 1);
        assert_eq!(decode(&other), Err("sizing=fast".to_owned()));
        assert_eq!(
            decode(&text.replacen(&format!("events={}", codec::VERSION), "events=9", 1)),
            Ok((9, None))
        );
    }
}
