//! The protocol's messages, byte for byte, written from its document.
//!
//! A row is what a client sends and what the server has to say, in hexadecimal; text stands in
//! quotes. The server is one of two exports: `disk`, which is written to, and `odd`, which is not.

use forerun_nbd::{
    Agreed, BlockSizes, Command, Ended, ErrorCode, Export, Exports, Handshake, Request, Step, Tls,
    reply,
};

/// Bytes from hexadecimal digits and quoted text.
fn bytes(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for (at, part) in text.split('\'').enumerate() {
        if at % 2 == 1 {
            out.extend(part.as_bytes());
            continue;
        }
        let digits: Vec<u8> = part.bytes().filter(u8::is_ascii_hexdigit).collect();
        assert_eq!(digits.len() % 2, 0, "{part}");
        for pair in digits.chunks(2) {
            let pair = std::str::from_utf8(pair).expect("digits");
            out.push(u8::from_str_radix(pair, 16).expect("digits"));
        }
    }
    out
}

fn exports() -> Exports {
    let disk = Export {
        name: "disk".into(),
        description: "one".into(),
        bytes: 1 << 20,
        writable: true,
        blocks: BlockSizes { min: 512, ..BlockSizes::default() },
    };
    let odd = Export {
        name: "odd".into(),
        description: String::new(),
        bytes: 1001,
        writable: false,
        blocks: BlockSizes::default(),
    };
    Exports::new(vec![disk, odd]).expect("a good list")
}

/// What the server says to `input` after its greeting, how it ends, and what it did not take.
fn talk(tls: Tls, input: &[u8]) -> (Vec<u8>, Option<Step>, usize) {
    let (mut out, exports) = (Vec::new(), exports());
    let mut handshake = Handshake::new(tls, &mut out);
    assert_eq!(out, bytes("'NBDMAGIC' 'IHAVEOPT' 0003"));
    out.clear();
    let mut left = input;
    loop {
        match handshake.step(left, &exports, &mut out) {
            Step::Wants => return (out, None, left.len()),
            Step::Took(count) => left = &left[count..],
            end @ (Step::Done(count, _) | Step::Over(count, _)) => {
                return (out, Some(end), left.len() - count);
            }
        }
    }
}

const FLAGS: &str = "00000003";
const OPTION: &str = "'IHAVEOPT'";
const REPLY: &str = "0003e889045565a9";
const STRUCTURED: &str = "'IHAVEOPT' 00000008 00000000";

#[test]
fn options_have_their_replies() {
    let text = |text: &str| format!("{:08x} '{text}'", text.len());
    // An apostrophe is 27 in hexadecimal.
    let malformed = "0000002f 'the option' 27 's data are malformed, or out of turn'";
    let no_export = text("there is no such export");
    #[rustfmt::skip]
    let rows = [ // why, option and its data, replies after the magic of each
        ("LIST", "00000003 00000000".to_owned(), vec![
            "00000003 00000002 0000000b 00000004 'disk' 'one'".to_owned(),
            "00000003 00000002 00000007 00000003 'odd'".into(),
            "00000003 00000001 00000000".into()]),
        ("LIST with data", "00000003 00000001 00".into(), vec![
            format!("00000003 80000003 {}", text("the option takes no data"))]),
        ("INFO of size and flags", "00000006 0000000a 00000004 'disk' 0000".into(), vec![
            "00000006 00000003 0000000c 0000 0000000000100000 0d6d".into(),
            "00000006 00000001 00000000".into()]),
        ("INFO of all", "00000006 00000012 00000004 'disk' 0004 0001 0002 0003 0063".into(), vec![
            "00000006 00000003 0000000c 0000 0000000000100000 0d6d".into(),
            "00000006 00000003 00000006 0001 'disk'".into(),
            "00000006 00000003 00000005 0002 'one'".into(),
            "00000006 00000003 0000000e 0003 00000200 00001000 02000000".into(),
            "00000006 00000001 00000000".into()]),
        ("INFO of a read-only one", "00000006 0000000b 00000003 'odd' 0001 0002".into(), vec![
            "00000006 00000003 0000000c 0000 00000000000003e9 0503".into(),
            "00000006 00000001 00000000".into()]),
        ("INFO of none", "00000006 00000008 00000002 'no' 0000".into(), vec![
            format!("00000006 80000006 {no_export}")]),
        ("GO of none", "00000007 00000008 00000002 'no' 0000".into(), vec![
            format!("00000007 80000006 {no_export}")]),
        ("a name longer than the option", "00000006 00000006 00000001 0000".into(), vec![
            format!("00000006 80000003 {malformed}")]),
        ("more than the option says", "00000006 0000000b 00000004 'disk' 0000 00".into(), vec![
            format!("00000006 80000003 {malformed}")]),
        ("STARTTLS", "00000005 00000000".into(), vec![
            format!("00000005 80000002 {}", text("this server has no TLS"))]),
        ("PEEK_EXPORT, withdrawn", "00000004 00000002 0000".into(), vec![
            format!("00000004 80000001 {}", text("this server does not know the option"))]),
        ("EXTENDED_HEADERS, experimental", "0000000b 00000000".into(), vec![
            format!("0000000b 80000001 {}", text("this server does not know the option"))]),
        ("contexts before structured replies",
            "00000009 0000000c 00000004 'disk' 00000000".into(), vec![
            format!("00000009 80000003 {malformed}")]),
    ];
    for (why, option, replies) in rows {
        let (said, end, left) = talk(Tls::Off, &bytes(&format!("{FLAGS}{OPTION}{option}")));
        let expected = replies.iter().map(|reply| bytes(&format!("{REPLY}{reply}")));
        assert_eq!(said, expected.collect::<Vec<_>>().concat(), "{why}");
        assert_eq!((end, left), (None, 0), "{why}");
    }
}

#[test]
fn contexts_are_listed_and_selected() {
    let base = "00000000 'base:allocation'";
    let selected = "00000001 'base:allocation'";
    let unknown = "80000006 00000017 'there is no such export'";
    #[rustfmt::skip]
    let rows = [ // why, option and data, replies after the magic and the option
        ("all are listed", "00000009 0000000c 00000004 'disk' 00000000",
            vec![format!("00000004 00000013 {base}"), "00000001 00000000".into()]),
        ("a wildcard lists", "00000009 00000015 00000004 'disk' 00000001 00000005 'base:'",
            vec![format!("00000004 00000013 {base}"), "00000001 00000000".into()]),
        ("another name space lists nothing",
            "00000009 00000014 00000004 'disk' 00000001 00000004 'x-a:'",
            vec!["00000001 00000000".into()]),
        ("a name selects",
            "0000000a 0000001f 00000004 'disk' 00000001 0000000f 'base:allocation'",
            vec![format!("00000004 00000013 {selected}"), "00000001 00000000".into()]),
        ("a wildcard selects nothing",
            "0000000a 00000015 00000004 'disk' 00000001 00000005 'base:'",
            vec!["00000001 00000000".into()]),
        ("no query selects nothing", "0000000a 0000000c 00000004 'disk' 00000000",
            vec!["00000001 00000000".into()]),
        ("of no export", "0000000a 0000000a 00000002 'no' 00000000", vec![unknown.into()]),
    ];
    for (why, option, replies) in rows {
        let input = format!("{FLAGS}{STRUCTURED}{OPTION}{option}");
        let (said, end, left) = talk(Tls::Off, &bytes(&input));
        let mut expected = bytes(&format!("{REPLY} 00000008 00000001 00000000"));
        for reply in replies {
            expected.extend(bytes(&format!("{REPLY} {} {reply}", &option[..8])));
        }
        assert_eq!(said, expected, "{why}");
        assert_eq!((end, left), (None, 0), "{why}");
    }
}

#[test]
fn the_last_selection_counts_for_its_own_export() {
    let select = |export: &str, query: &str| {
        let data =
            format!("{:08x} '{export}' 00000001 {:08x} '{query}'", export.len(), query.len());
        format!("{OPTION} 0000000a {:08x} {data}", bytes(&data).len())
    };
    let go = |export: &str| {
        let data = format!("{:08x} '{export}' 0000", export.len());
        format!("{OPTION} 00000007 {:08x} {data}", bytes(&data).len())
    };
    let selected = |export: &str| STRUCTURED.to_owned() + &select(export, "base:allocation");
    #[rustfmt::skip]
    let rows = [ // why, before GO, export, structured, allocation
        ("nothing selected",        String::new(),                              "disk", 0, 0),
        ("structured alone",        STRUCTURED.into(),                          "disk", 1, 0),
        ("selected",                selected("disk"),                         "disk", 1, 1),
        ("by the empty name",       selected(""),                             "disk", 1, 1),
        ("of another export",       selected("odd"),                          "disk", 1, 0),
        ("not structured",          select("disk", "base:allocation"),        "disk", 0, 0),
        ("replaced",                selected("disk") + &select("disk", "x-a:b"), "disk", 1, 0),
        ("replaced by a failure",   selected("disk") + &select("no", "x-a:b"), "disk", 1, 0),
    ];
    for (why, before, export, structured, allocation) in rows {
        let input = format!("{FLAGS}{before}{}", go(export));
        let (_, end, left) = talk(Tls::Off, &bytes(&input));
        let Some(Step::Done(_, agreed)) = end else { panic!("{why}: {end:?}") };
        let expected =
            Agreed { export: 0, structured: structured == 1, allocation: allocation == 1 };
        assert_eq!((agreed, left), (expected, 0), "{why}");
    }
}

#[test]
fn a_handshake_ends_as_the_protocol_says() {
    let agreed = |export| Some(Agreed { export, structured: false, allocation: false });
    let zeroes = "00".repeat(124);
    let size = "0000000000100000 0d6d";
    #[rustfmt::skip]
    let rows = [ // why, client, what is said, agreed
        ("EXPORT_NAME", format!("{FLAGS}{OPTION} 00000001 00000004 'disk'"), size.into(),
            agreed(0)),
        ("with zeroes", format!("00000001{OPTION} 00000001 00000004 'disk'"),
            format!("{size}{zeroes}"), agreed(0)),
        ("by an old client", format!("00000000{OPTION} 00000001 00000000"),
            format!("{size}{zeroes}"), agreed(0)),
        ("of none", format!("{FLAGS}{OPTION} 00000001 00000002 'no'"), String::new(), None),
        ("ABORT", format!("{FLAGS}{OPTION} 00000002 00000001 00"),
            format!("{REPLY} 00000002 00000001 00000000"), None),
        ("an option of an old client", format!("00000000{OPTION} 00000003 00000000"),
            String::new(), None),
        ("unknown flags", "00000004".into(), String::new(), None),
        ("no option", format!("{FLAGS}'IHAVEOPS'"), String::new(), None),
        ("no option, at once", format!("{FLAGS}'X'"), String::new(), None),
        ("a name of 4097 bytes", format!("{FLAGS}{OPTION} 00000001 00001001"), String::new(),
            None),
        ("an absurd length", format!("{FLAGS}{OPTION} 00000003 00100001"), String::new(), None),
    ];
    for (why, client, said, agreed) in rows {
        let (out, end, _) = talk(Tls::Off, &bytes(&client));
        assert_eq!(out, bytes(&said), "{why}");
        match (end, agreed) {
            (Some(Step::Done(_, found)), Some(agreed)) => assert_eq!(found, agreed, "{why}"),
            (Some(Step::Over(..)), None) => {}
            other => panic!("{why}: {other:?}"),
        }
    }
}

#[test]
fn where_tls_is_required_nothing_else_goes_in_the_open() {
    let required = "80000005 00000018 'this server requires TLS'";
    #[rustfmt::skip]
    let rows = [ // option, reply, end
        ("00000003 00000000", format!("{REPLY} 00000003 {required}"), None),
        ("00000007 00000006 00000000 0000", format!("{REPLY} 00000007 {required}"), None),
        ("00000063 00000000", format!("{REPLY} 00000063 {required}"), None),
        ("00000005 00000000", format!("{REPLY} 00000005 00000001 00000000"),
            Some(Ended::StartTls)),
        ("00000002 00000000", format!("{REPLY} 00000002 00000001 00000000"),
            Some(Ended::Aborted)),
        ("00000001 00000004 'disk'", String::new(),
            Some(Ended::Violation("an export in the open, where TLS is required"))),
    ];
    for (option, said, expected) in rows {
        let (out, end, _) = talk(Tls::Required, &bytes(&format!("{FLAGS}{OPTION}{option}")));
        assert_eq!(out, bytes(&said), "{option}");
        let ended = end.map(|end| match end {
            Step::Over(_, ended) => ended,
            other => panic!("{option}: {other:?}"),
        });
        assert_eq!(ended, expected, "{option}");
    }
}

#[test]
fn tls_forgets_what_was_negotiated_in_the_open_and_begins_once() {
    let exports = exports();
    let mut handshake = Handshake::new(Tls::Required, &mut Vec::new());
    assert_eq!(handshake.step(&bytes(FLAGS), &exports, &mut Vec::new()), Step::Took(4));
    let mut handshake = handshake.secured();
    let mut out = Vec::new();
    let go = bytes(&format!("{OPTION} 00000007 00000006 00000000 0000"));
    let again = bytes(&format!("{OPTION} 00000005 00000000"));
    assert_eq!(handshake.step(&again, &exports, &mut out), Step::Took(16));
    assert!(out.starts_with(&bytes(&format!("{REPLY} 00000005 80000003"))), "{out:x?}");
    let agreed = Agreed { export: 0, structured: false, allocation: false };
    assert_eq!(handshake.step(&go, &exports, &mut out), Step::Done(22, agreed));
}

#[test]
fn an_option_that_is_too_long_is_skipped_in_pieces_and_refused() {
    let exports = exports();
    let mut out = Vec::new();
    let mut handshake = Handshake::new(Tls::Off, &mut Vec::new());
    assert_eq!(handshake.step(&bytes(FLAGS), &exports, &mut out), Step::Took(4));
    let head = bytes(&format!("{OPTION} 00000006 00008001"));
    assert_eq!(handshake.step(&head, &exports, &mut out), Step::Took(16));
    assert_eq!(handshake.step(&[], &exports, &mut out), Step::Wants);
    assert_eq!(handshake.step(&vec![0; 0x8000], &exports, &mut out), Step::Took(0x8000));
    assert_eq!(out, [], "not before its end");
    assert_eq!(handshake.step(&[0; 9], &exports, &mut out), Step::Took(1));
    let refused = format!("{REPLY} 00000006 80000009 00000016 'the option is too long'");
    assert_eq!(out, bytes(&refused));
}

fn request(head: &str) -> Request {
    let bytes: [u8; 28] = bytes(head).try_into().expect("28 bytes");
    Request::decode(&bytes).expect("a request")
}

#[test]
fn requests_are_refused_by_their_numbers() {
    let (ok, exports) = (Ok(()), exports());
    let [disk, odd] = exports.all() else { panic!("two exports") };
    let [invalid, space, permitted] =
        [ErrorCode::Invalid, ErrorCode::NoSpace, ErrorCode::NotPermitted].map(Err);
    #[rustfmt::skip]
    let rows = [ // why, flags and command, offset, length, of the disk, of the odd one
        ("READ",                    "0000 0000", "0000000000000200", "00000200", ok, invalid),
        ("READ of the end",         "0000 0000", "00000000000003e8", "00000001", invalid, ok),
        ("READ past the end",       "0000 0000", "0000000000100000", "00000200", invalid, invalid),
        ("READ past all numbers",   "0000 0000", "fffffffffffffe00", "00000200", invalid, invalid),
        ("READ, DF",                "0004 0000", "0000000000000000", "00000200", ok, ok),
        ("READ, FUA",               "0001 0000", "0000000000000000", "00000200", ok, invalid),
        ("READ, a flag of another", "0008 0000", "0000000000000000", "00000200", invalid, invalid),
        ("READ of nothing",         "0000 0000", "0000000000000000", "00000000", ok, ok),
        ("READ of too much",        "0000 0000", "0000000000000000", "02000001",
            Err(ErrorCode::Overflow), Err(ErrorCode::Overflow)),
        ("WRITE",                   "0000 0001", "0000000000000000", "00000200", ok, permitted),
        ("WRITE, FUA",              "0001 0001", "0000000000000000", "00000200", ok, invalid),
        ("WRITE, unaligned",        "0000 0001", "0000000000000001", "00000200", invalid,
            permitted),
        ("WRITE past the end",      "0000 0001", "0000000000100000", "00000200", space, permitted),
        ("DISC",                    "0000 0002", "0000000000000000", "00000000", ok, ok),
        ("FLUSH",                   "0000 0003", "0000000000000000", "00000000", ok, invalid),
        ("FLUSH of a range",        "0000 0003", "0000000000000200", "00000000", invalid, invalid),
        ("TRIM",                    "0001 0004", "0000000000000000", "00100000", ok, invalid),
        ("TRIM of a read-only one", "0000 0004", "0000000000000000", "00000200", ok, permitted),
        ("CACHE",                   "0000 0005", "0000000000000000", "00000200", ok, ok),
        ("CACHE, a flag",           "0002 0005", "0000000000000000", "00000200", invalid, invalid),
        ("WRITE_ZEROES, all flags", "0013 0006", "0000000000000000", "00000200", ok, invalid),
        ("WRITE_ZEROES past it",    "0000 0006", "0000000000000000", "00100200", space, permitted),
        ("BLOCK_STATUS",            "0008 0007", "0000000000000000", "00000200", ok, ok),
        ("BLOCK_STATUS of nothing", "0000 0007", "0000000000000000", "00000000", invalid, invalid),
        ("none that there is",      "0000 0008", "0000000000000000", "00000200", invalid, invalid),
    ];
    let all = Agreed { export: 0, structured: true, allocation: true };
    for (why, command, offset, length, of_disk, of_odd) in rows {
        let cookie = "0123456789abcdef";
        let request = request(&format!("25609513 {command} {cookie} {offset} {length}"));
        assert_eq!(request.cookie, 0x0123_4567_89ab_cdef, "{why}");
        assert_eq!(request.check(disk, &all), of_disk, "{why}, disk");
        assert_eq!(request.check(odd, &all), of_odd, "{why}, odd");
    }
}

#[test]
fn what_was_not_agreed_on_is_refused() {
    let (exports, none) = (exports(), Agreed { export: 0, structured: false, allocation: false });
    let disk = &exports.all()[0];
    let head = |command: &str, length: &str| {
        let offset = "0000000000000000";
        request(&format!("25609513 {command} {offset} {offset} {length}"))
    };
    let invalid = Err(ErrorCode::Invalid);
    assert_eq!(head("0004 0000", "00000200").check(disk, &none), invalid, "DF");
    assert_eq!(head("0000 0007", "00000200").check(disk, &none), invalid, "BLOCK_STATUS");
    assert_eq!(head("0000 0000", "02000200").check(disk, &none), invalid, "a long READ");
    let (long, absurd) = (head("0000 0001", "02000000"), head("0000 0001", "02000001"));
    assert!(!long.floods(disk) && absurd.floods(disk), "what a WRITE brings");
    assert!(!head("0000 0000", "ffffffff").floods(disk), "a READ brings nothing");
    assert_eq!((long.payload_bytes(), head("0000 0006", "02000000").payload_bytes()), (1 << 25, 0));
}

#[test]
fn other_bytes_are_no_request() {
    let old = bytes("12560953 0000 0000 0000000000000000 0000000000000000 00000000");
    let old: [u8; 28] = old.try_into().expect("28 bytes");
    assert_eq!(Request::decode(&old).map_err(|error| error.magic), Err(0x1256_0953));
    let unknown = request("25609513 0000 ffff 0000000000000000 0000000000000000 00000000");
    assert_eq!(unknown.command, Command::Unknown(0xffff));
}

#[test]
fn replies_have_the_layout_of_the_document() {
    let cookie = 0x0123_4567_89ab_cdef;
    assert_eq!(reply::simple(cookie, None).to_vec(), bytes("67446698 00000000 0123456789abcdef"));
    let refused = reply::simple(cookie, Some(ErrorCode::NoSpace));
    assert_eq!(refused.to_vec(), bytes("67446698 0000001c 0123456789abcdef"));
    let none = reply::none(cookie).to_vec();
    assert_eq!(none, bytes("668e33ef 0001 0000 0123456789abcdef 00000000"));
    let data = reply::data(cookie, 0x1000, 0x200, false).to_vec();
    assert_eq!(data, bytes("668e33ef 0000 0001 0123456789abcdef 00000208 0000000000001000"));
    let hole = reply::hole(cookie, 0x1000, 0x200, true).to_vec();
    let expected = "668e33ef 0001 0002 0123456789abcdef 0000000c 0000000000001000 00000200";
    assert_eq!(hole, bytes(expected));
    let mut out = Vec::new();
    reply::error(&mut out, cookie, ErrorCode::Io, "gone");
    let expected = "668e33ef 0001 8001 0123456789abcdef 0000000a 00000005 0004 'gone'";
    assert_eq!(out, bytes(expected));
    out.clear();
    reply::error_at(&mut out, cookie, ErrorCode::Io, "gone", 0x200);
    let expected = "668e33ef 0001 8002 0123456789abcdef 00000012 00000005 0004 'gone' \
                    0000000000000200";
    assert_eq!(out, bytes(expected));
    out.clear();
    let extents = [(0x200, 0), (0x1000, 3)].map(|(bytes, state)| reply::Extent { bytes, state });
    reply::block_status(&mut out, cookie, &extents);
    let expected = "668e33ef 0001 0005 0123456789abcdef 00000014 00000001 \
                    00000200 00000000 00001000 00000003";
    assert_eq!(out, bytes(expected));
}

#[test]
fn a_long_text_is_clipped_between_characters() {
    let mut out = Vec::new();
    reply::error(&mut out, 0, ErrorCode::Io, &"\u{e9}".repeat(3000));
    assert_eq!(out.len(), 20 + 6 + 4096, "two bytes a character");
    out.clear();
    reply::error(&mut out, 0, ErrorCode::Io, &format!("x{}", "\u{e9}".repeat(3000)));
    assert_eq!(out.len(), 20 + 6 + 4095, "the half of one is left out");
}
