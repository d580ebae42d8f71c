//! `check`, `config`, `completions` and the help, through the binary itself.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn tidegate(arguments: &[&str], folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(arguments)
        .current_dir(folder)
        .env("COLUMNS", "100")
        .output()
        .unwrap()
}

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Compares with a file, or rewrites it with `UPDATE_EXPECT=1`.
#[track_caller]
fn expect_file(path: &Path, found: &str) {
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(path, found).unwrap();
    }
    let wanted = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        found == wanted,
        "{} differs; UPDATE_EXPECT=1 rewrites it. Found:\n{found}",
        path.display()
    );
}

fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut files: Vec<_> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect();
    files.sort();
    files
}

fn policies() -> String {
    let all = tidegate_core::policy::PolicyKind::ALL.iter();
    let names: Vec<_> = all.map(|kind| kind.name()).collect();
    names.join(", ")
}

#[test]
fn broken_files_get_exact_messages() {
    let folder = here("tests/broken");
    let broken = files(&folder, "toml");
    assert!(broken.len() >= 10);
    for file in broken {
        let name = file.file_name().unwrap().to_str().unwrap();
        let checked = tidegate(&["check", name], &folder);
        assert_eq!(checked.status.code(), Some(2), "{name}");
        assert!(checked.stdout.is_empty(), "{name}");
        // A new policy changes no message but for the list of policies in it.
        let message = text_of(&checked.stderr).replace(&policies(), "EVERY POLICY");
        expect_file(&file.with_extension("txt"), &message);

        let json = tidegate(&["check", name, "--json"], &folder);
        assert_eq!(json.status.code(), Some(2), "{name}");
        let value: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
        assert_eq!(value["ok"], false, "{name}");
        for problem in value["problems"].as_array().unwrap() {
            assert!(problem["line"].as_u64().unwrap() > 0, "{name}: {problem}");
            assert!(problem["column"].as_u64().unwrap() > 0, "{name}: {problem}");
        }
    }
}

#[test]
fn every_example_is_sound() {
    let examples = files(&here("../../examples"), "toml");
    assert!(!examples.is_empty());
    // Keys are in no repository: the examples name those that their comments make.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("examples");
    std::fs::create_dir_all(&folder).unwrap();
    make_keys(&folder);
    for example in examples {
        let file = folder.join(example.file_name().unwrap());
        std::fs::copy(&example, &file).unwrap();
        let file = file.to_str().unwrap();
        let checked = tidegate(&["check", file], &here(""));
        assert_eq!(
            checked.status.code(),
            Some(0),
            "{}",
            text_of(&checked.stderr)
        );
        assert!(text_of(&checked.stdout).contains(": ok, "));
        let json = tidegate(&["--json", "config", file], &here(""));
        let value: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
        assert!(value["admin"]["address"].is_string());
    }
}

/// The example of hooks names programs and folders of a server: others stand for them here.
#[test]
fn the_example_of_hooks_is_sound_and_its_mistakes_have_lines() {
    let folder = std::env::temp_dir().join(format!("tidegate-example-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    make_keys(&folder);
    let template = folder.join("vhost.template");
    std::fs::copy(here("../../examples/hooks/vhost.template"), &template).unwrap();
    std::fs::set_permissions(&template, std::fs::Permissions::from_mode(0o644)).unwrap();
    let text = std::fs::read_to_string(here("../../examples/hooks/agent.toml")).unwrap();
    let text = text
        .replace("/etc/nginx/sites-enabled", folder.to_str().unwrap())
        .replace("/var/lib/tidegate-agent", folder.to_str().unwrap())
        .replace("/usr/bin/systemctl", "/bin/true");
    std::fs::write(folder.join("agent.toml"), text).unwrap();
    let checked = tidegate(&["check", "agent.toml"], &folder);
    let message = text_of(&checked.stderr);
    assert_eq!(checked.status.code(), Some(0), "{message}");
    // Its nginx variables are none of our placeholders; a word that is meant as one is found.
    let filled = std::fs::read_to_string(&template).unwrap();
    std::fs::write(&template, filled.replace("{site};", "{siet};")).unwrap();
    let checked = tidegate(&["check", "agent.toml"], &folder);
    let message = text_of(&checked.stderr);
    assert_eq!(checked.status.code(), Some(2), "{message}");
    let expected = "vhost.template, line 4: unknown placeholder {siet}";
    assert!(
        message.contains("agent.toml:21:12") && message.contains(expected),
        "{message}"
    );
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_file_that_is_not_there_is_bad_usage() {
    let checked = tidegate(&["check", "no-such.toml"], &here(""));
    assert_eq!(checked.status.code(), Some(2));
    let message = text_of(&checked.stderr);
    assert!(message.contains("cannot read no-such.toml"), "{message}");
}

/// What a newcomer's file may not mean is said, and stops nothing.
#[test]
fn notes_stand_behind_a_sound_configuration() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("notes");
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("tidegate.toml");
    let text = "[[listener]]\naddress = \"0.0.0.0:80\"\n[[site]]\nname = \"shop\"\nhosts = [\"shop.example\"]\n\
                [[node]]\nname = \"n1\"\nsite = \"shop\"\naddress = \"10.0.0.11:80\"\n";
    std::fs::write(&file, text).unwrap();
    let checked = tidegate(&["check", "tidegate.toml"], &folder);
    assert_eq!(checked.status.code(), Some(0));
    let said = text_of(&checked.stdout);
    assert!(
        said.starts_with("tidegate.toml: ok, a front-end of 1 site and 1 node\n"),
        "{said}"
    );
    assert!(
        said.contains("note: no site has the host \"*\"") && said.contains("Host: shop.example"),
        "{said}"
    );
    // With `-c`, as all commands take it.
    let json = tidegate(&["check", "-c", "tidegate.toml", "--json"], &folder);
    let value: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(value["notes"].as_array().unwrap().len(), 1, "{value}");
}

#[test]
fn an_error_for_programs_is_the_sentence_alone() {
    let answer = tidegate(
        &["status", "--admin", "http://127.0.0.1:1/", "--json"],
        &here(""),
    );
    assert_eq!(answer.status.code(), Some(1));
    let value: serde_json::Value = serde_json::from_slice(&answer.stdout).unwrap();
    let error = value["error"].as_str().unwrap();
    assert!(
        error.starts_with("no front-end answers at 127.0.0.1:1"),
        "{error}"
    );
}

/// What makes `master.key` and `n1.key`.
const MAKE_KEYS: [&[&str]; 2] = [
    &["key", "new", "master.key"],
    &[
        "key",
        "derive",
        "--master",
        "master.key",
        "n1",
        "-o",
        "n1.key",
    ],
];

/// Makes `master.key` and `n1.key` anew in a folder.
fn make_keys(folder: &Path) {
    for file in ["master.key", "n1.key"] {
        // There is none at the first time.
        std::fs::remove_file(folder.join(file)).ok();
    }
    for arguments in MAKE_KEYS {
        let made = tidegate(arguments, folder);
        assert_eq!(made.status.code(), Some(0), "{}", text_of(&made.stderr));
    }
}

#[test]
fn keys_are_made_for_their_owner_alone_and_never_written_over() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("keys");
    std::fs::create_dir_all(&folder).unwrap();
    make_keys(&folder);
    let read = |file| std::fs::read_to_string(folder.join(file)).unwrap();
    let (master, n1) = (read("master.key"), read("n1.key"));
    for file in ["master.key", "n1.key"] {
        let about = std::fs::metadata(folder.join(file)).unwrap();
        assert_eq!(about.permissions().mode() & 0o777, 0o600, "{file}");
    }
    for arguments in MAKE_KEYS {
        let refused = tidegate(arguments, &folder);
        assert_eq!(refused.status.code(), Some(1), "{arguments:?}");
        let said = text_of(&refused.stderr);
        let file = arguments.last().unwrap();
        assert!(said.contains(file) && said.contains("remove it"), "{said}");
    }
    assert!(read("master.key") == master && read("n1.key") == n1);
    let derive = ["key", "derive", "--master", "master.key", "n1"];
    assert_eq!(text_of(&tidegate(&derive, &folder).stdout), n1);
    let json = tidegate(&[&derive[..], &["--json"]].concat(), &folder);
    let value: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(value["keys"][0], n1.trim());
    // Neither a node's key nor a bad name gives a key.
    for arguments in [
        ["key", "derive", "--master", "n1.key", "n2"],
        ["key", "derive", "--master", "master.key", "n 2"],
    ] {
        let refused = tidegate(&arguments, &folder);
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}");
        assert!(!text_of(&refused.stderr).contains(n1.trim()));
    }
}

/// A key that other users of the machine can read is refused by all that read it.
#[test]
fn a_key_file_that_others_can_read_is_refused() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("key-modes");
    std::fs::create_dir_all(&folder).unwrap();
    make_keys(&folder);
    let text = "[admin]\naddress = \"127.0.0.1:0\"\n[load]\nkey_file = \"master.key\"\n\
                [[listener]]\naddress = \"127.0.0.1:0\"\n[[site]]\nname = \"shop\"\n\
                [[node]]\nname = \"n1\"\naddress = \"127.0.0.1:1\"\nsite = \"shop\"\n";
    std::fs::write(folder.join("tidegate.toml"), text).unwrap();
    std::fs::write(
        folder.join("agent.toml"),
        "[agent]\nkey_file = \"n1.key\"\n",
    )
    .unwrap();
    let mode = |mode| {
        for file in ["master.key", "n1.key"] {
            let mode = PermissionsExt::from_mode(mode);
            std::fs::set_permissions(folder.join(file), mode).unwrap();
        }
    };
    mode(0o644);
    for arguments in [
        &["check", "tidegate.toml"][..],
        &["run", "tidegate.toml"],
        &["check", "agent.toml"],
        &["agent", "agent.toml"],
        &["agent", "--key-file", "n1.key"],
        &["agent", "install", "--key-file", "n1.key"],
        &["key", "derive", "--master", "master.key", "n1"],
    ] {
        let output = tidegate(arguments, &folder);
        let told = text_of(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {told}");
        assert!(told.contains("chmod 0600"), "{arguments:?}: {told}");
    }
    mode(0o600);
    for file in ["tidegate.toml", "agent.toml"] {
        let output = tidegate(&["check", file], &folder);
        assert!(output.status.success(), "{}", text_of(&output.stderr));
    }
}

#[test]
fn an_agent_whose_address_is_taken_says_which() {
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("taken");
    std::fs::create_dir_all(&folder).unwrap();
    make_keys(&folder);
    let agent = [
        "agent",
        "--key-file",
        "n1.key",
        "--rung",
        "agent",
        "--listen",
    ];
    let agent = tidegate(&[&agent[..], &[&address]].concat(), &folder);
    assert_eq!(agent.status.code(), Some(1));
    let said = text_of(&agent.stderr);
    assert!(
        said.contains(&format!("cannot listen on {address} (UDP)")),
        "{said}"
    );
}

#[test]
fn completions_know_the_commands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = tidegate(&["completions", shell], &here(""));
        assert_eq!(script.status.code(), Some(0), "{shell}");
        let script = text_of(&script.stdout);
        for command in ["check", "config", "status", "why", "drain", "maint"] {
            assert!(script.contains(command), "{shell}: {command}");
        }
    }
}

#[test]
fn the_help_is_as_expected() {
    let help = tidegate(&["--help"], &here(""));
    assert_eq!(help.status.code(), Some(0));
    expect_file(&here("tests/help.txt"), &text_of(&help.stdout));
}

#[test]
fn a_front_end_that_is_not_there_is_a_failure_that_names_address_and_setting() {
    // Port 1 of loopback: nothing listens there.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("no-front-end");
    std::fs::create_dir_all(&folder).unwrap();
    let file = "admin = { address = \"127.0.0.1:1\" }\nlistener = [{ address = \"127.0.0.1:8080\" }]\n\
                site = [{ name = \"a\" }]\nnode = [{ name = \"n\", address = \"127.0.0.1:2\", site = \"a\" }]\n";
    std::fs::write(folder.join("tidegate.toml"), file).unwrap();
    for (option, value, gave) in [
        ("--admin", "127.0.0.1:1", "--admin gave that address"),
        (
            "-c",
            "tidegate.toml",
            "[admin] of tidegate.toml gave that address",
        ),
    ] {
        let answer = tidegate(&["status", option, value], &folder);
        assert_eq!(answer.status.code(), Some(1));
        let message = text_of(&answer.stderr);
        let what = "no front-end answers at 127.0.0.1:1: ";
        assert!(
            message.contains(what) && message.contains("`address` in [admin]"),
            "{message}"
        );
        assert!(message.trim_end().ends_with(gave), "{message}");
    }
}

/// Whatever listens at a port that is not the admin interface's: a front-end's own listener, say.
#[test]
fn another_server_is_not_taken_for_a_front_end() {
    for (answer, what) in [
        (
            "404 Not Found",
            "answered 404 Not Found; is it `address` in [admin] of a front-end?",
        ),
        ("200 OK", "gave an answer that is not understood: "),
    ] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let serving = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = [0; 1024];
            assert!(stream.read(&mut head).unwrap() > 0);
            let text = format!("HTTP/1.1 {answer}\r\ncontent-length: 2\r\n\r\nno");
            stream.write_all(text.as_bytes()).unwrap();
        });
        let answer = tidegate(&["why", "n1", "--admin", &address], &here(""));
        assert_eq!(answer.status.code(), Some(1));
        let message = text_of(&answer.stderr);
        assert!(message.contains(&format!("{address} {what}")), "{message}");
        assert!(
            message.trim_end().ends_with("; --admin gave that address"),
            "{message}"
        );
        serving.join().unwrap();
    }
}

#[test]
fn bad_usage_is_told_apart_from_failure() {
    assert_eq!(tidegate(&["dance"], &here("")).status.code(), Some(2));
    assert_eq!(tidegate(&["why", "a/b"], &here("")).status.code(), Some(2));
}

#[test]
fn a_reader_that_went_away_is_no_failure() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["completions", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let ended = child.wait_with_output().unwrap();
    assert_eq!(text_of(&ended.stderr), "");
    assert_eq!(ended.status.code(), Some(0));
}

/// A token that other users of the machine can read is refused by all that read it: `check`, `run`, and commands.
#[test]
fn a_token_file_that_others_can_read_is_refused() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("token-file");
    std::fs::create_dir_all(&folder).unwrap();
    let token = folder.join("token");
    let text = "[admin]\naddress = \"127.0.0.1:0\"\ntoken_file = \"token\"\n\
                [[listener]]\naddress = \"127.0.0.1:0\"\n[[site]]\nname = \"shop\"\n\
                [[node]]\nname = \"n1\"\naddress = \"127.0.0.1:1\"\nsite = \"shop\"\n";
    std::fs::write(folder.join("tidegate.toml"), text).unwrap();
    std::fs::write(&token, "0123456789abcdef").unwrap();
    let mode = |mode| std::fs::set_permissions(&token, PermissionsExt::from_mode(mode)).unwrap();
    mode(0o644);
    for arguments in [
        &["check", "tidegate.toml"][..],
        &["run", "tidegate.toml"],
        &["status", "-c", "tidegate.toml"],
        &["status", "--admin", "127.0.0.1:1", "--token-file", "token"],
    ] {
        let output = tidegate(arguments, &folder);
        let told = text_of(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {told}");
        assert!(told.contains("chmod 0600"), "{arguments:?}: {told}");
    }
    mode(0o600);
    let output = tidegate(&["check", "tidegate.toml"], &folder);
    assert!(output.status.success(), "{}", text_of(&output.stderr));
}
