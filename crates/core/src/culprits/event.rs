//! What a front-end notes of its requests, before they have a class.

use crate::classes::Words;
use crate::ids::SiteId;
use crate::time::Timestamp;

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestEvent {
    /// A request went to a server.
    Sent {
        /// Its number; no other has it.
        id: u64,
        /// Since when it had waited for room.
        asked: Timestamp,
        /// When.
        at: Timestamp,
        /// Whose it is.
        site: SiteId,
        /// What it asks for.
        words: Words,
    },
    /// The server has no more work with it.
    Ended {
        /// Its number.
        id: u64,
        /// When.
        at: Timestamp,
    },
    /// There was no room for a request at any server.
    Refused {
        /// When.
        at: Timestamp,
        /// Whose it is.
        site: SiteId,
        /// What it asks for.
        words: Words,
    },
}
