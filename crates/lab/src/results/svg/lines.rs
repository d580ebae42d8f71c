//! Lines: arms over a parameter with their ranges, and courses over the time.

use super::super::number::show;
use super::super::plot::{Axis, Curve, Line, Mark, Point};
use super::canvas::{Anchor, Canvas};
use super::frame::Frame;
use super::legend::{Look, Sample, legend};
use super::scale::Scale;

/// Points of one course at most: more than the picture has places.
const POINTS_MAX: usize = 1200;
/// Rows of texts of moments.
const MARK_ROWS: usize = 4;
/// Width of a character of such a text.
const CHARACTER: f64 = 6.6;

/// Lines with bands. Gives the height of the card.
pub(super) fn ranges(
    canvas: &mut Canvas,
    title: &str,
    (x, y): (&Axis, &Axis),
    series: &[Line],
    looks: &[Look],
) -> f64 {
    let frame = Frame::new(series.len(), 0.0);
    let points = || series.iter().flat_map(|line| &line.points);
    let across = Scale::new(points().map(|it| it.x), x.log, x.zero, false, frame.inset())
        .with_ticks_at(points().map(|it| it.x));
    let values = points().flat_map(|it| [it.y, it.min, it.max]);
    let upwards = Scale::new(values, y.log, y.zero, true, frame.upwards());
    frame.begin(canvas, title, y, &upwards);
    frame.axis(canvas, x, &across);
    let place = |x: f64, y: f64| (across.place(x), upwards.place(y));
    for (line, look) in series.iter().zip(looks) {
        let known: Vec<_> = line.points.iter().filter(|it| it.y.is_finite()).collect();
        band(canvas, &known, look, place);
    }
    // The first series, usually ours, is drawn last and lies on top.
    for (line, look) in series.iter().zip(looks).rev() {
        let known = line.points.iter().filter(|it| it.y.is_finite());
        let middle: Vec<_> = known.map(|it| place(it.x, it.y)).collect();
        canvas.polyline(&look.class, &middle, look.width, look.dashes);
        for at in middle {
            canvas.point(&look.class, look.shape, at, look.peer);
        }
    }
    legend(canvas, looks, Sample::Line);
    frame.height
}

/// From least to greatest.
fn band(
    canvas: &mut Canvas,
    points: &[&Point],
    look: &Look,
    place: impl Fn(f64, f64) -> (f64, f64),
) {
    if points.iter().all(|it| it.min == it.max) {
        return;
    }
    let above = points.iter().map(|it| place(it.x, it.max));
    let below = points.iter().rev().map(|it| place(it.x, it.min));
    let outline: Vec<_> = above.chain(below).collect();
    canvas.area(&look.class, &outline, 0.14);
}

/// Courses over the time with moments. Gives the height of the card.
pub(super) fn course(
    canvas: &mut Canvas,
    title: &str,
    (x, y): (&Axis, &Axis),
    (series, marks): (&[Curve], &[Mark]),
    looks: &[Look],
) -> f64 {
    let frame = Frame::new(series.len(), 0.0);
    let points = || series.iter().flat_map(|curve| &curve.points);
    let across = points().map(|it| it.0).chain(marks.iter().map(|it| it.x));
    let across = Scale::new(across, x.log, x.zero, false, frame.across());
    let upwards = Scale::new(
        points().map(|it| it.1),
        y.log,
        y.zero,
        true,
        frame.upwards(),
    );
    frame.begin(canvas, title, y, &upwards);
    frame.axis(canvas, x, &across);
    draw_marks(canvas, &frame, &across, marks);
    for (curve, look) in series.iter().zip(looks).rev() {
        let step = curve.points.len().div_ceil(POINTS_MAX).max(1);
        let known = curve
            .points
            .iter()
            .step_by(step)
            .filter(|it| it.1.is_finite());
        let places: Vec<_> = known
            .map(|it| (across.place(it.0), upwards.place(it.1)))
            .collect();
        canvas.polyline(&look.class, &places, look.width.min(2.2), look.dashes);
    }
    legend(canvas, looks, Sample::Curve);
    frame.height
}

/// Moments, with their texts above the data; one that would meet another goes a row down.
fn draw_marks(canvas: &mut Canvas, frame: &Frame, across: &Scale, marks: &[Mark]) {
    let mut ends = [f64::NEG_INFINITY; MARK_ROWS];
    for mark in marks {
        let at = across.place(mark.x);
        let row = ends
            .iter()
            .position(|end| *end < at)
            .unwrap_or(MARK_ROWS - 1);
        ends[row] = at + mark.text.chars().count() as f64 * CHARACTER;
        canvas.line("tg-mark", (at, frame.top), (at, frame.bottom));
        let height = frame.top - 5.0 + row as f64 * 14.0;
        canvas.text("tg-dim", at, height, Anchor::Start, &mark.text);
    }
}

/// What a bar or point shows, in words.
pub(super) fn words(name: &str, median: f64, min: f64, max: f64) -> String {
    format!("{name}: {} ({}–{})", show(median), show(min), show(max))
}
