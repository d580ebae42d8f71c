//! A report as Markdown, for reading beside the code.

use std::fmt::Write;

use super::document::{Block, Cell, Table, blocks};
use super::report::Report;

/// The whole file. It shows the plots of `NAME.svg`, which lies beside it.
pub fn markdown(report: &Report) -> String {
    let mut text = format!("# {}\n", report.experiment);
    for block in blocks(report) {
        text.push('\n');
        render(&mut text, &block, report);
    }
    text
}

fn render(text: &mut String, block: &Block, report: &Report) {
    // Writing to a string cannot fail.
    let written = match block {
        Block::Heading(heading) => writeln!(text, "## {heading}"),
        Block::Text(body) => writeln!(text, "{body}"),
        Block::Code(code) => writeln!(text, "```sh\n{code}\n```"),
        Block::List(sentences) => sentences
            .iter()
            .try_for_each(|it| writeln!(text, "- {}", line(it))),
        Block::Table(table) => render_table(text, table),
        Block::Plots => writeln!(text, "![{0}]({0}.svg)", report.experiment),
    };
    written.ok();
}

fn render_table(text: &mut String, table: &Table) -> std::fmt::Result {
    let head: Vec<_> = table.head.iter().map(|it| line(it)).collect();
    writeln!(text, "| {} |", head.join(" | "))?;
    writeln!(text, "|{}", " --- |".repeat(head.len()))?;
    table.rows.iter().try_for_each(|row| {
        let cells: Vec<_> = row.iter().map(cell).collect();
        writeln!(text, "| {} |", cells.join(" | "))
    })
}

fn cell(cell: &Cell) -> String {
    let text = line(&cell.text);
    if cell.strong {
        format!("**{text}**")
    } else {
        text
    }
}

/// On one line, without what would end a cell.
fn line(text: &str) -> String {
    text.replace('\n', " ").replace('|', "\\|")
}
