//! Goodput within the SLO, row by row: for whoever works on admission, and to compare the modes.
//!
//! `cargo run --release -p tidegate-sim --example admission_rows [ROW [MODE|all]]`
//!
//! Rows whose name contains ROW. One mode with all that was measured, `adaptive` if none is named;
//! or all modes with their goodput, as a table of Markdown.

#![expect(clippy::print_stdout, reason = "printing the table is what it is for")]

#[path = "../tests/support/admission.rs"]
mod admission;

use admission::{Row, calm_rows, measure, rows};
use tidegate_core::admission::AdmissionKind;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let part = arguments.next().unwrap_or_default();
    let mode = arguments.next();
    let mode = mode.as_deref().unwrap_or(AdmissionKind::Adaptive.label());
    let rows = rows().into_iter().chain(calm_rows());
    let rows = rows.filter(|row| row.name.contains(&part));
    if mode == "all" {
        return compare(rows);
    }
    let mut kinds = AdmissionKind::ALL.iter();
    let Some((kind, _)) = kinds.find(|(_, name)| *name == mode) else {
        let names: Vec<_> = AdmissionKind::ALL.iter().map(|(_, name)| *name).collect();
        return Err(format!("no mode `{mode}`: all, {}", names.join(", ")).into());
    };
    println!("row                     good%  shed%   p50ms   p99ms");
    for row in rows {
        let it = measure(&row, *kind)?;
        println!(
            "{:<23} {:>5.1}  {:>5.1}  {:>6.1}  {:>6.1}",
            row.name, it.goodput, it.shed, it.p50_ms, it.p99_ms,
        );
    }
    Ok(())
}

/// A row of the table for each scenario, a column for each mode.
fn compare(rows: impl Iterator<Item = Row>) -> Result<(), Box<dyn std::error::Error>> {
    let names: Vec<_> = AdmissionKind::ALL.iter().map(|(_, name)| *name).collect();
    println!("| | {} |", names.join(" | "));
    println!("|---|{}", "---|".repeat(names.len()));
    for row in rows {
        let mut cells = Vec::new();
        for (kind, _) in AdmissionKind::ALL {
            cells.push(format!("{:.0}", measure(&row, *kind)?.goodput));
        }
        println!("| {} | {} |", row.name, cells.join(" | "));
    }
    Ok(())
}
