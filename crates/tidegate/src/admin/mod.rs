//! The admin interface.

pub(crate) mod models;

/// What an order must carry: a page of another origin cannot send it unasked.
pub(crate) const ORDER_HEADER: &str = "tidegate-order";
