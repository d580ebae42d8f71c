//! A stock `snmpd` that answers at a port of its own, and the programs of Net-SNMP that ask it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Process, eventually, free_port, is_installed};

/// With the MIBs that are the base of all others: Debian has no package of them.
pub(crate) const MIBS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../contrib/snmp/node_modules/net-snmp/lib/mibs"
);
/// Time that the system is up: every agent has it.
const UPTIME: &str = ".1.3.6.1.2.1.1.3.0";

/// See the module.
pub(crate) struct Snmpd {
    folder: PathBuf,
    pub(crate) port: u16,
    community: &'static str,
    process: Option<Process>,
}

impl Snmpd {
    /// What it takes to start one; a test that goes without it says so.
    pub(crate) fn is_installed() -> bool {
        is_installed("snmpd") && is_installed("snmpget")
    }

    /// One that this community may read, with more lines of its configuration.
    pub(crate) fn start(folder: &Path, community: &'static str, more: &str) -> Self {
        let lines = format!("rocommunity {community} 127.0.0.1\n{more}\n");
        Self::start_at(folder, free_port(), community, &lines)
    }

    /// One at a port that is free, with these lines alone, of which one lets the community read something.
    pub(crate) fn start_at(folder: &Path, port: u16, community: &'static str, lines: &str) -> Self {
        let text = format!("agentaddress udp:127.0.0.1:{port}\n{lines}");
        std::fs::write(folder.join("snmpd.conf"), text).unwrap();
        let mut snmpd = Self {
            folder: folder.into(),
            port,
            community,
            process: None,
        };
        snmpd.revive();
        snmpd
    }

    /// One with subagents, which reach it by [`master`], and with more lines.
    pub(crate) fn start_master(folder: &Path, more: &str) -> Self {
        let socket = master(folder);
        let lines = format!("master agentx\nagentXSocket {}\n{more}", socket.display());
        Self::start(folder, "public", &lines)
    }

    pub(crate) fn stop(&mut self) {
        self.process = None;
    }

    pub(crate) fn revive(&mut self) {
        let file = |name: &str| self.folder.join(name);
        let mut command = Command::new("snmpd");
        command.args(["-f", "-Lf"]).arg(file("snmpd.log"));
        command.args(["-C", "-c"]).arg(file("snmpd.conf"));
        command.arg("-p").arg(file("snmpd.pid"));
        command.env("SNMP_PERSISTENT_DIR", file("persistent"));
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        let command = command.stdout(Stdio::null()).stderr(Stdio::null());
        self.process = Some(Process::start(command));
        eventually("snmpd answers", || self.ask("snmpget", &[UPTIME]));
    }

    /// What a command of Net-SNMP prints, if it ends well.
    pub(crate) fn ask(&self, program: &str, more: &[&str]) -> Option<String> {
        let address = format!("127.0.0.1:{}", self.port);
        let mut command = Command::new(program);
        let dirs = format!("{MIBS}:/usr/share/snmp/mibs:{}", contrib().display());
        command
            .args(["-v2c", "-c", self.community, "-t1", "-r0"])
            .env("MIBDIRS", dirs);
        // Numbers alone, unless names are asked for.
        let (options, names): (Vec<&str>, Vec<&str>) =
            more.iter().copied().partition(|it| it.starts_with('-'));
        if options.is_empty() {
            command.args(["-On", "-m", ""]);
        }
        let output = command.args(options).arg(address).args(names).output();
        let output = output.expect("Net-SNMP's programs are there");
        output
            .status
            .success()
            .then(|| String::from_utf8(output.stdout).unwrap())
    }
}

/// The socket for subagents of the one in this folder.
pub(crate) fn master(folder: &Path) -> PathBuf {
    folder.join("master")
}

fn contrib() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/snmp")
}
