//! What is asked for the load, each in the way of its rung.

use std::time::Duration;

use crate::cluster::AgentPlan;

use super::super::arms;
use super::known::Over;

/// The paper's window of the actual load.
pub(super) const WINDOW: Duration = Duration::from_millis(10);

/// One way to know a node's load.
#[derive(Clone, Debug)]
pub(super) struct Scheme {
    pub(super) agent: AgentPlan,
    pub(super) over: Over,
    /// The program that answers, if one does.
    pub(super) program: Option<&'static str>,
}

const fn window(agent: AgentPlan, program: Option<&'static str>) -> Scheme {
    Scheme {
        agent,
        over: Over::Window(WINDOW),
        program,
    }
}

/// All, rung 6 to rung 1.
pub(super) const SCHEMES: [Scheme; 6] = [
    Scheme {
        agent: arms::ulm_agent(arms::PAPER_INTERVAL),
        over: Over::Interval,
        program: None,
    },
    window(arms::beside_agent(), None),
    window(arms::record_agent(), None),
    window(arms::tc_agent(), Some("tc_respond")),
    window(arms::klm_agent(), Some("xdp_respond")),
    window(arms::native_agent(), Some("xdp_respond")),
];
