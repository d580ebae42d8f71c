//! What discovery hands to the process after it.

use tidegate_core::throttle::LearnedAutomatic;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HandedOver {
    /// What requests cost, in the bytes of the file in which it is kept over a restart; none: nothing is known of it.
    pub costs: Option<Vec<u8>>,
    /// What `automatic` has set and found out; none: it is switched off.
    pub automatic: Option<LearnedPolicy>,
}

/// What `automatic` has set and found out, and what its throttles are for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LearnedPolicy {
    /// By the names of throttles.
    pub automatic: LearnedAutomatic,
    /// What classes of discovery are called, and the throttles on them.
    pub orders: Vec<(String, String)>,
    /// The site that classes belong to, if they carry no site's name.
    pub alone: Option<String>,
}
