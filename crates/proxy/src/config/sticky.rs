//! How a site's sessions are known that stick to their nodes. Plain values.

use std::fmt;
use std::time::Duration;

use http::HeaderName;

/// A site whose sessions stick.
#[derive(Clone, Debug, PartialEq)]
pub struct StickyConfig {
    /// What a request's session is known by.
    pub by: StickyBy,
    /// How far a session's node may be loaded beside the others: c of `tidegate_core::picker::Affinity`, at least 1.
    pub load_bound: f32,
}

impl StickyConfig {
    /// The load bound by default.
    pub const LOAD_BOUND: f32 = 1.25;
}

/// What a request's session is known by.
#[derive(Clone, Debug, PartialEq)]
pub enum StickyBy {
    /// A cookie that is set with the first answer, and names the node.
    Cookie(StickyCookie),
    /// The client's address, of IPv6 its first 64 bits.
    Source,
    /// The value of this field; requests without it are of no session.
    Header(HeaderName),
}

/// The cookie.
#[derive(Clone, Debug, PartialEq)]
pub struct StickyCookie {
    /// Its name.
    pub name: String,
    /// What its values are made with: the first makes them, all are known again. None: of the names alone.
    pub secrets: Vec<StickySecret>,
    /// How long browsers keep it; none: until they are closed.
    pub max_age: Option<Duration>,
}

/// A secret of any length. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct StickySecret(Box<[u8]>);

impl StickySecret {
    /// Of these bytes.
    pub fn new(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for StickySecret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("StickySecret(…)")
    }
}
