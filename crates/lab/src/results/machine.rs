//! The machine that an experiment ran on: what its figures depend on, and nothing that names it.

use serde::{Deserialize, Serialize};

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Model of its first CPU.
    pub cpu: String,
    /// CPUs that this process may use.
    pub cpus: u32,
    /// Release of its kernel.
    pub kernel: String,
    /// Main memory.
    pub memory_mib: u64,
}

impl Machine {
    /// The one that this runs on. What cannot be read is "unknown" or zero.
    pub fn this() -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let cpus = std::thread::available_parallelism();
        Self {
            cpu: cpu_model(&read("/proc/cpuinfo")),
            cpus: cpus.map_or(0, |cpus| cpus.get() as u32),
            kernel: kernel(&read("/proc/sys/kernel/osrelease")),
            memory_mib: memory_mib(&read("/proc/meminfo")),
        }
    }

    /// In one line.
    pub fn line(&self) -> String {
        format!(
            "{}, {} CPUs, {:.1} GiB of memory, Linux {}",
            self.cpu,
            self.cpus,
            self.memory_mib as f64 / 1024.0,
            self.kernel
        )
    }
}

/// `model name : …`, or what other architectures have instead.
fn cpu_model(cpuinfo: &str) -> String {
    let field = |name: &str| {
        let mut lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
        lines
            .find(|(key, _)| key.trim() == name)
            .map(|it| it.1.trim().to_owned())
    };
    let names = ["model name", "Model", "Hardware", "uarch"];
    let found = names
        .into_iter()
        .find_map(field)
        .filter(|it| !it.is_empty());
    found.unwrap_or_else(|| "unknown CPU".to_owned())
}

/// The version without what a distribution or a host appends to it.
fn kernel(release: &str) -> String {
    let version: String = release
        .trim()
        .chars()
        .take_while(|it| it.is_ascii_digit() || *it == '.')
        .collect();
    if version.is_empty() {
        "unknown".to_owned()
    } else {
        version
    }
}

fn memory_mib(meminfo: &str) -> u64 {
    let total = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|it| it.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_say_what_is_needed() {
        let cpuinfo = "processor\t: 0\nmodel name\t: Fast CPU @ 3.00GHz\nprocessor\t: 1\n";
        assert_eq!(cpu_model(cpuinfo), "Fast CPU @ 3.00GHz");
        assert_eq!(cpu_model(""), "unknown CPU");
        assert_eq!(kernel("6.1.44-custom-name\n"), "6.1.44");
        assert_eq!(
            memory_mib("MemTotal:        4046876 kB\nMemFree: 1 kB\n"),
            3952
        );
    }

    #[test]
    fn this_machine_is_known() {
        let machine = Machine::this();
        assert!(machine.cpus > 0 && machine.memory_mib > 0 && machine.kernel != "unknown");
    }
}
