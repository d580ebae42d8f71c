//! How a node's load is being read, best first.

/// A rung of the ladder from kernel-level reads down to none. The number is what the record
/// and the metric carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Rung {
    /// Nothing is read: own requests in flight and latencies only.
    #[default]
    None = 0,
    /// A native XDP program answers with counters of that instant.
    XdpNative = 1,
    /// The same program, generic XDP.
    XdpGeneric = 2,
    /// The same answer from a TC clsact program.
    Tc = 3,
    /// A record made in the kernel, sent by a user process.
    KernelRecord = 4,
    /// A user agent at real-time priority.
    AgentRealtime = 5,
    /// A user agent at normal priority: the ULM of KLM-2005.
    Agent = 6,
    /// Shared memory on one host.
    SharedMemory = 7,
    /// RDMA READ.
    Rdma = 8,
    /// Polled over SNMP.
    Snmp = 9,
    /// ORCA's reports, with responses or streamed.
    Orca = 10,
    /// Answers to HAProxy's agent check: what a node weighs, and no load.
    AgentCheck = 11,
}

impl Rung {
    /// Every rung with its label in metrics, configuration and logs, in the order of numbers.
    pub const ALL: &'static [(Self, &'static str)] = &[
        (Self::None, "none"),
        (Self::XdpNative, "xdp_native"),
        (Self::XdpGeneric, "xdp_generic"),
        (Self::Tc, "tc"),
        (Self::KernelRecord, "kernel_record"),
        (Self::AgentRealtime, "agent_realtime"),
        (Self::Agent, "agent"),
        (Self::SharedMemory, "shm"),
        (Self::Rdma, "rdma"),
        (Self::Snmp, "snmp"),
        (Self::Orca, "orca"),
        (Self::AgentCheck, "agent_check"),
    ];

    /// The rung with this number; an unknown number is one of a newer version: some agent.
    pub fn from_number(number: u8) -> Self {
        let known = Self::ALL.get(usize::from(number));
        known.map_or(Self::Agent, |(rung, _)| *rung)
    }

    /// Whether what it reads is the mean of a period, and not the state of a moment.
    pub fn is_mean(self) -> bool {
        matches!(self, Self::Snmp | Self::Orca)
    }

    /// Its label.
    pub fn label(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rung_is_found_by_its_number() {
        for (index, (rung, label)) in Rung::ALL.iter().enumerate() {
            assert_eq!(*rung as usize, index);
            assert_eq!(Rung::from_number(index as u8), *rung);
            assert_eq!(rung.label(), *label);
        }
        assert_eq!(Rung::from_number(200), Rung::Agent);
    }
}
