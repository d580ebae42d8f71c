//! The pages: lengths, links, parts of decisions, plain words, and that every source that is cited
//! is on `docs/references.md`, under the key that it is cited by.

mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use tree::{files, none, read, root};

/// Most words of ARCHITECTURE.md: a page that is read at one sitting.
const ARCHITECTURE_WORDS_MAX: usize = 2000;
/// The parts of a page in `docs/decisions`, in this order.
const PARTS: [&str; 3] = ["## Context", "## Decision", "## Consequence"];
/// The page of what is cited.
const REFERENCES: &str = "docs/references.md";
/// Files in which sources are cited.
const CITING: &[&str] = &["rs", "md", "toml", "c", "h", "ts"];
/// What looks like a key and is none.
const NO_KEYS: &[&str] = &["CVE-"];
/// Studies are cited by what they were about.
const STUDIES: [&str; 4] = ["policy", "admission", "folding", "discovery"];

fn pages() -> impl Iterator<Item = (String, String)> {
    let pages = files().into_iter().filter(|file| file.ends_with(".md"));
    pages.map(|file| {
        let text = read(&file);
        (file, text)
    })
}

#[test]
fn architecture_is_read_at_one_sitting() {
    let text = read("ARCHITECTURE.md");
    let is_word = |word: &&str| word.contains(char::is_alphanumeric);
    let words = text.split_whitespace().filter(is_word).count();
    assert!(
        words <= ARCHITECTURE_WORDS_MAX,
        "ARCHITECTURE.md has {words} words, at most {ARCHITECTURE_WORDS_MAX}: invariants, decisions \
         and figures have pages of their own in docs/"
    );
}

#[test]
fn every_decision_has_its_parts_and_its_line_in_the_index() {
    let index = read("docs/decisions/README.md");
    let mut wrong = Vec::new();
    let mut numbers = BTreeMap::new();
    for (file, text) in pages() {
        let name = file.strip_prefix("docs/decisions/");
        let Some(name) = name.filter(|name| *name != "README.md") else {
            continue;
        };
        let headings: Vec<_> = text.lines().filter(|it| it.starts_with("## ")).collect();
        if headings != PARTS {
            wrong.push(format!("{file} has {headings:?}, not {PARTS:?}"));
        }
        let (number, _) = name.split_at_checked(3).expect("NNN-title.md");
        if !number.bytes().all(|it| it.is_ascii_digit()) {
            wrong.push(format!("{file}: name it NNN-title.md"));
        }
        if let Some(other) = numbers.insert(number.to_owned(), file.clone()) {
            wrong.push(format!("{file} has the number of {other}"));
        }
        let title = text.lines().next().and_then(|it| it.strip_prefix("# "));
        let title = title.unwrap_or_default();
        if !index.contains(&format!("[{number}]({name}): {title}.")) {
            wrong.push(format!(
                "docs/decisions/README.md lacks \"- [{number}]({name}): {title}.\""
            ));
        }
    }
    assert!(!numbers.is_empty(), "no decision");
    none(&wrong);
}

/// The targets of a page's links and pictures.
fn links(text: &str) -> Vec<&str> {
    let inline = text.split("](").skip(1);
    let inline = inline.filter_map(|rest| rest.split(')').next());
    let definitions = text.lines().filter(|line| line.starts_with('['));
    let definitions = definitions.filter_map(|line| line.split_once("]: "));
    let targets = inline.chain(definitions.map(|(_, target)| target.trim()));
    targets.filter(|it| !it.contains("://")).collect()
}

/// The headings of a page and the places that it names, as links spell them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut code = false;
    let mut found = BTreeSet::new();
    for line in text.lines() {
        code ^= line.trim_start().starts_with("```");
        if let (false, true) = (code, line.starts_with('#')) {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            let kept = title
                .chars()
                .filter(|it| it.is_alphanumeric() || " -_".contains(*it));
            found.insert(kept.map(|it| if it == ' ' { '-' } else { it }).collect());
        }
        let named = line.split("<a id=\"").skip(1);
        found.extend(
            named
                .filter_map(|it| it.split('"').next())
                .map(str::to_owned),
        );
    }
    found
}

/// `docs/decisions` and `../lab.md` are `docs/lab.md`.
fn joined(folder: &Path, target: &str) -> PathBuf {
    let mut path = PathBuf::new();
    for part in folder.join(target).components() {
        match part {
            Component::ParentDir => {
                path.pop();
            }
            Component::Normal(part) => path.push(part),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    path
}

#[test]
fn links_between_documents_point_at_something() {
    let mut wrong = Vec::new();
    let mut checked = 0;
    for (file, text) in pages() {
        for link in links(&text) {
            checked += 1;
            let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
            let folder = Path::new(&file).parent().expect("a file is in a folder");
            let path = match target {
                "" => PathBuf::from(&file),
                target => joined(folder, target),
            };
            if !root().join(&path).exists() {
                wrong.push(format!("{file}: {link} is not there"));
            } else if !anchor.is_empty() {
                let page = read(path.to_str().expect("a path is UTF-8"));
                if !anchors(&page).contains(anchor) {
                    wrong.push(format!("{file}: {link}: no such heading"));
                }
            }
        }
    }
    assert!(checked > 100, "{checked} links");
    none(&wrong);
}

/// The keys of the references: first cells of their tables.
fn keys(page: &str) -> BTreeSet<String> {
    let cells = page.lines().filter_map(|line| line.strip_prefix("| "));
    let keys = cells.filter_map(|row| row.split(" | ").next());
    let plain = keys.map(|key| key.rsplit("</a>").next().unwrap_or(key).trim().to_owned());
    plain.filter(|key| key != "key").collect()
}

/// `Name-YYYY`, as keys of papers and books are.
fn is_key(word: &str) -> bool {
    let Some((name, year)) = word.rsplit_once('-') else {
        return false;
    };
    let year = year.len() == 4
        && (year.starts_with("19") || year.starts_with("20"))
        && year.bytes().all(|it| it.is_ascii_digit());
    year && name.starts_with(|it: char| it.is_ascii_uppercase())
        && name.bytes().all(|it| it.is_ascii_alphanumeric())
        && !NO_KEYS.iter().any(|it| word.starts_with(it))
}

/// What a text cites, in the form of keys.
fn cited(text: &str) -> BTreeSet<String> {
    let between = |it: char| !(it.is_ascii_alphanumeric() || it == '-');
    let words: Vec<_> = text.split(between).filter(|it| !it.is_empty()).collect();
    let alone = words
        .iter()
        .filter(|it| is_key(it) || it.starts_with("draft-ietf-"));
    let mut found: BTreeSet<String> = alone.map(|it| (*it).to_owned()).collect();
    for pair in words.windows(2) {
        let number = pair[1].len() == 4 && pair[1].bytes().all(|it| it.is_ascii_digit());
        let study = pair[1] == "study" && STUDIES.contains(&pair[0]);
        if pair[0] == "RFC" && number || study {
            found.insert(pair.join(" "));
        }
    }
    found
}

/// What names a source without its key, and stands for it in no file.
fn vague(line: &str) -> Option<&'static str> {
    let line = line.to_lowercase();
    ["paper 0", "papers 0", "the study"]
        .into_iter()
        .find(|it| line.contains(*it))
}

#[test]
fn every_cited_source_is_on_the_page_and_every_source_is_cited() {
    let page = read(REFERENCES);
    let keys = keys(&page);
    let mut wrong = Vec::new();
    let mut used = BTreeSet::new();
    let citing = |file: &String| {
        let end = Path::new(file).extension().and_then(|it| it.to_str());
        end.is_some_and(|it| CITING.contains(&it))
            && file != REFERENCES
            && file != "xtask/tests/documents.rs"
    };
    for file in files().into_iter().filter(citing) {
        let text = read(&file);
        for (index, line) in text.lines().enumerate() {
            if let Some(words) = vague(line) {
                let at = index + 1;
                wrong.push(format!(
                    "{file}:{at}: \"{words}\": cite a key of {REFERENCES}"
                ));
            }
        }
        for key in cited(&text) {
            if !keys.contains(&key) {
                wrong.push(format!("{file} cites {key}, which {REFERENCES} lacks"));
            }
            used.insert(key);
        }
        used.extend(keys.iter().filter(|key| text.contains(*key)).cloned());
    }
    let idle = keys.difference(&used);
    wrong.extend(idle.map(|key| format!("{REFERENCES}: nothing cites {key}")));
    none(&wrong);
}

/// Words that make persons of threads, nodes, classes and numbers. Things have names and verbs of
/// their own: "a class that waits", "no node", "measured", "shows".
const PERSONS: [&str; 13] = [
    "who",
    "whom",
    "whoever",
    "he",
    "him",
    "his",
    "nobody",
    "somebody",
    "everybody",
    "told",
    "nobody's",
    "somebody's",
    "everybody's",
];

/// More such words, which pages are free of and sources are not yet.
const PERSONS_ON_PAGES: [&str; 3] = ["tell", "tells", "telling"];

/// Pages and folders of sources that are free of [`PERSONS`], pages in all their text, sources in
/// their comments. The list only grows.
const PLAIN: &[&str] = &[
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "README.md",
    "SECURITY.md",
    "contrib/",
    "docs/",
    "crates/core/",
    "crates/culprits/",
    "crates/emulator/",
    "crates/lab/",
    "crates/node/",
    "crates/proxy/",
    "crates/remote/",
    "crates/sim/",
    "crates/tidegate/",
    "fuzz/",
    "xtask/",
];

/// What of a file is prose, by lines: a page outside of its code, a source's comments.
fn prose(file: &str, text: &str) -> Vec<(usize, String)> {
    let page = file.ends_with(".md");
    let mut code = false;
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let trimmed = line.trim_start();
        let comment = trimmed.starts_with("//");
        let fence = trimmed
            .trim_start_matches(['/', '!', ' '])
            .starts_with("```");
        code = (code ^ fence) && (page || comment);
        if !code && !fence && (page || comment) {
            let plain: Vec<_> = line.split('`').step_by(2).collect();
            found.push((index + 1, plain.join(" ")));
        }
    }
    found
}

/// The first of these words in a line.
fn first(persons: &[&'static str], line: &str) -> Option<&'static str> {
    let between = |it: char| !(it.is_alphanumeric() || it == '\'' || it == '-');
    let words: Vec<_> = line.split(between).map(str::to_lowercase).collect();
    let mut persons = persons.iter().copied();
    persons.find(|person| words.iter().any(|word| word == person))
}

#[test]
fn plain_pages_and_folders_make_no_persons_of_things() {
    let mut wrong = Vec::new();
    let plain = |file: &String| {
        (file.ends_with(".md") || file.ends_with(".rs"))
            && PLAIN.iter().any(|it| file.starts_with(it))
    };
    for file in files().into_iter().filter(plain) {
        for (at, line) in prose(&file, &read(&file)) {
            let on_page = || first(&PERSONS_ON_PAGES, &line).filter(|_| file.ends_with(".md"));
            if let Some(word) = first(&PERSONS, &line).or_else(on_page) {
                wrong.push(format!(
                    "{file}:{at}: \"{word}\": name the thing that is meant"
                ));
            }
        }
    }
    for place in PLAIN {
        if !files().iter().any(|file| file.starts_with(place)) {
            wrong.push(format!("PLAIN: {place} is not there"));
        }
    }
    none(&wrong);
}

#[test]
fn prose_is_without_code() {
    let page = "Who?\n```sh\nwho\n```\n`nobody` and a tell-told-tale.\n";
    let found: Vec<_> = prose("a.md", page);
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(first(&PERSONS, &found[0].1), Some("who"));
    assert_eq!(first(&PERSONS, &found[1].1), None, "{found:?}");
    assert_eq!(first(&PERSONS_ON_PAGES, &found[1].1), None, "{found:?}");
    let source = "//! ```text\n//! who\n//! ```\nlet told = 1;\n/// Nobody's.\n";
    let found = prose("a.rs", source);
    assert_eq!(found, [(5, "/// Nobody's.".to_owned())]);
    assert_eq!(first(&PERSONS, &found[0].1), Some("nobody's"));
}

#[test]
fn keys_are_known_by_their_form() {
    let text =
        "as in KLM-2005 §5, RFC 9110 §7 and draft-ietf-httpapi-x-1 (the policy study; CVE-2016-1)";
    let expected = [
        "KLM-2005",
        "RFC 9110",
        "draft-ietf-httpapi-x-1",
        "policy study",
    ];
    assert_eq!(cited(text), expected.map(str::to_owned).into());
    assert!(vague("Paper 000").is_some() && vague("of the study").is_some());
    assert!(vague("the policy study of KLM-2005").is_none());
    let page = "| key | x |\n|---|---|\n| <a id=\"a\"></a>A-2001 | x |\n| RFC 1 | y |\n";
    assert_eq!(keys(page), ["A-2001", "RFC 1"].map(str::to_owned).into());
}

#[test]
fn links_and_headings_are_read_as_they_are_shown() {
    let page = "# A page\n[a](b.md#c) ![d](e.svg) [f](https://g) \n## How, and why?\n[h]: i.md\n";
    assert_eq!(links(page), ["b.md#c", "e.svg", "i.md"]);
    let expected = ["a-page", "how-and-why"].map(str::to_owned);
    assert_eq!(anchors(page), expected.into());
    assert_eq!(
        joined(Path::new("docs/x"), "../y.md"),
        Path::new("docs/y.md")
    );
}
