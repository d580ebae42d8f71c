//! The agent's part of a move: it follows the node's word, counts connections, and has hooks run.
//!
//! ```text
//!  front-ends ── A, L ──> region ──> thread ── look ──> core's AgentPart ── keep ──> file
//!                           ^          ^                        ├─────────── B ──> region
//!                           │          └── end ── thread <──────┴── run ──> template -> target, commands
//! ```
//!
//! Numbers of sites in words are places in the front-ends' list. Hooks are named by site, so nothing is run, and nothing said,
//! while L is not that of the sites in the agent's own file. What a front-end can have an agent do: run the commands that the
//! agent's file has for one of its sites.
//!
//! Inputs: words of the region, the kernel's table of connections, the agent's file. Failure case: what cannot be kept on the
//! disk is not begun, and the move is taken back. An agent that is killed leaves a command of its hook running: the next one
//! ends it, if both have `state`.

mod command;
mod hook;
mod kept;
mod left;
mod trust;
mod watch;

pub use command::{CommandEnd, run_command};
pub use hook::{HookError, HookPart};
pub use kept::{KeptError, check_kept_folder, kept_files};
pub use trust::program as check_program;
pub use watch::{MovesError, MovesEvent, MovesWatch};

use crate::config::MovesConfig;

impl MovesConfig {
    /// The same, with sites in the order of their numbers.
    pub(crate) fn sorted(mut self) -> Self {
        self.sites.sort_by(|a, b| a.name.cmp(&b.name));
        self
    }

    /// What it will do, and what it cannot promise.
    pub(crate) fn describe(&self) -> Vec<String> {
        let port = self.port;
        let names: Vec<_> = self.sites.iter().map(|it| it.name.as_str()).collect();
        if names.is_empty() {
            return vec![format!(
                "Moves: connections on port {port} are counted; no hook is run."
            )];
        }
        let names = names.join(", ");
        let mut lines = vec![format!(
            "Moves: connections on port {port} are counted; there are hooks for {names}."
        )];
        if self.state.is_none() {
            lines.push(
                "Moves: without `state` a later agent does not know which site the servers are set up for, nor which \
                 hooks have run."
                    .into(),
            );
        }
        lines
    }
}
