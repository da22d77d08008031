//! Recorded actions as text, for the first difference of two runs.
//!
//! ```text
//!   3 | file | page | count | frame ...  ->  "Fetch file=0 page=17 count=2 frames=5,9"
//! ```
//!
//! # Invariants
//! - Bytes that are not an action are shown as such; decoding assumes nothing of them.

use forerun_core::event::codec::{self, take_varint};

use super::format::checksum;

/// The text of the action at the start of `input`, which advances past the action.
pub(super) fn action(input: &mut &[u8]) -> Option<String> {
    let (&tag, mut rest) = input.split_first().filter(|(tag, _)| **tag > 0)?;
    let Some((name, shape)) = codec::action_shape(tag) else {
        *input = &[];
        return Some(format!("{tag}, which is no action"));
    };
    let mut words = vec![name.to_owned()];
    let mut count = 0;
    for (field, parts) in shape.fields {
        for part in *parts {
            let value = take_varint(&mut rest).ok()?;
            let name = if part.is_empty() { field } else { part };
            words.push(format!("{name}={value}"));
            if *name == codec::FRAMES {
                count = value;
            }
        }
    }
    let mut frames = Vec::new();
    for at in 0..count {
        let frame = take_varint(&mut rest).ok()?;
        if at < FRAMES_SHOWN {
            frames.push(frame.to_string());
        }
    }
    if count > FRAMES_SHOWN {
        let sum = checksum(&input[..input.len() - rest.len()]);
        frames.push(format!(".. ({sum:016x})"));
    }
    if count > 0 {
        words.push(format!("frames={}", frames.join(",")));
    }
    *input = rest;
    Some(words.join(" "))
}

/// The first difference of two encoded lists of actions: its number from 1, and both texts.
pub(super) fn difference(mut recorded: &[u8], mut came: &[u8]) -> (u64, String, String) {
    for number in 1.. {
        let before = (recorded, came);
        let texts = (action(&mut recorded), action(&mut came));
        let bytes = |all: &'_ [u8], rest: &[u8]| all[..all.len() - rest.len()].to_vec();
        let equal = bytes(before.0, recorded) == bytes(before.1, came);
        if !equal || texts.0.is_none() || texts.1.is_none() {
            let text = |text: Option<String>| text.unwrap_or_else(|| "nothing".to_owned());
            return (number, text(texts.0), text(texts.1));
        }
    }
    unreachable!("a list of actions ends")
}

/// The most frames of a fetch that are shown one by one.
const FRAMES_SHOWN: u64 = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use forerun_core::{
        event::{Action, Actions, Error, FetchKind, FrameRun, PrefetchOutcomes, codec},
        readahead::{Cause, Window},
        units::{FileId, FrameId, HandleId, PageId, RequestId},
    };

    #[test]
    fn every_action_is_shown_with_its_fields() {
        let (request, frame, file) = (RequestId(300), FrameId(7), FileId(2));
        let page = PageId { file, index: 9 };
        let window = Window { start: 10, size: 8, async_size: 4 };
        let error = Error::Store { page, errno: 5 };
        let (kind, ahead) = (FetchKind::Demand, FetchKind::Readahead);
        let (handle, cause, stream) = (HandleId(1), Cause::Random, None);
        let explain = Action::Explain { handle, page: 9, cause, window, fresh: 3, stream };
        let outcomes = PrefetchOutcomes { used: 1, late: 2, wasted: 3, failed: 0 };
        let cause = Cause::Random as u64;
        let expected =
            format!("Explain handle=1 page=9 cause={cause} start=10 size=8 async_size=4");
        #[rustfmt::skip]
        let rows = [
            (Action::Serve { request, page: 9, frame }, "Serve request=300 page=9 frame=7"),
            (Action::Fill { request, page: 9, frame, fresh: true },
                "Fill request=300 page=9 frame=7 fresh=1"),
            (Action::Fetch { kind, page, frames: FrameRun { at: 0, count: 2 } },
                "Fetch file=2 page=9 count=2 frames=0,1"),
            (Action::Fetch { kind: ahead, page, frames: FrameRun { at: 1, count: 1 } },
                "Fetch ahead file=2 page=9 count=1 frames=1"),
            (Action::Write { page, frames: FrameRun { at: 1, count: 2 } },
                "Write file=2 page=9 count=2 frames=1,2"),
            (Action::Sync { file }, "Sync file=2"),
            (Action::Done { request }, "Done request=300"),
            (Action::Fail { request, error }, "Fail request=300 error=1 a=9 b=5"),
            (Action::Publish { page, frame, generation: 3, marker: true },
                "Publish file=2 page=9 frame=7 generation=3 marker=1"),
            (Action::Retract { frame, gone: false }, "Retract frame=7 gone=0"),
            (explain, expected.as_str()),
            (Action::Outcomes { window: 400, outcomes },
                "Outcomes window=400 used=1 late=2 wasted=3 failed=0"),
            (Action::Change { request }, "Change request=300"),
        ];
        let frames: Vec<FrameId> = (0..40).map(FrameId).collect();
        let list = rows.iter().map(|row| row.0).collect();
        let mut bytes = Vec::new();
        codec::encode_actions(&Actions { list, frames }, &mut bytes);
        let mut input = bytes.as_slice();
        for (_, expected) in rows {
            let text = action(&mut input).unwrap();
            assert!(text.starts_with(expected), "{text}");
        }
        assert!(input.is_empty());
    }

    #[test]
    fn the_first_action_that_differs_is_found() {
        let (done, serve) = ([7, 5], [1, 5, 0, 3]);
        let both = |a: &[u8], b: &[u8]| [a, b].concat();
        let found =
            |number, recorded: &str, came: &str| (number, recorded.to_owned(), came.to_owned());
        let (shown, other) = ("Serve request=5 page=0 frame=3", "Serve request=5 page=0 frame=4");
        let rows = [
            (both(&serve, &done), serve.to_vec(), found(2, "Done request=5", "nothing")),
            (serve.to_vec(), both(&serve, &done), found(2, "nothing", "Done request=5")),
            (both(&serve, &done), vec![1, 5, 0, 4, 7, 5], found(1, shown, other)),
            (vec![99, 1], serve.to_vec(), found(1, "99, which is no action", shown)),
            (vec![0, 1], serve.to_vec(), found(1, "nothing", shown)),
            (vec![3, 0, 0, 0xff, 0xff, 0xff, 0x7f], serve.to_vec(), found(1, "nothing", shown)),
        ];
        for (recorded, came, expected) in rows {
            assert_eq!(difference(&recorded, &came), expected);
        }
    }

    #[test]
    fn a_long_fetch_is_shown_by_its_first_frames_and_its_checksum() {
        let mut bytes = vec![3, 0, 0, 40];
        bytes.extend(0..40);
        let mut input = bytes.as_slice();
        let shown = action(&mut input).unwrap();
        assert!(shown.contains("count=40 frames=0,1,2") && shown.contains(",15,.. ("), "{shown}");
        bytes[43] = 50;
        assert_ne!(action(&mut bytes.as_slice()).unwrap(), shown);
    }
}
