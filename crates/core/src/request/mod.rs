//! What is known of a request before it has a node: its priority, and which requests are alike.
//!
//! What it does not know: what follows from either. [`crate::admission`] decides that.

mod kind;
mod kind_places;
mod priority;

pub use kind::Kind;
pub(crate) use kind_places::{Answered, PLACES, Tenants};
pub use kind_places::{KindPlaces, SurgedKind};
pub use priority::{Priority, Rank};
