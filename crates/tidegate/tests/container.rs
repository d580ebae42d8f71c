//! The container image of `scripts/container.sh`: what is in it is all that the program takes.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "test code; a test that cannot run says why"
)]

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use support::folder;

/// The user of the image.
const USER: &str = "65532:65532";
const IMAGE: &str = "tidegate-test";
const CONFIGURATION: &str = "[[listener]]\naddress = \"127.0.0.1:0\"\n[[site]]\nname = \"a\"\n\
                             [[node]]\nname = \"n\"\nsite = \"a\"\naddress = \"127.0.0.1:9\"\n";

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/container.sh")
}

fn said(output: &Output) -> String {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

#[test]
fn the_program_runs_on_what_is_in_the_image() {
    let folder = folder("container");
    let mut make = Command::new(script());
    make.arg(env!("CARGO_BIN_EXE_tidegate")).arg(&folder);
    let output = make.output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let root = folder.join("root");
    assert!(!root.join("bin/sh").exists() && !root.join("usr/bin/sh").exists());
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root can change its root");
        return;
    }
    std::fs::write(root.join("etc/tidegate/tidegate.toml"), CONFIGURATION).unwrap();
    let mut chroot = Command::new("chroot");
    chroot.arg(format!("--userspec={USER}")).arg(&root);
    chroot.args(["/usr/bin/tidegate", "check", "/etc/tidegate/tidegate.toml"]);
    let output = chroot.output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("ok, a front-end of 1 site and 1 node"));
}

#[test]
fn buildah_builds_the_image_and_runs_it_as_its_user() {
    if !support::is_installed("buildah") {
        return;
    }
    let folder = folder("container-image");
    // Images of its own, that go with the folder; no mounts and no namespaces but what chroot takes.
    let store = folder.join("storage.conf");
    let places = format!(
        "[storage]\ndriver = \"vfs\"\ngraphroot = \"{0}/graph\"\nrunroot = \"{0}/run\"\n",
        folder.display()
    );
    std::fs::write(&store, places).unwrap();
    let within = |mut command: Command, arguments: &[&str]| {
        command.args(arguments);
        command.env("CONTAINERS_STORAGE_CONF", &store);
        command.env_remove("STORAGE_DRIVER");
        command.env("BUILDAH_ISOLATION", "chroot").output().unwrap()
    };
    let buildah = |arguments: &[&str]| within(Command::new("buildah"), arguments);
    let probe = buildah(&["from", "scratch"]);
    if !probe.status.success() {
        println!("SKIPPED: buildah: {}", said(&probe).trim());
        return;
    }
    let context = folder.join("context");
    let program = env!("CARGO_BIN_EXE_tidegate");
    let output = within(
        Command::new(script()),
        &[program, context.to_str().unwrap(), IMAGE],
    );
    assert!(output.status.success(), "{}", said(&output));
    let made = buildah(&["from", IMAGE]);
    assert!(made.status.success(), "{}", said(&made));
    let container = String::from_utf8_lossy(&made.stdout).trim().to_owned();
    let ran = buildah(&["run", &container, "--", "/usr/bin/tidegate", "--version"]);
    let shown = buildah(&["inspect", "--format", "{{.OCIv1.Config}}", &container]);
    let removed = buildah(&["rm", "--all"]);
    assert!(ran.status.success(), "{}", said(&ran));
    assert!(said(&ran).starts_with("tidegate "), "{}", said(&ran));
    assert!(said(&shown).contains(USER), "{}", said(&shown));
    assert!(
        said(&shown).contains("[/usr/bin/tidegate]"),
        "{}",
        said(&shown)
    );
    assert!(removed.status.success(), "{}", said(&removed));
    std::fs::remove_dir_all(&folder).unwrap();
}
