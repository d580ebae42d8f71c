//! Which series is which: colour, shape and dashes of each series, and the list of them at the right.
//!
//! A series looks the same in all plots of a report. Where there are more series than colours,
//! colours come again with another shape, so that no two look alike.

use super::super::losses::is_auto;
use super::super::plot::Plot;
use super::WIDTH;
use super::canvas::{Anchor, Canvas};

/// Of the list, from the card's right edge.
pub(super) const LEGEND_WIDTH: f64 = 214.0;
const ROW: f64 = 19.0;
const TOP: f64 = 54.0;
/// Longest name, in characters.
const NAME_MAX: usize = 25;
/// Colours of the palette.
const COLOURS: usize = 8;

/// How one series looks.
#[derive(Clone, Debug)]
pub(super) struct Look {
    /// Its colour.
    pub(super) class: String,
    pub(super) shape: usize,
    pub(super) dashes: &'static str,
    pub(super) width: f64,
    /// Of another project.
    pub(super) peer: bool,
    name: String,
}

/// How a legend shows a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sample {
    Line,
    /// A line without points.
    Curve,
    Bar,
}

/// Names in the order in which they first appear: that gives each its look.
#[derive(Debug)]
pub(super) struct Palette(Vec<String>);

impl Palette {
    pub(super) fn of(plots: &[Plot]) -> Self {
        let mut names: Vec<String> = Vec::new();
        for (name, _) in plots.iter().flat_map(Plot::names) {
            if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
        Self(names)
    }

    /// The looks of a plot's series.
    pub(super) fn looks(&self, plot: &Plot) -> Vec<Look> {
        let index = |name: &str| self.0.iter().position(|known| known == name);
        let names = plot.names().into_iter();
        names
            .map(|(name, peer)| look(index(name).unwrap_or(0), name, peer))
            .collect()
    }
}

fn look(index: usize, name: &str, peer: bool) -> Look {
    Look {
        class: format!("tg-c{}", index % COLOURS),
        shape: index + index / COLOURS,
        dashes: if peer { "6 3" } else { "" },
        width: if is_auto(name) { 3.0 } else { 1.8 },
        peer,
        name: name.to_owned(),
    }
}

pub(super) fn legend_height(entries: usize) -> f64 {
    entries as f64 * ROW
}

/// The list.
pub(super) fn legend(canvas: &mut Canvas, looks: &[Look], sample: Sample) {
    let left = WIDTH - LEGEND_WIDTH;
    for (index, look) in looks.iter().enumerate() {
        let at = TOP + index as f64 * ROW;
        match sample {
            Sample::Line | Sample::Curve => {
                let ends = [(left, at), (left + 24.0, at)];
                canvas.polyline(&look.class, &ends, look.width, look.dashes);
                if sample == Sample::Line {
                    canvas.point(&look.class, look.shape, (left + 12.0, at), look.peer);
                }
            }
            Sample::Bar => {
                canvas.bar(
                    &look.class,
                    (left + 6.0, at - 6.0),
                    (12.0, 12.0),
                    opacity(look),
                    &look.name,
                );
            }
        }
        canvas.text(
            "tg-text",
            left + 31.0,
            at + 4.0,
            Anchor::Start,
            &short(&look.name),
        );
    }
}

/// Bars of peers are lighter.
pub(super) fn opacity(look: &Look) -> f64 {
    if look.peer { 0.35 } else { 0.9 }
}

fn short(name: &str) -> String {
    if name.chars().count() <= NAME_MAX {
        return name.to_owned();
    }
    name.chars().take(NAME_MAX - 1).chain(['…']).collect()
}
