//! What is around the data: the card, its title, axes, grid and their labels.

use super::super::plot::Axis;
use super::WIDTH;
use super::canvas::{Anchor, Canvas};
use super::legend::{LEGEND_WIDTH, legend_height};
use super::scale::Scale;

const LEFT: f64 = 72.0;
const TOP: f64 = 46.0;
const BOTTOM: f64 = 54.0;
const HEIGHT: f64 = 380.0;
const INSET: f64 = 14.0;

/// Where the data go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
    pub(super) height: f64,
}

impl Frame {
    /// For so many entries in the legend, and so much more room below the axis.
    pub(super) fn new(entries: usize, below: f64) -> Self {
        let height = (HEIGHT + below).max(TOP + legend_height(entries) + 12.0);
        Self {
            left: LEFT,
            right: WIDTH - LEGEND_WIDTH - 16.0,
            top: TOP,
            bottom: height - BOTTOM - below,
            height,
        }
    }

    pub(super) fn across(&self) -> (f64, f64) {
        (self.left, self.right)
    }

    /// Across, for points that shall not touch the edges.
    pub(super) fn inset(&self) -> (f64, f64) {
        (self.left + INSET, self.right - INSET)
    }

    pub(super) fn upwards(&self) -> (f64, f64) {
        (self.bottom, self.top)
    }

    /// Card, title and the vertical axis with its grid.
    pub(super) fn begin(&self, canvas: &mut Canvas, title: &str, y: &Axis, scale: &Scale) {
        canvas.card(WIDTH, self.height);
        canvas.text("tg-title", 16.0, 24.0, Anchor::Start, title);
        for (value, text) in scale.ticks() {
            let at = scale.place(value);
            canvas.line("tg-grid", (self.left, at), (self.right, at));
            canvas.text("tg-dim", self.left - 8.0, at + 4.0, Anchor::End, &text);
        }
        let middle = f64::midpoint(self.top, self.bottom);
        canvas.turned_text("tg-dim", 18.0, middle, Anchor::Middle, -90.0, &y.label);
    }

    /// The horizontal axis.
    pub(super) fn axis(&self, canvas: &mut Canvas, x: &Axis, scale: &Scale) {
        self.ground(canvas);
        for (value, text) in scale.ticks() {
            let at = scale.place(value);
            canvas.line("tg-axis", (at, self.bottom), (at, self.bottom + 5.0));
            canvas.text("tg-dim", at, self.bottom + 19.0, Anchor::Middle, &text);
        }
        let middle = f64::midpoint(self.left, self.right);
        canvas.text(
            "tg-dim",
            middle,
            self.bottom + 40.0,
            Anchor::Middle,
            &x.label,
        );
    }

    pub(super) fn ground(&self, canvas: &mut Canvas) {
        canvas.line(
            "tg-axis",
            (self.left, self.bottom),
            (self.right, self.bottom),
        );
    }
}
