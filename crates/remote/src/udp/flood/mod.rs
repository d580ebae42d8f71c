//! What a flood of datagrams may cost the node, as decisions without a socket, a clock or a thread of their own; the
//! filter alone is the kernel's to run.
//!
//! | module | limits |
//! |---|---|
//! | `rate` | datagrams that are looked at |
//! | `sources` | requests whose MAC is computed |
//! | `budget` | time at real-time priority |
//! | `pace` | wake-ups |
//! | `siege`, `filter` | datagrams that get into the socket's buffer |

mod budget;
pub(super) mod filter;
mod pace;
mod rate;
mod siege;
mod sources;

pub(super) use budget::{PriorityChange, RealtimeBudget};
pub(super) use pace::Pace;
#[cfg(test)]
pub(super) use rate::RATE_WINDOW;
pub(super) use rate::RateLimit;
pub(super) use siege::{Gate, Siege};
pub(super) use sources::{Source, Sources};
