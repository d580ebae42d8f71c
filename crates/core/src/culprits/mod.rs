//! Culprits: the classes of requests that explain a resource's load.

mod alignment;
mod pearson;

pub use alignment::{Alignment, Bins, align};
pub use pearson::Pearson;
