//! What a run consists of.

use std::time::Duration;

use tidegate_core::moves::choice::MoveChoice;
use tidegate_core::moves::evidence::{History, SENSITIVITY};
use tidegate_core::moves::numbering::{Constitution, MovableNode, NumberingError, SiteRules};

/// Sites, nodes, load and the arm.
#[derive(Clone, Debug, PartialEq)]
pub struct MovesScenario {
    /// How many nodes each site has in the beginning.
    pub nodes: Vec<usize>,
    /// CPUs of a node.
    pub cpus: u32,
    /// Mean CPU time of a request.
    pub demand: Duration,
    /// See there.
    pub load: Load,
    /// See there.
    pub arm: Arm,
    /// Least and most nodes of a site.
    pub bounds: (usize, usize),
    /// Front-ends that move nodes.
    pub front_ends: u32,
    /// What goes wrong with them.
    pub faults: Option<Faults>,
    /// How long it lasts.
    pub length: Duration,
    /// Gives the same run every time.
    pub seed: u64,
}

/// Which requests come.
#[derive(Clone, Debug, PartialEq)]
pub enum Load {
    /// Independent requests. From each moment on, the load of each site as a part of the CPUs that it has in the beginning.
    Open(Vec<(Duration, Vec<f64>)>),
    /// So many clients, which all ask one site, one request after the other. After so many requests they all go on to the next
    /// site: the bursts of Reconfiguration-2004.
    Bursts {
        /// Clients.
        clients: u32,
        /// Requests of a burst.
        requests: u64,
    },
}

impl Load {
    /// The same load for ever.
    pub fn steady(load: f64, sites: usize) -> Self {
        Self::Open(vec![(Duration::ZERO, vec![load; sites])])
    }
}

/// Which nodes serve a site.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arm {
    /// Nodes stay.
    Rigid,
    /// Nodes stay, and each site has as many as it could ever get.
    OverProvisioned,
    /// Nodes move.
    Moves(Rule),
}

/// When nodes move.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    /// T.
    pub history: History,
    /// S.
    pub sensitivity: Duration,
    /// From which pressure on a site is in need.
    pub high: f64,
    /// Which node.
    pub choice: MoveChoice,
    /// Most moves of a site in a minute.
    pub moves_max: usize,
    /// How long a node takes to warm up; it is weighed as a part of what a move costs, and not modelled.
    pub warm_up: Duration,
}

impl Rule {
    /// As `[reconfigure]` has it where nothing else is said.
    pub const DEFAULT: Self = Self {
        history: History::Auto,
        sensitivity: SENSITIVITY,
        high: 2.0,
        choice: MoveChoice::BestOff,
        moves_max: 10,
        warm_up: Duration::ZERO,
    };

    /// The paper's: T is fixed, and the least loaded node comes.
    pub fn paper(history: Duration, sensitivity: Duration) -> Self {
        Self {
            history: History::Fixed(history),
            sensitivity,
            choice: MoveChoice::LeastLoaded,
            ..Self::DEFAULT
        }
    }
}

/// What goes wrong with front-ends, each time that one moves a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Faults {
    /// Chance that it ends before or after each operation, and starts anew later.
    pub crash: f64,
    /// How long that takes, on the average.
    pub down: Duration,
    /// Chance that an operation that a crash found under way is done all the same, later.
    pub late: f64,
    /// How much later, at most.
    pub late_max: Duration,
    /// From then on nothing goes wrong any more.
    pub until: Duration,
}

/// Why there is no run.
#[derive(Debug, thiserror::Error)]
pub enum MovesError {
    /// Sites and nodes are none that can be moved.
    #[error(transparent)]
    Numbering(#[from] NumberingError),
    /// A number makes no sense.
    #[error("{0}")]
    Value(&'static str),
}

impl MovesScenario {
    /// How many nodes each site has in this arm, in the beginning.
    pub fn first_nodes(&self) -> Vec<usize> {
        match self.arm {
            Arm::OverProvisioned => vec![self.bounds.1; self.nodes.len()],
            Arm::Rigid | Arm::Moves(_) => self.nodes.clone(),
        }
    }

    /// What front-ends have in common.
    ///
    /// # Errors
    /// Sites and nodes are none that can be moved.
    pub fn constitution(&self) -> Result<Constitution, MovesError> {
        let narrow = |count: usize| u16::try_from(count).unwrap_or(u16::MAX);
        let nodes = self.first_nodes();
        let site = |number: usize| format!("site{number:03}");
        let rules = (0..nodes.len()).map(|number| SiteRules {
            name: site(number),
            floor: narrow(self.bounds.0),
            ceiling: narrow(self.bounds.1),
            priority: 0,
        });
        let homes = nodes.iter().enumerate();
        let homes = homes.flat_map(|(home, count)| std::iter::repeat_n(home, *count));
        let movable = homes.enumerate().map(|(number, home)| MovableNode {
            name: format!("node{number:05}"),
            home: site(home),
        });
        let all = Constitution::new(rules.collect(), movable.collect(), false, 1)?;
        Ok(all)
    }

    /// Whether it can be run.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self) -> Result<(), MovesError> {
        let wrong = |what| Err(MovesError::Value(what));
        if self.nodes.is_empty() || self.cpus == 0 {
            return wrong("there must be a site, and nodes must have CPUs");
        }
        if self.demand.is_zero() {
            return wrong("requests must want CPU time");
        }
        match &self.load {
            Load::Bursts { clients, requests } if *clients == 0 || *requests == 0 => {
                wrong("a burst must have clients and requests")
            }
            Load::Open(steps) if steps.iter().any(|(_, it)| it.len() != self.nodes.len()) => {
                wrong("each step of the load must name every site")
            }
            Load::Open(steps) if !steps.is_sorted_by_key(|(at, _)| *at) => {
                wrong("steps of the load must be in order")
            }
            Load::Open(_) | Load::Bursts { .. } => Ok(()),
        }
    }
}
