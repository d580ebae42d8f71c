//! What a source of servers is ordered to answer.

use std::net::Ipv4Addr;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// These addresses.
    Addresses(Vec<Ipv4Addr>),
    /// None: that there is no such name, or no such endpoint.
    Empty,
    /// What means nothing.
    Garbage,
    /// Nothing.
    Silence,
}
