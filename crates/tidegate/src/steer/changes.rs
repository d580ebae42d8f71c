//! What is to be set at HAProxy's servers: the same for weights, states and limits.

/// A server's names: of its backend, and its own.
pub(super) type Key = (String, String);

/// A number is near another one within this part of it.
const NEAR: u32 = 16;

/// What a server has or is to have.
pub(super) trait Setting: Copy + PartialEq {
    /// The event of a dry run that says what would be set, how that begins, and what it says where it is nothing.
    const WOULD: &'static str;
    const WOULD_TEXT: &'static str;
    const NOTHING: &'static str;
    /// The event that says what was set, where the plan gives no reasons.
    const SET: Option<&'static str>;

    /// The command of the runtime API that sets it, for `backend/server`.
    fn command(self, server: &str) -> String;

    /// A change of it, for people.
    fn described(server: &str, from: Self, to: Self) -> String;

    /// Whether it differs from another one by what hovers alone.
    fn is_near(self, other: Self) -> bool;

    /// Whether the end's report counts it.
    fn counts(self) -> bool {
        true
    }
}

/// A setting that is to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change<S> {
    pub(super) key: Key,
    pub(super) from: S,
    pub(super) to: S,
}

/// What is to be done now.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plan<S> {
    pub(super) changes: Vec<Change<S>>,
    /// What is to be said, each with the name of its event.
    pub(super) events: Vec<(&'static str, String)>,
    /// Why changes are made, in the same form: not for dry runs, where they are made again and again.
    pub(super) reasons: Vec<(&'static str, String)>,
}

/// Keeps account of one kind of setting.
pub(super) trait Keeper<S> {
    /// It was set.
    fn on_set(&mut self, change: &Change<S>);

    /// HAProxy does not set it.
    fn on_refused(&mut self, change: &Change<S>);
}

impl<S> Default for Plan<S> {
    fn default() -> Self {
        Self {
            changes: Vec::new(),
            events: Vec::new(),
            reasons: Vec::new(),
        }
    }
}

impl<S: Setting> Change<S> {
    /// `backend/server`.
    pub(super) fn server(&self) -> String {
        format!("{}/{}", self.key.0, self.key.1)
    }

    /// Whether it is another one but for what hovers.
    pub(super) fn is_near(&self, other: &Self) -> bool {
        self.key == other.key && self.to.is_near(other.to)
    }
}

/// A weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Weight(pub(super) u32);

/// Whether a server takes requests, by an operator's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DrainState {
    Ready,
    Drained,
}

/// `maxconn`; none is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MaxConn(pub(super) Option<u32>);

impl Setting for Weight {
    const WOULD: &'static str = "would_set";
    const WOULD_TEXT: &'static str = "would set";
    const NOTHING: &'static str = "nothing would be set";
    const SET: Option<&'static str> = Some("weights");

    fn command(self, server: &str) -> String {
        format!("set server {server} weight {}", self.0)
    }

    fn described(server: &str, from: Self, to: Self) -> String {
        format!("{server} {} to {}", from.0, to.0)
    }

    fn is_near(self, other: Self) -> bool {
        is_near(self.0, other.0)
    }
}

impl Setting for DrainState {
    const WOULD: &'static str = "would_drain";
    const WOULD_TEXT: &'static str = "would";
    const NOTHING: &'static str = "nothing would be drained";
    const SET: Option<&'static str> = None;

    fn command(self, server: &str) -> String {
        let state = match self {
            Self::Ready => "ready",
            Self::Drained => "drain",
        };
        format!("set server {server} state {state}")
    }

    fn described(server: &str, _: Self, to: Self) -> String {
        match to {
            Self::Ready => format!("make {server} ready"),
            Self::Drained => format!("drain {server}"),
        }
    }

    fn is_near(self, other: Self) -> bool {
        self == other
    }

    fn counts(self) -> bool {
        self == Self::Drained
    }
}

impl Setting for MaxConn {
    const WOULD: &'static str = "would_limit";
    const WOULD_TEXT: &'static str = "would set";
    const NOTHING: &'static str = "no maxconn would be set";
    const SET: Option<&'static str> = Some("limits");

    fn command(self, server: &str) -> String {
        // Zero is no limit.
        format!("set maxconn server {server} {}", self.0.unwrap_or(0))
    }

    fn described(server: &str, from: Self, to: Self) -> String {
        format!("maxconn of {server} {} to {}", from.words(), to.words())
    }

    fn is_near(self, other: Self) -> bool {
        match (self.0, other.0) {
            (Some(one), Some(other)) => is_near(one, other),
            (one, other) => one == other,
        }
    }
}

impl MaxConn {
    pub(super) fn words(self) -> String {
        self.0
            .map_or_else(|| "no limit".into(), |it| it.to_string())
    }
}

fn is_near(one: u32, other: u32) -> bool {
    one.abs_diff(other).saturating_mul(NEAR) <= other
}

/// Changes, one after the other.
pub(super) fn listed<S: Setting>(changes: &[Change<S>]) -> String {
    let one = |it: &Change<S>| S::described(&it.server(), it.from, it.to);
    changes.iter().map(one).collect::<Vec<_>>().join(", ")
}
