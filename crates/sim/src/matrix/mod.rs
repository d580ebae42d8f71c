//! The standard matrix: the scenarios that come with Tidegate, and how policies are compared
//! over them.
//!
//! * [`built_in`]: the scenario files of `crates/sim/scenarios`, part of the binary.
//! * [`score`]: what one policy came to in one scenario, and which of two did better.
//! * [`comparison`]: every policy in every scenario.

pub mod built_in;
pub mod comparison;
pub mod score;
