//! The effective configuration as TOML that reads back to the same.

use super::file::ConfigFile;
use super::setting::{Encoded, Setting, inline};

/// The file with every default written out. Keys that are not set stand in a comment.
pub(crate) fn print(file: &ConfigFile) -> String {
    let mut out = String::new();
    if let Encoded::Table(tables) = file.encode() {
        for (name, value) in &tables {
            match value {
                Encoded::Table(keys) => table(&mut out, &format!("[{name}]"), keys),
                Encoded::Tables(items) => {
                    for item in items {
                        if let Encoded::Table(keys) = item {
                            table(&mut out, &format!("[[{name}]]"), keys);
                        }
                    }
                }
                // An empty list of tables, or a table that is not there.
                Encoded::Inline(_) | Encoded::Unset => {}
            }
        }
    }
    out
}

fn table(out: &mut String, header: &str, keys: &[(&'static str, Encoded)]) {
    if !out.is_empty() {
        out.push('\n');
    }
    out.push_str(header);
    out.push('\n');
    for (name, value) in keys {
        let line = match inline(value) {
            Some(value) => format!("{name} = {value}\n"),
            None => format!("# {name} is not set\n"),
        };
        out.push_str(&line);
    }
}
