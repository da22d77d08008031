//! Orders: every small listing and every three uses in it, against a plain model.

use std::cmp::Ordering;

use forerun_core::walk::{DirectoryId, Entry, EntryKind, ORDERS, Use, WalkSettings, Walks};

/// An entry as the model sees it: name, inode, whether it is a directory.
type Named<'a> = (&'a str, u64, bool);
type Names<'a> = Vec<Named<'a>>;

fn natural(a: &str, b: &str) -> Ordering {
    let split = |text: &str| -> (String, Option<u64>) {
        let at = text.find(|c: char| c.is_ascii_digit()).unwrap_or(text.len());
        (text[..at].to_owned(), text[at..].parse().ok())
    };
    split(a).cmp(&split(b))
}

/// The orders by their definition, in the order of the list.
fn plain(listing: &Names<'_>) -> Vec<(&'static str, Vec<usize>)> {
    let sorted = |compare: &dyn Fn(&Named<'_>, &Named<'_>) -> Ordering| {
        let mut order: Vec<usize> = (0..listing.len()).collect();
        order.sort_by(|&a, &b| compare(&listing[a], &listing[b]));
        order
    };
    let as_git = |entry: &Named<'_>| format!("{}{}", entry.0, if entry.2 { "/" } else { "" });
    vec![
        ("readdir", sorted(&|_, _| Ordering::Equal)),
        ("name", sorted(&|a, b| as_git(a).cmp(&as_git(b)))),
        ("inode", sorted(&|a, b| a.1.cmp(&b.1))),
        ("numeric", sorted(&|a, b| natural(a.0, b.0))),
        ("readdir-files-first", sorted(&|a, b| a.2.cmp(&b.2))),
        ("name-files-first", sorted(&|a, b| (a.2, a.0).cmp(&(b.2, b.0)))),
        ("readdir-then-names", sorted(&|_, _| Ordering::Equal)),
    ]
}

/// What is requested after these uses, as indices.
fn requested(listing: &Names<'_>, uses: &[usize]) -> Vec<u32> {
    let mut walks = Walks::new(WalkSettings { sees_all: true, ..WalkSettings::default() });
    let dir: DirectoryId = walks.directory(None);
    let kind = |is_dir| if is_dir { EntryKind::Directory } else { EntryKind::File };
    let entries: Vec<Entry<'_>> = listing
        .iter()
        .map(|&(name, inode, is_dir)| Entry { name: name.as_bytes(), inode, kind: kind(is_dir) })
        .collect();
    walks.listed(dir, &entries, &mut Vec::new());
    let mut requests = Vec::new();
    for &index in uses {
        requests.clear();
        walks.touch(dir, entries[index].name, Use::Stat);
        walks.issue(100, &mut requests);
    }
    requests.iter().map(|request| request.index.expect("an entry")).collect()
}

/// Whether nothing of a kind that was used lies between the uses, in this order.
fn follows(listing: &Names<'_>, order: &[usize], uses: &[usize]) -> bool {
    let is_next = |at: usize| {
        let earlier = || uses[..at].iter().map(|&index| listing[index].2);
        let from = order.iter().position(|&index| index == uses[at - 1]).unwrap();
        let unused = |index: &&usize| earlier().any(|kind| kind == listing[**index].2);
        let own = |index: &&usize| !uses[..at].contains(index);
        let mut rest = order[from + 1..].iter().filter(own);
        rest.find(|index| unused(index) || **index == uses[at]) == Some(&uses[at])
    };
    (1..uses.len()).all(is_next)
}

fn permutations(count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let shorter = permutations(count - 1);
    let with = |at: usize| {
        shorter.iter().map(move |rest| {
            let mut longer = rest.clone();
            longer.insert(at, count - 1);
            longer
        })
    };
    (0..count).flat_map(with).collect()
}

#[test]
fn three_entries_that_follow_each_other_in_an_order_are_a_walk_in_the_first_such_order() {
    // Natural order, order of bytes and git's order differ among these.
    let names = [("a2", false), ("a10", false), ("b", true), ("b!", false), ("c", false)];
    let mut walks = 0;
    for permutation in permutations(names.len()) {
        let listing: Names<'_> = (0..)
            .zip(&permutation)
            .map(|(at, &which)| (names[which].0, [3, 5, 1, 4, 2][at], names[which].1))
            .collect();
        let orders = plain(&listing);
        for uses in permutations(names.len()) {
            let uses = &uses[..3];
            let follows = |order: &Vec<usize>| follows(&listing, order, uses);
            // Directories were not used, or all alike, so any kind may be requested only if one of
            // its kind was used.
            let kinds: Vec<bool> = uses.iter().map(|&index| listing[index].2).collect();
            let found = orders.iter().find(|(_, order)| follows(order));
            let expected: Vec<u32> = found.map_or_else(Vec::new, |(_, order)| {
                let at = order.iter().position(|index| *index == uses[2]).unwrap();
                let rest =
                    order[at + 1..].iter().filter(|&&index| kinds.contains(&listing[index].2));
                rest.take(4).map(|&index| u32::try_from(index).unwrap()).collect()
            });
            if found.is_some() {
                walks += 1;
                assert_eq!(requested(&listing, uses), expected, "{uses:?} in {listing:?}");
            }
        }
    }
    assert!(walks > 1_000, "{walks} walks");
}

#[test]
fn two_entries_are_no_walk_and_neither_are_three_that_do_not_follow_each_other() {
    let listing: Names<'_> = vec![
        ("e", 4, false),
        ("b", 1, false),
        ("h", 9, false),
        ("a", 5, false),
        ("g", 7, false),
        ("d", 2, false),
        ("c", 8, false),
        ("f", 3, false),
    ];
    let orders = plain(&listing);
    for a in 0..8 {
        for b in (0..8).filter(|&b| b != a) {
            assert!(requested(&listing, &[a, b]).is_empty(), "{a} {b}");
            for c in (0..8).filter(|&c| c != a && c != b) {
                let uses = [a, b, c];
                let follows = |(_, order): &(_, Vec<usize>)| follows(&listing, order, &uses);
                let is_walk = orders.iter().any(follows);
                let any = !requested(&listing, &uses).is_empty();
                // At the end of an order nothing is left.
                assert!(is_walk || !any, "{uses:?} are requested after, and follow in no order");
            }
        }
    }
}

#[test]
fn the_list_of_orders_is_that_of_the_model() {
    let names: Vec<&str> = plain(&vec![("a", 1, false)]).iter().map(|&(name, _)| name).collect();
    assert_eq!(ORDERS, names);
}

#[test]
fn numbers_in_names_compare_by_their_values() {
    let mut listing: Names<'_> = vec![
        ("s-10", 1, false),
        ("s-9", 1, false),
        ("s-100", 1, false),
        ("s-8", 1, false),
        ("s-11", 1, false),
        ("s-12", 1, false),
        ("s-7", 1, false),
    ];
    for (inode, entry) in (0..).zip(&mut listing) {
        entry.1 = inode * 5 % 7;
    }
    assert_eq!(requested(&listing, &[1, 0, 4]), [5, 2], "12 and 100 come after 9, 10 and 11");
}

#[test]
fn on_a_device_that_seeks_nothing_is_requested_of_a_walk_that_goes_by_place() {
    #[rustfmt::skip]
    let rows: [(&str, u64, u64, bool, bool); 5] = [ // why, files, step of inodes, seeks, requests
        ("by place",                 23, 1, true,  false),
        ("nearly",                   23, 2, true,  false),
        ("in no order",              23, 11, true,  true),
        ("too few to tell",           7, 1, true,  true),
        ("on a device without an arm", 23, 1, false, true),
    ];
    for (why, count, step, seeks, requests) in rows {
        let mut walks = Walks::new(WalkSettings { sees_all: true, ..WalkSettings::default() });
        let dir = walks.directory(None);
        let names: Vec<String> = (0..count).map(|at| format!("{:02}", at * 5 % 23)).collect();
        let inode = |at: u64| 100 + at * step % 23;
        let entries: Vec<Entry<'_>> = (0..)
            .zip(&names)
            .map(|(at, name)| Entry {
                name: name.as_bytes(),
                inode: inode(at),
                kind: EntryKind::File,
            })
            .collect();
        walks.set_seeks(seeks);
        walks.listed(dir, &entries, &mut Vec::new());
        let mut out = Vec::new();
        for name in &names[..5] {
            walks.touch(dir, name.as_bytes(), Use::Stat);
            walks.issue(100, &mut out);
        }
        assert_eq!(!out.is_empty(), requests, "{why}");
    }
}
