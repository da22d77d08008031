//! Parsers for what the kernel writes about memory.
//!
//! # Invariants
//! - Every text is accepted: one that is not as expected gives `None`.

/// `MemAvailable` of `/proc/meminfo`, in bytes.
pub(super) fn available(meminfo: &str) -> Option<u64> {
    let value = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    number(value.trim().strip_suffix("kB")?)?.checked_mul(1024)
}

/// The share of the last ten seconds in which some task waited, in hundredths of a percent, of
/// a pressure file.
pub(super) fn pressure(text: &str) -> Option<u32> {
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let percent = some.split_whitespace().find_map(|word| word.strip_prefix("avg10="))?;
    let (whole, rest) = percent.split_once('.')?;
    if rest.len() != 2 {
        return None;
    }
    let hundredths = number(whole)?.checked_mul(100)?.checked_add(number(rest)?)?;
    u32::try_from(hundredths).ok()
}

/// The number after `key` in a file of a pair a line.
pub(super) fn under(text: &str, key: &str) -> Option<u64> {
    let mut pairs = text.lines().filter_map(|line| line.split_once(' '));
    number(pairs.find(|(name, _)| *name == key)?.1)
}

/// A line of `mountinfo`, as far as control groups need it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mount {
    /// The folder of the file system that it shows.
    pub(super) root: String,
    /// The folder where it is mounted.
    pub(super) point: String,
    pub(super) kind: String,
    /// Options of the file system, separated by commas.
    pub(super) options: String,
}

/// The mounts in `mountinfo`.
pub(super) fn mounts(mountinfo: &str) -> impl Iterator<Item = Mount> {
    mountinfo.lines().filter_map(|line| {
        // `id parent major:minor ROOT POINT options [more ...] - KIND source OPTIONS`
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(3);
        let mut after = after.split(' ');
        Some(Mount {
            root: plain(before.next()?),
            point: plain(before.next()?),
            kind: after.next()?.to_owned(),
            options: after.nth(1)?.to_owned(),
        })
    })
}

/// The path of the group in each hierarchy: its controllers (none of them in version 2), the path.
pub(super) fn memberships(cgroup: &str) -> impl Iterator<Item = (&str, &str)> {
    cgroup.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'))
}

/// A number on a line of its own; `max`, which is no limit, is `None`.
pub(crate) fn number(text: &str) -> Option<u64> {
    let text = text.trim();
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_plain { text.parse().ok() } else { None }
}

/// A path in which white space and `\` are written as `\` and three octal digits.
fn plain(path: &str) -> String {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let octal = (first == b'\\').then(|| after.get(..3)).flatten();
        let octal = octal.and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = octal.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(byte.unwrap_or(first));
        rest = if byte.is_some() { &after[3..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_read_or_unknown() {
        #[rustfmt::skip]
        let rows = [ // why      text                                        bytes
            ("as it is written", "MemTotal: 9 kB\nMemAvailable:  20 kB\nA: 1 kB\n", Some(20 << 10)),
            ("none of it",       "MemAvailable:          0 kB\n",            Some(0)),
            ("an old kernel",    "MemTotal:  9 kB\nMemFree: 1 kB\n",         None),
            ("nothing",          "",                                         None),
            ("another unit",     "MemAvailable: 7 MB\n",                     None),
            ("no number",        "MemAvailable: many kB\n",                  None),
            ("a sign",           "MemAvailable: -7 kB\n",                    None),
            ("cut short",        "MemAvailable:",                            None),
            ("beyond 64 bits",   "MemAvailable: 99999999999999999999 kB\n",  None),
            ("beyond in bytes",  "MemAvailable: 18446744073709551615 kB\n",  None),
        ];
        for (why, text, expected) in rows {
            assert_eq!(available(text), expected, "{why}");
        }
    }

    #[test]
    fn pressure_is_hundredths_of_a_percent() {
        #[rustfmt::skip]
        let rows = [ // why      text                                          hundredths
            ("as it is written", "some avg10=1.05 avg60=9.00 total=2\nfull avg10=0.50\n",
                                                                               Some(105)),
            ("calm",             "some avg10=0.00 avg60=0.00 total=2\n",       Some(0)),
            ("all the time",     "some avg10=100.00 avg60=0.00\n",             Some(10_000)),
            ("only full",        "full avg10=1.00 avg60=0.00\n",               None),
            ("no such share",    "some avg60=1.00\n",                          None),
            ("no fraction",      "some avg10=1\n",                             None),
            ("a short fraction", "some avg10=1.5\n",                           None),
            ("no number",        "some avg10=x.yz\n",                          None),
            ("beyond 32 bits",   "some avg10=99999999.00\n",                   None),
            ("nothing",          "",                                           None),
        ];
        for (why, text, expected) in rows {
            assert_eq!(pressure(text), expected, "{why}");
        }
    }

    #[test]
    fn numbers_stand_alone_or_after_their_key() {
        #[rustfmt::skip]
        let rows = [ // text                                    alone             under "a"
            ("268435456\n",                                     Some(268_435_456), None),
            ("max\n",                                           None,              None),
            ("",                                                None,              None),
            ("1 2\n",                                           None,              None),
            ("a 5\nab 6\n",                                     None,              Some(5)),
            ("ab 6\na 5",                                       None,              Some(5)),
            ("a\n",                                             None,              None),
            ("a x\n",                                           None,              None),
            ("99999999999999999999\n",                          None,              None),
        ];
        for (text, is_alone, is_under) in rows {
            assert_eq!(number(text), is_alone, "{text}");
            assert_eq!(under(text, "a"), is_under, "{text}");
        }
    }

    #[test]
    fn mounts_have_plain_paths() {
        let text = "36 31 0:37 /docker/a\\040b /sys/fs/c\\134d rw shared:9 - cgroup c rw,memory\n\
                    bad line\n1 2 3:4 / /\n41 31 0:38 / /u rw - cgroup2 cgroup2 rw\n\
                    5 6 7:8 / /x\\9 rw - ext4\n";
        let mount = |root: &str, point: &str, kind: &str, options: &str| Mount {
            root: root.to_owned(),
            point: point.to_owned(),
            kind: kind.to_owned(),
            options: options.to_owned(),
        };
        let expected = [
            mount("/docker/a b", "/sys/fs/c\\d", "cgroup", "rw,memory"),
            mount("/", "/u", "cgroup2", "rw"),
        ];
        assert_eq!(mounts(text).collect::<Vec<_>>(), expected);
        assert_eq!(plain("\\777\\04"), "\\777\\04", "no byte, no three digits");
    }

    #[test]
    fn memberships_are_controllers_and_paths() {
        let text = "4:memory:/a:b\n1:cpu,cpuacct:/\n0::/c\nbad\n5:x\n";
        let expected = [("memory", "/a:b"), ("cpu,cpuacct", "/"), ("", "/c")];
        assert_eq!(memberships(text).collect::<Vec<_>>(), expected);
    }
}
