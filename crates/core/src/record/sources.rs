//! Which fields of a load record were truly measured. A bit is set only where it was measured.

/// A set of sources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sources(u64);

macro_rules! sources {
    ($($bit:literal $name:ident $what:literal;)*) => {
        impl Sources {
            $( #[doc = $what] pub const $name: Self = Self(1 << $bit); )*
            /// Every source with its name and meaning, in bit order.
            pub const ALL: &'static [(Self, &'static str, &'static str)] =
                &[$((Self::$name, stringify!($name), $what)),*];
        }
    };
}

sources! {
    0  BUSY_SWITCH "busy_ns from every task switch: exact at any window";
    1  BUSY_ACCT "busy_ns from the scheduler's own accounting: good from 10 ms";
    2  BUSY_TICK "busy_ns from the timer tick: good from 100 ms";
    3  RUNNABLE "runnable";
    4  RUNNABLE_INTEGRAL "runnable_ns";
    5  UNINTERRUPTIBLE "uninterruptible";
    6  SOFTIRQ "softirqs_pending";
    7  STEAL "steal_ns";
    8  MEMORY "memory_total and memory_available";
    9  FILES "files_open and files_max";
    10 PROCESS_FILES "process_files_open, process_files_max and process_id";
    11 SOCKETS "tcp_established and time_wait";
    12 ACCEPT_QUEUE "accept_queue";
    13 ACCEPT_INTEGRAL "accept_queue_ns";
    14 ACCEPT_OVERFLOWS "accept_overflows";
    15 NETWORK "received_bytes and sent_bytes";
    16 DISK "disk_ns";
    17 PSI "psi_cpu_ns, psi_memory_ns and psi_io_ns";
    18 QUOTA "quota_milli and throttled_ns";
    19 IN_FLIGHT "in_flight";
    20 COMPLETIONS "completions and in_flight_ns";
    21 SERVICES "services and services_checked";
    22 PER_CPU "the CPU lines";
    23 CONTEXT_SWITCHES "context_switches";
}

impl Sources {
    /// No source.
    pub const NONE: Self = Self(0);

    /// The set with these bits; bits of newer versions are kept.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The bits as the record holds them.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Both sets together.
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` is in this set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether CPU time was measured in any way.
    pub const fn has_busy(self) -> bool {
        self.0 & (Self::BUSY_SWITCH.0 | Self::BUSY_ACCT.0 | Self::BUSY_TICK.0) != 0
    }
}
