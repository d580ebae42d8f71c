//! Nodes that operators add, change and remove, or have drain.

use std::sync::Arc;

use http::{Method, Request, StatusCode};

use super::api::{Answer, error, json, not_allowed, nothing, override_node, parsed};
use super::plane::Plane;
use crate::models::{AddedNodes, NodeEdited, NodeWeight};
use crate::reload::{NodeEdit, ReloadError};

/// What stands behind `/api/nodes`: nothing, a name, or a name and an override.
pub(super) async fn answer(
    request: &Request<bytes::Bytes>,
    plane: &Arc<Plane>,
    rest: &[&str],
) -> Answer {
    let name = match rest {
        [] => None,
        [name] => Some(*name),
        [name, "weight"] if *request.method() == Method::POST => {
            return weigh(request, plane, name).await;
        }
        [name, order] => {
            return match *request.method() == Method::POST {
                true => override_node(plane, name, order).await,
                false => not_allowed("POST"),
            };
        }
        _ => return nothing(),
    };
    let Some(cluster) = &plane.cluster else {
        return error(StatusCode::NOT_FOUND, FIXED);
    };
    let body = request.body();
    let edit = match (request.method(), name) {
        (&Method::GET | &Method::HEAD, None) => {
            let nodes = cluster.added().await;
            return json(StatusCode::OK, &AddedNodes { nodes });
        }
        (&Method::POST, None) => parsed(body).map(NodeEdit::Add),
        (&Method::POST, Some(name)) => parsed(body).map(|it| NodeEdit::Set(name.into(), it)),
        (&Method::DELETE, Some(name)) => Ok(NodeEdit::Remove(name.into())),
        (_, None) => return not_allowed("GET, HEAD, POST"),
        (_, Some(_)) => return not_allowed("POST, DELETE"),
    };
    let edit = match edit {
        Ok(edit) => edit,
        Err(why) => return error(StatusCode::BAD_REQUEST, &why),
    };
    let change = match plane.upgrades.change().await {
        Ok(change) => change,
        Err(why) => return error(StatusCode::SERVICE_UNAVAILABLE, &why),
    };
    edited(cluster.edit_node(edit, change).await)
}

const FIXED: &str = "the nodes of this front-end stay as they are";

/// Has a node weigh more or less than it does by itself.
async fn weigh(request: &Request<bytes::Bytes>, plane: &Arc<Plane>, name: &str) -> Answer {
    let Some(cluster) = &plane.cluster else {
        return error(StatusCode::NOT_FOUND, FIXED);
    };
    let NodeWeight { weight } = match parsed(request.body()) {
        Ok(wanted) => wanted,
        Err(why) => return error(StatusCode::BAD_REQUEST, &why),
    };
    let change = match plane.upgrades.change().await {
        Ok(change) => change,
        Err(why) => return error(StatusCode::SERVICE_UNAVAILABLE, &why),
    };
    edited(cluster.weigh_node(name.into(), weight, change).await)
}

fn edited(done: Result<NodeEdited, ReloadError>) -> Answer {
    match done {
        Ok(edited) => json(StatusCode::OK, &edited),
        Err(why) if why.is_passing() => error(StatusCode::SERVICE_UNAVAILABLE, &why.to_string()),
        Err(why) => error(StatusCode::BAD_REQUEST, &why.to_string()),
    }
}
