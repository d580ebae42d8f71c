//! What a reload answers.

use serde::{Deserialize, Serialize};

/// `POST /api/reload`: what the configuration file as it is makes of the one in force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Reloaded {
    /// It was done; not so with `?dry_run`.
    pub(crate) applied: bool,
    /// What takes effect at once.
    pub(crate) changes: Vec<PlanLine>,
    /// What `tidegate upgrade` puts in force.
    #[serde(default)]
    pub(crate) upgrade: Vec<PlanLine>,
    /// What takes a restart.
    pub(crate) restart: Vec<PlanLine>,
    /// What is worth knowing besides, in sentences.
    pub(crate) notes: Vec<String>,
}

/// One step of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PlanLine {
    /// `node n1`, `[limits]`.
    pub(crate) what: String,
    /// Which key of it; null if it comes or goes as a whole.
    pub(crate) key: Option<String>,
    /// The value before; null if there was none.
    pub(crate) before: Option<String>,
    /// The value from now on; null if there is none.
    pub(crate) after: Option<String>,
}

impl std::fmt::Display for PlanLine {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            what,
            key,
            before,
            after,
        } = self;
        let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "not set".into());
        match (key, before, after) {
            (Some(key), before, after) => {
                write!(
                    out,
                    "~ {what}: {key} = {} -> {}",
                    value(before),
                    value(after)
                )
            }
            (None, _, Some(after)) => write!(out, "+ {what} {after}"),
            (None, before, None) => write!(out, "- {what} {}", before.as_deref().unwrap_or("")),
        }
    }
}
