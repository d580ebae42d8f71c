//! What an agent may do: once started, and in each of its threads once that is set up.
//!
//! | capability | for | kept by |
//! |---|---|---|
//! | `CAP_BPF`, `CAP_PERFMON` | programs that read the kernel | main thread: `CAP_BPF`, while it looks after them |
//! | `CAP_NET_ADMIN` | putting them at interfaces, and taking them away at the end | main thread, while it looks after them |
//! | `CAP_SYS_NICE` | real-time priority | the responder, which gives it up while it is flooded |
//! | `CAP_SYS_PTRACE`, `CAP_DAC_READ_SEARCH` | open files of the watched processes, control groups of others | sampling thread |
//!
//! The responder, which reads what strangers send, keeps no other, but `CAP_BPF` where the kernel's programs carry
//! atomics out. The threads that hand the region out, that follow moves and that change words by a card keep none, and so
//! do commands of hooks.

use tidegate_remote::privilege::{CapabilitySet, NONE};

use crate::kernel::Kernel;

/// What an agent starts with.
pub const STARTING: CapabilitySet = CapabilitySet::BPF
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::NET_ADMIN)
    .union(CapabilitySet::SYS_NICE)
    .union(SAMPLING);

/// What the sampling thread keeps.
pub(crate) const SAMPLING: CapabilitySet =
    CapabilitySet::SYS_PTRACE.union(CapabilitySet::DAC_READ_SEARCH);

/// What the main thread keeps.
pub(crate) fn looking_after(kernel: &Kernel) -> CapabilitySet {
    match kernel {
        Kernel::Answers(_) | Kernel::Publishes(_) => {
            CapabilitySet::BPF.union(CapabilitySet::NET_ADMIN)
        }
        Kernel::Nothing => NONE,
    }
}
