//! What an experiment found: ranges, verdicts, tables and plots.
//!
//! ```text
//!  Report ──> NAME.json   everything but the single runs
//!         ──> NAME.raw    every run, as JSON
//!         ──> NAME.md     tables, the paper's figures beside ours, verdicts, losses
//!         ──> NAME.svg    plots
//!  all NAME.json ──> index.html   one page that needs nothing else
//! ```
//!
//! Everything that is written follows from the [`Report`] alone: the same report gives the same
//! bytes. What it does not know: how anything was measured, and what the goals mean.

mod compare;
mod document;
mod files;
#[cfg(test)]
mod golden;
mod html;
mod losses;
mod machine;
mod markdown;
mod metric;
mod number;
mod plot;
mod range;
mod raw;
mod report;
#[cfg(test)]
mod sample;
mod scatter;
mod svg;

pub use compare::{Difference, compare};
pub use files::{FileError, read, write, write_index};
pub use html::page;
pub use losses::{Loss, losses};
pub use machine::Machine;
pub use markdown::markdown;
pub use metric::{Better, Metric};
pub use number::show;
pub use plot::{Axis, Bars, Curve, Line, Mark, Plot, Point};
pub use range::Range;
pub use report::{ArmResult, GoalVerdict, Report};
pub use scatter::widen;
pub use svg::figure;
