//! `/api/nodes`: what operators add, change and remove.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use tidegate_core::topology::discovered::Announced;

/// A node that an operator has added.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AddedNode {
    /// Its name.
    pub(crate) name: String,
    /// Where it serves HTTP.
    pub(crate) address: SocketAddr,
    /// Its site.
    pub(crate) site: String,
    /// Its share relative to others.
    pub(crate) weight: f32,
}

impl AddedNode {
    /// Most nodes of operators.
    pub(crate) const MAX: usize = 10_000;

    /// Whether there can be such a node.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn fit(&self) -> Result<(), String> {
        let announced = Announced {
            name: self.name.clone(),
            address: self.address,
            weight: self.weight,
        };
        announced.check().map_err(|unfit| unfit.to_string())
    }
}

/// `GET /api/nodes`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct AddedNodes {
    /// Those that operators have added.
    pub(crate) nodes: Vec<AddedNode>,
}

/// What `POST /api/nodes/NAME/weight` is given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NodeWeight {
    /// What it is to weigh; null: what it weighs by itself.
    pub(crate) weight: Option<f32>,
}

/// What `POST /api/nodes` is given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NodeRequest {
    /// Its name.
    pub(crate) name: String,
    /// Where it serves HTTP.
    pub(crate) address: SocketAddr,
    /// Its site; null where there is one only.
    #[serde(default)]
    pub(crate) site: Option<String>,
    /// Its share relative to others; null: 1.
    #[serde(default)]
    pub(crate) weight: Option<f32>,
}

/// What `POST /api/nodes/NAME` is given; null: as it was.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct NodeSettings {
    /// Where it serves HTTP.
    pub(crate) address: Option<SocketAddr>,
    /// Its site.
    pub(crate) site: Option<String>,
    /// Its share relative to others.
    pub(crate) weight: Option<f32>,
}

/// `POST /api/nodes`, `POST` and `DELETE /api/nodes/NAME`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct NodeEdited {
    /// The node as it is now, or was.
    pub(crate) node: AddedNode,
    /// Whether that outlives a restart.
    pub(crate) kept: bool,
    /// Why not.
    pub(crate) note: Option<String>,
}
