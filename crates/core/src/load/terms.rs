//! What the director has learned, as every picker uses it.

/// What the director works out for one node and every picker uses; see `policy::auto`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeTerms {
    /// `rel * (1 + 50 e^3) * relief`: learned relative cost of a request here, errors included, and what
    /// its neighbours relieve it of.
    pub factor: f32,
    /// Added to the score: large while most answers are errors.
    pub penalty: f32,
    /// What one own dispatch says about all front-ends' dispatches.
    pub arrival_inflation: f32,
    /// What one own request in flight says about all front-ends'.
    pub inflight_inflation: f32,
    /// Expected run queue without a record and without own requests.
    pub prior_runnable: f32,
    /// Expected requests in flight without a record and without own requests.
    pub prior_in_flight: f32,
    /// 1 / C, where C is the CPUs to reckon with: what the node's records say, or what others
    /// have for its weight.
    pub per_core: f32,
}

impl NodeTerms {
    /// The same at a node whose crowd counts for so much.
    #[must_use]
    pub(crate) fn relieved(self, relief: f32) -> Self {
        Self {
            factor: self.factor * relief,
            ..self
        }
    }
}

impl Default for NodeTerms {
    fn default() -> Self {
        Self {
            factor: 1.0,
            penalty: 0.0,
            arrival_inflation: 1.0,
            inflight_inflation: 1.0,
            prior_runnable: 0.0,
            prior_in_flight: 0.0,
            per_core: 1.0,
        }
    }
}

/// What the director works out for a whole site.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SiteTerms {
    /// Nodes that a decision compares.
    pub draws: u32,
    /// How fast a record loses its worth: 1 / (2 * mean time of a request that is alone at its node), per second.
    pub decay: f32,
}

impl Default for SiteTerms {
    fn default() -> Self {
        // Until a first response a record is taken to be worth 20 ms.
        Self {
            draws: 5,
            decay: 50.0,
        }
    }
}
