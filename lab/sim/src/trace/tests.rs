//! What all formats share: batches, broken records, bounds, and any bytes at all.
//!
//! The formats' own tests use [`requests`], [`keys`] and [`broken`].

use std::io;

use forerun_core::params;
use forerun_core::prng::Prng;

use super::*;

fn read(format: &str, bytes: &[u8], skip: u64) -> Result<Vec<Request>, TraceError> {
    let bytes = io::Cursor::new(bytes.to_vec());
    Trace::new("t", bytes, format, skip)?.collect()
}

/// The requests of a whole trace.
pub(super) fn requests(format: &str, bytes: impl AsRef<[u8]>) -> Vec<Request> {
    read(format, bytes.as_ref(), 0).unwrap_or_else(|error| panic!("{error}"))
}

/// Time, place, bytes and operation of each request of a trace of blocks.
pub(super) fn facts(requests: &[Request]) -> Vec<(u64, u64, u64, Op)> {
    requests.iter().map(|r| (r.time.0, r.offset(), r.bytes, r.op)).collect()
}

/// Time, key, bytes and operation of each request of a trace of objects.
pub(super) fn key_facts(requests: &[Request]) -> Vec<(u64, u64, u64, Op)> {
    requests.iter().map(|r| (r.time.0, r.first, r.bytes, r.op)).collect()
}

/// The keys of all pages of a whole trace.
pub(super) fn keys(format: &str, bytes: impl AsRef<[u8]>) -> Vec<u64> {
    requests(format, bytes).iter().flat_map(Request::pages).collect()
}

/// Asserts that a trace ends with a broken record, and that skipping it is counted.
pub(super) fn broken(format: &str, bytes: impl AsRef<[u8]>, record: u64, offset: u64, what: &str) {
    let bytes = bytes.as_ref();
    let error = read(format, bytes, 0).expect_err(what);
    let TraceError::Broken { name, record: at, offset: byte, what: told } = &error else {
        panic!("{error}");
    };
    assert_eq!((name.as_str(), *at, *byte), ("t", record, offset), "{error}");
    assert!(told.contains(what), "{error}");
    assert_eq!(error.to_string().lines().count(), 1, "{error}");
    let mut trace = Trace::new("t", io::Cursor::new(bytes.to_vec()), format, 1 << 20).unwrap();
    assert!(trace.by_ref().all(|request| request.is_ok()));
    assert!(trace.skipped() > 0);
}

#[test]
fn batches_are_bounded_and_broken_records_come_after_what_was_before() {
    let mut text = (0..10_000).map(|key| key.to_string() + "\n").collect::<String>();
    text.push_str("x\n5\n");
    let mut trace = Trace::new("t", io::Cursor::new(text.into_bytes()), "keys", 0).unwrap();
    let (mut batch, mut sizes) = (vec![Request::key(1, 1)], Vec::new());
    let error = loop {
        match trace.next_batch(&mut batch) {
            Ok(more) => sizes.push((more, batch.len())),
            Err(error) => break error,
        }
    };
    assert_eq!(sizes, [(true, 4096), (true, 4096), (true, 10_000 - 8192)]);
    assert!(error.to_string().contains("record 10001 at byte 48890"), "{error}");
    assert!(matches!(trace.next_batch(&mut batch), Ok(false)), "an error ends the trace");
}

#[test]
fn broken_records_are_counted_up_to_what_was_allowed() {
    let text = b"a\n1\nb\n2\n";
    assert_eq!(read("keys", text, 2).map(|all| all.len()).ok(), Some(2));
    let error = read("keys", text, 1).expect_err("two are broken").to_string();
    assert!(error.contains("record 3 at byte 4"), "{error}");
}

#[test]
fn a_line_without_an_end_is_refused_before_it_fills_the_memory() {
    let text = vec![b'1'; 1 << 20];
    for format in ["keys", "lis", "msr", "fiu", "blkparse", "fio", "csv:key=1", "srt"] {
        let error = read(format, &text, 0).expect_err("a long line").to_string();
        assert!(error.contains("longer than") && error.len() < 300, "{format}: {error}");
    }
}

#[test]
fn packed_traces_are_read_as_plain_ones() {
    use std::io::Write as _;
    let plain = b"1\n2\n3\n";
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(plain).unwrap();
    let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 1);
    xz.write_all(plain).unwrap();
    let zstd = zstd::encode_all(&plain[..], 3).unwrap();
    for packed in [zstd, gzip.finish().unwrap(), xz.finish().unwrap()] {
        assert_eq!(keys(AUTO, &packed), [1, 2, 3]);
        let cut = read(AUTO, &packed[..packed.len() - 4], 9).expect_err("cut off").to_string();
        assert!(cut.contains("cut off"), "{cut}");
    }
}

#[test]
fn what_cannot_be_read_is_said() {
    #[rustfmt::skip]
    let rows: &[(&[u8], &str, &str)] = &[ // bytes  format  says
        (b"\x01\x00\x00", "auto",       "t: this is not text"),
        (b"1\n",          "keyz",       "no `keyz`; there are: keys csv lis"),
        (b"1\n",          "lis:unit=0", "unit"),
        (b"1\n",          "keys:x=1",   "no parameter `x`"),
    ];
    for (bytes, format, says) in rows {
        let error = read(format, bytes, 9).expect_err(format).to_string();
        assert!(error.contains(says), "{format}: {error}");
    }
    assert!(check_format("auto").is_ok() && check_format("lis:unit=512").is_ok());
}

#[test]
fn guesses_are_told() {
    let guessed = |name: &str, text: &'static str, format| {
        let trace = Trace::new(name, text.as_bytes(), format, 0).expect("readable");
        trace.guess().map(str::to_owned)
    };
    assert_eq!(guessed("dir/P6.lis.zst", "1 1 0 0\n", AUTO), Some("lis:unit=512".into()));
    assert_eq!(guessed("-", "1\n", AUTO), Some("keys".into()));
    assert_eq!(guessed("a", "1\n", "keys"), None);
}

/// Good records of every format, to be spoilt.
fn samples() -> Vec<(&'static str, Vec<u8>)> {
    let texts: &[(&str, &str)] = &[
        ("keys", "1\n22\n# x\n333\n"),
        ("csv:key=2,time=1,size=3", "1.5,2,3\n\"4\", 5 ,6\n"),
        ("lis:unit=512", "230027 8 0 0\n1842745 64 0 1\n"),
        ("disksim", "5265.313 0 6357144 8 0\n9 1 6 8 1\n"),
        ("sandrain", "256 4 R 0\n256 1 W 0\n"),
        ("spc", "0,20941264,8192,W,0.551706\n1,8,512,r,1.5\n"),
        ("msr", "128166372003061629,hm,0,Read,8192,4096,153\n1,usr,1,Write,1,2,3\n"),
        ("alibaba", "419,W,8792731648,16384,1577808144360767\n"),
        ("tencent", "1538323200,12910952,128,0,1063\n"),
        ("fiu", "9 4253 nfsd 508516680 8 W 6 0 b5e9\n9 1 a b 8 8 R 6 1 0\n"),
        ("blkparse", "  8,16 5 2 0.1 7 Q R 8 + 8 [x]\n8,0 1 1 1.5 0 C W 16 + 8 [0]\nCPU0\n"),
    ];
    let headed: &[(&str, &str)] = &[
        ("csv", "time,device,offset,size,op\n1,sda,4096,8192,R\n2,7,1,1,w\n"),
        ("fio", "fio version 2 iolog\n/a add\n/a read 0 4096\n/a wait 100 0\n/b write 1 1\n"),
        ("fio", "fio version 3 iolog\n0 /a add\n7 /a read 0 4096\n"),
        (
            "accesses",
            "{\"forerun_accesses\":2,\"program\":\"x\"}\n{\"directory\":\"\",\"entries\":[]}\n\
             {\"t\":1,\"thread\":1,\"call\":\"read\",\"path\":\"a\",\"bytes\":9,\"took\":1}\n",
        ),
    ];
    let repeated = texts.iter().map(|&(format, text)| (format, text.repeat(3)));
    let texts = repeated.chain(headed.iter().map(|&(format, text)| (format, text.to_owned())));
    let mut all: Vec<(&str, Vec<u8>)> =
        texts.map(|(format, text)| (format, text.into_bytes())).collect();
    let mut blktrace = [0; 96];
    blktrace[..4].copy_from_slice(&0x6561_7407_u32.to_le_bytes());
    blktrace[24..28].copy_from_slice(&4096_u32.to_le_bytes());
    blktrace[28..32].copy_from_slice(&0x0001_0001_u32.to_le_bytes());
    blktrace[46] = 48;
    let mut vscsi = [0; 32];
    (vscsi[12], vscsi[15], vscsi[5]) = (0x28, 1, 16);
    let mut lcs = vec![0; 8192 + 36];
    let magic = 0x1234_5678_9abc_def0_u64.to_le_bytes();
    lcs[..8].copy_from_slice(&magic);
    lcs[8184..8192].copy_from_slice(&magic);
    lcs[8] = 3;
    let mut srt = b"$$TR_IOREC-1.3\n\x0c".to_vec();
    srt.extend([0, 0, 0, 56, 0, 4, 0, 1]);
    srt.extend([1; 48]);
    all.extend([
        ("blktrace", blktrace.repeat(3)),
        ("vscsi", vscsi.repeat(5)),
        ("lcs", lcs),
        ("srt", srt),
        ("oracleGeneral", [[7; 16], [0xff; 16]].concat()[..24].repeat(3)),
    ]);
    all.extend(["u32le", "u32be", "i64le", "i64be"].map(|name| (name, vec![7; 64])));
    all
}

#[test]
fn a_byte_order_mark_is_passed_over_before_text_and_is_data_elsewhere() {
    let marked = |bytes: &[u8]| [b"\xef\xbb\xbf", bytes].concat();
    let guessed = |bytes: &[u8]| {
        let trace = Trace::new("t", io::Cursor::new(bytes.to_vec()), AUTO, 0);
        trace.ok().and_then(|trace| trace.guess().map(str::to_owned))
    };
    let is_text = |byte: &u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace();
    for (format, plain) in samples().iter().filter(|(_, bytes)| bytes.iter().all(is_text)) {
        assert_eq!(requests(format, marked(plain)), requests(format, plain), "{format}");
        assert_eq!(guessed(&marked(plain)), guessed(plain), "{format}");
    }
    let packed = zstd::encode_all(&marked(b"time,key\n1,2\n")[..], 3).unwrap();
    assert_eq!(keys(AUTO, &packed), [2]);
    assert!(requests(AUTO, marked(b"")).is_empty());
    broken("keys", marked(b"x\n"), 1, 3, "x");
    assert_eq!(keys("u32le", marked(&[1])), [0x01bf_bbef]);
}

#[test]
fn any_bytes_are_read_to_an_end_by_every_format() {
    for (name, _) in FORMATS {
        let has = samples().iter().any(|(format, _)| params::split(format).0 == *name);
        assert!(has, "{name} has no sample");
    }
    let mut prng = Prng::new(7);
    let mut draw = |bound: usize| usize::try_from(prng.below(bound as u64)).unwrap();
    let mut seen = 0_u64;
    for (format, good) in samples() {
        assert!(!requests(format, &good).is_empty(), "{format}");
        for round in 0..400 {
            let mut bytes = if round % 4 == 0 { Vec::new() } else { good.clone() };
            for _ in 0..=draw(6) {
                let at = draw(bytes.len() + 1);
                match draw(6) {
                    0 => bytes.truncate(at),
                    1 => bytes.extend((0..draw(300)).map(|_| u8::try_from(draw(256)).unwrap())),
                    2 => bytes.extend_from_within(at..),
                    3 => bytes.splice(at..at, *b"99999999999999999999").for_each(drop),
                    4 => bytes.splice(at..at, [b" ,\n\"#0."[draw(7)]]).for_each(drop),
                    _ if at < bytes.len() => bytes[at] = u8::try_from(draw(256)).unwrap(),
                    _ => {}
                }
            }
            let packed = zstd::encode_all(&bytes[..], 1).unwrap();
            for (spec, bytes) in [(format, &bytes), (AUTO, &bytes), (format, &packed)] {
                let name = ["t", "t.u32be", "t.vscsi"][draw(3)];
                let bytes = io::Cursor::new(bytes.clone());
                let Ok(mut trace) = Trace::new(name, bytes, spec, 1 << 40) else { continue };
                for request in trace.by_ref().flatten() {
                    assert!(request.count > 0 && request.pages().last() >= Some(request.first));
                    assert!(u64::from(request.count) <= REQUEST_BLOCKS_MAX);
                    seen += 1;
                }
            }
        }
    }
    assert!(seen > 10_000, "{seen} requests were read");
}
