//! Plots as SVG, written here: bytes follow from the plot alone, fonts are the reader's, and the
//! colours follow the reader's light or dark scheme.
//!
//! Each plot is a card with its own background, so that it is legible wherever it is shown. Series
//! are told apart by colour (Okabe and Ito's palette, told apart by all eyes), by the shape of
//! their points and, for peers, by dashes or a lighter fill. Width: 860, that of a README.

mod bars;
mod canvas;
mod frame;
mod legend;
mod lines;
mod scale;

use self::canvas::Canvas;
use super::plot::Plot;

/// Of a card.
const WIDTH: f64 = 860.0;
/// Between two cards.
const GAP: f64 = 12.0;

/// Colours and fonts. `tg-` keeps them apart from those of a page around.
pub(super) const STYLE: &str = include_str!("../plot.css");

/// All plots in one file, one below the other.
pub fn figure(all: &[Plot]) -> String {
    plots(all, true)
}

/// All plots in one element; with its style unless the page around has it.
pub fn plots(all: &[Plot], styled: bool) -> String {
    let mut canvas = Canvas::default();
    let mut height = 0.0;
    for plot in all {
        let top = if height > 0.0 { height + GAP } else { 0.0 };
        canvas.begin_card(top);
        let tall = match plot {
            Plot::Lines {
                title,
                x,
                y,
                series,
            } => lines::ranges(&mut canvas, title, x, y, series),
            Plot::Bars {
                title,
                y,
                groups,
                series,
            } => bars::groups(&mut canvas, title, y, groups, series),
            Plot::Series {
                title,
                x,
                y,
                series,
                marks,
            } => lines::course(&mut canvas, title, x, y, series, marks),
        };
        canvas.end_card();
        height = top + tall;
    }
    let style = if styled { STYLE } else { "" };
    canvas.finish(WIDTH, height, style)
}
