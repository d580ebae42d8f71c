//! The Debian package: what `scripts/deb.sh` makes of the program, what lintian and systemd say about it, and what it does in a
//! copy of this system (`scripts/deb_check.sh`).

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "test code; a test that cannot run says why"
)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// How a script says that a check cannot run here.
const CANNOT: i32 = 77;
/// The greatest exposure of the front-end's unit by `systemd-analyze security`, in tenths: its sockets, ports below 1024 and
/// real-time priority are what is left.
const FRONT_END_EXPOSURE_MAX: &str = "25";
/// The agent's: it puts programs into the kernel and looks at the processes of others.
const AGENT_EXPOSURE_MAX: &str = "55";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// All that a command has printed.
fn said(output: &Output) -> String {
    text(&output.stdout) + &text(&output.stderr)
}

fn is_installed(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output();
    found.is_ok()
}

/// The package, which is made once, and a folder of this name for what a test makes of it; nothing where Debian's tools are not
/// installed.
fn package(name: &str) -> Option<(PathBuf, PathBuf)> {
    static PACKAGE: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let package = match PACKAGE.get_or_init(make) {
        Ok(package) => package.clone(),
        Err(why) => {
            println!("SKIPPED: {why}");
            return None;
        }
    };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if folder.exists() {
        std::fs::remove_dir_all(&folder).unwrap();
    }
    std::fs::create_dir_all(&folder).unwrap();
    Some((package, folder))
}

fn make() -> Result<PathBuf, String> {
    for tool in ["dpkg-deb", "dpkg-shlibdeps"] {
        if !is_installed(tool) {
            return Err(format!("{tool} is not installed"));
        }
    }
    let mut script = Command::new(root().join("scripts/deb.sh"));
    script.arg(env!("CARGO_BIN_EXE_tidegate"));
    script.arg(Path::new(env!("CARGO_TARGET_TMPDIR")).join("package"));
    // Quick to write; what is inside is the same.
    let output = script.env("DEB_COMPRESSION", "gzip").output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let path = text(&output.stdout);
    Ok(path.lines().last().unwrap().into())
}

fn dpkg_deb(package: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("dpkg-deb");
    let output = command.args(arguments).arg(package).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    text(&output.stdout)
}

/// The folder of the units in a package, which is unpacked into this folder.
fn units(package: &Path, folder: &Path) -> PathBuf {
    let folder = folder.join("files");
    let mut extract = Command::new("dpkg-deb");
    let output = extract.arg("--extract").arg(package).arg(&folder).output();
    assert!(output.unwrap().status.success());
    folder.join("usr/lib/systemd/system")
}

#[test]
fn the_package_has_program_units_pages_and_completions() {
    let Some((package, _)) = package("package-contents") else {
        return;
    };
    let contents = dpkg_deb(&package, &["--contents"]);
    for wanted in [
        "-rwxr-xr-x root/root",
        " ./usr/bin/tidegate\n",
        " ./usr/lib/systemd/system/tidegate.service\n",
        " ./usr/lib/systemd/system/tidegate-agent.service\n",
        " ./etc/tidegate/example.toml\n",
        " ./etc/logrotate.d/tidegate\n",
        " ./usr/share/man/man1/tidegate-run.1.gz\n",
        " ./usr/share/man/man5/tidegate.toml.5.gz\n",
        " ./usr/share/bash-completion/completions/tidegate\n",
        " ./usr/share/zsh/vendor-completions/_tidegate\n",
        " ./usr/share/fish/vendor_completions.d/tidegate.fish\n",
    ] {
        assert!(contents.contains(wanted), "{wanted:?} in:\n{contents}");
    }
    assert!(!contents.contains("tidegate.toml\n"), "{contents}");
    let depends = dpkg_deb(&package, &["--field"]);
    assert!(depends.contains("\nDepends: adduser, libc6 "), "{depends}");
}

#[test]
fn lintian_has_nothing_to_say_about_the_package() {
    let Some((package, _)) = package("package-lintian") else {
        return;
    };
    if !is_installed("lintian") {
        println!("SKIPPED: lintian is not installed");
        return;
    }
    // No bug of Debian's is closed by it, and its scripts call systemctl for what debhelper cannot do: a running front-end is
    // replaced by its new program without a client noticing.
    let mut lintian = Command::new("lintian");
    lintian.args(["--allow-root", "--fail-on", "error,warning"]);
    lintian.args(["--suppress-tags", "initial-upload-closes-no-bugs"]);
    lintian.args(["--suppress-tags", "maintainer-script-calls-systemctl"]);
    let output = lintian.arg(package).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn systemd_finds_the_units_of_the_package_sound_and_closed() {
    let Some((package, folder)) = package("package-units") else {
        return;
    };
    if !is_installed("systemd-analyze") {
        println!("SKIPPED: systemd-analyze is not installed");
        return;
    }
    let units = units(&package, &folder);
    for (unit, most) in [
        ("tidegate.service", FRONT_END_EXPOSURE_MAX),
        ("tidegate-agent.service", AGENT_EXPOSURE_MAX),
    ] {
        let path = units.join(unit);
        let analyze = |arguments: &[&str]| {
            let mut analyze = Command::new("systemd-analyze");
            let output = analyze.args(arguments).arg(&path).output().unwrap();
            (output.status.success(), said(&output))
        };
        // The program is not where the unit wants it.
        let (_, verified) = analyze(&["verify", "--man=no"]);
        let is_fault = |line: &&str| line.contains(unit) && !line.contains("/usr/bin/tidegate");
        let faults: Vec<_> = verified.lines().filter(is_fault).collect();
        assert!(faults.is_empty(), "{faults:#?}");
        let threshold = format!("--threshold={most}");
        let (closed, exposure) = analyze(&["security", "--offline=yes", &threshold]);
        assert!(closed, "{unit}: {exposure}");
    }
}

/// As a user that stays, which the units of `contrib/systemd` do without.
#[test]
fn the_units_of_the_package_do_what_they_say_under_systemd() {
    let Some((package, folder)) = package("package-systemd") else {
        return;
    };
    let packaged = units(&package, &folder);
    let folder = folder.join("units");
    std::fs::create_dir_all(&folder).unwrap();
    for unit in ["tidegate.service", "tidegate-agent.service"] {
        let text = std::fs::read_to_string(packaged.join(unit)).unwrap();
        assert!(text.contains("=/usr/bin/tidegate "), "{text}");
        // The script's system has the program there.
        let text = text.replace("/usr/bin/tidegate", "/usr/local/bin/tidegate");
        std::fs::write(folder.join(unit), text).unwrap();
    }
    let mut script = Command::new(root().join("scripts/systemd.sh"));
    script.arg(env!("CARGO_BIN_EXE_tidegate"));
    let output = script.env("TIDEGATE_UNITS", &folder).output().unwrap();
    if output.status.code() == Some(CANNOT) {
        println!("SKIPPED: {}", text(&output.stderr).trim());
        return;
    }
    assert!(output.status.success(), "{}", said(&output));
    let steps = text(&output.stdout);
    assert!(steps.contains("systemd: no request was lost\n"), "{steps}");
}

#[test]
fn it_is_installed_replaced_and_purged_without_a_trace() {
    let Some((package, _)) = package("package-installed") else {
        return;
    };
    let mut script = Command::new(root().join("scripts/deb_check.sh"));
    let output = script.arg(package).output().unwrap();
    if output.status.code() == Some(CANNOT) {
        println!("SKIPPED: {}", text(&output.stderr).trim());
        return;
    }
    assert!(output.status.success(), "{}", said(&output));
    let steps = text(&output.stdout);
    assert!(steps.ends_with("deb: purged: nothing is left\n"), "{steps}");
}

#[test]
fn logrotate_reads_its_file() {
    if !is_installed("logrotate") {
        println!("SKIPPED: logrotate is not installed");
        return;
    }
    // `su` names a user of the package, which may not be here.
    let file = root().join("contrib/logrotate/tidegate");
    let rules = std::fs::read_to_string(file).unwrap();
    let rules = rules.replace("su tidegate tidegate", "su root root");
    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("logrotate.conf");
    std::fs::write(&copy, rules).unwrap();
    let mut logrotate = Command::new("logrotate");
    let output = logrotate.arg("--debug").arg(copy).output().unwrap();
    let found = said(&output);
    assert!(output.status.success(), "{found}");
    assert!(!found.contains("error:"), "{found}");
    assert!(found.contains("/var/log/tidegate/*.log"), "{found}");
}
