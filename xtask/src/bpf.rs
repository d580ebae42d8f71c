//! The kernel's programs: C in `crates/remote/bpf`, compiled by Debian's clang. Their object is
//! checked in, so that no build needs a compiler for BPF.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::test::Outcome;

/// Objects of other versions differ byte for byte, and do the same.
const CLANG_MAJOR: &str = "14";
const FOLDER: &str = "crates/remote/bpf";
const SOURCE: &str = "responder.bpf.c";
const OBJECT: &str = "responder.bpf.o";

/// Compiles anew, in place of what is checked in.
pub(crate) fn run(root: &Path) -> Result<bool, String> {
    if let Some(why) = missing() {
        return Err(why);
    }
    compile(root, &root.join(FOLDER).join(OBJECT))?;
    println!("wrote {FOLDER}/{OBJECT}");
    Ok(true)
}

/// Whether the checked in object is what its source gives.
pub(crate) fn check(root: &Path) -> Result<Outcome, String> {
    if let Some(why) = missing() {
        return Ok(Outcome::Skipped(why));
    }
    let fresh = std::env::temp_dir().join(format!("tidegate-bpf-{}.o", std::process::id()));
    let done = compile(root, &fresh).and_then(|()| {
        let read = |path: &PathBuf| {
            std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
        };
        Ok(read(&fresh)? == read(&root.join(FOLDER).join(OBJECT))?)
    });
    // It may not have come that far.
    std::fs::remove_file(&fresh).ok();
    let same = done?;
    if !same {
        println!("{FOLDER}/{OBJECT} is stale: run `cargo xtask bpf`");
    }
    Ok(same.into())
}

/// What is missing here for compiling.
fn missing() -> Option<String> {
    let version = Command::new("clang").arg("--version").output();
    let Ok(version) = version else {
        return Some("clang is not installed".into());
    };
    let text = String::from_utf8_lossy(&version.stdout);
    if !text.contains(&format!("clang version {CLANG_MAJOR}.")) {
        let first = text.lines().next().unwrap_or_default();
        return Some(format!(
            "clang {CLANG_MAJOR} makes the object; here is {first}"
        ));
    }
    for (header, package) in [
        ("/usr/include/bpf/bpf_helpers.h", "libbpf-dev"),
        ("/usr/include/linux/bpf.h", "linux-libc-dev"),
    ] {
        if !Path::new(header).exists() {
            return Some(format!("{header} is missing, of {package}"));
        }
    }
    None
}

/// In the folder itself, by relative names: the object holds no path of this machine.
fn compile(root: &Path, to: &Path) -> Result<(), String> {
    let folder = root.join(FOLDER);
    let machine = format!("/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    let names = format!("-fdebug-prefix-map={}=.", folder.display());
    let flags = [
        "-O2",
        "-g",
        "-Wall",
        "-Werror",
        "-target",
        "bpf",
        "-mcpu=v3",
        "-I../include",
        "-I.",
        "-idirafter",
        &machine,
        &names,
        "-c",
        SOURCE,
        "-o",
    ];
    run_tool(
        Command::new("clang")
            .args(flags)
            .arg(to)
            .current_dir(folder),
    )?;
    // What is left describes types and lines to the kernel; debuggers get nothing.
    run_tool(
        Command::new(format!("llvm-strip-{CLANG_MAJOR}"))
            .arg("-g")
            .arg(to),
    )
}

fn run_tool(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .map_err(|error| format!("{name}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!(
            "{name}: {}",
            String::from_utf8_lossy(&output.stderr)
        )),
    }
}
