//! `GET /api/access`.

use serde::{Deserialize, Serialize};

/// What the one that asks may do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct AccessModel {
    /// It may give orders.
    pub(crate) may_act: bool,
    /// What it has shown: `full`, `read`, or `none` where none is asked for.
    pub(crate) token: String,
    /// As which operator's its orders are kept.
    pub(crate) by: String,
}
