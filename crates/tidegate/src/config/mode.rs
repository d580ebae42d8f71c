//! The `mode` key of admission: the core's table of modes has their names.

use tidegate_core::admission::AdmissionKind;
use toml::de::DeValue;

use super::problem::Problems;
use super::setting::{Encoded, Raw, Setting, quoted, unknown_name, wrong_type};

impl Setting for AdmissionKind {
    fn kind() -> String {
        let names = Self::ALL.iter().map(|(_, name)| format!("\"{name}\""));
        names.collect::<Vec<_>>().join(" or ")
    }

    fn decode(raw: &Raw<'_>, problems: &mut Problems) -> Option<Self> {
        let DeValue::String(text) = raw.get_ref() else {
            return wrong_type(raw, &Self::kind(), problems);
        };
        let found = Self::ALL.iter().find(|(_, name)| name == text);
        if found.is_none() {
            let names = Self::ALL.iter().map(|(_, name)| *name);
            problems.push(unknown_name(raw.span(), "admission mode", text, names));
        }
        found.map(|(kind, _)| *kind)
    }

    fn encode(&self) -> Encoded {
        quoted(self.label())
    }
}
