//! The `policy` key: a name, or a table of a name and the policy's knobs.

use tidegate_core::policy::{LoadIndex, PolicyConfig, PolicyKind};
use toml::de::DeValue;

use super::problem::{Problem, Problems};
use super::setting::{At, Encoded, Raw, Setting, quoted, table, unknown_name, wrong_type};

/// How far the weights of slbl may be from adding up to 1: two decimals are enough to write
/// thirds.
const WEIGHTS_TOLERANCE: f32 = 0.011;
/// Most nodes that k_least_loaded shares requests among.
const K_MAX: u32 = 10_000;

/// A policy as configured.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PolicySetting(pub(crate) PolicyConfig);

table! {
    /// A policy with its knobs.
    pub(crate) struct PolicyFile {
        /// The policy.
        name: String;
        /// k_least_loaded: how many of the least loaded share the requests; 0 is half of them.
        k: Option<u32> = None;
        /// k_least_loaded: the load index of KLM-2005: `ulm`, `pklm` or `klm`.
        index: Option<String> = None;
        /// slbl: what CPU, memory and file descriptors weigh; they add up to 1.
        weights: Option<WeightsFile> = None;
    }
}

table! {
    /// Weights of slbl.
    pub(crate) struct WeightsFile {
        /// Used share of the CPU.
        cpu: f32, in 0.0..=1.0;
        /// Used share of the memory.
        memory: f32, in 0.0..=1.0;
        /// Used share of the file descriptors.
        files: f32, in 0.0..=1.0;
    }
}

/// Which policy each knob belongs to.
const KNOBS: &[(&str, &str)] = &[
    ("k", "k_least_loaded"),
    ("index", "k_least_loaded"),
    ("weights", "slbl"),
];

fn has_knob(kind: PolicyKind, knob: &str) -> bool {
    KNOBS
        .iter()
        .any(|(name, policy)| *name == knob && *policy == kind.name())
}

impl PolicySetting {
    /// The documentation of the table form.
    #[cfg(test)]
    pub(crate) fn table_docs() -> super::setting::TableDocs {
        <PolicyFile as super::setting::Table>::docs()
    }

    fn from_file(file: &PolicyFile, problems: &mut Problems) -> Option<Self> {
        let kind = named(&file.name.value, file.name.place(), problems)?;
        let set = [
            ("k", file.k.at.clone()),
            ("index", file.index.at.clone()),
            ("weights", file.weights.at.clone()),
        ];
        let mut fits = true;
        for (knob, at) in set {
            let Some(at) = at.filter(|_| !has_knob(kind, knob)) else {
                continue;
            };
            let owner = KNOBS.iter().find(|(name, _)| *name == knob);
            let owner = owner.map_or("", |(_, policy)| policy);
            problems.push(Problem::new(
                at,
                format!("policy `{}` has no `{knob}`", kind.name()),
                format!("this is for `{owner}`"),
            ));
            fits = false;
        }
        let mut config = PolicyConfig::new(kind);
        if let Some(k) = file.k.value {
            if k > K_MAX {
                problems.push(Problem::new(
                    file.k.place(),
                    format!("`k` must be from 0 to {K_MAX}"),
                    "out of range",
                ));
                fits = false;
            }
            config.parameters.k = k;
        }
        if let Some(name) = &file.index.value {
            config.parameters.index = index(name, &file.index, problems)?;
        }
        if let Some(weights) = &file.weights.value {
            config.parameters.weights = weigh(weights, file.weights.place(), problems)?;
        }
        fits.then_some(Self(config))
    }
}

fn named(name: &str, at: std::ops::Range<usize>, problems: &mut Problems) -> Option<PolicyKind> {
    let kind = PolicyKind::named(name);
    if kind.is_none() {
        let names = PolicyKind::ALL.iter().map(|kind| kind.name());
        problems.push(unknown_name(at, "policy", name, names));
    }
    kind
}

fn index(name: &str, at: &At<Option<String>>, problems: &mut Problems) -> Option<LoadIndex> {
    let found = LoadIndex::ALL.iter().find(|(_, label)| *label == name);
    if found.is_none() {
        let names = LoadIndex::ALL.iter().map(|(_, label)| *label);
        problems.push(unknown_name(at.place(), "load index", name, names));
    }
    found.map(|(index, _)| *index)
}

/// The weights of CPU, memory and file descriptors; `at` is where they stand.
pub(super) fn weigh(
    weights: &WeightsFile,
    at: std::ops::Range<usize>,
    problems: &mut Problems,
) -> Option<[f32; 3]> {
    let weights = [weights.cpu.value, weights.memory.value, weights.files.value];
    let sum: f32 = weights.iter().sum();
    if (sum - 1.0).abs() <= WEIGHTS_TOLERANCE {
        return Some(weights);
    }
    problems.push(Problem::new(
        at,
        "the weights of slbl must add up to 1",
        format!("these add up to {sum}"),
    ));
    None
}

impl Setting for PolicySetting {
    fn kind() -> String {
        "a policy: its name or a table".into()
    }

    fn decode(raw: &Raw<'_>, problems: &mut Problems) -> Option<Self> {
        match raw.get_ref() {
            DeValue::String(name) => {
                let kind = named(name, raw.span(), problems)?;
                Some(Self(PolicyConfig::new(kind)))
            }
            DeValue::Table(_) => Self::from_file(&PolicyFile::decode(raw, problems)?, problems),
            DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_)
            | DeValue::Array(_) => wrong_type(raw, &Self::kind(), problems),
        }
    }

    fn encode(&self) -> Encoded {
        let Self(PolicyConfig { kind, parameters }) = self;
        let mut keys = vec![("name", quoted(kind.name()))];
        if has_knob(*kind, "k") {
            keys.push(("k", parameters.k.encode()));
        }
        if has_knob(*kind, "index") {
            let all = LoadIndex::ALL.iter();
            let label = all.clone().find(|(index, _)| *index == parameters.index);
            keys.push(("index", quoted(label.map_or("", |(_, label)| label))));
        }
        if has_knob(*kind, "weights") {
            let [cpu, memory, files] = parameters.weights;
            keys.push((
                "weights",
                Encoded::Table(vec![
                    ("cpu", cpu.encode()),
                    ("memory", memory.encode()),
                    ("files", files.encode()),
                ]),
            ));
        }
        match keys.len() {
            1 => quoted(kind.name()),
            _ => Encoded::Table(keys),
        }
    }
}
