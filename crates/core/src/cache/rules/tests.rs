//! Rules of partitions: how they are read and shown, which names and pages they match.

use super::*;
use alloc::{string::ToString, vec};

#[test]
fn a_rule_is_read_as_it_is_shown() {
    #[rustfmt::skip]
    let rows = [ // text              shown, if it is a rule
        ("offset=0..64M",        Some("offset=..64M")),
        ("offset=4K..",          Some("offset=4K..")),
        ("offset=..",            Some("offset=..")),
        ("file=*.db",            Some("file=*.db")),
        ("client=a b=c",         Some("client=a b=c")),
        ("offset=4K..4K",        None),
        ("offset=8K..4K",        None),
        ("offset=4K",            None),
        ("offset=x..4K",         None),
        ("file=",                None),
        ("client=",              None),
        ("client=a\nb",          None),
        ("owner=x",              None),
        ("rest",                 None),
        ("",                     None),
    ];
    for (text, shown) in rows {
        let rule = Rule::parse(text);
        assert_eq!(rule.as_ref().map(ToString::to_string).as_deref(), shown, "{text}");
        assert_eq!(rule.as_ref().and_then(|rule| Rule::parse(&rule.to_string())), rule);
    }
}

#[test]
fn a_pattern_matches_all_of_a_name() {
    #[rustfmt::skip]
    let rows = [ // pattern  path            matches
        ("*.db",     "/a/b.db",          true),
        ("*.db",     "/a/b.db/c",        false),
        ("b.db",     "b.db",             true),
        ("/a/*",     "/a/b/c",           true),
        ("/a/*.db",  "/b/a.db",          false),
        ("?",        "/x/\u{e4}",        true),
        ("?",        "/x/ab",            false),
        ("a*b*c",    "aXbYbZc",          true),
        ("a*b*c",    "aXbYbZ",           false),
        ("**",       "",                 true),
        ("a",        "",                 false),
    ];
    for (pattern, path, taken) in rows {
        assert_eq!(Rule::File(pattern.into()).takes(path, ""), taken, "{pattern} {path}");
    }
}

#[test]
fn a_partition_has_its_parts() {
    let split = |text| PartitionText::split(text);
    let parts = split("db=64M:2q:kin=0.1+linux-6:max=64K:file=/a:b").expect("it is whole");
    assert_eq!((parts.name, parts.size, parts.policy), ("db", "64M", "2q:kin=0.1"));
    assert_eq!((parts.readahead, parts.rule), (Some("linux-6:max=64K"), "file=/a:b"));
    let plain = split("a=1:lru:client=x").expect("it is whole");
    assert_eq!((plain.readahead, plain.size_min), (None, None));
    let least = split("a=8M,min=2M:lru:client=x").expect("it is whole");
    assert_eq!((least.size, least.size_min), ("8M", Some("2M")));
    for text in [
        "",
        "a",
        "a=1",
        "a=1:lru",
        "a=1:lru:rule",
        "=1:lru:file=x",
        "a=:lru:file=x",
        "a=1::file=x",
        "a=1:lru+:file=x",
        "a=1,:lru:file=x",
        "a=1,2:lru:file=x",
        "a=1,min=:lru:file=x",
    ] {
        assert_eq!(split(text), None, "{text}");
    }
}

#[test]
fn names_are_matched_in_the_order_of_partitions() {
    let mut settings = Settings::new(100, "lru", "off");
    let rules = ["client=mail", "file=*.db", "offset=..4K", "file=big.db"];
    for (name, rule) in ["a", "b", "c", "d"].into_iter().zip(rules) {
        let rule = Rule::parse(rule).expect("it is a rule");
        settings.partitions.push(super::super::PartitionSettings {
            rule,
            ..super::super::PartitionSettings::new(name, 1, "lru")
        });
    }
    let of = |path, client| settings.partition_of(path, client).0;
    let found = vec![of("/x.db", "mail"), of("/big.db", ""), of("/x", "db"), of("", "")];
    assert_eq!(found, [1, 2, 0, 0]);
}

#[test]
fn a_page_belongs_to_the_range_in_which_it_begins() {
    let pages = |start, end| Rule::Offsets(start..end).pages(4096);
    assert_eq!(pages(0, 4096), Some(0..1));
    assert_eq!(pages(1, 8193), Some(1..3));
    assert_eq!(pages(8193, u64::MAX), Some(3..u64::MAX));
    assert_eq!(Rule::Rest.pages(4096), None);
}
