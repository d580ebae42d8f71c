//! Moves of nodes between sites: what became of them, and orders.

use std::sync::Arc;

use http::{Method, Request, StatusCode};

use super::api::{Answer, error, json, not_allowed, nothing, parsed};
use super::plane::Plane;

/// What stands behind `/api/moves`: nothing, or an order.
pub(super) async fn answer(
    request: &Request<bytes::Bytes>,
    plane: &Arc<Plane>,
    rest: &[&str],
) -> Answer {
    let Some(moves) = &plane.moves else {
        let text = "no node moves between sites: see [reconfigure]";
        return error(StatusCode::NOT_FOUND, text);
    };
    let is_post = *request.method() == Method::POST;
    match rest {
        [] if is_post => {
            let ordered = match parsed(request.body()) {
                Ok(wanted) => moves.order(wanted).await,
                Err(why) => Err(why),
            };
            match ordered {
                Ok(done) => json(StatusCode::OK, &done),
                Err(why) => error(StatusCode::BAD_REQUEST, &why),
            }
        }
        [] if matches!(*request.method(), Method::GET | Method::HEAD) => {
            json(StatusCode::OK, &moves.status())
        }
        [] => not_allowed("GET, HEAD, POST"),
        [order @ ("pause" | "resume")] => {
            if !is_post {
                return not_allowed("POST");
            }
            moves.pause(*order == "pause");
            json(StatusCode::OK, &moves.status())
        }
        [order @ ("freeze" | "thaw")] => {
            if !is_post {
                return not_allowed("POST");
            }
            let frozen = match parsed(request.body()) {
                Ok(wanted) => moves.freeze(wanted, *order == "freeze").await,
                Err(why) => Err(why),
            };
            match frozen {
                Ok(()) => json(StatusCode::OK, &moves.status()),
                Err(why) => error(StatusCode::BAD_REQUEST, &why),
            }
        }
        _ => nothing(),
    }
}
