//! Goodput within the SLO, row by row: for work on admission, and to compare the modes.
//!
//! `cargo run --release -p tidegate-sim --example admission_rows [ROW [MODE|all]]`
//!
//! Rows whose name contains ROW; `step` shows how a step from 0.7 to 1.4 times the capacity is taken. One mode with all that was measured, `adaptive` if none is named;
//! or all modes with their goodput, as a table of Markdown.

#![expect(clippy::print_stdout, reason = "printing the table is what it is for")]

#[path = "../tests/support/admission.rs"]
mod admission;
#[path = "../tests/support/held.rs"]
mod held;

use admission::{Row, calm_rows, measure, neighbour_rows, rows, step};
use held::{gathering_rows, held_rows};
use tidegate_core::admission::AdmissionKind;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let part = arguments.next().unwrap_or_default();
    let mode = arguments.next();
    let mode = mode.as_deref().unwrap_or(AdmissionKind::Adaptive.label());
    let rows = rows().into_iter().chain(calm_rows());
    let rows = rows.chain(neighbour_rows()).chain(held_rows());
    let rows = rows.chain(gathering_rows());
    let rows = rows.filter(|row| row.name.contains(&part));
    if mode == "all" {
        return compare(rows);
    }
    let mut kinds = AdmissionKind::ALL.iter();
    let Some((kind, _)) = kinds.find(|(_, name)| *name == mode) else {
        let names: Vec<_> = AdmissionKind::ALL.iter().map(|(_, name)| *name).collect();
        return Err(format!("no mode `{mode}`: all, {}", names.join(", ")).into());
    };
    if part == "step" {
        return steps(*kind);
    }
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

/// Answers in time in windows of ten milliseconds from the step on, in percent of the capacity.
fn steps(kind: AdmissionKind) -> Result<(), Box<dyn std::error::Error>> {
    for front_ends in [1, 4, 16] {
        let (windows, error) = step(front_ends, kind)?;
        let shares: Vec<_> = windows
            .iter()
            .map(|it| format!("{:.0}", it * 100.0))
            .collect();
        let scatter = error * 100.0;
        println!("fe={front_ends:<3} +-{scatter:.1}  {}", shares.join(" "));
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
