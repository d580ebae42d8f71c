//! Moves nodes between sites as their load wants it, while the front-end runs.
//!
//! ```text
//!  LoadTable, Topology ── sight ──> core's Mover ── begin ──> Attempt <──> words
//!  admin API ── Order ───────────────────┘ ▲                                 │
//!                                          └────── what the words say <──────┘
//!                 words of nodes ── a node joins a site ──> LiveCluster ──> Topology
//! ```
//!
//! | file | what |
//! |---|---|
//! | `task` | looks, moves and says so |
//! | `party` | what moves by one constitution |
//! | `agents` | what nodes' agents say |
//! | `at_start` | where nodes are before listeners open |
//! | `engine` | where words are, and how they are reached |
//! | `sight` | loads of sites and nodes |
//! | `record`, `models` | what became of moves, for people |
//!
//! The decisions are `tidegate_core::moves`; here is what they look at and what they reach. Failure case: a change of the
//! cluster that is refused: the node's word is taken back, and it stays where it was.

mod agents;
mod at_start;
mod engine;
pub(crate) mod models;
mod party;
mod record;
mod sight;
mod task;
mod under_way;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_proxy::Shared;
use tokio::sync::{Notify, mpsc, oneshot};

use crate::config::Reconfigure;
use crate::models::{NodeMove, WhyMoves};
use crate::output::Output;
use crate::reload::LiveCluster;
pub(crate) use at_start::nodes_at_start;
pub(crate) use engine::read_etcd;
use models::{FreezeRequest, MoveDone, MoveRequest, MovesStatus};
use task::MovesTask;

/// Orders that wait.
const ORDERS_MAX: usize = 16;

/// What an operator asks for.
enum Order {
    /// That a node moves.
    Move(MoveRequest, Answer<MoveDone>),
    /// That a site is frozen, or thawed.
    Freeze(FreezeRequest, bool, Answer<()>),
}

type Answer<T> = oneshot::Sender<Result<T, String>>;

/// Where operators ask for moves and see what became of them.
#[derive(Debug)]
pub(crate) struct Desk {
    orders: mpsc::Sender<Order>,
    board: Arc<Board>,
}

/// What the task and its onlookers share.
#[derive(Debug)]
struct Board {
    paused: AtomicBool,
    /// This process moves no node any more.
    ended: AtomicBool,
    shown: Mutex<Shown>,
}

/// What onlookers see.
#[derive(Debug)]
struct Shown {
    status: MovesStatus,
    /// Nodes on their way, whichever front-end moves them, by name.
    on_their_way: BTreeMap<String, NodeMove>,
}

/// The task's side of the desk.
struct Orders {
    config: Reconfigure,
    orders: mpsc::Receiver<Order>,
    /// Notified when a read has found a node's word changed.
    words_changed: Arc<Notify>,
    board: Arc<Board>,
}

/// Begins to move nodes, if that is wanted and the cluster can change. Needs a runtime around it.
pub(crate) fn begin(
    moving: Option<(Reconfigure, &Arc<LiveCluster>)>,
    shared: &Arc<Shared>,
    words_changed: Arc<Notify>,
    output: Output,
) -> Option<Desk> {
    let (config, cluster) = moving?;
    let (sender, orders) = mpsc::channel(ORDERS_MAX);
    let board = Arc::new(Board {
        paused: AtomicBool::new(false),
        ended: AtomicBool::new(false),
        shown: Mutex::new(Shown {
            status: MovesStatus {
                engine: config.engine.label().into(),
                dry_run: config.dry_run,
                ..MovesStatus::default()
            },
            on_their_way: BTreeMap::new(),
        }),
    });
    let own = Arc::clone(&board);
    let desk = Desk {
        orders: sender,
        board: own,
    };
    let orders = Orders {
        config,
        orders,
        words_changed,
        board,
    };
    let task = MovesTask::new(Arc::clone(cluster), Arc::clone(shared), orders, output);
    tokio::spawn(task.run());
    Some(desk)
}

impl Desk {
    /// Moves a node, or says what would become of it.
    ///
    /// # Errors
    /// The rule that does not allow it, or what is not known.
    pub(crate) async fn order(&self, request: MoveRequest) -> Result<MoveDone, String> {
        self.ask(|answer| Order::Move(request, answer)).await
    }

    /// Lets a site neither get nor give a node from now on, or lets it again.
    ///
    /// # Errors
    /// No such site takes part, or its lock cannot be had.
    pub(crate) async fn freeze(&self, request: FreezeRequest, frozen: bool) -> Result<(), String> {
        self.ask(|answer| Order::Freeze(request, frozen, answer))
            .await
    }

    async fn ask<T>(&self, order: impl FnOnce(Answer<T>) -> Order) -> Result<T, String> {
        let (answer, answered) = oneshot::channel();
        self.orders
            .try_send(order(answer))
            .map_err(|_| "too many orders wait, or this front-end is about to end")?;
        let none = "this front-end is about to end";
        answered.await.unwrap_or_else(|_| Err(none.into()))
    }

    /// From now on load moves nothing, or does again.
    pub(crate) fn pause(&self, paused: bool) {
        self.board.paused.store(paused, Ordering::Relaxed);
    }

    /// From now on this process moves none: it ends, or another one has taken over.
    pub(crate) fn end(&self) {
        self.board.ended.store(true, Ordering::Relaxed);
    }

    /// What is known of moves.
    pub(crate) fn status(&self) -> MovesStatus {
        let status = self.board.shown().status.clone();
        MovesStatus {
            paused: self.board.paused.load(Ordering::Relaxed),
            ..status
        }
    }

    /// What is thought of a site; none if it takes no part.
    pub(crate) fn why_site(&self, site: &str) -> Option<WhyMoves> {
        let shown = self.board.shown();
        let status = &shown.status;
        let seen = status.sites.iter().find(|it| it.site == site)?;
        let order = match (self.board.paused.load(Ordering::Relaxed), status.dry_run) {
            (true, _) => Some("load moves no node: paused by an operator".to_owned()),
            (false, true) => Some("load moves no node: a dry run".to_owned()),
            (false, false) => None,
        };
        Some(WhyMoves {
            pressure: seen.pressure,
            verdict: seen.verdict.clone(),
            best: seen.best.clone(),
            held_back: held_back(order.or_else(|| status.trouble.clone()), site, status),
        })
    }

    /// Where a node is on its way to.
    pub(crate) fn moves_to(&self, node: &str) -> Option<NodeMove> {
        self.board.shown().on_their_way.get(node).cloned()
    }

    /// Why the node's last move was not carried through, in a sentence; none if it was.
    pub(crate) fn failure(&self, node: &str) -> Option<String> {
        let shown = self.board.shown();
        let mut held = shown.status.held_back.iter();
        if let Some(held) = held.find(|it| it.node == node) {
            return Some(held.text());
        }
        let last = shown.status.moves.iter().find(|it| it.node == node)?;
        let (from, to, why) = (&last.from, &last.to, last.failed.as_ref()?);
        Some(format!(
            "its last move, from {from} to {to}, was not carried through: {why}"
        ))
    }
}

/// What holds moves back, of all sites and of this one.
fn held_back(all: Option<String>, site: &str, status: &MovesStatus) -> Option<String> {
    let nodes = status.held_back.iter();
    let of_site = nodes.filter(|it| it.site == site || it.back == site);
    let parts: Vec<_> = all.into_iter().chain(of_site.map(|it| it.text())).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

impl Board {
    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
