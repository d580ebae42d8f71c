//! A frame: what is known at one moment as lines of text, a pure function of two samples, the view and the room
//! that there is.
//!
//! ```text
//!  head        the front-end, all requests, what is wrong
//!  sites       one line each
//!  nodes       one line each: gets what room is left
//!  culprits    classes that load a resource
//!  throttled   classes that are slowed
//!  changes     what has happened since the start
//!  requests    the last ones, and where they went
//!  foot        the keys
//! ```

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use tidegate_core::time::Timestamp;

use super::events::Events;
use super::head;
use super::lists;
use super::nodes;
use super::sample::Sample;
use super::table::{Head, Sort, clean, lines, sort};
use super::view::View;

/// What a frame shows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame<'a> {
    /// The sample before the current one, of the same front-end.
    pub(super) previous: Option<&'a Sample>,
    /// The last one; none before the first.
    pub(super) current: Option<&'a Sample>,
    /// What has changed.
    pub(super) events: &'a Events,
    /// What is to be shown of it.
    pub(super) view: &'a View,
    /// Why there is no newer sample.
    pub(super) trouble: Option<&'a str>,
    /// When the question was asked that has no answer yet.
    pub(super) asked: Option<Timestamp>,
    /// Now.
    pub(super) now: Timestamp,
    /// Whether a person looks at it: then it ends with the keys.
    pub(super) has_keys: bool,
}

/// A question that is open for longer is said.
const LATE: Duration = Duration::from_secs(2);
/// Titles of tables.
const TITLES: Style = Style::new().add_modifier(Modifier::BOLD);
/// Least lines of each part, in the order of the frame, where it has so many.
const LEAST: [usize; 6] = [3, 6, 2, 2, 2, 4];
/// In which order parts get what is left: sites and nodes first.
const ORDER: [usize; 6] = [0, 1, 2, 3, 4, 5];
/// The place of nodes among the parts.
const NODES: usize = 1;

const KEYS: &str = "q ends · up, down: site · left, right: sort · r reverses · p pauses · ? help";
const HELP: &[&str] = &[
    "q, Esc       ends",
    "up, down     shows one site, or all",
    "left, right  sorts nodes by another column, or as configured",
    "r            sorts the other way round",
    "PgDn, PgUp   shows further nodes; Home the first ones",
    "p, space     pauses: no more questions until it is pressed again",
    "?, h         shows this, and what was there before",
    "",
    "age    of the load record; load that is too old is shown as -",
    "queue  tasks that run or wait, over the node's CPUs",
    "rif    requests of this front-end in flight there",
    "share  of the site's answers in the last seconds",
    "req/s  answers between two samples; err/s server errors and failures among them",
    "p50    to the response head, of the last seconds",
    "failed requests without an answer, since the start",
];

impl Frame<'_> {
    /// Draws it.
    pub(super) fn draw(&self, area: Rect, buffer: &mut Buffer) {
        let lines = self.lines(area.width.into(), Some(area.height.into()));
        for (row, line) in area.rows().zip(&lines) {
            buffer.set_line(row.x, row.y, line, row.width);
        }
    }

    /// The lines of the frame, at most `height`.
    pub(super) fn lines(&self, width: usize, height: Option<usize>) -> Vec<Line<'static>> {
        let mut all = self.head();
        let foot = usize::from(self.has_keys);
        let room = height.map(|height| height.saturating_sub(all.len() + foot));
        match self.current {
            Some(_) if self.view.help => {
                all.push(Line::default());
                all.extend(HELP.iter().map(|text| Line::raw(*text)));
            }
            Some(current) => all.extend(self.body(current, width, room)),
            None => {}
        }
        if let Some(height) = height {
            all.truncate(height.saturating_sub(foot));
            if foot > 0 {
                all.resize(height.saturating_sub(foot), Line::default());
                let dim = Style::new().add_modifier(Modifier::DIM);
                all.push(Line::raw(KEYS).style(dim));
            }
        }
        all
    }

    fn head(&self) -> Vec<Line<'static>> {
        let mut all = match self.current {
            Some(current) => head::lines(self.previous, current),
            None => vec![Line::raw("tidegate top")],
        };
        let attention = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
        if let Some(trouble) = self.trouble {
            let age = self.current.map(|it| self.now.seconds_since(it.at));
            let shown = age.map_or(String::new(), |age| {
                format!(", what is shown is {age:.0} s old")
            });
            let text = format!("asking again{shown}: {}", clean(trouble));
            all.push(Line::from(Span::raw(text)).style(attention));
        }
        let open = self.asked.map(|at| self.now.since(at));
        if let Some(open) = open.filter(|it| self.trouble.is_none() && *it >= LATE) {
            let text = format!("no answer for {} s", open.as_secs());
            all.push(Line::from(Span::raw(text)).style(attention));
        }
        if self.view.paused {
            all.push(Line::raw("paused: p goes on").style(attention));
        }
        all
    }

    fn body(&self, current: &Sample, width: usize, room: Option<usize>) -> Vec<Line<'static>> {
        let head = Head {
            style: TITLES,
            width,
        };
        let parts = [
            lists::sites(current, self.view, head),
            self.nodes(current, head),
            lists::culprits(current, head),
            lists::throttles(current, head),
            lists::events(self.events, self.now, head),
            lists::decisions(current, self.view, self.now, head),
        ];
        let wanted = parts.each_ref().map(|part| match part.len() {
            0 => 0,
            // A blank line stands above each.
            lines => lines + 1,
        });
        let given = room.map_or(wanted, |room| share_out(wanted, room));
        let mut all = Vec::new();
        for (place, (part, given)) in parts.into_iter().zip(given).enumerate() {
            // A title alone says nothing.
            if given < 3 {
                continue;
            }
            all.push(Line::default());
            let left_out = (part.len() + 1).saturating_sub(given);
            let mut part = part;
            if left_out > 0 && place == NODES {
                part.truncate(given - 2);
                part.push(Line::raw(format!("… {} nodes more", left_out + 1)));
            } else {
                part.truncate(given - 1);
            }
            all.extend(part);
        }
        all
    }

    fn nodes(&self, current: &Sample, head: Head) -> Vec<Line<'static>> {
        let mut rows = nodes::rows(self.previous, current, self.view);
        let sorted = self.view.sort.map(|column| Sort {
            column,
            reverse: self.view.reverse,
        });
        if let Some(sorted) = sorted {
            sort(&mut rows, sorted);
        }
        // Some are always left to be seen.
        let first = self.view.first.min(rows.len().saturating_sub(1));
        lines(nodes::COLUMNS, &rows[first..], sorted, head)
    }
}

/// How many lines each part gets: its least at first, as far as they go, then what is left in order.
fn share_out(wanted: [usize; 6], room: usize) -> [usize; 6] {
    let mut given = [0; 6];
    let mut left = room;
    // Nodes matter most: a small terminal shows them alone.
    for place in [1, 0, 2, 5, 4, 3] {
        let least = wanted[place].min(LEAST[place] + 1);
        if least <= left {
            given[place] = least;
            left -= least;
        } else if place == NODES {
            given[place] = left;
            left = 0;
        }
    }
    for place in ORDER {
        if given[place] > 0 {
            let more = (wanted[place] - given[place]).min(left);
            given[place] += more;
            left -= more;
        }
    }
    given
}

/// A buffer as text, without what styles say.
pub(super) fn text(buffer: &Buffer) -> String {
    let mut out = String::new();
    for y in buffer.area.top()..buffer.area.bottom() {
        let mut line = String::new();
        let mut covered = 0;
        for x in buffer.area.left()..buffer.area.right() {
            let Some(cell) = buffer.cell((x, y)) else {
                continue;
            };
            // A wide letter stands in one cell and covers the next.
            if covered == 0 {
                line.push_str(cell.symbol());
                covered = super::table::width(cell.symbol()).max(1);
            }
            covered -= 1;
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_terminal_shows_nodes_and_a_large_one_all() {
        let wanted = [4, 20, 3, 0, 4, 12];
        assert_eq!(share_out(wanted, 100), wanted);
        assert_eq!(share_out(wanted, 5), [0, 5, 0, 0, 0, 0]);
        assert_eq!(share_out(wanted, 11), [4, 7, 0, 0, 0, 0]);
        assert_eq!(share_out(wanted, 30), [4, 15, 3, 0, 3, 5]);
        for room in 0..60 {
            let given = share_out(wanted, room);
            assert!(given.iter().sum::<usize>() <= room, "{room}: {given:?}");
        }
    }
}
