//! The writer of elements: coordinates to a tenth, text escaped.

use std::fmt::Write;

use super::super::html::escape;

/// SVG as it grows.
#[derive(Debug, Default)]
pub(super) struct Canvas {
    text: String,
}

/// Where a text stands relative to its point.
#[derive(Clone, Copy, Debug)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Canvas {
    pub(super) fn begin_card(&mut self, top: f64) {
        self.push(&format!("<g transform=\"translate(0 {})\">", number(top)));
    }

    pub(super) fn end_card(&mut self) {
        self.push("</g>");
    }

    pub(super) fn card(&mut self, width: f64, height: f64) {
        self.push(&format!(
            "<rect class=\"tg-card\" x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"6\"/>",
            number(width - 1.0),
            number(height - 1.0)
        ));
    }

    pub(super) fn text(&mut self, class: &str, x: f64, y: f64, anchor: Anchor, text: &str) {
        self.turned_text(class, x, y, anchor, 0.0, text);
    }

    /// Text turned by so many degrees about its point.
    pub(super) fn turned_text(
        &mut self,
        class: &str,
        x: f64,
        y: f64,
        anchor: Anchor,
        turn: f64,
        text: &str,
    ) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let (x, y) = (number(x), number(y));
        let turn = match turn {
            0.0 => String::new(),
            turn => format!(" transform=\"rotate({} {x} {y})\"", number(turn)),
        };
        self.push(&format!(
            "<text class=\"{class}\" x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\"{turn}>{}</text>",
            escape(text)
        ));
    }

    pub(super) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        self.push(&format!(
            "<line class=\"{class}\" x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"/>",
            number(from.0),
            number(from.1),
            number(to.0),
            number(to.1)
        ));
    }

    /// A line through points, in the class's colour.
    pub(super) fn polyline(
        &mut self,
        class: &str,
        points: &[(f64, f64)],
        width: f64,
        dashes: &str,
    ) {
        let dashes = match dashes {
            "" => String::new(),
            dashes => format!(" stroke-dasharray=\"{dashes}\""),
        };
        self.push(&format!(
            "<polyline class=\"{class}\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"{}\" \
             stroke-linejoin=\"round\"{dashes} points=\"{}\"/>",
            number(width),
            joined(points)
        ));
    }

    /// A filled area in the class's colour.
    pub(super) fn area(&mut self, class: &str, points: &[(f64, f64)], opacity: f64) {
        self.push(&format!(
            "<polygon class=\"{class}\" fill=\"currentColor\" fill-opacity=\"{opacity}\" points=\"{}\"/>",
            joined(points)
        ));
    }

    /// A bar in the class's colour, with what it shows under the pointer.
    pub(super) fn bar(
        &mut self,
        class: &str,
        corner: (f64, f64),
        size: (f64, f64),
        opacity: f64,
        shows: &str,
    ) {
        self.push(&format!(
            "<rect class=\"{class}\" fill=\"currentColor\" fill-opacity=\"{opacity}\" stroke=\"currentColor\" \
             x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"><title>{}</title></rect>",
            number(corner.0),
            number(corner.1),
            number(size.0),
            number(size.1.max(0.1)),
            escape(shows)
        ));
    }

    /// A point of one of the shapes; hollow ones show the card.
    pub(super) fn point(&mut self, class: &str, shape: usize, at: (f64, f64), hollow: bool) {
        let fill = if hollow {
            "class=\"tg-hole\""
        } else {
            "fill=\"currentColor\""
        };
        let (x, y) = at;
        let path: &[(f64, f64)] = match shape % 4 {
            0 => {
                let (x, y) = (number(x), number(y));
                let circle = format!(
                    "<circle {fill} cx=\"{x}\" cy=\"{y}\" r=\"3.6\" stroke=\"currentColor\"/>"
                );
                return self.push(&format!("<g class=\"{class}\">{circle}</g>"));
            }
            1 => &[(-3.4, -3.4), (3.4, -3.4), (3.4, 3.4), (-3.4, 3.4)],
            2 => &[(0.0, -4.4), (4.2, 3.2), (-4.2, 3.2)],
            _ => &[(0.0, -4.8), (4.8, 0.0), (0.0, 4.8), (-4.8, 0.0)],
        };
        let corners: Vec<_> = path.iter().map(|(dx, dy)| (x + dx, y + dy)).collect();
        self.push(&format!(
            "<g class=\"{class}\"><polygon {fill} stroke=\"currentColor\" points=\"{}\"/></g>",
            joined(&corners)
        ));
    }

    pub(super) fn finish(self, width: f64, height: f64, style: &str) -> String {
        let style = match style {
            "" => String::new(),
            style => format!("<style>\n{style}</style>\n"),
        };
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" \
             role=\"img\">\n{style}{2}</svg>\n",
            number(width),
            number(height),
            self.text
        )
    }

    fn push(&mut self, element: &str) {
        // Writing to a string cannot fail.
        writeln!(self.text, "{element}").ok();
    }
}

/// A coordinate.
fn number(value: f64) -> String {
    let text = format!("{value:.1}");
    let text = text.strip_suffix(".0").unwrap_or(&text);
    if text == "-0" {
        "0".to_owned()
    } else {
        text.to_owned()
    }
}

fn joined(points: &[(f64, f64)]) -> String {
    let pairs = points
        .iter()
        .map(|(x, y)| format!("{},{}", number(*x), number(*y)));
    pairs.collect::<Vec<_>>().join(" ")
}
