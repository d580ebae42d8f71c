//! What `GET /api/why/NAME` says of a site's moves, as types. `docs/api.md` describes them.

use serde::{Deserialize, Serialize};

/// What moves think of a site.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct WhyMoves {
    /// Demand per CPU; null without CPUs.
    pub(crate) pressure: Option<f64>,
    /// What is thought of it, in a sentence.
    pub(crate) verdict: String,
    /// The best move for it now; null if it is not in need, or no node can come.
    pub(crate) best: Option<BestMove>,
    /// Why load moves nothing, whatever is thought; null if it does.
    pub(crate) held_back: Option<String>,
}

/// The move that would help a site in need most.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct BestMove {
    /// The node.
    pub(crate) node: String,
    /// The site that it would leave.
    pub(crate) from: String,
    /// The site that it would serve: another one than that in need, if it is the first of two steps.
    pub(crate) to: String,
    /// Why: as of a move.
    pub(crate) cause: String,
    /// Demand per CPU that is expected afterwards of the site in need.
    pub(crate) expected: f64,
    /// The same of the site that gives; null if no CPU is left there.
    pub(crate) giver_expected: Option<f64>,
}
