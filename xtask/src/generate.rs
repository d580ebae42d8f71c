//! Generated files: each is what one example of a crate prints. The tests of that crate
//! compare the file with its source, so a stale one fails.

use std::path::Path;
use std::process::Command;

/// Crate, example that prints the file, file.
const FILES: &[(&str, &str, &str)] = &[
    (
        "tidegate-core",
        "c_header",
        "crates/remote/include/tidegate_record.h",
    ),
    ("tidegate-core", "policies_doc", "docs/policies.md"),
];

/// Writes them all.
pub(crate) fn run(root: &Path) -> Result<bool, String> {
    for (package, example, file) in FILES {
        let output = Command::new("cargo")
            .current_dir(root)
            .args(["run", "--quiet", "--package", package, "--example", example])
            .output()
            .map_err(|error| format!("cargo: {error}"))?;
        if !output.status.success() {
            return Err(format!(
                "{example}: {}",
                String::from_utf8_lossy(&output.stderr)
            ));
        }
        let path = root.join(file);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|error| format!("{file}: {error}"))?;
        }
        std::fs::write(&path, output.stdout).map_err(|error| format!("{file}: {error}"))?;
        println!("wrote {file}");
    }
    Ok(true)
}
