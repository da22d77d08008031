//! Listing a tree by many threads, and its bound.

use super::*;

#[test]
fn each_file_of_a_tree_is_found_once_by_many_threads() {
    let root = forerun_testkit::Scratch::new("tree");
    let mut paths = Vec::new();
    for folder in 0..40 {
        for file in 0..=2 * GROUP {
            paths.push(root.file(&format!("{}/{folder}/{file}", folder % 7), "x"));
        }
    }
    fs::hard_link(&paths[0], root.join("other name")).unwrap();
    std::os::unix::fs::symlink(&root, root.join("0/link")).unwrap();
    paths.sort();
    for _ in 0..8 {
        let listing = list(&[root.join("3"), root.join("."), root.join("0")], ENTRIES_MAX);
        assert!(listing.files.is_sorted_by_key(|file| &file.path), "sorted by path");
        let ids: BTreeSet<Id> = listing.files.iter().map(|file| file.id).collect();
        assert_eq!((listing.files.len(), ids.len()), (paths.len(), paths.len()));
        assert!(listing.skipped.is_empty() && !listing.is_cut, "{listing:?}");
    }
}

#[test]
fn a_listing_is_bounded_and_says_so() {
    let root = forerun_testkit::Scratch::new("list");
    for name in ["a", "b", "inner/c"] {
        root.file(name, name);
    }
    #[rustfmt::skip]
    let rows = [ // entries at most  files          is cut
        (5,                          3..4,          false),
        (4,                          2..4,          true),
        (1,                          0..1,          true),
        (0,                          0..1,          true),
    ];
    for (entries_max, files, is_cut) in rows {
        let listing = list(&[&root], entries_max);
        assert!(files.contains(&listing.files.len()), "{entries_max}: {listing:?}");
        assert_eq!(listing.is_cut, is_cut, "{entries_max}");
    }
    let missing = list(&[root.join("x"), root.join("y"), root.join("z")], 2);
    assert_eq!((missing.skipped.len(), missing.is_cut), (2, true));
}
