//! Any bytes of a client of the NBD server: a handshake in pieces, then requests.
//!
//! ```text
//!   first byte     the longest piece of the handshake, from 1
//!   the rest       the client
//! ```
//! # Invariants
//! - Nothing panics, and a handshake keeps no more than a message.
//! - Pieces say the same as the whole.
//! - A request that passes lies within its export.
#![no_main]

use forerun_nbd::{
    BlockSizes, Command, Export, Exports, Handshake, MESSAGE_BYTES_MAX, REQUEST_BYTES, Request,
    Step, Tls,
};
use libfuzzer_sys::fuzz_target;

fn exports() -> Exports {
    let export = |name: &str, bytes, writable, min| Export {
        name: name.into(),
        description: "a".into(),
        bytes,
        writable,
        blocks: BlockSizes { min, ..BlockSizes::default() },
    };
    let all = vec![export("a", 1001, false, 1), export("b", 1 << 40, true, 512)];
    Exports::new(all).expect("a good list")
}

/// What is said, how it ends, and how many bytes were taken.
fn talk(client: &[u8], piece: usize, exports: &Exports) -> (Vec<u8>, Option<Step>, usize) {
    let (mut out, mut kept, mut taken) = (Vec::new(), Vec::new(), 0);
    let mut handshake = Handshake::new(Tls::Off, &mut out);
    for now in client.chunks(piece) {
        kept.extend(now);
        loop {
            match handshake.step(&kept, exports, &mut out) {
                Step::Wants => break,
                Step::Took(count) => {
                    kept.drain(..count);
                    taken += count;
                }
                end @ (Step::Done(count, _) | Step::Over(count, _)) => {
                    return (out, Some(end), taken + count);
                }
            }
        }
        assert!(kept.len() <= MESSAGE_BYTES_MAX);
    }
    (out, None, taken)
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&piece, client)) = bytes.split_first() else { return };
    let exports = exports();
    let whole = talk(client, client.len().max(1), &exports);
    assert_eq!(whole, talk(client, usize::from(piece) + 1, &exports));
    let (_, Some(Step::Done(_, agreed)), taken) = whole else { return };
    let export = &exports.all()[agreed.export];
    for head in client[taken..].chunks_exact(REQUEST_BYTES) {
        let Ok(request) = Request::decode(head.try_into().expect("28 bytes")) else { return };
        if request.command != Command::Disconnect && request.check(export, &agreed).is_ok() {
            let length = u64::from(request.length);
            assert!(request.offset.checked_add(length).is_some_and(|end| end <= export.bytes));
        }
    }
});
