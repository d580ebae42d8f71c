//! Least privilege: an agent started as root gives away what it has no use for.
//!
//! | kept | for |
//! |---|---|
//! | `CAP_BPF`, `CAP_PERFMON` | programs that read the kernel |
//! | `CAP_NET_ADMIN` | putting them at interfaces, and taking them away again |
//! | `CAP_SYS_NICE` | real-time priority |
//! | `CAP_SYS_PTRACE`, `CAP_DAC_READ_SEARCH` | open files of the watched processes, control groups of others |

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

/// What an agent may have.
const KEPT: CapabilitySet = CapabilitySet::BPF
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::NET_ADMIN)
    .union(CapabilitySet::SYS_NICE)
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::DAC_READ_SEARCH);

/// Gives all other capabilities of this thread away, and so of the threads that it starts.
///
/// # Errors
/// If the system does not take them.
pub fn keep_only_needed() -> std::io::Result<()> {
    let now = capabilities(None)?;
    let kept = now.permitted & KEPT;
    let sets = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    Ok(set_capabilities(None, sets)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_else_is_left_and_nothing_is_won() {
        // Of this thread alone.
        let before = capabilities(None).unwrap().permitted;
        keep_only_needed().unwrap();
        let after = capabilities(None).unwrap();
        assert_eq!(after.permitted, before & KEPT);
        assert_eq!(after.effective, after.permitted);
        keep_only_needed().unwrap();
    }
}
