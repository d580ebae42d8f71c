//! What the limits of a site follow from, as the table tells it.

/// Why a limit is what it is, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitBy {
    /// The server's run queue and accept queue.
    Record,
    /// The same, from an old record.
    OldRecord,
    /// Own latency: no record.
    Latency,
    /// Something behind the servers.
    Downstream,
    /// The same, while it is measured with less.
    ProbePhase,
}

impl LimitBy {
    /// Every reason, with what it means.
    pub const ALL: &'static [(Self, &'static str)] = &[
        (Self::Record, "by the servers' run queues and accept queues"),
        (
            Self::OldRecord,
            "by the servers' last records, which are old",
        ),
        (
            Self::Latency,
            "by how long answers take: there are no load records",
        ),
        (
            Self::Downstream,
            "by how long answers take while the CPUs have time: something behind the servers is slow",
        ),
        (
            Self::ProbePhase,
            "to a quarter, for a moment, to see how fast what lies behind the servers can be",
        ),
    ];

    /// What it means.
    pub fn what(self) -> &'static str {
        let mut all = Self::ALL.iter();
        all.find(|it| it.0 == self).map_or("", |it| it.1)
    }
}
