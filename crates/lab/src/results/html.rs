//! All reports as one page that needs nothing else: no script, no font, no second file.

use std::fmt::Write;

use super::document::{Block, Cell, Table, blocks};
use super::losses::losses;
use super::report::Report;
use super::svg;

const STYLE: &str = include_str!("page.css");

/// The page of these reports, in their order.
pub fn page(reports: &[Report]) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>Tidegate: experiments</title>\n\
         <style>\n{STYLE}{}</style>\n</head>\n<body>\n<h1>Experiments</h1>\n",
        svg::STYLE
    );
    summary(&mut page, reports);
    for report in reports {
        section(&mut page, report);
    }
    page.push_str("</body>\n</html>\n");
    page
}

/// Contents and verdicts in one table.
fn summary(page: &mut String, reports: &[Report]) {
    let (goals, reached) = reports.iter().fold((0, 0), |sum, report| {
        (sum.0 + report.verdicts.len(), sum.1 + report.reached())
    });
    page.push_str(&format!(
        "<p>{reached} of {goals} goals reached.</p>\n<table>\n<tr>"
    ));
    for head in [
        "experiment",
        "what",
        "goals reached",
        "not reached",
        "others better in",
    ] {
        page.push_str(&format!("<th>{head}</th>"));
    }
    page.push_str("</tr>\n");
    for report in reports {
        let missed = report
            .verdicts
            .iter()
            .filter(|it| !it.reached)
            .map(|it| escape(&it.goal));
        let missed: Vec<_> = missed.collect();
        // Writing to a string cannot fail.
        writeln!(
            page,
            "<tr><td><a href=\"#{0}\">{0}</a></td><td>{1}</td><td>{2} of {3}</td><td>{4}</td><td>{5}</td></tr>",
            escape(&report.experiment),
            escape(&report.about),
            report.reached(),
            report.verdicts.len(),
            missed.join("<br>"),
            losses(report).len()
        )
        .ok();
    }
    page.push_str("</table>\n");
}

fn section(page: &mut String, report: &Report) {
    let name = escape(&report.experiment);
    page.push_str(&format!("<section id=\"{name}\">\n<h2>{name}</h2>\n"));
    for block in blocks(report) {
        match block {
            Block::Heading(heading) => page.push_str(&format!("<h3>{}</h3>\n", escape(&heading))),
            Block::Text(text) => page.push_str(&format!("<p>{}</p>\n", code(&text))),
            Block::Code(text) => page.push_str(&format!("<pre>{}</pre>\n", escape(&text))),
            Block::List(sentences) => {
                let items = sentences
                    .iter()
                    .map(|it| format!("<li>{}</li>\n", escape(it)));
                page.push_str(&format!("<ul>\n{}</ul>\n", items.collect::<String>()));
            }
            Block::Table(table) => render_table(page, &table),
            Block::Plots => page.push_str(&figures(report)),
        }
    }
    page.push_str("</section>\n");
}

fn figures(report: &Report) -> String {
    let plots = report.plots.iter();
    let figure = |plot| {
        let drawn = svg::figure_in_page(plot, &report.plots);
        format!(
            "<figure>
{drawn}</figure>
"
        )
    };
    plots.map(figure).collect()
}

fn render_table(page: &mut String, table: &Table) {
    let head = table
        .head
        .iter()
        .map(|it| format!("<th>{}</th>", escape(it)));
    page.push_str(&format!(
        "<div><table>\n<tr>{}</tr>\n",
        head.collect::<String>()
    ));
    for row in &table.rows {
        let cells = row.iter().map(cell).collect::<String>();
        page.push_str(&format!("<tr>{cells}</tr>\n"));
    }
    page.push_str("</table></div>\n");
}

fn cell(cell: &Cell) -> String {
    let text = escape(&cell.text);
    match (cell.strong, cell.text.as_str()) {
        (_, "reached") => format!("<td class=\"good\">{text}</td>"),
        (_, "not reached") => format!("<td class=\"bad\">{text}</td>"),
        (true, _) => format!("<td><b>{text}</b></td>"),
        (false, _) => format!("<td>{text}</td>"),
    }
}

/// Text with its `code` marked as such.
fn code(text: &str) -> String {
    let parts = text.split('`').enumerate();
    let mark = |(index, part): (usize, &str)| match index % 2 {
        1 => format!("<code>{}</code>", escape(part)),
        _ => escape(part),
    };
    parts.map(mark).collect()
}

/// Text without what HTML and XML would take for markup.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
