//! `show servers state` of HAProxy: its servers, where they are, and their weights. Columns go by their names.

use std::net::{IpAddr, SocketAddr};

/// A server, as HAProxy has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerState {
    pub(super) backend: String,
    pub(super) server: String,
    /// None: it has no address yet, or is reached by a Unix socket.
    pub(super) address: Option<SocketAddr>,
    /// The weight in force.
    pub(super) weight: u32,
    /// The weight of the configuration.
    pub(super) configured: u32,
}

const COLUMNS: [&str; 6] = [
    "be_name",
    "srv_name",
    "srv_addr",
    "srv_port",
    "srv_uweight",
    "srv_iweight",
];

/// All servers of an answer, or what is not understood of it.
pub(super) fn parse(answer: &str) -> Result<Vec<ServerState>, String> {
    let mut lines = answer.lines().filter(|it| !it.trim().is_empty());
    let version = lines.next().unwrap_or_default();
    let names = lines.next().and_then(|it| it.strip_prefix("# "));
    let (Some(names), "1") = (names, version.trim()) else {
        let said = answer.lines().next().unwrap_or_default();
        return Err(format!(
            "expected `show servers state` of version 1, got `{said}`"
        ));
    };
    let names: Vec<_> = names.split_whitespace().collect();
    let mut at = [0; COLUMNS.len()];
    for (column, at) in COLUMNS.iter().zip(&mut at) {
        let found = names.iter().position(|it| it == column);
        *at = found.ok_or_else(|| format!("`show servers state` has no column {column}"))?;
    }
    lines.map(|line| row(line, at)).collect()
}

fn row(line: &str, at: [usize; COLUMNS.len()]) -> Result<ServerState, String> {
    let fields: Vec<_> = line.split_whitespace().collect();
    let wrong = || format!("a line of `show servers state` is not understood: `{line}`");
    let [backend, server, address, port, weight, configured] =
        at.map(|at| fields.get(at).copied().unwrap_or_default());
    if backend.is_empty() || server.is_empty() {
        return Err(wrong());
    }
    let address = address.parse::<IpAddr>().ok().zip(port.parse().ok());
    Ok(ServerState {
        backend: backend.into(),
        server: server.into(),
        address: address.map(|(ip, port)| SocketAddr::new(ip.to_canonical(), port)),
        weight: weight.parse().map_err(|_| wrong())?,
        configured: configured.parse().map_err(|_| wrong())?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = "1\n# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_iweight \
        srv_time_since_last_change srv_check_status srv_check_result srv_check_health srv_check_state srv_agent_state \
        bk_f_forced_id srv_f_forced_id srv_fqdn srv_port srvrecord srv_use_ssl srv_check_port srv_check_addr \
        srv_agent_addr srv_agent_port\n\
        3 shop 1 n1 10.0.0.11 2 0 50 100 7 1 0 2 0 0 0 0 - 80 - 0 0 - - 0\n\
        3 shop 2 n2 ::1 2 0 1 1 7 1 0 2 0 0 0 0 - 81 - 0 0 - - 0\n\
        3 shop 3 n3 - 2 0 1 1 7 1 0 2 0 0 0 0 - 0 - 0 0 - - 0\n\n";

    #[test]
    fn servers_have_addresses_and_weights() {
        let servers = parse(ANSWER).unwrap();
        let addresses: Vec<_> = servers.iter().map(|it| it.address).collect();
        let address = |text: &str| Some(text.parse().unwrap());
        assert_eq!(
            addresses,
            [address("10.0.0.11:80"), address("[::1]:81"), None]
        );
        let first = &servers[0];
        assert_eq!((&*first.backend, &*first.server), ("shop", "n1"));
        assert_eq!((first.weight, first.configured), (50, 100));
    }

    #[test]
    fn what_is_something_else_is_said() {
        let said = |answer: &str| parse(answer).unwrap_err();
        assert!(said("Unknown command: 'show'").contains("got `Unknown command: 'show'`"));
        assert!(said("").contains("got ``"));
        assert!(said("2\n# be_id be_name\n").contains("got `2`"));
        assert!(said("1\n# be_id be_name srv_name\n").contains("no column srv_addr"));
        let short = ANSWER.replace("3 shop 3 n3 - 2 0 1 1", "3 shop 3 n3 - 2 0 x 1");
        assert!(said(&short).contains("`3 shop 3 n3"), "{}", said(&short));
        assert!(said(&format!("{ANSWER}\n4\n")).contains("`4`"));
    }
}
