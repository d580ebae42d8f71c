//! What an arm needs whose load is read over SNMP: a stock `snmpd` in each node's control group and quota, at ordinary
//! priority, and behind it, by AgentX, an agent of ours that runs there too.

use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tidegate_remote::clock;

use super::layout::Load;
use super::{FrontError, programs};
use crate::cluster::{Cluster, ClusterError, Node, Process, tidegate};

/// Where `snmpd` answers.
const PORT: u16 = 9951;
/// Where the agent answers, which nothing asks.
const AGENT_PORT: u16 = 9952;
/// The name of our node's used CPU in percent.
const CPU_USED: &str = ".1.3.6.1.4.1.8072.9999.9999.84.1.1.2.0";
const COMMUNITY: &str = "lab";
/// Longest time until a node's load is there: they share a CPU of which each has a tenth.
const START_MAX: Duration = Duration::from_secs(30);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(10);

/// How such an arm reads a node.
pub(super) fn load(cluster: &Cluster, node: &Node, period: Duration) -> Load {
    Load::Snmp {
        address: address(node),
        community: community(cluster.folder()),
        period,
    }
}

fn address(node: &Node) -> SocketAddr {
    (node.address.ip(), PORT).into()
}

fn community(folder: &Path) -> PathBuf {
    folder.join("community")
}

/// Starts all of it; every node's load can be read when this returns.
///
/// # Errors
/// If Net-SNMP is not installed, or a node stays silent.
pub(super) fn start(cluster: &Cluster) -> Result<Vec<Process>, FrontError> {
    let snmpd = programs::find("snmpd").map_err(FrontError::Absent)?;
    let asks = programs::find("snmpget").map_err(FrontError::Absent)?;
    let secret = community(cluster.folder());
    write(&secret, COMMUNITY)?;
    let mut processes = Vec::new();
    for node in cluster.nodes() {
        processes.push(master(&snmpd, cluster, node)?);
        processes.push(subagent(cluster, node)?);
    }
    for node in cluster.nodes() {
        ready(&asks, cluster, node, &mut processes)?;
    }
    Ok(processes)
}

/// The `snmpd` of a node.
fn master(snmpd: &Path, cluster: &Cluster, node: &Node) -> Result<Process, FrontError> {
    let at = |end: &str| cluster.folder().join(format!("{}.{end}", node.name));
    write(
        &at("snmpd.conf"),
        &config(address(node), &at("agentx"), cluster.front().address()),
    )?;
    let mut command = node.place().command(snmpd);
    command.args(["-f", "-LE", "4", "-C", "-c"]);
    command.arg(at("snmpd.conf")).arg("-p").arg(at("snmpd.pid"));
    command.env("SNMP_PERSISTENT_DIR", at("snmp"));
    let name = format!("snmpd of {}", node.name);
    Ok(Process::start(name, &mut command)?)
}

fn config(listen: SocketAddr, socket: &Path, from: IpAddr) -> String {
    format!(
        "agentaddress udp:{listen}
master agentx
agentXSocket {}
rocommunity {COMMUNITY} {from}
",
        socket.display()
    )
}

/// Our agent behind it.
fn subagent(cluster: &Cluster, node: &Node) -> Result<Process, FrontError> {
    let at = |end: &str| cluster.folder().join(format!("{}.{end}", node.name));
    let scope = node.place().scope();
    let scope = scope.ok_or(ClusterError::Loopback("an snmpd in a node's quota"))?;
    let mut command = node.place().command(tidegate()?);
    let listen = SocketAddr::from((node.address.ip(), AGENT_PORT));
    command.args(["agent", "--listen", &listen.to_string(), "--no-realtime"]);
    command.arg("--key-file").arg(at("key"));
    command.args(["--scope", &scope, "--rung", "agent"]);
    command.arg("--agentx").arg(at("agentx"));
    let server = at("pid");
    if server.exists() {
        command.arg("--watch").arg(server);
    }
    let name = format!("the agent behind snmpd of {}", node.name);
    Ok(Process::start(name, &mut command)?)
}

/// Waits until the node's load can be read.
fn ready(
    asks: &Path,
    cluster: &Cluster,
    node: &Node,
    processes: &mut [Process],
) -> Result<(), FrontError> {
    let deadline = clock::now() + START_MAX;
    loop {
        let mut command: Command = cluster.front().command(asks);
        command.args(["-v2c", "-t1", "-r0", "-Oqv", "-m", "", "-c", COMMUNITY]);
        command.args([&address(node).to_string(), CPU_USED]);
        let output = command.stdin(Stdio::null()).output();
        let output = output.map_err(FrontError::file(asks))?;
        let text = String::from_utf8_lossy(&output.stdout);
        if text.trim().parse::<u32>().is_ok() {
            return Ok(());
        }
        let told = |it: &mut Process| it.ended().map(|_| it.told());
        let ended = processes.iter_mut().find_map(told);
        if ended.is_some() || clock::now() > deadline {
            return Err(FrontError::Silent {
                name: "snmpd".into(),
                address: address(node),
                why: format!("{}{text}", String::from_utf8_lossy(&output.stderr)),
                told: ended.unwrap_or_default(),
            });
        }
        clock::sleep_until(clock::now() + LOOK);
    }
}

/// A file that only its owner can read.
fn write(path: &Path, text: &str) -> Result<(), FrontError> {
    let mut options = std::fs::OpenOptions::new();
    let made = options.write(true).create(true).truncate(true).mode(0o600);
    let written = made
        .open(path)
        .and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()));
    written.map_err(FrontError::file(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_master_answers_the_front_end_alone() {
        let text = config(
            ([10, 77, 0, 11], PORT).into(),
            Path::new("/run/lab/n1.agentx"),
            [10, 77, 0, 1].into(),
        );
        assert_eq!(
            text,
            "agentaddress udp:10.77.0.11:9951\nmaster agentx\nagentXSocket /run/lab/n1.agentx\nrocommunity lab 10.77.0.1\n"
        );
    }
}
