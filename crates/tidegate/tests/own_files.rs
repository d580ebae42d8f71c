//! Files that are written: `check`, the start and a reload refuse one that is another file of the configuration, by any of its
//! names. Real processes, real links.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::fs::{Permissions, create_dir_all, hard_link, set_permissions, write};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Output;

use support::scene::{Cluster, Scene};
use support::server::server;
use support::{folder, free_address, master_key, node_key, tidegate};

fn ran(words: &[&str], file: &Path) -> Output {
    let mut command = tidegate();
    command.env_remove("STATE_DIRECTORY").args(words).arg(file);
    command.output().unwrap()
}

/// The line of the last part that is like this.
fn line_of(text: &str, part: &str) -> usize {
    let before = &text[..text.rfind(part).unwrap()];
    before.matches('\n').count() + 1
}

/// `check` and the start say that these are one file, with the lines of both.
fn refused(file: &Path, start: &str, text: &str, what: [&str; 2], lines: &[&str]) {
    write(file, text).unwrap();
    let last = line_of(text, lines.last().unwrap());
    for word in ["check", start] {
        let ended = ran(&[word], file);
        let said = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(2), "{word}: {said}");
        let [one, other] = what;
        let place = format!("{}:{last}:", file.display());
        for part in [&format!("{one} and {other} are one file"), &place] {
            assert!(said.contains(part), "{word}: {part}: {said}");
        }
        for line in lines {
            assert!(said.contains(line), "{word}: {line}: {said}");
        }
    }
    assert_eq!(std::fs::read_to_string(file).unwrap(), text);
}

struct FrontEndFiles {
    folder: PathBuf,
    text: String,
}

impl FrontEndFiles {
    fn new(name: &str) -> Self {
        let folder = folder(name);
        let key = master_key(&folder);
        std::fs::rename(key, folder.join("the.key")).unwrap();
        create_dir_all(folder.join("state")).unwrap();
        set_permissions(folder.join("state"), Permissions::from_mode(0o700)).unwrap();
        write(folder.join("token"), "0123456789abcdef").unwrap();
        set_permissions(folder.join("token"), Permissions::from_mode(0o600)).unwrap();
        write(folder.join("sorry.html"), "sorry").unwrap();
        write(folder.join("nodes.toml"), "").unwrap();
        let text = format!(
            "[admin]\naddress = \"{}\"\ntoken_file = \"token\"\noverrides_file = \"throttles.json\"\n\
             [[listener]]\naddress = \"{}\"\n[load]\nkey_file = \"the.key\"\n[state]\ndirectory = \"state\"\n\
             [[site]]\nname = \"a\"\nadmission.body = \"sorry.html\"\n\
             [[discover]]\nname = \"more\"\nsite = \"a\"\nfile = \"nodes.toml\"\n\
             [[node]]\nname = \"n1\"\naddress = \"127.0.0.1:1\"\nsite = \"a\"\nload.transport = \"none\"\n",
            free_address(),
            free_address()
        );
        Self { folder, text }
    }

    fn with_log(&self, log: &str) -> String {
        format!("{}[log]\naccess = \"json\"\nfile = \"{log}\"\n", self.text)
    }
}

#[test]
fn an_access_log_that_is_another_file_is_refused() {
    let files = FrontEndFiles::new("own-files");
    let at = |name: &str| files.folder.join(name);
    let file = at("tidegate.toml");
    symlink("the.key", at("soft")).unwrap();
    hard_link(at("the.key"), at("hard")).unwrap();
    symlink(&files.folder, at("here")).unwrap();
    let key = std::fs::read(at("the.key")).unwrap();
    const KEY: &str = "the key file of [load]";
    for (log, other, line) in [
        ("the.key", KEY, "key_file = \"the.key\""),
        ("soft", KEY, "key_file = \"the.key\""),
        ("hard", KEY, "key_file = \"the.key\""),
        ("here/state/../the.key", KEY, "key_file = \"the.key\""),
        (
            "token",
            "the token file of [admin]",
            "token_file = \"token\"",
        ),
        (
            "throttles.json",
            "the file of throttles",
            "overrides_file = \"throttles.json\"",
        ),
        (
            "sorry.html",
            "a site's answer",
            "admission.body = \"sorry.html\"",
        ),
        (
            "nodes.toml",
            "the file of a [[discover]]",
            "file = \"nodes.toml\"",
        ),
        (
            "here/tidegate.toml",
            "this configuration file",
            "here/tidegate.toml",
        ),
        (
            "state/nodes.learned",
            "a file of the state folder",
            "state/nodes.learned",
        ),
        (
            "state/nodes.json",
            "a file of the state folder",
            "state/nodes.json",
        ),
        ("state/lock", "a file of the state folder", "state/lock"),
    ] {
        let lines = [line, &format!("file = \"{log}\"")];
        refused(
            &file,
            "run",
            &files.with_log(log),
            ["the access log", other],
            &lines,
        );
    }
    assert_eq!(std::fs::read(at("the.key")).unwrap(), key);
    for log in ["access.log", "state/access.log", "/dev/null"] {
        write(&file, files.with_log(log)).unwrap();
        let ended = ran(&["check"], &file);
        assert_eq!(ended.status.code(), Some(0), "{log}: {ended:?}");
    }
}

#[test]
fn a_reload_refuses_an_access_log_that_is_another_file() {
    let cluster = Cluster::default();
    let cluster = cluster.site("shop", "*").node("n1", server("a"), "shop");
    let scene = Scene::start("own-files-reload", &cluster);
    hard_link(scene.file(), scene.folder.join("hard.log")).unwrap();
    let log = "[log]\naccess = \"json\"\nfile = \"tidegate.toml\"\n";
    scene.write(&cluster.more(log).text());
    let text = std::fs::read_to_string(scene.file()).unwrap();
    for words in [&["reload", "--dry-run"][..], &["reload"]] {
        let refused = scene.command(words);
        let said = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(1), "{said}");
        for part in [
            "the access log and this configuration file are one file",
            "tidegate.toml:3:8",
            "expected a file of its own",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
    scene.front_end.get("any", "/");
    assert_eq!(std::fs::read_to_string(scene.file()).unwrap(), text);
}

/// The folder of an agent, which others cannot write to.
fn agent_folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("tidegate-{name}-{}", std::process::id()));
    create_dir_all(folder.join("state")).unwrap();
    for (path, mode) in [("", 0o755), ("state", 0o700)] {
        set_permissions(folder.join(path), Permissions::from_mode(mode)).unwrap();
    }
    for name in ["template", "program"] {
        write(folder.join(name), "#!/bin/sh\n").unwrap();
        set_permissions(folder.join(name), Permissions::from_mode(0o755)).unwrap();
    }
    folder
}

fn agent_text(folder: &Path, key: &Path, target: &Path) -> String {
    let (folder, key, target) = (folder.display(), key.display(), target.display());
    let site = |name: &str, target: &str| {
        format!(
            "[[agent.moves.site]]\nname = \"{name}\"\ntemplate = \"template\"\ntarget = \"{target}\"\n\
             commands = [[\"{folder}/program\"]]\n"
        )
    };
    format!(
        "[agent]\nlisten = \"127.0.0.1:0\"\nkey_file = \"{key}\"\n[agent.moves]\nport = 80\nstate = \"state\"\n{}{}",
        site("blog", &format!("{folder}/site.conf")),
        site("shop", &target.to_string()),
    )
}

#[test]
fn a_hooks_target_that_is_another_file_is_refused() {
    let folder = agent_folder("own-targets");
    let master = master_key(&folder);
    let key = node_key(&master, "n1");
    let file = folder.join("agent.toml");
    hard_link(&key, folder.join("hard")).unwrap();
    for (target, other) in [
        (key.clone(), "the key file of [agent]"),
        (folder.join("hard"), "the key file of [agent]"),
        (folder.join("template"), "a hook's template"),
        (folder.join("program"), "a hook's program"),
        (file.clone(), "this configuration file"),
        (
            folder.join("state/moves.kept"),
            "a file of [agent.moves] `state`",
        ),
    ] {
        let text = agent_text(&folder, &key, &target);
        let line = format!("target = \"{}\"", target.display());
        refused(&file, "agent", &text, ["a hook's target", other], &[&line]);
    }
    // One target for all sites is how it is meant, beside no other file.
    write(&file, agent_text(&folder, &key, &folder.join("site.conf"))).unwrap();
    let ended = ran(&["check"], &file);
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    // A key that the command line names counts as well.
    let other = node_key(&master, "n2");
    write(&file, agent_text(&folder, &key, &other)).unwrap();
    let words = ["agent", "--key-file", other.to_str().unwrap()];
    let ended = ran(&words, &file);
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(2), "{said}");
    assert!(said.contains("of site `shop` are one file"), "{said}");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_folder_that_an_agent_cannot_keep_moves_in_is_refused_by_check_too() {
    let folder = agent_folder("kept-folder");
    let key = node_key(&master_key(&folder), "n1");
    let file = folder.join("agent.toml");
    let text = agent_text(&folder, &key, &folder.join("site.conf"));
    write(&file, &text).unwrap();
    let state = folder.join("state");
    let line = line_of(&text, "state = \"state\"");
    let refuses = |why: &str| {
        for word in ["check", "agent"] {
            let ended = ran(&[word], &file);
            let said = String::from_utf8(ended.stderr).unwrap();
            assert_eq!(ended.status.code(), Some(2), "{word}: {said}");
            for part in [
                why,
                &format!("agent.toml:{line}:9"),
                "expected a folder that is there",
            ] {
                assert!(said.contains(part), "{word}: {part}: {said}");
            }
        }
    };
    set_permissions(&state, Permissions::from_mode(0o777)).unwrap();
    refuses("others can write to");
    std::fs::remove_dir(&state).unwrap();
    refuses("No such file or directory");
    std::fs::remove_dir_all(&folder).unwrap();
}
