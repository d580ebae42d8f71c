//! Requests that give way to all others where there is no room.
//!
//! ```text
//! priority   the lowest there can be, and it has no session
//! ```
//!
//! The lowest there can be, not the lowest that the site uses: so a site with one priority has them
//! wait behind all others too.
//!
//! Inputs: the priority that the request would have. Failure case: a site with room to spare, where it
//! slows none; an admission mode without a queue and without priorities, where it does nothing.
//!
//! Source: the pushback at the HTTP level that Elephants-2005 allows.

use crate::request::Priority;

/// The priority of a request whose priority gives way.
pub fn lowered(priority: Priority) -> Priority {
    let lowest = Priority::all().last().unwrap_or(priority);
    lowest.with_established(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_lower() {
        for priority in Priority::all() {
            for known in [false, true] {
                let lowered = lowered(priority.with_established(known));
                assert_eq!(lowered.index(), Priority::COUNT - 1);
                assert!(!lowered.is_established());
            }
        }
    }
}
