//! The HTTP side of an emulated node.

use std::sync::Arc;
use std::time::Duration;

use http::{Request, StatusCode};
use hyper::body::Incoming;
use tidegate_remote::clock;
use tokio::sync::oneshot;

use super::state::{Shared, Stay};
use crate::Work;
use crate::server::http::{Answer, accept, asked, done, text, unknown};
use crate::server::slowdown::Slowdown;

/// The URLs of one node, until this is dropped.
pub(super) async fn serve(listener: tokio::net::TcpListener, node: usize, shared: Arc<Shared>) {
    let slowdown = Arc::new(Slowdown::default());
    accept(listener, move |request| {
        let (shared, slowdown) = (Arc::clone(&shared), Arc::clone(&slowdown));
        async move { answer(&request, node, &shared, &slowdown).await }
    })
    .await;
}

async fn answer(
    request: &Request<Incoming>,
    node: usize,
    shared: &Arc<Shared>,
    slowdown: &Slowdown,
) -> Answer {
    let Some(parameters) = asked(request) else {
        return match request.uri().path() {
            "/slow" => slowdown.set(request.uri().query().unwrap_or_default()),
            // It costs nothing, and a node that stands still does not answer it.
            "/health" => work(Work::default(), node, shared).await,
            path => unknown(path),
        };
    };
    match Work::parse(parameters) {
        Ok(mut asked) => {
            slowdown.apply(&mut asked);
            work(asked, node, shared).await
        }
        Err(error) => text(StatusCode::BAD_REQUEST, &format!("{error}\n")),
    }
}

async fn work(mut work: Work, node: usize, shared: &Arc<Shared>) -> Answer {
    let arrived = clock::now();
    let (found, workers) = shared.prepare(node, &mut work);
    let Ok(_worker) = workers.acquire().await else {
        return gone();
    };
    let stay = Stay::begin(shared, node, &work);
    let mut parts = vec![work.cpu];
    if !work.sleep.is_zero() {
        parts = vec![work.cpu / 2, work.cpu - work.cpu / 2];
    }
    let mut ended = arrived;
    for (index, part) in parts.into_iter().enumerate() {
        if index > 0 {
            tokio::time::sleep(work.sleep).await;
        }
        match burn(&stay, part).await {
            Ok(at) => ended = at,
            Err(_) => return gone(),
        }
    }
    drop(stay);
    done(work.bytes, ended.since(arrived), found)
}

/// Waits for the CPU time; when it was had.
async fn burn(
    stay: &Stay,
    demand: Duration,
) -> Result<tidegate_core::time::Timestamp, oneshot::error::RecvError> {
    let (_task, end) = stay.arrive(demand);
    end.await
}

/// The node was emptied meanwhile.
fn gone() -> Answer {
    text(StatusCode::SERVICE_UNAVAILABLE, "the run is over\n")
}
