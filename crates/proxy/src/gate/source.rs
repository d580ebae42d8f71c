//! Limits of one source, as all workers keep them together ([`source_limits`]).
//!
//! ```text
//! accept ── PROXY header ── connections of its source ──> TLS, heads ── rate of its source ──> site
//! ```
//!
//! Off by default: then neither looks at anything. The table is in parts with a lock each, which are held for a look-up; a
//! source is in one part. Clients whose claims are believed (`ForwardedConfig::trusted`) are balancers, and not limited.
//!
//! [`source_limits`]: tidegate_core::source_limits

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_core::source_limits::{Begun, SOURCES_MAX, Source, Sources};
use tidegate_core::time::Timestamp;

use crate::base::Settings;
use crate::record::reason::Reason;

/// Parts of the table.
const PARTS: usize = 16;

/// See the module.
#[derive(Debug)]
pub(crate) struct AllSources {
    hasher: RandomState,
    parts: [Mutex<Sources>; PARTS],
}

/// A connection that counts for its source. Dropping it ends that.
#[derive(Debug)]
pub(crate) struct SourceSeat {
    all: Arc<AllSources>,
    source: Source,
    clock: fn() -> Timestamp,
}

impl AllSources {
    pub(crate) fn new() -> Self {
        Self {
            hasher: RandomState::new(),
            parts: std::array::from_fn(|_| Mutex::new(Sources::new(SOURCES_MAX / PARTS))),
        }
    }

    fn part(&self, source: Source) -> MutexGuard<'_, Sources> {
        let part = self.hasher.hash_one(source) as usize % PARTS;
        // What it holds is in order after each step.
        self.parts[part]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection of a client begins. Nothing where it does not count.
    pub(crate) fn begin(
        self: &Arc<Self>,
        client: IpAddr,
        settings: &Settings,
        clock: fn() -> Timestamp,
    ) -> Result<Option<SourceSeat>, Reason> {
        let most = settings.per_source().connections;
        let Some(most) = most.filter(|_| !is_exempt(client, settings)) else {
            return Ok(None);
        };
        let source = Source::of(client);
        let begun = self.part(source).begin(source, most, clock());
        match begun {
            Begun::Refused => Err(Reason::SourceConnections),
            Begun::Uncounted => Ok(None),
            Begun::Counted => Ok(Some(SourceSeat {
                all: Arc::clone(self),
                source,
                clock,
            })),
        }
    }

    /// A request of a client has come.
    pub(crate) fn admit(
        &self,
        client: IpAddr,
        settings: &Settings,
        now: Timestamp,
    ) -> Result<(), Reason> {
        let rate = settings.per_source().rate;
        let Some(rate) = rate.filter(|_| !is_exempt(client, settings)) else {
            return Ok(());
        };
        let source = Source::of(client);
        match self.part(source).admits(source, rate, now) {
            true => Ok(()),
            false => Err(Reason::SourceRate),
        }
    }
}

fn is_exempt(client: IpAddr, settings: &Settings) -> bool {
    let forwarded = settings.forwarded();
    forwarded.trusted.iter().any(|it| it.contains(client))
}

impl Drop for SourceSeat {
    fn drop(&mut self) {
        let now = (self.clock)();
        self.all.part(self.source).end(self.source, now);
    }
}
