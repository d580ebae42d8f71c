//! `show servers state` of HAProxy: its servers, where they are, their weights and states. Columns go by their names. And
//! `show info`: which process it is.

use std::net::{IpAddr, SocketAddr};

use super::changes::Key;

/// Bits of a server's administrative state. Drained, by a command or by the configuration.
pub(super) const DRAINED: u32 = 0x08;
const DRAINED_FROM_START: u32 = 0x10;
/// In maintenance by a command; there are more of these: by the configuration, by a server that is tracked, without an address.
pub(super) const MAINTAINED: u32 = 0x01;
const MAINTAINED_ANYHOW: u32 = MAINTAINED | 0x02 | 0x04 | 0x20 | 0x40;
/// The operational state of a server that is down.
const DOWN: &str = "0";

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
    /// What operators want of it, in bits.
    pub(super) admin_state: u32,
    /// Whether its checks pass, if there are any.
    pub(super) is_up: bool,
}

impl ServerState {
    pub(super) fn key(&self) -> Key {
        (self.backend.clone(), self.server.clone())
    }

    /// Whether it is neither drained nor in maintenance.
    pub(super) fn is_ready(&self) -> bool {
        self.admin_state & (DRAINED | DRAINED_FROM_START | MAINTAINED_ANYHOW) == 0
    }

    /// Whether it is drained by a command, and that alone.
    pub(super) fn is_drained(&self) -> bool {
        self.admin_state & (DRAINED | MAINTAINED_ANYHOW) == DRAINED
    }

    /// Whether it takes requests while it is ready.
    pub(super) fn is_of_use(&self) -> bool {
        self.is_up && self.weight > 0
    }

    /// One that is up, for tests.
    #[cfg(test)]
    pub(super) fn running(weight: u32) -> Self {
        Self {
            backend: String::new(),
            server: String::new(),
            address: None,
            weight,
            configured: weight,
            admin_state: 0,
            is_up: true,
        }
    }
}

/// One run of HAProxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: u64,
    /// For how long it has run, seconds.
    pub(super) uptime_s: u64,
}

impl Process {
    /// From an answer to `show info`, or what is not understood of it.
    pub(super) fn parse(answer: &str) -> Result<Self, String> {
        let number = |name: &str| {
            let mut values = answer.lines().filter_map(|line| line.split_once(": "));
            let value = values.find(|(key, _)| *key == name).map(|it| it.1.trim());
            let number = value.and_then(|it| it.parse().ok());
            number.ok_or_else(|| format!("expected `{name}: N` in the answer to `show info`"))
        };
        Ok(Self {
            pid: number("Pid")?,
            uptime_s: number("Uptime_sec")?,
        })
    }
}

/// The run that HAProxy is in, as it was last seen.
#[derive(Debug, Default)]
pub(super) struct LastProcess(Option<Process>);

impl LastProcess {
    /// HAProxy is this process now. Whether that was started anew since the last time: then it has forgotten what was set.
    pub(super) fn is_new(&mut self, process: Process) -> bool {
        let before = self.0.replace(process);
        before.is_some_and(|it| process.pid != it.pid || process.uptime_s < it.uptime_s)
    }
}

const COLUMNS: [&str; 8] = [
    "be_name",
    "srv_name",
    "srv_addr",
    "srv_port",
    "srv_uweight",
    "srv_iweight",
    "srv_admin_state",
    "srv_op_state",
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
    let [
        backend,
        server,
        address,
        port,
        weight,
        configured,
        admin_state,
        op_state,
    ] = at.map(|at| fields.get(at).copied().unwrap_or_default());
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
        admin_state: admin_state.parse().map_err(|_| wrong())?,
        is_up: op_state != DOWN,
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
        3 shop 2 n2 ::1 0 9 1 1 7 1 0 2 0 0 0 0 - 81 - 0 0 - - 0\n\
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
        assert!(first.is_up && first.is_ready() && !first.is_drained());
        assert!(!servers[1].is_up && !servers[1].is_ready() && !servers[1].is_drained());
    }

    #[test]
    fn a_process_is_known_again() {
        let process = |text| Process::parse(text).unwrap();
        let first = process("Name: HAProxy\nPid: 12\nUptime: 0d 0h00m07s\nUptime_sec: 7\n");
        let (pid, uptime_s) = (12, 7);
        assert_eq!(first, Process { pid, uptime_s });
        let mut last = LastProcess::default();
        let mut is_new = |pid, uptime_s| last.is_new(Process { pid, uptime_s });
        assert!(!is_new(7, 5) && !is_new(7, 5) && !is_new(7, 6));
        assert!(is_new(8, 6));
        // In a container it may have the same number.
        assert!(is_new(8, 0) && !is_new(8, 1));
        let said = Process::parse("Pid: 12\n").unwrap_err();
        assert!(said.contains("`Uptime_sec: N`"), "{said}");
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
