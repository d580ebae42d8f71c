//! `docs/security.md` claims nothing without a test: each that it names is there.

use std::path::Path;

#[test]
fn every_test_that_the_trust_model_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read = |file: &str| std::fs::read_to_string(root.join(file));
    let page = read("docs/security.md").expect("the page");
    let (mut file, mut checked) = ((String::new(), String::new()), 0);
    let mut missing = Vec::new();
    for word in page.split('`').skip(1).step_by(2) {
        if word.starts_with("crates/") || word.starts_with("xtask/") {
            let text = read(word).unwrap_or_else(|error| panic!("{word}: {error}"));
            file = (word.to_owned(), text);
        } else if is_test(word) {
            let (name, text) = &file;
            checked += 1;
            if !text.contains(&format!("fn {word}()")) {
                missing.push(format!("{name} has no test {word}"));
            }
        }
    }
    assert!(checked > 40, "{checked} tests");
    assert!(missing.is_empty(), "\n{}", missing.join("\n"));
}

/// Names of tests are sentences: words between underscores.
fn is_test(word: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    word.bytes().all(plain) && word.matches('_').count() >= 3
}
