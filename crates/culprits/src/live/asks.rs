//! What the thread of discovery is asked for, and the handle to ask it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError};

use arc_swap::ArcSwap;
use serde::{Deserialize, Serialize};
use tidegate_core::time::Timestamp;
use tokio::sync::oneshot;

use super::exchange::Shipment;
use super::findings::Findings;
use super::handed_over::HandedOver;
use super::watch::Actions;
use crate::delay_experiment::ExperimentReport;
use crate::picture::report::Report;

/// What the thread is asked for.
#[derive(Debug)]
pub(super) enum Ask {
    /// The picture of the last minute.
    Report(oneshot::Sender<Report>),
    /// Begin an experiment on this class, against this resource or the one that it is thought to use most.
    Experiment(
        ExperimentRequest,
        oneshot::Sender<Result<ExperimentReport, String>>,
    ),
    /// What ended after this, for another front-end.
    Requests(u64, oneshot::Sender<Shipment>),
    /// What another front-end said, and when.
    Told(SocketAddr, Result<Shipment, String>, Timestamp),
    /// What a successor goes on from.
    HandOver(oneshot::Sender<HandedOver>),
    /// Keep what was learned, and learn no more for the next process.
    Keep,
    /// End.
    Stop,
}

/// `POST /api/culprits/experiment`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExperimentRequest {
    /// The class's name.
    pub class: String,
    /// The resource's; null is the one of which the class is thought to use most.
    pub resource: Option<String>,
}

/// Why there is no report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// As many as may wait do.
    #[error("too many wait for a report")]
    Busy,
    /// The thread has ended.
    #[error("nobody watches for culprits")]
    Gone,
}

/// A handle to ask the thread; as many as needed.
#[derive(Clone, Debug)]
pub struct Asks {
    pub(super) sender: SyncSender<Ask>,
    pub(super) findings: Arc<ArcSwap<Findings>>,
    pub(super) actions: Arc<ArcSwap<Actions>>,
    pub(super) peers: Arc<ArcSwap<Vec<SocketAddr>>>,
}

impl Asks {
    /// The picture as it is now.
    pub async fn report(&self) -> Result<Report, AskError> {
        let (sender, answer) = oneshot::channel();
        self.ask(Ask::Report(sender))?;
        answer.await.map_err(|_| AskError::Gone)
    }

    /// Begins a delay experiment.
    pub async fn experiment(&self, request: ExperimentRequest) -> Result<ExperimentReport, String> {
        let (sender, answer) = oneshot::channel();
        let sent = self.ask(Ask::Experiment(request, sender));
        sent.map_err(|error| error.to_string())?;
        answer.await.map_err(|_| AskError::Gone.to_string())?
    }

    /// What another front-end gets that asks for what ended after this.
    pub async fn requests(&self, after: u64) -> Result<Shipment, AskError> {
        let (sender, answer) = oneshot::channel();
        self.ask(Ask::Requests(after, sender))?;
        answer.await.map_err(|_| AskError::Gone)
    }

    /// What a successor goes on from: it comes with the next tick.
    ///
    /// # Errors
    /// The thread has too much to do, or has ended.
    pub fn hand_over(&self) -> Result<oneshot::Receiver<HandedOver>, AskError> {
        let (sender, answer) = oneshot::channel();
        self.ask(Ask::HandOver(sender))?;
        Ok(answer)
    }

    /// Another front-end has said this, or nothing; false if it is not asked for.
    pub fn deliver(
        &self,
        from: SocketAddr,
        shipment: Result<Shipment, String>,
        at: Timestamp,
    ) -> bool {
        // If there is no room what it tells is lost, and what comes next is not.
        self.ask(Ask::Told(from, shipment, at)) != Err(AskError::Gone)
    }

    /// It does this by itself from its next tick on.
    pub fn set_actions(&self, actions: Actions) {
        self.actions.store(Arc::new(actions));
    }

    /// These are the other front-ends from now on, whatever is delivered of others.
    pub fn set_peers(&self, peers: Vec<SocketAddr>) {
        self.peers.store(Arc::new(peers));
    }

    fn ask(&self, ask: Ask) -> Result<(), AskError> {
        self.sender.try_send(ask).map_err(|error| match error {
            TrySendError::Full(_) => AskError::Busy,
            TrySendError::Disconnected(_) => AskError::Gone,
        })
    }

    /// One that has found this, and draws nothing.
    #[cfg(any(test, feature = "testing"))]
    pub fn with(findings: Findings) -> Self {
        Self {
            sender: std::sync::mpsc::sync_channel(1).0,
            findings: Arc::new(ArcSwap::from_pointee(findings)),
            actions: Arc::new(ArcSwap::from_pointee(Actions::NONE)),
            peers: Arc::default(),
        }
    }

    /// Which classes are named.
    pub fn findings(&self) -> Arc<Findings> {
        self.findings.load_full()
    }
}
