//! What is measured and how, and what is not and why.

use std::borrow::Cow;

use tidegate_core::record::Sources;

/// Sources that have a place here: bits of a 64-bit word.
const SOURCES_MAX: usize = 64;

/// The ways of counting CPU time: at most one of them holds.
const BUSY: [Sources; 3] = [Sources::BUSY_SWITCH, Sources::BUSY_ACCT, Sources::BUSY_TICK];

#[derive(Clone, Debug, Default)]
enum Finding {
    #[default]
    Unknown,
    Measured(&'static str),
    Missing(Cow<'static, str>),
}

/// One finding per source.
#[derive(Debug)]
pub(crate) struct AvailabilityNotes {
    sources: Sources,
    found: [Finding; SOURCES_MAX],
    version: u64,
}

impl AvailabilityNotes {
    pub(crate) fn new() -> Self {
        Self {
            sources: Sources::NONE,
            found: std::array::from_fn(|_| Finding::Unknown),
            version: 0,
        }
    }

    /// The sources that were measured.
    pub(crate) fn sources(&self) -> Sources {
        self.sources
    }

    /// Grows whenever a sentence changes.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// The source was measured in this way just now.
    pub(crate) fn measured(&mut self, source: Sources, how: &'static str) {
        let found = &self.found[index(source)];
        if matches!(found, Finding::Measured(before) if *before == how) {
            return;
        }
        self.version += 1;
        if BUSY.contains(&source) {
            for other in BUSY {
                self.unset(other);
                self.found[index(other)] = Finding::Unknown;
            }
        }
        self.sources = self.sources.with(source);
        self.found[index(source)] = Finding::Measured(how);
    }

    /// The source could not be measured. The reason is asked for once, when it begins, so that
    /// a source that stays away costs nothing.
    pub(crate) fn missing(&mut self, source: Sources, why: impl FnOnce() -> Cow<'static, str>) {
        self.unset(source);
        let found = &mut self.found[index(source)];
        if !matches!(found, Finding::Missing(_)) {
            *found = Finding::Missing(why());
            self.version += 1;
        }
    }

    fn unset(&mut self, source: Sources) {
        self.sources = Sources::from_bits(self.sources.bits() & !source.bits());
    }

    /// All of it in plain sentences, in the order of the record.
    pub(crate) fn sentences(&self) -> Vec<String> {
        Sources::ALL
            .iter()
            .filter_map(|(source, _, what)| match &self.found[index(*source)] {
                Finding::Unknown => None,
                Finding::Measured(how) => Some(format!("{what}: measured, {how}.")),
                Finding::Missing(why) => Some(format!("{what}: not measured, {why}.")),
            })
            .collect()
    }
}

fn index(source: Sources) -> usize {
    source.bits().trailing_zeros() as usize % SOURCES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_finding_counts() {
        let mut findings = AvailabilityNotes::new();
        findings.measured(Sources::MEMORY, "from here");
        assert!(findings.sources().has(Sources::MEMORY));
        findings.missing(Sources::MEMORY, || "gone".into());
        findings.missing(Sources::MEMORY, || panic!("asked for once"));
        assert!(!findings.sources().has(Sources::MEMORY));
        assert_eq!(
            findings.sentences(),
            ["memory_total and memory_available: not measured, gone."]
        );
    }

    #[test]
    fn the_version_grows_when_a_sentence_changes() {
        let mut findings = AvailabilityNotes::new();
        findings.measured(Sources::MEMORY, "a");
        let version = findings.version();
        findings.measured(Sources::MEMORY, "a");
        assert_eq!(findings.version(), version);
        findings.measured(Sources::MEMORY, "b");
        assert_ne!(findings.version(), version);
        let version = findings.version();
        findings.missing(Sources::MEMORY, || "gone".into());
        assert_ne!(findings.version(), version);
    }

    #[test]
    fn cpu_time_is_measured_in_one_way() {
        let mut findings = AvailabilityNotes::new();
        findings.measured(Sources::BUSY_TICK, "a");
        findings.measured(Sources::BUSY_ACCT, "b");
        assert_eq!(findings.sources(), Sources::BUSY_ACCT);
        assert_eq!(findings.sentences().len(), 1);
    }
}
