//! A cable that is pulled: neither way to the node is left, its load becomes unknown, and is read over RDMA again once the
//! cable is back. As in `atomics`, both ends are in one kernel, and rules send what is for the other end over the cable.
//!
//! ```text
//! front-end 198.18.1.1, a device ── cable, whose end at the node goes down and up ── 198.18.1.2, a device: node
//! ```

use std::net::IpAddr;
use std::sync::Arc;

use tidegate_core::load::{LoadTable, Rung};
use tidegate_remote::rdma::{RdmaNode, RdmaNodeOptions};
use tidegate_remote::reader::OneSided;
use tidegate_remote::{RegionMemory, clock};

use super::atomics::{EMULATED, has_address, run};
use super::reading::{NODE, Publisher, read_into, until, until_it_stands};
use crate::support::rdma::{CARD, RdmaServer, has_device, options};

const FRONT: &str = "198.18.1.1";
const NODE_ADDRESS: &str = "198.18.1.2";
/// What the kernel forgets when an interface goes down.
const AT_NODE: [&str; 2] = [
    "ip neighbour replace 198.18.1.1 lladdr 02:00:00:00:01:01 dev plug nud permanent",
    "ip route replace 198.18.1.1 dev plug src 198.18.1.2 table 13",
];

fn lay_cable() -> Result<(), String> {
    if std::env::var_os(EMULATED).is_none() {
        return Err("routes are changed in the emulated machine alone".into());
    }
    for line in [
        "ip link add socket address 02:00:00:00:01:01 type veth peer name plug address 02:00:00:00:01:02",
        "ip address add 198.18.1.1/32 dev socket",
        "ip address add 198.18.1.2/32 dev plug",
        "ip link set socket up",
        "ip link set plug up",
        "ip neighbour replace 198.18.1.2 lladdr 02:00:00:00:01:02 dev socket nud permanent",
        "ip route add 198.18.1.2 dev socket src 198.18.1.1 table 12",
        "ip rule add pref 12 to 198.18.1.2 iif lo lookup 12",
        "ip rule add pref 13 to 198.18.1.1 iif lo lookup 13",
        "rdma link add rxe_socket type rxe netdev socket",
        "rdma link add rxe_plug type rxe netdev plug",
    ]
    .into_iter()
    .chain(AT_NODE)
    {
        run(line)?;
    }
    // The other cable may have done the same.
    run("ip rule add pref 100 lookup local").ok();
    run("ip rule del pref 0").ok();
    for interface in ["socket", "plug"] {
        let setting = format!("/proc/sys/net/ipv4/conf/{interface}/accept_local");
        std::fs::write(&setting, "1").map_err(|error| format!("{setting}: {error}"))?;
    }
    for address in [FRONT, NODE_ADDRESS] {
        has_address(address.parse().unwrap())?;
    }
    Ok(())
}

#[test]
fn a_link_that_goes_down_makes_a_load_unknown_and_one_that_is_up_again_is_read_over_rdma() {
    if !has_device() {
        return;
    }
    if let Err(why) = lay_cable() {
        return println!("SKIPPED: {why}");
    }
    let memory = Arc::new(RegionMemory::anonymous().unwrap());
    let address: IpAddr = NODE_ADDRESS.parse().unwrap();
    let at = RdmaNodeOptions {
        address: Some(address),
        ..options(false)
    };
    let node = RdmaNode::new(&memory, &at).unwrap();
    let node = RdmaServer::with(Arc::clone(&memory), (address, 0).into(), node);
    let _publisher = Publisher::start(&memory);
    let table = Arc::new(LoadTable::new(1, 1));
    let reader = read_into(Arc::clone(&table), node.address(), CARD.wait);
    let rung = || table.fresh(NODE, clock::now()).map(|load| load.rung);
    for _ in 0..2 {
        until_it_stands(&reader);
        until(|| rung() == Some(Rung::Rdma));
        run("ip link set plug down").unwrap();
        until(|| matches!(reader.one_sided(NODE), Some(OneSided::Lacks(Some(_)))));
        until(|| rung().is_none());
        run("ip link set plug up").unwrap();
        for line in AT_NODE {
            run(line).unwrap();
        }
    }
    until_it_stands(&reader);
    until(|| rung() == Some(Rung::Rdma));
}
