//! Tables that fit the width that there is: columns of least rank are left out first, long words are cut.

use std::cmp::Ordering;

use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::text::harmless;

/// Between two columns.
const GAP: usize = 2;
/// Widest column of words.
const WORDS_MAX: usize = 40;
/// Most letters of any text of a front-end that are looked at.
const LETTERS_MAX: usize = 400;

/// A column.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    /// Its title.
    pub(super) title: &'static str,
    /// Words begin at the same place, numbers end at it.
    pub(super) is_words: bool,
    /// The greatest is left out first where room is short; 0 is never.
    pub(super) rank: u8,
}

/// A column of words.
pub(super) const fn words(title: &'static str, rank: u8) -> Column {
    Column {
        title,
        is_words: true,
        rank,
    }
}

/// A column of numbers.
pub(super) const fn numbers(title: &'static str, rank: u8) -> Column {
    Column {
        title,
        is_words: false,
        rank,
    }
}

/// What stands in a column, and what it is sorted by.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    text: String,
    value: Value,
}

#[derive(Clone, Debug)]
enum Value {
    Words,
    Number(Option<f64>),
}

impl Cell {
    /// Words.
    pub(super) fn words(text: &str) -> Self {
        Self {
            text: clean(text),
            value: Value::Words,
        }
    }

    /// A number as it is shown.
    pub(super) fn number(value: Option<f64>, shown: &str) -> Self {
        Self {
            text: clean(shown),
            value: Value::Number(value),
        }
    }

    /// A whole number.
    pub(super) fn count(value: u64) -> Self {
        Self::number(Some(value as f64), &value.to_string())
    }

    /// A rate.
    pub(super) fn rate(value: f64) -> Self {
        Self::number(Some(value), &format!("{value:.1}"))
    }

    /// Words from A to Z, numbers with the largest first, what is not known last.
    fn order(&self, other: &Self, reverse: bool) -> Ordering {
        let (one, two) = match reverse {
            true => (other, self),
            false => (self, other),
        };
        match (&self.value, &other.value) {
            (Value::Number(Some(_)), Value::Number(None)) => Ordering::Less,
            (Value::Number(None), Value::Number(Some(_))) => Ordering::Greater,
            (Value::Number(_), Value::Number(_)) => two.amount().total_cmp(&one.amount()),
            (Value::Words, _) | (_, Value::Words) => one.text.cmp(&two.text),
        }
    }

    fn amount(&self) -> f64 {
        match self.value {
            Value::Number(Some(number)) => number,
            Value::Number(None) | Value::Words => 0.0,
        }
    }
}

/// A row.
#[derive(Clone, Debug)]
pub(super) struct Row {
    /// As many as there are columns.
    pub(super) cells: Vec<Cell>,
    /// How it is drawn.
    pub(super) style: Style,
}

/// Which column rows are sorted by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sort {
    /// The column.
    pub(super) column: usize,
    /// The other way round.
    pub(super) reverse: bool,
}

/// Sorts rows; those that are equal stay as they are.
pub(super) fn sort(rows: &mut [Row], sort: Sort) {
    rows.sort_by(
        |one, two| match (one.cells.get(sort.column), two.cells.get(sort.column)) {
            (Some(one), Some(two)) => one.order(two, sort.reverse),
            (None, _) | (_, None) => Ordering::Equal,
        },
    );
}

/// The table as lines, the first one with the titles; that of the sorted column is marked.
pub(super) fn lines(
    columns: &[Column],
    rows: &[Row],
    sorted: Option<Sort>,
    head: Head,
) -> Vec<Line<'static>> {
    let titles: Vec<_> = (columns.iter().enumerate())
        .map(|(place, column)| title(column, sorted.filter(|it| it.column == place)))
        .collect();
    let widths: Vec<_> = (columns.iter().enumerate())
        .map(|(place, column)| {
            let cells = rows.iter().filter_map(|row| row.cells.get(place));
            let widest = cells.map(|cell| width(&cell.text)).max().unwrap_or(0);
            let most = match column.is_words && place + 1 < columns.len() {
                true => WORDS_MAX,
                // The last one may have what room there is.
                false => head.width.max(WORDS_MAX),
            };
            widest.min(most).max(width(&titles[place]))
        })
        .collect();
    let shown = fitting(columns, &widths, head.width);
    let line = |texts: &dyn Fn(usize) -> String, style: Style| {
        let mut line = String::new();
        for &place in &shown {
            if !line.is_empty() {
                line.push_str(&" ".repeat(GAP));
            }
            line.push_str(&padded(&texts(place), widths[place], columns[place]));
        }
        Line::from(Span::raw(line.trim_end().to_owned())).style(style)
    };
    let title = |place: usize| titles[place].clone();
    let mut lines = vec![line(&title, head.style)];
    lines.extend(rows.iter().map(|row| {
        let cell = |place: usize| row.cells.get(place).map_or("", |it| &it.text).to_owned();
        line(&cell, row.style)
    }));
    lines
}

/// How a table's titles are drawn, and the room that it has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    /// Of the titles.
    pub(super) style: Style,
    /// Columns of the terminal.
    pub(super) width: usize,
}

fn title(column: &Column, sorted: Option<Sort>) -> String {
    let mark = match sorted {
        None => "",
        Some(sort) if sort.reverse != column.is_words => "▲",
        Some(_) => "▼",
    };
    format!("{}{mark}", column.title)
}

/// The columns that fit, in their order.
fn fitting(columns: &[Column], widths: &[usize], room: usize) -> Vec<usize> {
    let mut shown: Vec<_> = (0..columns.len()).collect();
    let needed = |shown: &[usize]| {
        let all: usize = shown.iter().map(|place| widths[*place] + GAP).sum();
        all.saturating_sub(GAP)
    };
    while needed(&shown) > room {
        let least = shown
            .iter()
            .enumerate()
            .max_by_key(|(_, place)| columns[**place].rank);
        match least.map(|(at, place)| (at, columns[*place].rank)) {
            Some((at, 1..)) => shown.remove(at),
            Some((_, 0)) | None => break,
        };
    }
    shown
}

fn padded(text: &str, wide: usize, column: Column) -> String {
    let text = cut(text, wide);
    let fill = " ".repeat(wide.saturating_sub(width(&text)));
    match column.is_words {
        true => text + &fill,
        false => fill + &text,
    }
}

/// A text that is at most so wide; the mark at its end says that more was there.
pub(super) fn cut(text: &str, wide: usize) -> String {
    if width(text) <= wide {
        return text.to_owned();
    }
    let mut text = text.to_owned();
    while width(&text) + 1 > wide && text.pop().is_some() {}
    if wide > 0 {
        text.push('…');
    }
    text
}

/// Columns of the terminal that a text takes.
pub(super) fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// A text of a front-end as it may stand on a terminal ([`harmless`]), and not endless.
pub(super) fn clean(text: &str) -> String {
    text.chars().take(LETTERS_MAX).map(harmless).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 3] = [words("name", 0), numbers("age", 2), numbers("rate", 1)];

    fn row(name: &str, age: Option<f64>, rate: f64) -> Row {
        let shown = age.map_or("-".into(), |age| age.to_string());
        Row {
            cells: vec![
                Cell::words(name),
                Cell::number(age, &shown),
                Cell::rate(rate),
            ],
            style: Style::new(),
        }
    }

    fn text(rows: &[Row], sorted: Option<Sort>, width: usize) -> Vec<String> {
        let style = Style::new();
        let lines = lines(&COLUMNS, rows, sorted, Head { style, width });
        lines.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn columns_of_least_rank_are_left_out_first() {
        let rows = [row("one", Some(1.0), 2.0), row("two", None, 30.0)];
        let wide = ["name  age  rate", "one     1   2.0", "two     -  30.0"];
        assert_eq!(text(&rows, None, 80), wide);
        let narrow = ["name  rate", "one    2.0", "two   30.0"];
        assert_eq!(text(&rows, None, 14), narrow);
        assert_eq!(text(&rows, None, 5), ["name", "one", "two"]);
        assert_eq!(text(&rows, None, 0), ["name", "one", "two"]);
    }

    #[test]
    fn numbers_sort_from_the_largest_and_what_is_not_known_is_last() {
        let mut rows = [
            row("b", None, 1.0),
            row("c", Some(5.0), 1.0),
            row("a", Some(7.0), 1.0),
        ];
        let mut names = |column, reverse| {
            sort(&mut rows, Sort { column, reverse });
            rows.each_ref()
                .map(|row| row.cells[0].text.clone())
                .concat()
        };
        assert_eq!(names(1, false), "acb");
        assert_eq!(names(1, true), "cab");
        assert_eq!(names(0, false), "abc");
        assert_eq!(names(0, true), "cba");
        // Equal ones stay.
        assert_eq!(names(2, false), "cba");
        assert_eq!(names(9, false), "cba");
    }

    #[test]
    fn long_words_are_cut_and_wide_letters_count_twice() {
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("日本語", 5), "日本…");
        assert_eq!(cut("日本語", 4), "日…");
        assert_eq!(cut("abc", 0), "");
    }

    #[test]
    fn what_could_change_the_terminal_is_replaced() {
        assert_eq!(
            clean("n1\x1b[2J\u{9b}31m\r\n\t"),
            "n1\u{fffd}[2J\u{fffd}31m\u{fffd}\u{fffd}\u{fffd}"
        );
        assert_eq!(clean("a\u{202e}b\u{200b}c"), "a\u{fffd}b\u{fffd}c");
        assert_eq!(clean("größer 日本"), "größer 日本");
        assert_eq!(clean(&"x".repeat(100_000)).len(), LETTERS_MAX);
    }
}
