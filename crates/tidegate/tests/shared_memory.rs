//! Shared memory whose name something of another user has: what an agent and a front-end say, and what to do about it.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::os::unix::fs::{PermissionsExt as _, lchown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use support::{FrontEnd, eventually, folder, master_key, node_key, tidegate};

/// A user that is not there.
const STRANGER: u32 = 12_345;
const NO_ROOT: &str = "SKIPPED: only root can give a file to another user";

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A folder in which every user can make files, like `/dev/shm`; gone at the end.
struct Open(PathBuf);

impl Open {
    fn new(name: &str) -> Self {
        let name = format!("tidegate-shm-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        set_mode(&path, 0o1777);
        Self(path)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // What is left of a test that failed is the system's to clear away.
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// What an agent says that is to publish under this name, and does not.
fn refused(name: &str, path: &Path, more: &[&str]) -> String {
    let folder = folder(name);
    let key = node_key(&master_key(&folder), "n");
    let mut agent = tidegate();
    agent.args([
        "agent",
        "--listen",
        "127.0.0.1:0",
        "--rung",
        "agent",
        "--key-file",
    ]);
    let output = agent
        .arg(key)
        .arg("--shm")
        .arg(path)
        .args(more)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn an_agent_says_whose_the_name_is_that_it_cannot_have_and_what_to_do() {
    let folder = Open::new("agent");
    let path = folder.0.join("region");
    let at = format!("cannot publish at {}", path.display());
    let other_name = ", or give another name (--shm, or `shm` in [agent])";
    std::fs::write(&path, "letters").unwrap();
    let own = rustix::process::geteuid().as_raw();
    let said = refused("shm-file", &path, &[]);
    let why = format!(
        "{at}: what is there is no agent's, but a file of user {own}: remove it{other_name}"
    );
    assert!(said.contains(&why), "{said}");
    assert_eq!(std::fs::read(&path).unwrap(), b"letters");
    std::fs::remove_file(&path).unwrap();
    let _alive = UnixListener::bind(&path).unwrap();
    let said = refused("shm-alive", &path, &[]);
    let why = format!(
        "{at}: a process of user {own} publishes there: stop it if it is another agent{other_name}"
    );
    assert!(said.contains(&why), "{said}");
}

#[test]
fn an_agent_of_a_user_cannot_take_the_name_of_another_users() {
    if !is_root() {
        println!("{NO_ROOT}");
        return;
    }
    let folder = Open::new("user");
    let path = folder.0.join("region");
    // Whether the owner lives cannot be found out, or it is dead and its name cannot be had.
    for mode in [0o600, 0o666] {
        drop(UnixListener::bind(&path).unwrap());
        lchown(&path, Some(STRANGER), None).unwrap();
        set_mode(&path, mode);
        let said = refused("shm-user", &path, &["--user", "nobody"]);
        let why = format!(
            "cannot publish at {}: what is there belongs to user {STRANGER}: remove it as that user or as root",
            path.display()
        );
        assert!(said.contains(&why), "{mode:o}: {said}");
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn status_says_why_shared_memory_of_another_user_is_refused() {
    if !is_root() {
        println!("{NO_ROOT}");
        return;
    }
    let open = Open::new("status");
    let path = open.0.join("region");
    let _listener = UnixListener::bind(&path).unwrap();
    lchown(&path, Some(STRANGER), None).unwrap();
    let text = format!(
        "[[site]]\nname = \"a\"\n[[node]]\nname = \"n\"\naddress = \"127.0.0.1:1\"\nsite = \"a\"\n\
         load = {{ transport = \"shm\", path = \"{}\" }}\n",
        path.display()
    );
    let front_end = FrontEnd::start(&folder("shm-status"), &text);
    let why = format!(
        "n: its load is not known: {} belongs to another user and is not believed: run the agent as root or as the \
         front-end's user",
        path.display()
    );
    let admin = front_end.admin.to_string();
    eventually("status says why", || {
        let status = tidegate()
            .args(["status", "--admin", &admin])
            .output()
            .unwrap();
        let said = String::from_utf8(status.stdout).unwrap();
        said.contains(&why).then_some(())
    });
}
