//! What must hold for any text that is taken for a configuration. Shared by the fuzz target and by the tests of
//! `tidegate`.
//!
//! 1. Reading never panics.
//! 2. What is refused has a message that says so, with and without colours.
//! 3. What is accepted, printed and read again prints the same: a default is what it says.

use std::path::Path;

use super::{Config, print};

/// Checks all of them.
pub(crate) fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    // Files that are named are looked for where there are none.
    let read = |text: &str| Config::parse(text, "tidegate.toml", Path::new("/nowhere"));
    match read(text) {
        Err(error) => {
            let [plain, colourful] = [false, true].map(|colour| error.render(colour));
            assert!(plain.contains("error"), "{plain}");
            assert!(!plain.contains('\u{1b}') || text.contains('\u{1b}'));
            assert!(colourful.len() >= plain.len());
        }
        Ok(config) => {
            let printed = print::print(&config.file);
            let again = read(&printed).map_err(|error| error.render(false));
            let again = again.unwrap_or_else(|error| panic!("{printed}\n{error}"));
            assert_eq!(print::print(&again.file), printed);
        }
    }
}
