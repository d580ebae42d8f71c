//! Requests that give way to all others where there is no room.
//!
//! ```text
//! class   the lowest there can be, and its session is nobody's
//! ```
//!
//! The lowest there can be, not the lowest that the site uses: so a site with one class has them
//! wait behind all others too.
//!
//! Inputs: the class that the request would have. Failure case: a site with room to spare, where it
//! slows nobody; an admission mode without a queue and without classes, where it does nothing.
//!
//! Source: the pushback at the HTTP level that Elephants-2005 allows.

use crate::request::Class;

/// The class of a request whose class gives way.
pub fn lowered(class: Class) -> Class {
    let lowest = Class::all().last().unwrap_or(class);
    lowest.with_known(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_lower() {
        for class in Class::all() {
            for known in [false, true] {
                let lowered = lowered(class.with_known(known));
                assert_eq!(lowered.index(), Class::COUNT - 1);
                assert!(!lowered.is_known());
            }
        }
    }
}
