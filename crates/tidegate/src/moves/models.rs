//! What the JSON API says of moves, as types. `docs/api.md` describes them.

use serde::{Deserialize, Serialize};

use crate::models::BestMove;

/// `POST /api/moves`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MoveRequest {
    /// The node.
    pub(crate) node: String,
    /// The site that it is to serve.
    pub(crate) site: String,
    /// Only say whether it may.
    #[serde(default)]
    pub(crate) dry_run: bool,
    /// Also if its site has too few then.
    #[serde(default)]
    pub(crate) force: bool,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct MoveDone {
    /// The node.
    pub(crate) node: String,
    /// The site that it has left.
    pub(crate) from: String,
    /// The site that it serves.
    pub(crate) to: String,
    /// Whether it was moved; it was not if it is under way, or only could be.
    pub(crate) moved: bool,
    /// Whether it is on its way: `GET /api/moves` says what becomes of it.
    #[serde(default)]
    pub(crate) under_way: bool,
    /// The move's number; null if there is none.
    #[serde(default)]
    pub(crate) number: Option<u64>,
    /// What becomes of a site that has no other node; null if it has one.
    #[serde(default)]
    pub(crate) warning: Option<String>,
}

/// `POST /api/moves/freeze`, `POST /api/moves/thaw`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FreezeRequest {
    /// The site.
    pub(crate) site: String,
}

/// `GET /api/moves`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct MovesStatus {
    /// Where the words are.
    pub(crate) engine: String,
    /// Whether load moves nothing by the configuration.
    pub(crate) dry_run: bool,
    /// Whether load moves nothing by an operator's order.
    pub(crate) paused: bool,
    /// What keeps this front-end from moving nodes; null if nothing does.
    pub(crate) trouble: Option<String>,
    /// The sites that take part.
    pub(crate) sites: Vec<MovesSite>,
    /// Nodes that are not moved, as their agents do not follow their words.
    #[serde(default)]
    pub(crate) unfollowed: Vec<UnfollowedNode>,
    /// Nodes that serve a site by their words and get no requests yet.
    #[serde(default)]
    pub(crate) waiting: Vec<WaitingNode>,
    /// Nodes that do not take requests of the site that they have come to, and cannot go back now.
    #[serde(default)]
    pub(crate) held_back: Vec<HeldBackNode>,
    /// Moves that are not over.
    #[serde(default)]
    pub(crate) under_way: Vec<MoveUnderWay>,
    /// The latest moves, the newest first.
    pub(crate) moves: Vec<MoveRecord>,
    /// How many there were.
    pub(crate) counts: Vec<MoveCount>,
}

/// A site that takes part in moves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct MovesSite {
    /// Its name.
    pub(crate) site: String,
    /// Nodes that can be moved and serve it.
    pub(crate) nodes: u32,
    /// It keeps so many.
    pub(crate) min: u32,
    /// It takes no more.
    pub(crate) max: u32,
    /// Its rank, 0 the highest.
    pub(crate) priority: u32,
    /// Whether operators let it neither get nor give a node.
    #[serde(default)]
    pub(crate) frozen: bool,
    /// Runnable tasks and waiting requests.
    pub(crate) demand: f64,
    /// CPUs of its nodes.
    pub(crate) cpus: f64,
    /// Demand per CPU; null without CPUs.
    pub(crate) pressure: Option<f64>,
    /// What is thought of it.
    pub(crate) verdict: String,
    /// The best move for it now; null if it is not in need, or no node can come.
    #[serde(default)]
    pub(crate) best: Option<BestMove>,
}

/// A node that is not moved, as its agent does not follow its word.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct UnfollowedNode {
    /// Its name.
    pub(crate) node: String,
    /// Why.
    pub(crate) why: String,
}

/// A node that gets no requests yet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct WaitingNode {
    /// Its name.
    pub(crate) node: String,
    /// Why.
    pub(crate) why: String,
}

impl WaitingNode {
    /// In a sentence.
    pub(crate) fn text(&self) -> String {
        format!("{} gets no requests yet: {}", self.node, self.why)
    }
}

/// A node that cannot serve its site, and cannot go back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct HeldBackNode {
    /// Its name.
    pub(crate) node: String,
    /// The site that it cannot serve.
    pub(crate) site: String,
    /// The site that it is to go back to.
    pub(crate) back: String,
    /// What does not allow it.
    pub(crate) why: String,
}

impl HeldBackNode {
    /// In a sentence.
    pub(crate) fn text(&self) -> String {
        let Self {
            node,
            site,
            back,
            why,
        } = self;
        format!("{node} takes no requests of {site}, and cannot go back to {back}: {why}")
    }
}

/// A move that is not over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct MoveUnderWay {
    /// Its number.
    pub(crate) number: u64,
    /// The node.
    pub(crate) node: String,
    /// The site that it leaves.
    pub(crate) from: String,
    /// The site that it is to serve.
    pub(crate) to: String,
    /// Why: as of a move that is over.
    pub(crate) cause: String,
    /// What it does: `drains`, `switches`.
    pub(crate) state: String,
    /// For so long.
    pub(crate) seconds: f64,
    /// Its requests of this front-end.
    pub(crate) in_flight: u64,
    /// Connections that its agent counts while it drains; null without an agent that counts.
    #[serde(default)]
    pub(crate) connections: Option<u32>,
}

/// A move.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct MoveRecord {
    /// Its number: they count up as moves begin.
    #[serde(default)]
    pub(crate) number: u64,
    /// When it began.
    pub(crate) at: String,
    /// Whether this front-end made it; others it followed.
    pub(crate) own: bool,
    /// The node.
    pub(crate) node: String,
    /// The site that it left.
    pub(crate) from: String,
    /// The site that it was to serve.
    pub(crate) to: String,
    /// Why: `load`, `chain`, `home`, `operator`; of those that it followed also `start`, `revert`.
    pub(crate) cause: String,
    /// Demand per CPU of the site that got it, before; null if load was not why.
    pub(crate) pressure: Option<f64>,
    /// The same as expected afterwards.
    pub(crate) expected: Option<f64>,
    /// Why it was not carried through; null if it was.
    pub(crate) failed: Option<String>,
    /// The generation of the node's word that it brings: the same at all front-ends.
    #[serde(default)]
    pub(crate) generation: u32,
    /// When this front-end decided it, in microseconds since 1970; null if it followed.
    #[serde(default)]
    pub(crate) decided_us: Option<u64>,
    /// From when on this front-end sends the node requests of its new site, likewise; null if it was not carried through.
    #[serde(default)]
    pub(crate) assigned_us: Option<u64>,
}

/// Moves of a kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct MoveCount {
    /// Why.
    pub(crate) cause: String,
    /// Whether they were carried through.
    pub(crate) done: bool,
    /// How many.
    pub(crate) count: u64,
}
