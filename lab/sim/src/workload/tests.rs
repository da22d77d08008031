//! The invariants of every workload, and the effect of its parameters.
//!
//! Lists of reads are small enough to be written out.
//! Bounds are checked on both sides.

use super::*;

fn made(text: &str) -> Workload {
    make(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// All accesses of all readers, one reader after the other.
fn accesses(text: &str) -> Vec<Access> {
    made(text).readers.into_iter().flatten().collect()
}

fn offsets(text: &str) -> Vec<u64> {
    accesses(text).iter().map(|access| access.offset).collect()
}

/// The parts that are read in order and without a hole, as (start, end), sorted.
fn streams(accesses: &[Access]) -> Vec<(u64, u64)> {
    let mut found: Vec<(u64, u64)> = Vec::new();
    for access in accesses {
        let end = access.offset + u64::from(access.bytes);
        match found.iter_mut().find(|stream| stream.1 == access.offset) {
            Some(stream) => stream.1 = end,
            None => found.push((access.offset, end)),
        }
    }
    found.sort_unstable();
    found
}

const EACH: u64 = 10 << 10;

#[test]
fn every_workload_stays_inside_its_files_and_counts_its_bytes() {
    for text in [
        "streams,n=3,each=10K",
        "streams,n=3,each=10K,layout=spread,start=mid,order=alternate",
        "streams,n=1,each=1,request=1G",
        "disturb,sequential=1M,percent=150",
        "disturb,sequential=1000,request=7,percent=30",
        "disturb,sequential=4K",
        "thrash,streams=5,each=10K",
        "compute,file=100001",
        "streams,n=5,each=10K,order=sequential,readers=3,rate=1M",
        "backward,n=3,each=10K,layout=spread,readers=2",
        "backward,each=1,request=1G",
        "stride,n=3,each=10K,piece=3K,every=7K,request=1000",
        "stride,each=1,piece=64K,every=64K",
        "parquet,columns=3,groups=2,chunk=10K,apart=1M,footer=5K",
        "parquet,columns=1,chunk=1,apart=1,footer=1,request=1G",
        "random,file=100001,bytes=50001,request=1000",
        "random,file=1,bytes=9,request=1",
        "mail,requests=10000",
    ] {
        let workload = made(text);
        let (files, handles) = (workload.files.clone(), workload.handles.clone());
        let mut sum = 0;
        for access in workload.readers.into_iter().flatten() {
            assert!(access.bytes > 0);
            assert_eq!(handles[access.handle as usize], access.file, "{text}");
            let end = access.offset + u64::from(access.bytes);
            assert!(end <= files[access.file as usize], "{text}: {access:?}");
            sum += u64::from(access.bytes);
        }
        assert_eq!(sum, workload.bytes_wanted, "{text}");
        assert_eq!(accesses(text), accesses(&format!("{PREFIX}{text}")), "{text}");
    }
}

#[test]
fn each_stream_is_read_once_and_in_order() {
    #[rustfmt::skip]
    let rows = [ // why      how                              file      starts, in EACH
        ("as in the paper", "",                               3 * EACH, [0, 1, 2]),
        ("in turns",        "order=alternate",                3 * EACH, [0, 1, 2]),
        ("behind a gap",    "start=mid",                      4 * EACH, [1, 2, 3]),
        ("apart",           "layout=spread",                  6 * EACH, [0, 2, 4]),
        ("both",            "layout=spread,start=mid",        7 * EACH, [1, 3, 5]),
        ("both, in turns",  "layout=spread,start=mid,order=alternate", 7 * EACH, [1, 3, 5]),
    ];
    for (why, how, file_bytes, starts) in rows {
        let text = format!("streams,n=3,each=10K,{how}");
        let workload = made(&text);
        assert_eq!((workload.files, workload.handles), (vec![file_bytes], vec![0]), "{why}");
        assert_eq!((workload.readers.len(), workload.bytes_wanted), (1, 3 * EACH), "{why}");
        let all = accesses(&text);
        let sizes = |size| all.iter().filter(|access| access.bytes == size).count();
        assert_eq!((all.len(), sizes(4_096), sizes(2_048)), (9, 6, 3), "{why}");
        assert!(all.iter().all(|a| (a.not_before, a.think) == (Nanos(0), Nanos(0))));
        // Streams that touch differ in where they begin.
        for start in starts {
            let own = (start * EACH)..((start + 1) * EACH);
            let mut next = own.start;
            for access in all.iter().filter(|access| own.contains(&access.offset)) {
                assert_eq!(access.offset, next, "{why}");
                next += u64::from(access.bytes);
            }
            assert_eq!(next, own.end, "{why}");
        }
    }
}

#[test]
fn strict_turns_are_strict() {
    let expected: [u64; 8] = [0, 8, 16, 24, 4, 12, 20, 28];
    let found = offsets("streams,n=4,each=8K,order=alternate");
    assert_eq!(found, expected.map(|kib| kib << 10));
    // A spread layout is visited in an order of its own.
    let spread = offsets("streams,n=8,each=4K,order=alternate,layout=spread");
    assert!(!spread.is_sorted());
}

#[test]
fn streams_can_be_read_one_after_the_other() {
    let found = offsets("streams,n=3,each=8K,order=sequential");
    assert_eq!(found, [0, 4, 8, 12, 16, 20].map(|kib| kib << 10));
}

#[test]
fn readers_share_the_streams_out() {
    let workload = made("streams,n=5,each=8K,readers=2,order=alternate");
    assert_eq!(workload.handles, [0], "one handle for all");
    let own = |reader: Reader| reader.map(|a| a.offset >> 12).collect::<Vec<_>>();
    let found: Vec<_> = workload.readers.into_iter().map(own).collect();
    assert_eq!(found, [vec![0, 4, 8, 1, 5, 9], vec![2, 6, 3, 7]], "streams 1 3 5 and 2 4");
    let random = |seed| {
        let text = format!("streams,n=40,each=40K,readers=2,seed={seed}");
        let readers = made(&text).readers.into_iter();
        let turns =
            |reader: Reader| reader.map(|a| a.offset / (80 << 10)).take(100).collect::<Vec<_>>();
        readers.map(turns).collect::<Vec<_>>()
    };
    assert_eq!(random(1), random(1));
    assert_ne!(random(1), random(2));
    assert_ne!(random(1)[0], random(1)[1], "each has turns of its own");
    let sorted = |text| {
        let mut offsets = offsets(text);
        offsets.sort_unstable();
        offsets
    };
    assert_eq!(sorted("streams,n=40,each=40K"), sorted("streams,n=40,each=40K,readers=3"));
}

#[test]
fn streams_have_a_handle_each_where_that_is_asked_for() {
    for name in ["streams", "backward", "stride"] {
        let text = format!("{name},n=5,each=128K,readers=2");
        let (one, each) = (made(&text), made(&format!("{text},handles=each")));
        assert_eq!((one.handles, &each.handles), (vec![0], &vec![0; 5]));
        assert!(each.title.ends_with("2 readers, a handle each"), "{}", each.title);
        let extent = each.files[0] / 5;
        let plain = one.readers.into_iter().flatten();
        for (plain, own) in plain.zip(each.readers.into_iter().flatten()) {
            assert_eq!(u64::from(own.handle), own.offset / extent, "{name}: {own:?}");
            assert_eq!(Access { handle: 0, ..own }, plain, "the reads are the same");
        }
    }
}

#[test]
fn streams_with_a_rate_are_due_at_it_all_together() {
    let all = accesses("streams,n=2,each=8K,rate=4K,order=alternate");
    let due: Vec<_> = all.iter().map(|a| a.not_before.0 / 1_000_000).collect();
    assert_eq!(due, [0, 500, 1_000, 1_500]);
    let shared = made("streams,n=3,each=8K,rate=4K,readers=2").readers;
    let last = |reader: Reader| reader.last().expect("it reads").not_before.0 / 1_000_000;
    let last: Vec<_> = shared.into_iter().map(last).collect();
    assert_eq!(last, [1_500, 1_000], "a reader of two streams reads twice as fast");
}

#[test]
fn a_backward_stream_ends_at_its_first_byte() {
    let all = accesses("backward,each=10K");
    let found: Vec<_> = all.iter().map(|a| (a.offset, a.bytes)).collect();
    assert_eq!(found, [(6_144, 4_096), (2_048, 4_096), (0, 2_048)]);
    let two = offsets("backward,n=2,each=8K,order=alternate,layout=spread");
    assert_eq!(two.iter().map(|o| o >> 12).sum::<u64>(), 1 + 5 + 4);
    assert!(two[0] > two[2] && two[1] > two[3]);
}

#[test]
fn a_stride_leaves_out_what_lies_between_its_pieces() {
    let all = accesses("stride,each=10K,piece=4K,every=16K,request=3K");
    let found: Vec<_> = all.iter().map(|a| (a.offset, a.bytes)).collect();
    #[rustfmt::skip]
    let expected = [
        (0, 3_072), (3_072, 1_024), (16_384, 3_072), (19_456, 1_024), (32_768, 2_048),
    ];
    assert_eq!(found, expected);
    let workload = made("stride,n=2,each=10K,piece=4K,every=16K");
    assert_eq!((workload.files, workload.bytes_wanted), (vec![96 << 10], 20 << 10));
    let known = |start| Stream { file: 0, start, bytes: 10 << 10, piece: 4 << 10, every: 16 << 10 };
    assert_eq!(workload.streams, [known(0), known(48 << 10)]);
}

#[test]
fn a_columnar_file_is_read_from_its_footer_chunk_by_chunk() {
    let text = "parquet,columns=2,groups=2,chunk=8K,apart=1M,footer=1K";
    let workload = made(text);
    let mib = 1 << 20;
    assert_eq!(workload.files, [4 * mib + 1_024]);
    let chunks = Stream { file: 0, start: 0, bytes: 32 << 10, piece: 8 << 10, every: 1 << 20 };
    assert_eq!(workload.streams, [Stream::whole(0, 4 * mib, 1_024), chunks]);
    let expected: Vec<u64> = std::iter::once(4 * mib)
        .chain((0..4).flat_map(|chunk| [chunk * mib, chunk * mib + 4_096]))
        .collect();
    assert_eq!(offsets(text), expected);
}

#[test]
fn random_turns_favour_no_stream() {
    let all = offsets("streams,n=4,each=4M");
    let mut turns = [0_u32; 4];
    for offset in &all[..2_000] {
        turns[usize::try_from(offset >> 22).unwrap()] += 1;
    }
    assert!(turns.iter().all(|turns| (430..570).contains(turns)), "{turns:?}");
    let repeats = all.windows(2).filter(|pair| pair[0] + 4_096 == pair[1]).count();
    assert!((900..1_150).contains(&repeats), "{repeats} of 4096 reads follow their own");
}

#[test]
fn the_seed_decides_everything_random() {
    for text in [
        "streams,n=4,each=100K",
        "streams,n=20,each=4K,order=alternate,layout=spread",
        "disturb,sequential=1M,percent=10",
        "random,bytes=1M",
        "mail,requests=10000",
    ] {
        let seeded = |seed| offsets(&format!("{text},seed={seed}"));
        assert_eq!(seeded(1), seeded(1));
        assert_eq!(seeded(1), offsets(text), "1 is the default");
        assert_ne!(seeded(1), seeded(2), "{text}");
    }
}

#[test]
fn a_disturbed_stream_is_whole_and_its_random_reads_lie_behind_it() {
    let all = accesses("disturb,sequential=4M,percent=25");
    let half = 4 << 20;
    assert_eq!(made("disturb,sequential=4M,percent=25").files, [2 * half]);
    let (stream, random): (Vec<_>, Vec<_>) = all.iter().partition(|a| a.offset < half);
    assert_eq!(streams(&stream), [(0, half)]);
    assert_eq!((stream.len(), random.len()), (1_024, 256));
    assert!(random.iter().all(|a| a.bytes == 4_096 && a.offset % 4_096 == 0));
    let places = |from: u64, to| {
        random.iter().filter(|a| (half + from..half + to).contains(&a.offset)).count()
    };
    assert!((95..161).contains(&places(0, half / 2)), "both halves are visited");
    assert!(places(0, half / 32) > 0 && places(half - half / 32, half) > 0, "up to the ends");
    // Mixed all along: each quarter of the reads has its share of random ones.
    for quarter in all.chunks(all.len() / 4) {
        let random = quarter.iter().filter(|access| access.offset >= half).count();
        assert!((40..90).contains(&random), "{random} random reads in a quarter");
    }
    assert_eq!(streams(&accesses("disturb,percent=0,sequential=1M")), [(0, 1 << 20)]);
}

#[test]
fn random_reads_are_aligned_and_reach_all_places_alike() {
    let all = accesses("random,file=1000K,bytes=4000K,request=10K");
    assert_eq!(all.len(), 400);
    assert!(all.iter().all(|access| access.bytes == 10 << 10));
    let mut times = [0_u32; 100];
    for access in &all {
        assert_eq!(access.offset % (10 << 10), 0);
        times[usize::try_from(access.offset / (10 << 10)).unwrap()] += 1;
    }
    // 4 reads a place: as many as chance leaves out, and none that is preferred.
    let unread = times.iter().filter(|&&times| times == 0).count();
    assert!((1..6).contains(&unread) && times.iter().all(|&times| times < 14), "{times:?}");
    for quarter in times.chunks(25) {
        assert!((70..131).contains(&quarter.iter().sum::<u32>()), "{times:?}");
    }
    let follows = |pair: &&[Access]| pair[0].offset + (10 << 10) == pair[1].offset;
    assert!(all.windows(2).filter(follows).count() < 12, "places depend on each other");
    let workload = made("random,file=1000K,bytes=4000K,request=10K");
    assert_eq!((workload.files, workload.streams), (vec![1_000 << 10], vec![]));
    assert_eq!(workload.title, "4000K at random places of 1000K, 10K reads, one handle");
    // What does not fill a request at the file's end is no place; the last read is a part.
    let all = accesses("random,file=2999,bytes=10500,request=1000");
    assert!(all.iter().all(|access| access.offset < 2_000), "{all:?}");
    assert_eq!(all.last().map(|access| access.bytes), Some(500));
}

#[test]
fn paced_readers_are_due_at_absolute_times() {
    let text = "thrash,streams=3,rate=64K,each=1000,request=400,start_gap=2s";
    let workload = made(text);
    assert_eq!((workload.files, workload.handles), (vec![3_000], vec![0, 0, 0]));
    assert_eq!(workload.readers.len(), 3);
    for (number, reader) in workload.readers.into_iter().enumerate() {
        let number = u64::try_from(number).unwrap();
        let all: Vec<_> = reader.collect();
        let begins = number * 2_000_000_000;
        #[rustfmt::skip]
        let expected = [ // offset, bytes, due after 400 / 65536 s each, rounded down
            (number * 1_000,        400, begins),
            (number * 1_000 + 400,  400, begins + 6_103_515),
            (number * 1_000 + 800,  200, begins + 12_207_031),
        ];
        let found: Vec<_> = all.iter().map(|a| (a.offset, a.bytes, a.not_before.0)).collect();
        assert_eq!(found, expected);
        assert!(all.iter().all(|a| u64::from(a.handle) == number && a.think == Nanos(0)));
    }
    let default = made("thrash");
    assert_eq!((default.readers.len(), default.bytes_wanted), (200, 200 * (24 << 20)));
    let last = default.readers.into_iter().next().and_then(Iterator::last);
    let due = last.expect("it reads").not_before.0;
    assert!((245_000_000_000..246_000_000_000).contains(&due), "at 245 s of its own");
}

#[test]
fn a_computing_reader_thinks_at_its_rate_without_drift() {
    let all = accesses("compute,file=1000000,rate=3MB,request=999");
    assert_eq!(streams(&all), [(0, 1_000_000)]);
    assert_eq!(all[0].think, Nanos(333_000));
    let thinking: u64 = all.iter().map(|access| access.think.0).sum();
    assert_eq!(thinking, 333_333_333);
    assert!(all.iter().all(|access| access.not_before == Nanos(0)));
    let default = made("compute");
    assert_eq!((default.files, default.bytes_wanted), (vec![1 << 30], 1 << 30));
    let first = default.readers.into_iter().flatten().next().expect("it reads");
    assert_eq!((first.bytes, first.think), (32 << 10, Nanos(520_833)));
}

#[test]
fn workloads_are_listed_and_say_what_they_are() {
    let names: Vec<_> = NAMES.iter().map(|(name, _)| *name).collect();
    assert_eq!(
        names,
        [
            "streams", "disturb", "thrash", "compute", "backward", "stride", "parquet", "random",
            "mail"
        ]
    );
    for (name, summary) in NAMES {
        let workload = made(name);
        assert_eq!(workload.name, *name);
        assert!(workload.params.iter().all(|(key, _)| summary.contains(key)), "{name}");
    }
    let shown = made("streams,n=2,each=1M,order=alternate");
    assert_eq!(shown.title, "2 streams of 1M, 4K reads, alternate order, one handle");
    let pairs: Vec<_> = shown.params.iter().map(|(k, v)| format!("{k}={v}")).collect();
    let all = "n=2,each=1M,request=4K,seed=1,order=alternate,start=head,layout=adjacent,\
               readers=1,rate=0,handles=one,mixed=0";
    assert_eq!(pairs.join(","), all);
    assert_eq!(made(&format!("streams,{all}")).params, shown.params);
    assert!(made("streams,n=1,layout=spread,start=mid").title.starts_with("1 stream of"));
    let shared = made("streams,n=2,each=1M,readers=2,rate=1M").title;
    let expected = "2 streams of 1M, 4K reads, random order, 1M a second each, 2 readers, \
                    one handle";
    assert_eq!(shared, expected);
}

#[rustfmt::skip]
const BOUNDS: &[(&str, &str, &str)] = &[
    // workload  refused                 accepted
    ("streams",  "n=0",                  "n=1"),
    ("streams",  "n=65537",              "n=65536"),
    ("streams",  "n=ten",                "n=10"),
    ("streams",  "each=0",               "each=1"),
    ("streams",  "each=5T",              "each=4T"),
    ("streams",  "request=0",            "request=1"),
    ("streams",  "request=2G",           "request=1G"),
    ("streams",  "order=sorted",         "order=random"),
    ("streams",  "start=end",            "start=mid"),
    ("streams",  "layout=dense",         "layout=spread"),
    ("streams",  "readers=0",            "readers=1"),
    ("streams",  "readers=11",           "readers=10"),
    ("streams",  "rate=1023",            "rate=1K"),
    ("streams",  "rate=1B",              "rate=0"),
    ("backward", "n=0",                  "n=2"),
    ("backward", "each=0",               "each=1"),
    ("backward", "readers=2",            "readers=1"),
    ("stride",   "piece=0",              "piece=1"),
    ("stride",   "every=65535",          "every=64K"),
    ("stride",   "every=5T",             "every=1G"),
    ("stride",   "each=4T",              "each=1G"),
    ("stride",   "request=0",            "request=1G"),
    ("parquet",  "columns=0",            "columns=65536"),
    ("parquet",  "groups=0",             "groups=1"),
    ("parquet",  "groups=8193",          "groups=8192"),
    ("parquet",  "chunk=5T",             "chunk=32M"),
    ("parquet",  "chunk=0",              "chunk=1"),
    ("parquet",  "apart=1023K",          "apart=1M"),
    ("parquet",  "apart=5T",             "apart=4T"),
    ("parquet",  "footer=0",             "footer=1"),
    ("parquet",  "footer=5T",            "footer=4T"),
    ("parquet",  "request=0",            "request=1G"),
    ("disturb",  "percent=10001",        "percent=10000"),
    ("disturb",  "sequential=0",         "sequential=4K"),
    ("disturb",  "sequential=5T",        "sequential=4T"),
    ("disturb",  "request=0",            "request=1"),
    ("disturb",  "request=101M",         "request=100M"),
    ("thrash",   "streams=0",            "streams=1"),
    ("thrash",   "streams=65537",        "streams=65536"),
    ("thrash",   "rate=1023",            "rate=1K"),
    ("thrash",   "each=0",               "each=1"),
    ("thrash",   "each=5T",              "each=4T"),
    ("thrash",   "request=0",            "request=1"),
    ("thrash",   "request=2G",           "request=1G"),
    ("thrash",   "start_gap=1001s",      "start_gap=1000s"),
    ("thrash",   "start_gap=1",          "start_gap=0s"),
    ("compute",  "file=0",               "file=1"),
    ("compute",  "file=5T",              "file=4T"),
    ("compute",  "rate=0",               "rate=1K"),
    ("compute",  "request=0",            "request=1"),
    ("compute",  "request=2G",           "request=1G"),
    ("random",   "file=0",               "file=4T"),
    ("random",   "file=5T",              "file=4K"),
    ("random",   "bytes=0",              "bytes=1"),
    ("random",   "bytes=5T",             "bytes=4T"),
    ("random",   "request=0",            "request=1"),
    ("random",   "request=2G",           "request=1G"),
    ("mail",     "model=m4",             "model=m3"),
    ("mail",     "requests=9999",        "requests=10000"),
    ("mail",     "requests=8000001",     "requests=20000"),
];

#[test]
fn what_cannot_be_is_refused_with_its_parameter_and_its_bounds() {
    for (name, refused, accepted) in BOUNDS {
        let key_asked = refused.split_once('=').expect("a pair").0;
        match make(&format!("{name},{refused}")).map(|workload| workload.title) {
            Err(ParamError::BadValue { key, form, .. }) => {
                assert_eq!(key, key_asked);
                assert!(!form.is_empty());
            }
            other => panic!("{name},{refused} gave {other:?}"),
        }
        made(&format!("{name},{accepted}"));
    }
    let error = |text| make(text).map(|workload| workload.title).expect_err(text).to_string();
    assert_eq!(
        error("workload:mix"),
        "no `mix`; there are: streams disturb thrash compute \
                backward stride parquet random mail"
    );
    assert_eq!(error("compute,n=1"), "no parameter `n`; there are: file rate request");
    assert_eq!(error("streams,n"), "`n=`: expected key=value");
    assert_eq!(error("streams,n=0"), "`n=0`: expected 1 to 65536 streams");
}

#[test]
fn the_longest_workloads_stay_within_64_bits() {
    let longest = "thrash,streams=65536,each=4T,rate=1K,start_gap=1000s,request=1G";
    let last = made(longest).readers.pop().and_then(Iterator::last).expect("it reads");
    assert_eq!(last.offset, 65_536 * (4 << 40) - (1 << 30));
    assert!(last.not_before.0 < 1 << 63);
    for all in [
        "streams,n=65536,each=4T,layout=spread,start=mid,request=1G,rate=1K",
        "backward,n=65536,each=4T,layout=spread,request=1G",
        "stride,n=65536,each=4T,piece=4T,every=4T,layout=spread,request=1G",
        "parquet,columns=65536,chunk=4T,apart=4T,footer=4T,request=1G",
    ] {
        assert_eq!(made(all).readers.remove(0).take(100).count(), 100);
    }
}

#[test]
fn lone_reads_are_mixed_in_and_leave_the_streams_as_they_are() {
    for order in ["random", "alternate"] {
        let spec = |mixed: u32| {
            format!("streams,n=5,each=400K,order={order},layout=irregular,mixed={mixed}")
        };
        let alone = offsets(&spec(0));
        assert_eq!(alone.len(), 500);
        for (mixed, expected) in [(20, 625), (50, 1_000)] {
            let (file, all) = (made(&spec(mixed)).files[0], offsets(&spec(mixed)));
            assert!(all.len().abs_diff(expected) < expected / 10, "{mixed} %: {}", all.len());
            assert!(all.iter().all(|offset| offset + 4096 <= file), "{mixed} %");
            let mut left = all.iter();
            let is_there = |offset: &u64| left.any(|read| read == offset);
            assert!(alone.iter().all(is_there), "{mixed} %: each stream's reads in their order");
        }
    }
    assert!(make("streams,mixed=91").is_err());
}
