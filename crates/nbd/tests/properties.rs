//! Any bytes of a client: the codec ends in a message, a refusal or the connection's end.
//!
//! Streams are made of sound messages with a few bytes changed, so that they reach far; a seed
//! gives a stream. `fuzz/fuzz_targets/nbd.rs` does so with bytes that a fuzzer chooses.

use forerun_nbd::{
    Agreed, BlockSizes, Command, Export, Exports, Handshake, MESSAGE_BYTES_MAX, REQUEST_BYTES,
    Request, Step, Tls,
};

/// Xorshift (Marsaglia, 2003).
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).expect("below a size")
    }
}

fn exports() -> Exports {
    let export = |name: &str, bytes, writable, min| Export {
        name: name.into(),
        description: String::new(),
        bytes,
        writable,
        blocks: BlockSizes { min, ..BlockSizes::default() },
    };
    let largest = u64::MAX / 4096 * 4096;
    let all = vec![export("a", 1001, false, 1), export("b", largest, true, 4096)];
    Exports::new(all).expect("a good list")
}

/// An option with random data of the right form.
fn option(random: &mut Random) -> Vec<u8> {
    let number = [1, 2, 3, 4, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10][random.below(15)];
    let name: &[u8] = [&b""[..], b"a", b"b", b"none"][random.below(4)];
    let mut data = u32::try_from(name.len()).expect("short").to_be_bytes().to_vec();
    data.extend(name);
    match number {
        1 => data = name.to_vec(),
        6 | 7 => {
            let count = random.below(5);
            data.extend(u16::try_from(count).expect("few").to_be_bytes());
            (0..count).for_each(|at| data.extend([0, u8::try_from(at).expect("few")]));
        }
        9 | 10 => {
            let count = random.below(3);
            data.extend(u32::try_from(count).expect("few").to_be_bytes());
            for _ in 0..count {
                let query: &[u8] = [&b"base:"[..], b"base:allocation", b"x-y:z"][random.below(3)];
                data.extend(u32::try_from(query.len()).expect("short").to_be_bytes());
                data.extend(query);
            }
        }
        _ => data.clear(),
    }
    let mut option = b"IHAVEOPT".to_vec();
    option.extend(u32::to_be_bytes(number));
    option.extend(u32::try_from(data.len()).expect("short").to_be_bytes());
    option.extend(data);
    option
}

fn stream(random: &mut Random) -> Vec<u8> {
    let mut stream = vec![0, 0, 0, [3, 3, 3, 1, 0][random.below(5)]];
    for _ in 0..random.below(8) {
        stream.extend(option(random));
    }
    for _ in 0..[0, 0, 1, 3][random.below(4)] {
        let at = random.below(stream.len());
        stream[at] = u8::try_from(random.below(256)).expect("a byte");
    }
    stream
}

/// What is said to `stream`, in pieces of at most `piece` bytes, and how it ends.
fn talk(stream: &[u8], piece: &mut dyn FnMut() -> usize) -> (Vec<u8>, Option<Step>) {
    let (mut out, mut kept, exports) = (Vec::new(), Vec::new(), exports());
    let mut handshake = Handshake::new(Tls::Off, &mut out);
    let mut left = stream;
    while !left.is_empty() {
        let (now, later) = left.split_at(piece().clamp(1, left.len()));
        left = later;
        kept.extend(now);
        loop {
            match handshake.step(&kept, &exports, &mut out) {
                Step::Wants => break,
                Step::Took(count) => {
                    assert!(count > 0, "a step goes on");
                    kept.drain(..count);
                }
                end @ (Step::Done(..) | Step::Over(..)) => return (out, Some(end)),
            }
        }
        assert!(kept.len() <= MESSAGE_BYTES_MAX, "what no step took is bounded");
    }
    (out, None)
}

#[test]
fn pieces_of_a_stream_say_the_same_as_all_of_it() {
    let (mut agreed, mut refused) = (0, 0);
    for seed in 1..=4_000_u64 {
        let mut random = Random::new(seed);
        let stream = stream(&mut random);
        let whole = talk(&stream, &mut || usize::MAX);
        assert_eq!(whole, talk(&stream, &mut || 1), "seed {seed}, byte by byte");
        let pieces = talk(&stream, &mut || 1 + random.below(40));
        assert_eq!(whole, pieces, "seed {seed}, in pieces");
        match whole.1 {
            Some(Step::Done(_, found)) => {
                assert!(found.export < 2 && (found.structured || !found.allocation));
                agreed += 1;
            }
            Some(Step::Over(..)) => refused += 1,
            _ => {}
        }
    }
    assert!(agreed > 400 && refused > 400, "{agreed} and {refused}: streams reach both ends");
}

#[test]
fn a_request_that_passes_lies_within_its_export() {
    let exports = exports();
    let edges = [0, 1, 511, 512, 1000, 1001, 4096, u64::MAX / 4096 * 4096 - 4096, u64::MAX];
    let (mut passed, mut refused) = (0, 0);
    for seed in 1..=20_000_u64 {
        let mut random = Random::new(seed);
        let mut bytes = [0; REQUEST_BYTES];
        bytes[..4].copy_from_slice(&0x2560_9513_u32.to_be_bytes());
        bytes[5] = u8::try_from(random.below(64)).expect("a byte") & [0, 0, 255][random.below(3)];
        bytes[7] = u8::try_from(random.below(9)).expect("a byte");
        bytes[16..24].copy_from_slice(&edges[random.below(9)].to_be_bytes());
        bytes[26..].copy_from_slice(&u16::to_be_bytes([0, 1, 512, 4096][random.below(4)]));
        let request = Request::decode(&bytes).expect("a request");
        let agreed =
            Agreed { export: random.below(2), structured: seed % 2 == 0, allocation: seed % 4 < 2 };
        let export = &exports.all()[agreed.export];
        if request.check(export, &agreed).is_err() {
            refused += 1;
            continue;
        }
        passed += 1;
        if request.command == Command::Disconnect {
            continue; // Its range means nothing.
        }
        let (length, min) = (u64::from(request.length), u64::from(export.blocks.min));
        assert!(request.offset.checked_add(length).is_some_and(|end| end <= export.bytes));
        assert!(request.offset.is_multiple_of(min) && length.is_multiple_of(min));
        assert!(export.writable || !request.command.writes());
        assert!(agreed.allocation || request.command != Command::BlockStatus);
    }
    assert!(passed > 1_000 && refused > 1_000, "{passed} and {refused}");
}
