//! The names at the ends of curves: each as near to its curve's end as the others leave room.
//!
//! ```text
//!   ends of curves      names
//!        o----.  .-----  arc          a thin line leads from an end to its name
//!        o----x-'------  lru
//!        o----'  `-----  fifo
//! ```
//! Names stand in the order of their curves' ends; curves that end at one point, in the order in
//! which they come to it.
//!
//! # Invariants
//! - No two names overlap, and none lies outside of the plot's height.
//! - The sum of the squares of the distances between names and ends is the least that there is.
//! # Sources
//! Pool adjacent violators: Barlow et al., "Statistical inference under order restrictions", 1972.

use std::cmp::Ordering;

/// A curve to be named.
pub(super) struct End {
    /// The number of its series.
    pub(super) series: usize,
    /// Its points from the last to the first, in the picture's units.
    pub(super) points: Vec<(f64, f64)>,
}

/// Where the name of each of `ends` stands between `top` and `bottom`, at least `gap` apart, with
/// the number of the end; none where there is no room for all.
pub(super) fn placed(ends: &[End], top: f64, bottom: f64, gap: f64) -> Vec<(usize, f64)> {
    let mut order: Vec<usize> = (0..ends.len()).filter(|&n| !ends[n].points.is_empty()).collect();
    order.sort_by(|&a, &b| by_place(&ends[a], &ends[b]));
    let wanted: Vec<f64> = order.iter().map(|&n| ends[n].points[0].1).collect();
    let Some(places) = spread(&wanted, top, bottom, gap) else { return Vec::new() };
    order.into_iter().zip(places).collect()
}

/// By height from the top, the last point first; then by number.
fn by_place(a: &End, b: &End) -> Ordering {
    let heights = a.points.iter().zip(&b.points).map(|(a, b)| a.1.total_cmp(&b.1));
    heights.fold(Ordering::Equal, Ordering::then).then(a.series.cmp(&b.series))
}

/// The ascending places at least `gap` apart that are nearest to `wanted`, which ascends; none
/// where `top` to `bottom` is too small.
fn spread(wanted: &[f64], top: f64, bottom: f64, gap: f64) -> Option<Vec<f64>> {
    let mut steps = Vec::with_capacity(wanted.len());
    let mut step = 0.0;
    for _ in wanted {
        steps.push(step);
        step += gap;
    }
    let highest = bottom - steps.last().copied().unwrap_or(0.0);
    if highest < top {
        return None;
    }
    // Without their gaps the places have only to ascend: blocks of one mean.
    let mut blocks: Vec<(f64, u32)> = Vec::new();
    for (&want, &step) in wanted.iter().zip(&steps) {
        let (mut sum, mut count) = (want - step, 1);
        while let Some(&(before, many)) = blocks.last() {
            if before / f64::from(many) <= sum / f64::from(count) {
                break;
            }
            blocks.pop();
            (sum, count) = (sum + before, count + many);
        }
        blocks.push((sum, count));
    }
    let means = blocks.iter().flat_map(|&(sum, count)| {
        let mean = (sum / f64::from(count)).clamp(top, highest);
        (0..count).map(move |_| mean)
    });
    Some(means.zip(&steps).map(|(mean, step)| mean + step).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_apart_in_order_and_near_their_ends() {
        #[rustfmt::skip]
        let rows: &[(&str, &[f64], &[f64])] = &[ // why            ends          names
            ("room for each at its end",      &[10.0, 40.0, 90.0],  &[10.0, 40.0, 90.0]),
            ("two too near part evenly",      &[50.0, 50.0],        &[45.0, 55.0]),
            ("a third is pushed on",          &[50.0, 50.0, 56.0],  &[42.0, 52.0, 62.0]),
            ("kept from the top",             &[0.0, 0.0, 0.0],     &[0.0, 10.0, 20.0]),
            ("kept from the bottom",          &[99.0, 100.0, 100.0], &[80.0, 90.0, 100.0]),
            ("as many as there is room for",  &[7.0; 11],
                &[0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 100.0]),
            ("none",                          &[],                  &[]),
        ];
        for (why, wanted, expected) in rows {
            let places = spread(wanted, 0.0, 100.0, 10.0).expect(why);
            assert_eq!(places.len(), expected.len(), "{why}");
            for (place, expected) in places.iter().zip(*expected) {
                assert!((place - expected).abs() < 1e-9, "{why}: {places:?}");
            }
        }
        assert_eq!(spread(&[7.0; 12], 0.0, 100.0, 10.0), None, "no room");
    }

    #[test]
    fn curves_of_one_end_are_named_in_the_order_in_which_they_come_to_it() {
        let end = |series, heights: &[f64]| End {
            series,
            points: heights.iter().map(|&y| (0.0, y)).collect(),
        };
        let ends = [
            end(0, &[50.0, 80.0]),
            end(1, &[50.0, 20.0]),
            end(2, &[50.0, 80.0]),
            end(3, &[]),
            end(4, &[10.0, 99.0]),
        ];
        let order: Vec<usize> = placed(&ends, 0.0, 100.0, 5.0).iter().map(|name| name.0).collect();
        assert_eq!(order, [4, 1, 0, 2]);
        assert!(placed(&ends, 0.0, 10.0, 5.0).is_empty(), "no room for four");
    }
}
