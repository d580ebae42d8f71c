//! Plots as SVG, written here: bytes follow from the plot alone, fonts are the reader's, and the
//! colours follow the reader's light or dark scheme.
//!
//! Each plot is a card with its own background, so that it is legible wherever it is shown. Series
//! differ by colour (Okabe and Ito's palette, which all eyes can separate), by the shape of
//! their points and, for peers, by dashes or a lighter fill. Width: 860, that of a README.

mod bars;
mod canvas;
mod frame;
mod legend;
mod lines;
mod scale;

use self::canvas::Canvas;
use self::legend::Palette;
use super::plot::Plot;

/// Of a card.
const WIDTH: f64 = 860.0;
/// Between two cards.
const GAP: f64 = 12.0;

/// Colours and fonts. `tg-` keeps them apart from those of a page around.
pub(super) const STYLE: &str = include_str!("../plot.css");

/// All plots in one file, one below the other.
pub fn figure(all: &[Plot]) -> String {
    draw(all, &Palette::of(all), STYLE)
}

/// One of the plots, for a page that has the style.
pub(super) fn figure_in_page(plot: &Plot, all: &[Plot]) -> String {
    draw(std::slice::from_ref(plot), &Palette::of(all), "")
}

fn draw(plots: &[Plot], palette: &Palette, style: &str) -> String {
    let mut canvas = Canvas::default();
    let mut height = 0.0;
    for plot in plots {
        let top = if height > 0.0 { height + GAP } else { 0.0 };
        canvas.begin_card(top);
        let looks = palette.looks(plot);
        let tall = match plot {
            Plot::Lines {
                title,
                x,
                y,
                series,
            } => lines::ranges(&mut canvas, title, (x, y), series, &looks),
            Plot::Bars {
                title,
                y,
                groups,
                series,
            } => bars::groups(&mut canvas, title, y, (groups, series), &looks),
            Plot::Series {
                title,
                x,
                y,
                series,
                marks,
            } => lines::course(&mut canvas, title, (x, y), (series, marks), &looks),
        };
        canvas.end_card();
        height = top + tall;
    }
    canvas.finish(WIDTH, height, style)
}
