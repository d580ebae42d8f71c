//! A report as blocks of text, tables and pictures, from which both the Markdown file and the
//! page are made: what is shown, and in which order, stands here alone.

use std::collections::BTreeSet;

use serde_json::Value;

use super::losses::losses;
use super::metric::{Better, Metric};
use super::number::show;
use super::range::Range;
use super::report::Report;

/// More columns than this, and the table is laid on its side.
const COLUMNS_MAX: usize = 8;

/// A part of a document.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Block {
    Heading(String),
    Text(String),
    Code(String),
    List(Vec<String>),
    Table(Table),
    /// The report's plots.
    Plots,
}

/// A table; the first column names the rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Table {
    pub(super) head: Vec<String>,
    pub(super) rows: Vec<Vec<Cell>>,
}

/// One cell.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Cell {
    pub(super) text: String,
    /// The best of its column.
    pub(super) strong: bool,
}

impl Cell {
    fn of(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            strong: false,
        }
    }
}

/// The whole report.
pub(super) fn blocks(report: &Report) -> Vec<Block> {
    let mut blocks = vec![Block::Text(what(report))];
    if !report.plots.is_empty() {
        blocks.push(Block::Plots);
    }
    section(&mut blocks, "Goals", verdicts(report));
    blocks.push(Block::Heading("Where others did better".to_owned()));
    blocks.push(lost(report));
    section(&mut blocks, "The paper's figures", paper(report));
    blocks.push(Block::Heading("Results".to_owned()));
    blocks.push(Block::Text(
        "Medians over the rounds with their ranges: least and greatest, and not narrower than what the scatter of all \
         arms allows (95 %). The best median of each column is bold. Arms marked † are other people's programs."
            .to_owned(),
    ));
    for (title, table) in tables(report) {
        blocks.push(Block::Text(title));
        blocks.push(Block::Table(table));
    }
    section(&mut blocks, "What was emulated", list(&report.emulated));
    section(&mut blocks, "Notes", list(&report.notes));
    blocks.push(Block::Heading("Repeat it".to_owned()));
    blocks.push(Block::Code(report.command()));
    blocks
}

fn section(blocks: &mut Vec<Block>, heading: &str, body: Option<Block>) {
    if let Some(body) = body {
        blocks.push(Block::Heading(heading.to_owned()));
        blocks.push(body);
    }
}

fn list(sentences: &[String]) -> Option<Block> {
    (!sentences.is_empty()).then(|| Block::List(sentences.to_vec()))
}

fn what(report: &Report) -> String {
    let about = match sentence(report.about.trim()).as_str() {
        "" => String::new(),
        about if about.ends_with('.') => format!("{about} "),
        about => format!("{about}. "),
    };
    let form = if report.quick {
        "short form"
    } else {
        "full form"
    };
    format!(
        "{about}Mode: {}, {form}, {:.0} s. Machine: {}.",
        report.mode,
        report.seconds,
        report.machine.line()
    )
}

/// With a capital first.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(char::to_uppercase);
    first.into_iter().flatten().chain(letters).collect()
}

fn verdicts(report: &Report) -> Option<Block> {
    let row = |it: &super::GoalVerdict| {
        vec![
            Cell::of(&it.goal),
            Cell::of(show(it.wanted)),
            Cell::of(show(it.measured)),
            Cell {
                text: if it.reached { "reached" } else { "not reached" }.to_owned(),
                strong: !it.reached,
            },
        ]
    };
    let rows: Vec<_> = report.verdicts.iter().map(row).collect();
    let head = ["goal", "wanted", "measured", ""]
        .map(str::to_owned)
        .to_vec();
    (!rows.is_empty()).then_some(Block::Table(Table { head, rows }))
}

fn lost(report: &Report) -> Block {
    let row = |loss: &super::Loss| {
        vec![
            Cell::of(&loss.metric),
            Cell::of(format!("{} {}", loss.ours, cell(&loss.measured))),
            Cell::of(format!("{} {}", loss.other, cell(&loss.better))),
            Cell::of(match loss.better.median == 0.0 {
                // No part of nothing says how much.
                true => "–".to_owned(),
                false => format!("{:.0} %", loss.apart() * 100.0),
            }),
        ]
    };
    let rows: Vec<_> = losses(report).iter().map(row).collect();
    if rows.is_empty() {
        return Block::Text("Nowhere with a range that does not overlap ours.".to_owned());
    }
    let head = ["metric", "ours", "better", "apart"]
        .map(str::to_owned)
        .to_vec();
    Block::Table(Table { head, rows })
}

fn paper(report: &Report) -> Option<Block> {
    let field = |value: &Value, name: &str| value.get(name).map(plain).unwrap_or_default();
    let row = |(what, value): (&String, &Value)| {
        let figure = value.get("value").unwrap_or(value);
        let rest = ["here", "peers", "source"].map(|name| field(value, name));
        let cells = [what.clone(), plain(figure)].into_iter().chain(rest);
        cells.map(Cell::of).collect()
    };
    let rows: Vec<Vec<Cell>> = report.paper.iter().map(row).collect();
    let head = ["", "paper", "here", "peers", "source"]
        .map(str::to_owned)
        .to_vec();
    (!rows.is_empty()).then(|| Block::Table(without_empty_columns(Table { head, rows })))
}

fn without_empty_columns(table: Table) -> Table {
    let full = |column: usize| table.rows.iter().any(|row| !row[column].text.is_empty());
    let kept: Vec<_> = (0..table.head.len())
        .filter(|column| full(*column))
        .collect();
    Table {
        head: kept
            .iter()
            .map(|column| table.head[*column].clone())
            .collect(),
        rows: (table.rows.iter())
            .map(|row| kept.iter().map(|column| row[*column].clone()).collect())
            .collect(),
    }
}

/// A JSON value in a cell.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => "–".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) => number.as_f64().map_or_else(|| number.to_string(), show),
        Value::Array(values) => values.iter().map(plain).collect::<Vec<_>>().join(", "),
        Value::Bool(_) | Value::Object(_) => value.to_string(),
    }
}

/// Tables of arms: one per quantity with labels, and one for all quantities without.
fn tables(report: &Report) -> Vec<(String, Table)> {
    let names: BTreeSet<_> = report
        .arms
        .iter()
        .flat_map(|arm| arm.metrics.keys())
        .collect();
    let mut quantities: Vec<_> = names.iter().map(|name| Metric::of(name).quantity).collect();
    quantities.sort_by_key(|quantity| (order(quantity), *quantity));
    quantities.dedup();
    let labelled = |quantity: &str| -> Vec<&str> {
        let of = names
            .iter()
            .filter(|name| Metric::of(name).quantity == quantity);
        let mut names: Vec<&str> = of.map(|name| name.as_str()).collect();
        names.sort_by(|one, other| by_number(Metric::of(one).label, Metric::of(other).label));
        names
    };
    let plain: Vec<_> = quantities
        .iter()
        .copied()
        .filter(|it| labelled(it) == [*it])
        .collect();
    let mut tables = Vec::new();
    if !plain.is_empty() {
        tables.push((
            "All loads together:".to_owned(),
            table(report, &plain, |name| name.to_owned()),
        ));
    }
    for quantity in quantities.into_iter().filter(|it| !plain.contains(it)) {
        let label = |name: &str| match Metric::of(name).label {
            "" => "all".to_owned(),
            label => label.to_owned(),
        };
        tables.push((
            format!("`{quantity}`:"),
            table(report, &labelled(quantity), label),
        ));
    }
    tables
}

/// What is worth having first, then what it costs, then facts.
fn order(quantity: &str) -> u8 {
    match Metric::of(quantity).better() {
        Better::More => 0,
        Better::Less => 1,
        Better::Neither => 2,
    }
}

/// Labels by the numbers in them, not by their digits.
fn by_number(one: &str, other: &str) -> std::cmp::Ordering {
    let numbers = |label: &str| -> Vec<f64> {
        let parts = label.split([' ', ',', '=']);
        parts.filter_map(|it| it.parse().ok()).collect()
    };
    let order = |one: &f64, other: &f64| one.total_cmp(other);
    let (left, right) = (numbers(one), numbers(other));
    let found = left
        .iter()
        .zip(&right)
        .map(|(one, other)| order(one, other));
    found
        .into_iter()
        .find(|it| it.is_ne())
        .unwrap_or_else(|| one.cmp(other))
}

/// Arms by metrics, or metrics by arms if there are too many of them for columns.
fn table(report: &Report, names: &[&str], label: impl Fn(&str) -> String) -> Table {
    let best: Vec<_> = names.iter().map(|name| best(report, name)).collect();
    let entry = |arm: &str, name: &str, best: Option<f64>| {
        let range = report.metric(arm, name);
        Cell {
            text: range.map_or_else(|| "–".to_owned(), cell),
            strong: range.is_some_and(|range| Some(range.median) == best),
        }
    };
    let title = |arm: &super::ArmResult| {
        if arm.peer {
            format!("{} †", arm.arm)
        } else {
            arm.arm.clone()
        }
    };
    if names.len() <= COLUMNS_MAX {
        let row = |arm: &super::ArmResult| {
            let cells = names
                .iter()
                .zip(&best)
                .map(|(name, best)| entry(&arm.arm, name, *best));
            std::iter::once(Cell::of(title(arm))).chain(cells).collect()
        };
        return Table {
            head: std::iter::once("arm".to_owned())
                .chain(names.iter().map(|it| label(it)))
                .collect(),
            rows: report.arms.iter().map(row).collect(),
        };
    }
    let row = |(name, best): (&&str, &Option<f64>)| {
        let cells = report.arms.iter().map(|arm| entry(&arm.arm, name, *best));
        std::iter::once(Cell::of(label(name)))
            .chain(cells)
            .collect()
    };
    Table {
        head: std::iter::once(String::new())
            .chain(report.arms.iter().map(title))
            .collect(),
        rows: names.iter().zip(&best).map(row).collect(),
    }
}

/// The best median of a metric, if one way is better.
fn best(report: &Report, name: &str) -> Option<f64> {
    let medians = report
        .arms
        .iter()
        .filter_map(|arm| Some(report.metric(&arm.arm, name)?.median));
    match Metric::of(name).better() {
        Better::More => medians.max_by(f64::total_cmp),
        Better::Less => medians.min_by(f64::total_cmp),
        Better::Neither => None,
    }
}

/// A range in a cell.
fn cell(range: &Range) -> String {
    let median = show(range.median);
    if range.min == range.max {
        return median;
    }
    format!("{median} ({}–{})", show(range.min), show(range.max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_in_the_order_of_their_numbers() {
        let mut labels = ["poll=1000", "poll=50", "poll=5 site=b", "poll=5 site=a"];
        labels.sort_by(|one, other| by_number(one, other));
        assert_eq!(
            labels,
            ["poll=5 site=a", "poll=5 site=b", "poll=50", "poll=1000"]
        );
    }
}
