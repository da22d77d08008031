//! What a chart's values say beside themselves: which is best at each place, and by how much each
//! differs from one of them.
//!
//! # Invariants
//! - The bound of all series is never the best, and has no difference.
//! - Series keep their numbers, and so their colours, in both views.

use super::{Better, Chart, Series, Unit, X, Y};

/// The numbers of the best series of each place; none where all are alike, or only one has a value.
pub(super) fn best(chart: &Chart) -> Vec<Vec<usize>> {
    let at = |place: usize| {
        let values: Vec<(usize, f64)> = chart
            .series
            .iter()
            .enumerate()
            .filter(|(_, series)| !series.bound)
            .filter_map(|(n, series)| Some((n, series.at(place)?)))
            .collect();
        let sign = if chart.better == Some(Better::Lower) { -1.0 } else { 1.0 };
        let most = values.iter().map(|value| sign * value.1).fold(f64::MIN, f64::max);
        let best: Vec<usize> =
            values.iter().filter(|value| sign * value.1 >= most).map(|value| value.0).collect();
        if best.len() < values.len() { best } else { Vec::new() }
    };
    // Between places of curves without marks there is no best one either.
    let marked = chart.better.is_some() && !matches!(chart.x, X::Times { .. });
    (0..chart.x.len()).map(|place| if marked { at(place) } else { Vec::new() }).collect()
}

/// Which series are best from which place to which, in order.
pub(super) fn reigns(chart: &Chart) -> Vec<(Vec<usize>, usize, usize)> {
    let mut reigns: Vec<(Vec<usize>, usize, usize)> = Vec::new();
    for (place, best) in best(chart).into_iter().enumerate() {
        match reigns.last_mut() {
            Some(last) if last.0 == best => last.2 = place,
            _ => reigns.push((best, place, place)),
        }
    }
    reigns.retain(|reign| !reign.0.is_empty());
    reigns
}

/// The differences of the series of `chart` to its baseline; none without one, or beside nothing.
pub(super) fn difference(chart: &Chart) -> Option<Chart> {
    let base = chart.series.get(chart.baseline?)?;
    let others = chart.series.iter().filter(|series| !series.bound).count();
    if others < 2 || !matches!(chart.x, X::Pages { .. }) {
        return None;
    }
    let less = |series: &Series, place| Some(series.at(place)? - base.at(place)?);
    let series = |series: &Series| Series {
        name: series.name.clone(),
        bound: series.bound,
        y: (0..chart.x.len())
            .map(|place| if series.bound { None } else { less(series, place) })
            .collect(),
    };
    Some(Chart {
        title: format!("Difference to {}", base.name),
        note: format!("In percentage points; above 0 is better than {}.", base.name),
        x: chart.x.clone(),
        y: Y { label: format!("points above {}", base.name), unit: Unit::Points },
        series: chart.series.iter().map(series).collect(),
        better: chart.better,
        baseline: chart.baseline,
        claims: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::curves::tests::sheet;

    fn chart(rows: &[(&str, bool, &[f64])]) -> Chart {
        let mut chart = sheet().sections[0].charts[0].clone();
        chart.series = rows
            .iter()
            .map(|&(name, bound, y)| Series {
                name: name.into(),
                bound,
                y: y.iter().map(|&y| Some(y).filter(|y| *y >= 0.0)).collect(),
            })
            .collect();
        chart
    }

    #[test]
    fn the_best_of_a_place_is_not_the_bound_and_none_where_all_are_alike() {
        let rows: &[(&str, bool, &[f64])] = &[
            ("a", false, &[0.1, 0.5, 0.8]),
            ("b", false, &[0.3, 0.5, 0.8]),
            ("c", false, &[-1.0, 0.2, 0.8]),
            ("belady", true, &[0.9, 0.9, 0.9]),
        ];
        let mut chart = chart(rows);
        assert_eq!(best(&chart), [vec![1], vec![0, 1], vec![]]);
        assert_eq!(reigns(&chart), [(vec![1], 0, 0), (vec![0, 1], 1, 1)]);
        chart.better = Some(Better::Lower);
        assert_eq!(best(&chart), [vec![0], vec![2], vec![]]);
        chart.better = None;
        assert!(best(&chart).iter().all(Vec::is_empty) && reigns(&chart).is_empty());
    }

    #[test]
    fn differences_keep_the_numbers_of_series_and_leave_the_bound_out() {
        let rows: &[(&str, bool, &[f64])] = &[
            ("a", false, &[0.5, 0.5, -1.0]),
            ("lru", false, &[0.25, 0.75, 0.5]),
            ("belady", true, &[0.9, 0.9, 0.9]),
        ];
        let mut chart = chart(rows);
        assert!(difference(&chart).is_none(), "without a baseline");
        chart.baseline = Some(1);
        let view = difference(&chart).expect("there is one");
        let y: Vec<&[Option<f64>]> = view.series.iter().map(|series| &series.y[..]).collect();
        let zero = [Some(0.0); 3];
        assert_eq!(y, [&[Some(0.25), Some(-0.25), None][..], &zero, &[None; 3]]);
        assert_eq!(view.title, "Difference to lru");
        chart.series.remove(0);
        chart.baseline = Some(0);
        assert!(difference(&chart).is_none(), "beside nothing but the bound");
    }
}
