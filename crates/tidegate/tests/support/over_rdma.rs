//! What a front-end and the doctor say of a node that is read over RDMA.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::Value;

use super::{FrontEnd, eventually, tidegate};

/// What a front-end says of its node.
pub(crate) fn node(front_end: &FrontEnd) -> Value {
    front_end.api("/api/status")["sites"][0]["nodes"][0].clone()
}

/// Waits until its load is known over RDMA.
#[track_caller]
pub(crate) fn is_read_over_rdma(front_end: &FrontEnd) {
    eventually("the load is known over RDMA", || {
        let node = node(front_end);
        let known = node["rung"] == "rdma" && node["load"]["fresh"] == true;
        (known && node["reads"]["no_rdma"].is_null()).then_some(())
    });
}

/// `site`: more lines of the site. A front-end that reads often, at the priority of all others: the machine may have one CPU.
pub(crate) fn configuration(
    server: SocketAddr,
    site: &str,
    agent: SocketAddr,
    master: &Path,
    load: &str,
) -> String {
    format!(
        "[limits]\nconnections = 100\nworkers = 1\n\
         [load]\nkey_file = \"{}\"\ninterval = \"20ms\"\npace = \"constant\"\nrealtime = false\n\
         [[site]]\nname = \"shop\"\nhosts = [\"shop.example\"]\n{site}\
         [[node]]\nname = \"n1\"\nsite = \"shop\"\naddress = \"{server}\"\n\
         load = {{ address = \"{agent}\"{load} }}\n",
        master.display()
    )
}

/// Reads that have brought a record that was not known.
pub(crate) fn new_records(node: &Value) -> u64 {
    let count = |key: &str| node["reads"][key].as_u64().unwrap();
    count("reads") - count("unchanged")
}

/// What the doctor finds about RDMA with the front-end's file in this folder: each level and text.
pub(crate) fn doctor(folder: &Path) -> Vec<(String, String)> {
    let mut command = tidegate();
    let file = folder.join("tidegate.toml");
    let ran = command.args(["doctor", "--json", "-c"]).arg(file).output();
    let found: Value = serde_json::from_slice(&ran.unwrap().stdout).unwrap();
    let text = |check: &Value, key: &str| check[key].as_str().unwrap_or_default().to_owned();
    let all = found["checks"].as_array().unwrap().iter();
    all.filter(|check| check["check"] == "rdma")
        .map(|check| (text(check, "level"), text(check, "text")))
        .collect()
}
