//! One word per concept: words that have given way to others stay away, from names and from prose.

mod tree;

use tree::{files, none, read};

/// A word, or several in a row, that has given way to another one.
struct Retired {
    /// As names and prose have it, in small letters; an `s` may follow.
    word: &'static str,
    /// The word for the same thing.
    instead: &'static str,
    /// Files and folders that may keep it: names of a contract, other products' words, other things.
    but: &'static [&'static str],
}

const fn retired(
    word: &'static str,
    instead: &'static str,
    but: &'static [&'static str],
) -> Retired {
    Retired { word, instead, but }
}

/// All of them. The list only grows, and the places that may keep a word only get fewer.
const RETIRED: &[Retired] = &[
    retired("x tidegate class", "x-tidegate-priority", &[]),
    retired("priority class", "priority", HAPROXY),
    retired("known session", "established session", &[]),
    retired("boldness", "ask probability", &[]),
    retired("rival", "baseline, or peer", &[]),
    retired("orders file", "overrides_file", &[]),
    retired("tidegate order", "tidegate-override", &[]),
    retired("dither", "delay experiment", &[]),
    retired("dithering", "delay experiment", &[]),
    retired("causal test", "delay experiment", &[]),
    retired(
        "hidden bottleneck",
        "downstream bottleneck",
        &["crates/core/src/admission/downstream.rs"],
    ),
    retired("dip", "probe phase", &["crates/lab/src/load/traces.rs"]),
    retired("elephant", "heavy class, or culprit", ELEPHANTS),
];

/// HAProxy's own word for it.
const HAPROXY: &[&str] = &[
    "crates/core/src/admission/baselines/maxconn.rs",
    "crates/lab/",
];

/// The option of the demo, the experiment of the lab and the scenarios of the simulator have this name.
const ELEPHANTS: &[&str] = &[
    "ARCHITECTURE.md",
    "README.md",
    "contrib/tc/README.md",
    "crates/culprits/src/offline/tests/",
    "crates/lab/",
    "crates/sim/",
    "crates/tidegate/src/demo/",
    "crates/tidegate/tests/",
    "docs/",
    "xtask/tests/layers.rs",
];

/// Names of types that meant another thing in each module. Each stays where it is most at home; elsewhere a type says
/// what it is, as `AdmissionVerdict` does. Some are at home nowhere.
const ONE_HOME: &[(&str, &str)] = &[
    ("Counters", "crates/core/src/load/counters.rs"),
    ("Ended", NO_HOME),
    ("Findings", "crates/culprits/src/live/findings.rs"),
    ("Outcome", "crates/core/src/picker.rs"),
    ("Refusal", "crates/remote/src/region.rs"),
    ("Seen", NO_HOME),
    ("Stage", "crates/lab/src/experiments/plan.rs"),
    ("State", "crates/proxy/src/wire/chunks.rs"),
    ("Tally", "crates/lab/src/load/tally.rs"),
    ("Turn", "crates/core/src/picker.rs"),
    ("Verdict", "crates/core/src/culprits/verdict.rs"),
    ("Watch", "crates/culprits/src/live/watch.rs"),
];
const NO_HOME: &str = "nowhere";

/// Files whose words are others' or those of their time.
const LEFT_OUT: &[&str] = &["CHANGELOG.md", "results/", "xtask/tests/words.rs"];
const ENDS: &[&str] = &[
    ".c", ".css", ".h", ".md", ".mjs", ".rs", ".sh", ".toml", ".ts", "Makefile",
];

/// The words of a line in small letters, those of a name apart from each other. Between words that do not
/// stand side by side is an empty one.
fn words(line: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    let mut last = ' ';
    for it in line.chars() {
        let begins = it.is_uppercase() && last.is_lowercase();
        let joins = matches!(it, '_' | '-' | ' ');
        if begins || !it.is_alphabetic() && last.is_alphabetic() {
            found.push(String::new());
        }
        if it.is_alphabetic() {
            let word = found.last_mut().expect("there is one");
            word.extend(it.to_lowercase());
        } else if !joins {
            found.push(String::new());
        }
        last = it;
    }
    found
}

/// Whether these words have the retired one, with or without an `s`.
fn has(words: &[String], retired: &str) -> bool {
    let wanted: Vec<_> = retired.split(' ').collect();
    words.windows(wanted.len()).any(|found| {
        let last = wanted.len() - 1;
        let same = |(place, word): (usize, &String)| {
            let bare = word.strip_suffix('s').filter(|_| place == last);
            word == wanted[place] || bare == Some(wanted[place])
        };
        found.iter().enumerate().all(same)
    })
}

#[test]
fn words_that_gave_way_stay_away() {
    let mut wrong = Vec::new();
    let is_read = |file: &String| {
        ENDS.iter().any(|end| file.ends_with(end))
            && !LEFT_OUT.iter().any(|it| file.starts_with(it))
    };
    for file in files().into_iter().filter(is_read) {
        let text = format!("{file}\n{}", read(&file));
        let small = text.to_lowercase();
        let kept = |it: &&Retired| it.but.iter().any(|place| file.starts_with(place));
        let may_have = |it: &&Retired| it.word.split(' ').all(|part| small.contains(part));
        let retired = RETIRED.iter().filter(|it| !kept(it) && may_have(it));
        for Retired { word, instead, .. } in retired {
            for (at, line) in text.lines().enumerate() {
                // Keys of sources have the words of their titles.
                if has(&words(&line.replace("Elephants-2005", "")), word) {
                    wrong.push(format!("{file}:{at}: \"{word}\": say {instead}"));
                }
            }
        }
    }
    none(&wrong);
}

#[test]
fn places_that_keep_a_word_have_it() {
    let mut wrong = Vec::new();
    for Retired { word, but, .. } in RETIRED {
        for place in *but {
            let of_place = |file: &String| file.starts_with(place);
            let uses = |file: String| {
                let text = read(&file);
                has(&words(&file), word) || text.lines().any(|line| has(&words(line), word))
            };
            let readable = |file: &String| ENDS.iter().any(|end| file.ends_with(end));
            let mut files = files().into_iter().filter(of_place).filter(readable);
            if !files.any(uses) {
                wrong.push(format!("{place} has no \"{word}\" to keep"));
            }
        }
    }
    none(&wrong);
}

/// The name of the type that a line of code begins. A type within others has the name that its trait gives it.
fn type_of(line: &str) -> Option<&str> {
    if line.starts_with(' ') && line.trim_start().starts_with("type ") {
        return None;
    }
    let mut words = line.split_whitespace();
    words.find(|it| matches!(*it, "struct" | "enum" | "type" | "trait"))?;
    let name = words.next()?;
    name.split(|it: char| !it.is_alphanumeric()).next()
}

#[test]
fn a_type_whose_name_has_a_home_is_at_home() {
    let mut wrong = Vec::new();
    let mut homes = Vec::new();
    let is_code = |file: &String| file.starts_with("crates/") && file.ends_with(".rs");
    for file in files().into_iter().filter(is_code) {
        let text = read(&file);
        let code = text.lines().filter(|it| !it.trim_start().starts_with("//"));
        for name in code.filter_map(type_of) {
            match ONE_HOME.iter().find(|it| it.0 == name) {
                Some((_, home)) if *home == file => homes.push(name.to_owned()),
                Some((_, home)) => wrong.push(format!("{file}: {name} is taken, {home}")),
                None => {}
            }
        }
    }
    for (name, home) in ONE_HOME.iter().filter(|it| it.1 != NO_HOME) {
        if homes.iter().filter(|it| it == name).count() != 1 {
            wrong.push(format!("{home} is no home of {name}"));
        }
    }
    none(&wrong);
}

#[test]
fn words_are_found_in_names_and_prose() {
    for (line, word) in [
        ("let known_sessions = 1;", "known session"),
        ("struct KnownSession;", "known session"),
        ("the x-tidegate-class of a request", "x tidegate class"),
        ("Elephants.", "elephant"),
    ] {
        assert!(has(&words(line), word), "{line}");
    }
    for (line, word) in [
        ("it is known. Sessions end", "known session"),
        ("arrivals want constants", "rival"),
        ("wanted", "ant"),
    ] {
        assert!(!has(&words(line), word), "{line}");
    }
}
