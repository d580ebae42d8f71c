//! Groups of bars with whiskers.

use super::super::plot::{Axis, Bars};
use super::super::range::Range;
use super::canvas::{Anchor, Canvas};
use super::frame::Frame;
use super::legend::{Look, Sample, legend, opacity};
use super::lines::words;
use super::scale::Scale;

/// Of a group's width, how much its bars take.
const FILL: f64 = 0.84;
/// Widest bar.
const WIDEST: f64 = 46.0;
/// Bars of a log scale begin at this share of the least value.
const LEAST: f64 = 0.6;
/// Of a character of a group's name.
const CHARACTER: f64 = 6.6;

/// Groups of bars. Gives the height of the card.
pub(super) fn groups(
    canvas: &mut Canvas,
    title: &str,
    y: &Axis,
    (groups, series): (&[String], &[Bars]),
    looks: &[Look],
) -> f64 {
    let slot = |frame: &Frame| (frame.right - frame.left) / groups.len().max(1) as f64;
    let longest = groups
        .iter()
        .map(|it| it.chars().count())
        .max()
        .unwrap_or(0) as f64
        * CHARACTER;
    let turned = longest > slot(&Frame::new(series.len(), 0.0));
    let below = if turned {
        (longest * 0.5 - 20.0).clamp(0.0, 120.0)
    } else {
        0.0
    };
    let frame = Frame::new(series.len(), below);
    let slot = slot(&frame);
    let known = series.iter().flat_map(|it| it.values.iter().flatten());
    // On a log scale the least bar must have a height too.
    let values = known.flat_map(|it| [it.min * LEAST, it.min, it.median, it.max]);
    let upwards = Scale::new(values, y.log, true, true, frame.upwards());
    frame.begin(canvas, title, y, &upwards);
    let width = (slot * FILL / series.len().max(1) as f64).min(WIDEST);
    for (group, name) in groups.iter().enumerate() {
        let middle = frame.left + (group as f64 + 0.5) * slot;
        let first = middle - width * series.len() as f64 / 2.0;
        for (index, (bars, look)) in series.iter().zip(looks).enumerate() {
            if let Some(range) = bars.values.get(group).and_then(Option::as_ref) {
                let left = first + index as f64 * width;
                let shows = words(&bars.name, range.median, range.min, range.max);
                let top = upwards.place(range.median);
                let size = (width * 0.88, upwards.place(upwards.ground()) - top);
                canvas.bar(&look.class, (left, top), size, opacity(look), &shows);
                whisker(canvas, range, left + width * 0.44, &upwards);
            }
        }
        let at = frame.bottom + 19.0;
        if turned {
            canvas.turned_text("tg-dim", middle, at - 4.0, Anchor::End, -30.0, name);
        } else {
            canvas.text("tg-dim", middle, at, Anchor::Middle, name);
        }
    }
    frame.ground(canvas);
    legend(canvas, looks, Sample::Bar);
    frame.height
}

/// From least to greatest.
fn whisker(canvas: &mut Canvas, range: &Range, at: f64, upwards: &Scale) {
    if range.min < range.max {
        let (low, high) = (upwards.place(range.min), upwards.place(range.max));
        canvas.line("tg-whisker", (at, low), (at, high));
        canvas.line("tg-whisker", (at - 3.0, low), (at + 3.0, low));
        canvas.line("tg-whisker", (at - 3.0, high), (at + 3.0, high));
    }
}
