//! A process that runs out of file descriptors when a test wants it.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Process;

/// It may have 40 files open and has 37; it closes most of them once it is asked to.
pub(crate) struct Greedy {
    process: Process,
    /// For an agent to watch.
    pub(crate) pid_file: PathBuf,
}

impl Greedy {
    pub(crate) fn start(folder: &Path) -> Self {
        let script = "ulimit -n 40; for i in $(seq 3 36); do eval \"exec $i</dev/null\"; done; echo full; read line; \
                      for i in $(seq 10 36); do eval \"exec $i<&-\"; done; echo free; read line";
        let mut command = Command::new("bash");
        command
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = Process::start_with_input(&mut command);
        process.wait_for_line("full");
        let pid_file = folder.join("greedy.pid");
        std::fs::write(&pid_file, process.id().to_string()).unwrap();
        Self { process, pid_file }
    }

    pub(crate) fn free(&mut self) {
        self.process.input().write_all(b"\n").unwrap();
        self.process.wait_for_line("free");
    }

    /// The agent's key that has it watched.
    pub(crate) fn watch(&self) -> String {
        format!("watch = [\"{}\"]", self.pid_file.display())
    }
}
