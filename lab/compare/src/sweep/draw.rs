//! Surfaces as a page: a map a device, order and mix, dark where it is fast, cliffs in red.
//!
//! # Invariants
//! - The page works offline; a cell's title has its figures.

use std::fmt::Write as _;

use super::cells::{STEEP, Surface};

/// The page of all surfaces.
pub(super) fn page(version: &str, readahead: &str, surfaces: &[Surface]) -> String {
    let mut page = format!(
        "<!doctype html><meta charset=utf-8><title>Short streams</title>\n\
         <style>body{{font:14px sans-serif;margin:2em}}svg{{margin:0 2em 1em 0}}\
         text{{font:10px sans-serif}}</style>\n\
         <h1>Short streams in virtual time</h1>\n<p>{version}, {readahead}. A cell is a run: its \
         shade is the share of the device's throughput, a red edge a cliff between two lengths, a \
         cross more than three misses a stream.</p>\n"
    );
    for surface in surfaces {
        map(&mut page, surface);
    }
    page
}

/// The map of `surface`: lengths to the right, numbers of streams upwards.
fn map(page: &mut String, surface: &Surface) {
    let (counts, lengths) = (&surface.grid.counts, &surface.grid.lengths);
    let (width, height) = (LEFT + CELL * lengths.len() + CELL, CELL * counts.len() + 3 * CELL);
    let (device, order, mixed) = (surface.device.name, &surface.order, surface.mixed);
    put(page, format_args!("<h2>{device}, {order}, {mixed} % lone reads</h2>\n"));
    put(page, format_args!("<svg width={width} height={height}>\n"));
    for (case, figures) in surface.cells() {
        let (row, column) = (case.at / lengths.len(), case.at % lengths.len());
        let (x, y) = (LEFT + CELL * column, CELL * (counts.len() - 1 - row));
        let share = figures.mb_per_second() / surface.device.limit_mb_per_second;
        let light = 96.0 - 70.0 * share.clamp(0.0, 1.0);
        let misses = figures.misses_a_stream(case.count);
        put(
            page,
            format_args!(
                "<rect x={x} y={y} width={CELL} height={CELL} fill='hsl(215,60%,{light:.0}%)'>\
                 <title>{} streams of {} KiB: {:.1} MB/s, {misses:.2} misses a stream, {:.2} bytes \
                 for each</title></rect>\n",
                case.count,
                case.bytes >> 10,
                figures.mb_per_second(),
                figures.bytes_ratio(),
            ),
        );
        if misses > super::cells::MISSES_MAX && case.bytes >= super::cells::MISSES_FROM {
            let (x, y) = (x + CELL / 3, y + 2 * CELL / 3);
            put(page, format_args!("<text x={x} y={y} pointer-events=none>x</text>\n"));
        }
        if surface.cliff(case.at).is_some_and(|steep| steep > STEEP) {
            let (x, below) = (x + CELL, y + CELL);
            put(
                page,
                format_args!(
                    "<line x1={x} x2={x} y1={y} y2={below} stroke=red stroke-width=3 />\n"
                ),
            );
        }
    }
    for (row, count) in counts.iter().enumerate() {
        let y = CELL * (counts.len() - 1 - row) + 2 * CELL / 3;
        put(page, format_args!("<text x=0 y={y}>{count}</text>\n"));
    }
    for (column, bytes) in lengths.iter().enumerate().step_by(3) {
        let (x, y) = (LEFT + CELL * column, CELL * counts.len() + CELL);
        put(page, format_args!("<text x={x} y={y}>{}K</text>\n", bytes >> 10));
    }
    page.push_str("</svg>\n");
}

fn put(page: &mut String, text: std::fmt::Arguments<'_>) {
    page.write_fmt(text).expect("a string takes all");
}

const CELL: usize = 24;
/// Room for the numbers of streams.
const LEFT: usize = 48;
