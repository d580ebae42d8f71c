//! Soft limits of a site's nodes: from which used share on a node gets no requests.

use std::ops::RangeInclusive;

use tidegate_core::topology::SoftLimits;
use toml::de::DeValue;

use super::problem::{Problem, Problems};
use super::setting::{Encoded, Raw, Setting, quoted, table, wrong_type};

/// A node at less is hardly used, and comes back 0.05 below its limit.
const SHARES: RangeInclusive<f32> = 0.1..=1.0;

table! {
    /// From which used share of a resource on a node gets no requests, until less is used
    /// ([health.md](health.md#soft-limits)). At least half of the site's nodes stay in.
    pub(crate) struct SoftLimitsFile {
        /// File descriptors: the fuller of the system's table and of the watched process nearest to its limit.
        files: LimitSetting = LimitSetting(Some(SoftLimits::FILES));
        /// Memory that cannot be had without swapping.
        memory: LimitSetting = LimitSetting(None);
        /// CPU time.
        cpu: LimitSetting = LimitSetting(None);
    }
}

table! {
    /// From which used share of a resource on the agent says so: in answers to agent checks, by a trap of SNMP, and in its log.
    pub(crate) struct AgentSoftLimitsFile {
        /// File descriptors: the fuller of the system's table and of the watched process nearest to its limit.
        files: LimitSetting = LimitSetting(Some(SoftLimits::FILES));
        /// Memory that cannot be had without swapping.
        memory: LimitSetting = LimitSetting(None);
        /// CPU time, mean of two seconds.
        cpu: LimitSetting = LimitSetting(None);
    }
}

/// A share of the whole, or that there is no limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LimitSetting(Option<f32>);

impl Setting for LimitSetting {
    fn kind() -> String {
        let (least, most) = (SHARES.start(), SHARES.end());
        format!("\"none\" or a share from {least} to {most}")
    }

    fn decode(raw: &Raw<'_>, problems: &mut Problems) -> Option<Self> {
        match raw.get_ref() {
            DeValue::String(text) if text == "none" => Some(Self(None)),
            DeValue::Integer(_) | DeValue::Float(_) => {
                let share = f32::decode(raw, problems)?;
                if SHARES.contains(&share) {
                    return Some(Self(Some(share)));
                }
                let message = format!("`{share}` is no soft limit");
                let problem = Problem::new(raw.span(), message, "out of range");
                problems.push(problem.help(format!("expected {}", Self::kind())));
                None
            }
            DeValue::String(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_)
            | DeValue::Array(_)
            | DeValue::Table(_) => wrong_type(raw, &Self::kind(), problems),
        }
    }

    fn encode(&self) -> Encoded {
        match self.0 {
            None => quoted("none"),
            Some(share) => share.encode(),
        }
    }
}

/// The limits as the director has them.
pub(super) fn soft_limits(file: &SoftLimitsFile) -> SoftLimits {
    SoftLimits {
        files: file.files.value.0,
        memory: file.memory.value.0,
        cpu: file.cpu.value.0,
    }
}

/// Those of an agent.
pub(super) fn agent_soft_limits(file: &AgentSoftLimitsFile) -> SoftLimits {
    SoftLimits {
        files: file.files.value.0,
        memory: file.memory.value.0,
        cpu: file.cpu.value.0,
    }
}
