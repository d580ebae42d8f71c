//! The scenario files that are part of the binary.

/// The text of the one of this name.
pub fn text(name: &str) -> Option<&'static str> {
    let found = ALL.iter().find(|(known, _)| *known == name)?;
    Some(found.1)
}

/// A scenario file by its name without folder and ending, with its text.
pub type BuiltIn = (&'static str, &'static str);

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        /// All of them, families together.
        pub const ALL: &[BuiltIn] = &[
            $(($name, include_str!(concat!("../../scenarios/", $name, ".toml")))),*
        ];
    };
}

files! {
    "load-0.5-n20-m64-ln2-ant",
    "load-0.7-n20-m64-ln2-ant",
    "load-0.9-n20-m64-ln2-ant",
    "load-0.95-n20-m64-ln2-ant",
    "load-0.5-n20-m8-exp",
    "load-0.95-n20-m64-exp",
    "dist-det-m64-0.9",
    "dist-exp-m64-0.9",
    "dist-ln2-m8-0.9",
    "dist-ln4-m64-0.9",
    "dist-bimodal-m8-0.9",
    "dist-bimodal-m64-0.9",
    "fe-m1-n20-0.9-ln2-ant",
    "fe-m8-n20-0.9-ln2-ant",
    "size-n8-m64-0.9-ln2-ant",
    "size-n100-m64-0.9-ln2-ant",
    "size-n100-m8-0.9-exp",
    "size-n1000-m64-0.9-exp",
    "size-n1000-m8-0.9-ln2-ant",
    "burst-n20-m64-0.7-ln2-ant",
    "burst-n100-m8-0.7-exp",
    "heavyant-n20-m64-0.9-ln2",
    "heavyant-n100-m8-0.9-exp",
    "hidden-ant-n20-m8-0.85",
    "hidden-ant-n20-m64-0.85",
    "speed-m8-0.9-exp",
    "speed-m64-0.7-ln2",
    "quota-m64-0.9-ln2",
    "io-chan-m8",
    "io-chan-m64-ant",
    "io-free-cpu0.85-m8-ant",
    "io-free-cpu0.85-m64-ant",
    "io-slow20pct-m8",
    "io-slow20pct-m64",
    "short1ms-n20-m8-0.9",
    "short1ms-n20-m64-0.9",
    "short1ms-n100-m64-0.9-ant",
    "age-5ms-m8-0.85-ln2-ant",
    "age-5ms-m64-0.85-ln2-ant",
    "age-50ms-m8-0.85-ln2-ant",
    "age-50ms-m64-0.85-ln2-ant",
    "age-500ms-m8-0.85-ln2-ant",
    "age-500ms-m64-0.85-ln2-ant",
    "age-2s-m8-0.85-ln2-ant",
    "age-2s-m64-0.85-ln2-ant",
    "missing-30pct-m8-0.85-ant",
    "missing-30pct-m64-0.85-ant",
    "missing-all-m1-0.85-ant",
    "missing-all-m8-0.85-ant",
    "missing-all-m64-0.85-ant",
    "sinkhole-m8-0.7",
    "sinkhole-m64-0.7",
    "newserver-m8-0.8",
    "newserver-m64-0.8",
    "over1.27-m8-exp-ql",
    "over1.27-m64-ln2-ant-ql",
    "alloc1.27-n20-m64-exp-ant",
    "alloc1.27-n4-m1-exp-ant",
    "subset20-n100-m64-0.9-ant",
    "tail-a1.2-n20-m8-0.8",
    "tail-a1.5-n50-m64-0.7-ant",
    "sites-two-n20-m8",
    "sites-two-n30-m64-burst",
    "flap-n20-m8-0.7",
    "flap-n20-m64-0.7-ln2",
    "loss-20pct-n20-m8-0.9-ant",
    "loss-90pct-n20-m64-0.9-ln2-ant",
    "agent-n20-m8-0.85-heavyant",
    "agent-n20-m64-0.85-ln2-ant",
    "quota-burst-n16-m8-0.6-ln2",
    "pause-n20-m8-0.7-exp",
    "pause-n20-m64-0.8-ln2-ant",
    "long200ms-n20-m8-0.9-ln2-ant",
    "long200ms-n20-m64-0.8-exp",
    "small-n3-m2-0.8-ln2-ant",
    "small-n3-m2-0.8-speed",
    "size-n1000-m64-0.9-ln2-ant",
    "size-n10000-m8-0.9-exp",
    "subset50-n1000-m64-0.9-exp",
    "crash-n20-m8-0.7",
    "crash-n20-m64-0.8-ln2-ant",
    "restart-n20-m8-0.7-ln2",
    "restart-n20-m64-0.7-ln2-ant",
    "rolling-n20-m8-0.7-exp",
    "rolling-n20-m64-0.7-ln2",
    "jitter-n20-m8-0.9-1ms",
    "jitter-n20-m64-0.9-ln2-ant",
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::path::Path;

    use super::*;
    use crate::file::{Half, ScenarioFile};

    fn files() -> Vec<(&'static str, ScenarioFile)> {
        let parse = |(name, text): &BuiltIn| {
            let file = ScenarioFile::parse(text);
            (
                *name,
                file.unwrap_or_else(|error| panic!("{name}: {error:?}")),
            )
        };
        ALL.iter().map(parse).collect()
    }

    #[test]
    fn the_folder_and_the_list_agree() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
        let there: BTreeSet<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|it| it == "toml"))
            .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
            .collect();
        let listed: BTreeSet<_> = ALL.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(there, listed);
        assert_eq!(listed.len(), ALL.len(), "a file is listed twice");
    }

    /// A family in one half alone would be tuned without a check, or reported untuned.
    #[test]
    fn every_file_is_sound_and_each_family_is_in_both_halves() {
        let mut names = BTreeSet::new();
        let mut halves: BTreeMap<String, Vec<Half>> = BTreeMap::new();
        for (name, file) in files() {
            assert!(names.insert(file.name.clone()), "{name}: a name twice");
            assert!(
                !file.description.is_empty() && !file.source.is_empty(),
                "{name}"
            );
            halves.entry(file.family).or_default().push(file.half);
        }
        for (family, halves) in &halves {
            for half in [Half::Tune, Half::Report] {
                assert!(halves.contains(&half), "{family} has no {}", half.label());
            }
        }
        assert!(
            names.len() >= 71,
            "the policy study's 59 and at least 12 more"
        );
    }
}
