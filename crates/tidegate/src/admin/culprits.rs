//! The live page of culprits, as an answer.

#[cfg(test)]
pub(in crate::admin) mod browser;
#[cfg(test)]
mod fixture;
#[cfg(test)]
mod tests;

use tidegate_culprits::page::{PAGE, policy};

use super::api::Answer;
use super::page;

/// The live page.
pub(super) fn answer() -> Answer {
    page::guarded(PAGE, policy())
}
