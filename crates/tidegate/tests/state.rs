//! What a front-end has learned outlives it: real processes, one after the other.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use support::{Process, folder, free_address};
use tidegate_core::classes::ClassId;
use tidegate_core::culprits::{Discovery, EVERY, Learned, Limits, Request, ResourceId, UsagePoint};
use tidegate_core::time::Timestamp;

const FILE: &str = "culprits.learned";

#[expect(clippy::disallowed_methods, reason = "files carry the time of day")]
fn now() -> u64 {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH);
    unix.unwrap().as_secs()
}

/// A minute of a site with one class, as a front-end would have learned it.
fn learned() -> Learned {
    let mut discovery = Discovery::new(Limits::default());
    let cpu = ResourceId(0);
    for ms in (0..60_000).step_by(20) {
        let at = Timestamp::from_millis(5_000 + ms);
        let point = UsagePoint {
            at,
            busy_ns: 4_000_000 * (ms / 20),
            cores: 1.0,
        };
        discovery.on_usage(cpu, point);
        discovery.on_request(&Request {
            class: ClassId(1),
            sent: at,
            ended: Some(at + Duration::from_millis(10)),
        });
        if u128::from(at.nanos()).is_multiple_of(EVERY.as_nanos()) {
            discovery.evaluate(at, cpu);
        }
    }
    let known = discovery.learned(cpu).into_iter();
    let known = known.map(|(_, class)| ("GET /".to_owned(), class));
    let mut learned = Learned::default();
    assert!(learned.note("a cpu", 1.0, known, now()));
    learned
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

/// A front-end without servers that answer, and its folders.
struct Scene {
    folder: PathBuf,
    state: PathBuf,
}

impl Scene {
    fn new(name: &str) -> Self {
        let folder = folder(name);
        let state = folder.join("state");
        std::fs::create_dir(&state).unwrap();
        set_mode(&state, 0o700);
        Self { folder, state }
    }

    fn file(&self) -> PathBuf {
        self.state.join(FILE)
    }

    /// What it says of its state from its start to its end, and its end is the one of a service that is stopped.
    fn run(&self, more: &str, directory: Option<&Path>) -> Vec<String> {
        self.start("one", more, directory).end()
    }

    /// A configuration file.
    fn config(&self, name: &str, admin: SocketAddr, more: &str) -> PathBuf {
        let web = free_address();
        let config = self.folder.join(format!("{name}.toml"));
        let text = format!(
            "admin = {{ address = \"{admin}\" }}\nlistener = [{{ address = \"{web}\" }}]\nsite = [{{ name = \"a\" }}]\n\
             node = [{{ name = \"n\", address = \"127.0.0.1:1\", site = \"a\" }}]\n{more}\n"
        );
        std::fs::write(&config, text).unwrap();
        config
    }

    /// A front-end of this name that is ready.
    fn start(&self, name: &str, more: &str, directory: Option<&Path>) -> FrontEnd {
        let admin = free_address();
        let config = self.config(name, admin, more);
        let log = self.folder.join(format!("{name}.log"));
        let said = std::fs::File::create(&log).unwrap();
        let mut command: Command = support::tidegate();
        command.args(["--json", "run"]).arg(&config);
        command.env_remove("STATE_DIRECTORY");
        command.envs(directory.map(|it| ("STATE_DIRECTORY", it)));
        let process = Process::start(command.stdout(Stdio::null()).stderr(said));
        support::eventually("it is ready", || {
            let text =
                format!("GET /readyz HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n");
            support::request(admin, &text).filter(|it| it.status == 200)
        });
        FrontEnd { process, log }
    }

    /// What `tidegate check` notes.
    fn check(&self, more: &str, directory: Option<&Path>) -> Vec<String> {
        let config = self.config("checked", free_address(), more);
        let mut command: Command = support::tidegate();
        command.args(["--json", "check"]).arg(&config);
        command.env_remove("STATE_DIRECTORY");
        command.envs(directory.map(|it| ("STATE_DIRECTORY", it)));
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let notes = value["notes"].as_array().unwrap().iter();
        let notes = notes.map(|it| it.as_str().unwrap().to_owned());
        notes.filter(|it| it.starts_with("[state]: ")).collect()
    }

    /// What is in the file by now.
    fn kept(&self) -> Learned {
        let mode = std::fs::metadata(self.file()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let (learned, age) = Learned::decode(&std::fs::read(self.file()).unwrap(), now()).unwrap();
        assert!(age < 60, "it was written at the end: {age}");
        learned
    }

    fn put(&self, bytes: &[u8], mode: u32) {
        std::fs::write(self.file(), bytes).unwrap();
        set_mode(&self.file(), mode);
    }

    /// What the folder has beside the lock and what was learned of nodes, be it half written by a process that had no time left.
    fn files(&self) -> usize {
        let files = std::fs::read_dir(&self.state).unwrap();
        let files = files.map(|it| it.unwrap().file_name());
        files
            .filter(|it| {
                let name = it.to_string_lossy();
                let others = ["lock", "nodes.learned", "history.json"];
                !others.iter().any(|other| name.starts_with(other))
            })
            .count()
    }
}

/// A process, and where its events go.
struct FrontEnd {
    process: Process,
    log: PathBuf,
}

impl FrontEnd {
    /// What it has said of its state so far.
    fn said(&self) -> Vec<String> {
        let events = std::fs::read_to_string(&self.log).unwrap();
        // The last line may not be whole yet.
        let whole = events.rfind('\n').map_or("", |end| &events[..end]);
        let events = whole
            .lines()
            .map(|line| serde_json::from_str(line).unwrap());
        let states = events.filter(|it: &serde_json::Value| it["event"] == "state");
        states
            .map(|it| it["message"].as_str().unwrap().to_owned())
            .collect()
    }

    /// The same, once it is so many lines.
    fn said_lines(&self, lines: usize) -> Vec<String> {
        support::eventually("it says how its state is", || {
            Some(self.said()).filter(|it| it.len() >= lines)
        })
    }

    /// Stops it as a service is stopped, and says what it has said.
    fn end(mut self) -> Vec<String> {
        self.process.signal("TERM");
        assert_eq!(self.process.wait(), Some(0));
        self.said()
    }
}

#[test]
fn what_was_learned_outlives_a_restart() {
    let scene = Scene::new("state-restart");
    let by_config = "[state]\ndirectory = \"state\"";
    let said = scene.run(by_config, None);
    assert!(
        said[0].ends_with("is not there yet: what requests cost is not known yet"),
        "{said:?}"
    );
    assert_eq!(scene.files(), 0, "nothing was learned");
    let learned = learned();
    // An hour ago.
    scene.put(&learned.encode(now() - 3600), 0o600);
    // The folder of the configuration, and then the service manager's.
    for (more, directory) in [(by_config, None), ("", Some(&*scene.state))] {
        let said = scene.run(more, directory);
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains("known from "), "{said:?}");
        assert_eq!(scene.kept(), learned);
    }
}

#[test]
fn nothing_is_kept_unless_there_is_a_folder_for_it() {
    let scene = Scene::new("state-none");
    let off = "[state]\nkeep = false";
    for (more, directory) in [("", None), (off, Some(&*scene.state))] {
        assert_eq!(scene.run(more, directory), Vec::<String>::new());
        assert_eq!(scene.check(more, directory), Vec::<String>::new());
        assert_eq!(std::fs::read_dir(&scene.state).unwrap().count(), 0);
    }
    let relative = Some(Path::new("state"));
    let said = [scene.run("", relative), scene.check("", relative)].concat();
    let why = "`state` in STATE_DIRECTORY is not an absolute path";
    assert!(
        said.len() == 2 && said.iter().all(|it| it.contains(why)),
        "{said:?}"
    );
    assert_eq!(std::fs::read_dir(&scene.state).unwrap().count(), 0);
    // Neither is a folder made.
    let gone = scene.folder.join("gone");
    let said = scene.run("", Some(&gone));
    let why = said
        .iter()
        .filter(|it| it.contains("it is not there: `install -d -m 0700 "))
        .count();
    assert_eq!((said.len(), why), (2, 1), "once: {said:?}");
    assert!(!gone.exists());
}

#[test]
fn a_file_that_is_of_no_use_is_refused_by_name_and_harms_nobody() {
    let scene = Scene::new("state-refused");
    let learned = learned();
    let good = learned.encode(now());
    let (mut damaged, mut newer) = (good.clone(), good.clone());
    damaged[good.len() / 2] ^= 1;
    newer[8] = 9;
    let old = learned.encode(now() - 8 * 24 * 3600);
    for (bytes, mode, why) in [
        (&damaged[..], 0o600, "it is damaged"),
        (&newer, 0o600, "it is of version 9"),
        (&old, 0o600, " s old, more than "),
        (
            b"{\"learned\":[]}",
            0o600,
            "it does not begin as such a file does",
        ),
        (&vec![0; (4 << 20) + 1], 0o600, "it is larger than"),
        (&good, 0o644, "others have access to it (mode 0644)"),
    ] {
        scene.put(bytes, mode);
        let said = scene.run("", Some(&scene.state));
        assert!(said.len() == 1 && said[0].contains(why), "{why}: {said:?}");
        // This process has learned nothing that is better.
        assert_eq!(std::fs::read(scene.file()).unwrap(), bytes, "{why}");
        assert_eq!(scene.files(), 1, "{why}");
    }
    // Once its mode is mended it is as good as before.
    set_mode(&scene.file(), 0o600);
    let said = scene.run("", Some(&scene.state));
    assert!(said[0].contains("known from "), "{said:?}");
    assert_eq!(scene.kept(), learned);
}

#[test]
fn a_link_is_neither_read_nor_written_through() {
    let scene = Scene::new("state-link");
    let victim = scene.folder.join("victim");
    std::fs::write(&victim, learned().encode(now())).unwrap();
    std::fs::set_permissions(&victim, PermissionsExt::from_mode(0o600)).unwrap();
    let before = std::fs::read(&victim).unwrap();
    symlink(&victim, scene.file()).unwrap();
    symlink(&victim, scene.state.join("culprits.next")).unwrap();
    let said = scene.run("", Some(&scene.state));
    assert!(
        said.len() == 1 && said[0].contains("it is a link"),
        "{said:?}"
    );
    assert_eq!(std::fs::read(&victim).unwrap(), before);
    let is_link = |path: &Path| path.symlink_metadata().unwrap().is_symlink();
    assert!(is_link(&scene.file()), "nothing was learned");
}

#[test]
fn something_else_in_its_place_stays_and_is_told() {
    let scene = Scene::new("state-folder");
    std::fs::create_dir(scene.file()).unwrap();
    let said = scene.run("", Some(&scene.state));
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("it is not a regular file"), "{said:?}");
    assert!(std::fs::metadata(scene.file()).unwrap().mode() & 0o040_000 != 0);
}

#[test]
fn a_folder_that_is_of_no_use_is_told_with_the_remedy_by_check_and_by_run() {
    let scene = Scene::new("state-folders");
    let both = |more: &str, directory: Option<&Path>, why: &str| {
        let (said, noted) = (scene.run(more, directory), scene.check(more, directory));
        for told in [&said, &noted] {
            let times = told.iter().filter(|it| it.contains(why)).count();
            assert_eq!(times, 1, "{why}: {said:?} {noted:?}");
        }
        assert_eq!(noted.len(), 1, "{noted:?}");
    };
    let by_config = "[state]\ndirectory = \"state\"";
    assert_eq!(scene.check(by_config, None), Vec::<String>::new());
    for mode in [0o777, 0o1777, 0o770] {
        set_mode(&scene.state, mode);
        let why = format!("others can write there (mode {mode:04o}): name a folder");
        both(by_config, None, &why);
        both("", Some(&scene.state), &why);
    }
    assert_eq!(std::fs::read_dir(&scene.state).unwrap().count(), 0);
    both(
        "[state]\ndirectory = \"gone\"",
        None,
        "it is not there: `install -d -m 0700 -o ",
    );
    both(
        "[state]\ndirectory = \"one.toml\"",
        None,
        "it is not a folder",
    );
    set_mode(&scene.state, 0o700);
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&scene.state, Some(1001), None).unwrap();
        both(
            by_config,
            None,
            "it belongs to user 1001, not to the user of the front-end: chown 0",
        );
        std::os::unix::fs::chown(&scene.state, Some(0), None).unwrap();
        // It is root that checks, and another user that will run.
        let user = format!("{by_config}\n[process]\nuser = \"nobody\"");
        let noted = scene.check(&user, None);
        assert!(noted[0].contains("belongs to user 0, not to "), "{noted:?}");
    } else {
        set_mode(&scene.state, 0o500);
        both(
            by_config,
            None,
            "its owner cannot write there (mode 0500): chmod 0700",
        );
    }
}

#[test]
fn two_front_ends_with_one_folder_do_not_overwrite_each_others_files() {
    let scene = Scene::new("state-two");
    let learned = learned();
    scene.put(&learned.encode(now()), 0o600);
    let first = scene.start("first", "", Some(&scene.state));
    let said = first.said_lines(1);
    assert!(said[0].contains("known from "), "{said:?}");
    // The second one would write nothing but this at its end.
    let second = scene.start("second", "", Some(&scene.state)).end();
    let told = second.iter().filter(|it| is_refused(it)).count();
    assert_eq!((second.len(), told), (2, 1), "once: {second:?}");
    std::fs::remove_file(scene.file()).unwrap();
    let second = scene.start("second", "", Some(&scene.state));
    // It has read what is there: nothing.
    let said = second.said_lines(2);
    assert!(is_refused(&said[0]), "{said:?}");
    assert!(said[1].contains("is not there yet"), "{said:?}");
    assert_eq!(first.end().len(), 1);
    assert_eq!(scene.kept(), learned);
    // Now it is the second one's, though there is nothing to be written.
    let said = second.said_lines(3);
    let taken = format!("this front-end has taken over {}: ", scene.state.display());
    assert!(said[2].starts_with(&taken), "{said:?}");
    let third = scene.start("third", "", Some(&scene.state)).end();
    assert!(is_refused(&third[0]), "{third:?}");
    std::fs::remove_file(scene.file()).unwrap();
    assert_eq!(second.end().len(), 3);
    assert_eq!(scene.files(), 0, "it had read nothing and learned nothing");
    assert_eq!(scene.run("", Some(&scene.state)).len(), 1);
}

fn is_refused(said: &str) -> bool {
    said.starts_with("another front-end keeps files in ")
}

#[test]
fn a_link_or_a_pipe_as_the_lock_is_refused_and_not_followed() {
    let scene = Scene::new("state-lock");
    let (lock, victim) = (scene.state.join("lock"), scene.folder.join("victim"));
    let refused = |why: &str| {
        let said = scene.run("", Some(&scene.state));
        let told = format!("cannot lock {}: {why}; until ", lock.display());
        assert!(said.len() == 2 && said[0].starts_with(&told), "{said:?}");
    };
    for target in ["/dev/null".as_ref(), victim.as_path()] {
        symlink(target, &lock).unwrap();
        refused("it is a link, which is not followed; remove it");
        std::fs::remove_file(&lock).unwrap();
    }
    assert!(!victim.exists());
    let made = Command::new("mkfifo").arg(&lock).status().unwrap();
    assert!(made.success());
    refused("it is not a regular file; remove it");
}
