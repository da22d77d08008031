//! Which files are fetched, and in which order.
//!
//! ```text
//!   missing:  900  700  200  50       budget 1000
//!   chosen:   900            50       the rest of the budget takes what still fits
//! ```
//! A seek-bound device is read from one end to the other; others lose nothing by that.
//!
//! # Invariants
//! - The files that are chosen miss no more than the budget together.
//! - The choice depends on sizes and names alone, so that it can be repeated.

use super::file::File;

/// The files that fit `budget`, those that miss the most first, and the ones that do not.
/// Files that miss nothing are in neither.
pub(super) fn choose(mut files: Vec<File>, budget: u64) -> (Vec<File>, Vec<File>) {
    files.retain(|file| file.missing > 0);
    files.sort_by(|a, b| b.missing.cmp(&a.missing).then_with(|| a.path.cmp(&b.path)));
    let mut left = budget;
    let chosen = files.into_iter().partition(|file| {
        let fits = file.missing <= left;
        left -= if fits { file.missing } else { 0 };
        fits
    });
    assert!(left <= budget, "what was chosen fits the budget");
    chosen
}

/// The files as they lie on their devices: by the place of their first byte, else by inode, which
/// file systems hand out near each other in a folder.
pub(super) fn order(mut files: Vec<File>) -> Vec<File> {
    files.sort_by_key(|file| {
        (file.id.device, file.place.is_none(), file.place.unwrap_or(file.id.inode))
    });
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_missing_is_taken_first_and_nothing_beyond_the_budget() {
        type Row = (&'static str, &'static [u64], u64, &'static [u64], &'static [u64]);
        const MAX: u64 = u64::MAX;
        #[rustfmt::skip]
        let rows: &[Row] = &[
            // why                  missing            budget  taken         left
            ("all fit",             &[1, 3, 2],        6,      &[3, 2, 1],   &[]),
            ("the largest first",   &[1, 3, 2],        5,      &[3, 2],      &[1]),
            ("a small one fills",   &[900, 50, 700],   1_000,  &[900, 50],   &[700]),
            ("too large at all",    &[2_000, 10],      1_000,  &[10],        &[2_000]),
            ("nothing missing",     &[0, 0],           10,     &[],          &[]),
            ("no budget",           &[1, 0],           0,      &[],          &[1]),
            ("no sum overflows",    &[MAX, MAX],       MAX,    &[MAX],       &[MAX]),
            ("nothing at all",      &[],               10,     &[],          &[]),
        ];
        for (why, missing, budget, taken, left) in rows {
            let files = missing.iter().enumerate().map(|(at, &missing)| File::example(at, missing));
            let (is_taken, is_left) = choose(files.collect(), *budget);
            let sizes = |files: &[File]| files.iter().map(|f| f.missing).collect::<Vec<_>>();
            assert_eq!(sizes(&is_taken), *taken, "{why}");
            assert_eq!(sizes(&is_left), *left, "{why}");
        }
    }

    #[test]
    fn of_equals_the_first_by_name_is_taken() {
        let (taken, left) = choose(vec![File::example(2, 5), File::example(1, 5)], 5);
        assert_eq!((taken[0].id.inode, left[0].id.inode), (1, 2));
    }

    #[test]
    fn files_without_a_place_go_by_inode() {
        let files = [3, 1, 2].map(|inode| File::example(inode, 1));
        let inodes: Vec<u64> = order(files.into()).iter().map(|file| file.id.inode).collect();
        assert_eq!(inodes, [1, 2, 3]);
    }
}
