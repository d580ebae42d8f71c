//! Hooks with a shell as their program: what they leave behind, and what is refused before they begin.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use super::*;

/// A folder that others cannot write to, with a template.
struct Scene {
    folder: PathBuf,
}

impl Scene {
    fn new(name: &str, template: &str) -> Self {
        let folder = format!("tidegate-hook-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(&folder).unwrap();
        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(&folder, 0o755);
        std::fs::write(folder.join("template"), template).unwrap();
        mode(&folder.join("template"), 0o644);
        Self { folder }
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn read(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.folder.join(name)).ok()
    }

    /// A hook whose commands are these lines of a shell.
    fn hook(&self, lines: &[&str]) -> SiteHook {
        let command = |line: &&str| ["/bin/sh", "-c", line].map(str::to_owned).to_vec();
        SiteHook {
            name: "shop".into(),
            template: Some(HookTemplate {
                template: self.folder.join("template"),
                target: self.folder.join("target"),
            }),
            commands: lines.iter().map(command).collect(),
            timeout: Duration::from_secs(60),
        }
    }

    fn run(&self, lines: &[&str]) -> HookDone {
        let of = HookRun {
            from: Some("blog".into()),
            node: "n1".into(),
            generation: 5,
        };
        self.hook(lines).run(&of, &AtomicBool::new(false), None)
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

fn end(exit_code: Option<u8>, is_undone: bool) -> HookEnd {
    HookEnd {
        exit_code,
        is_undone,
    }
}

#[test]
fn the_target_is_made_from_the_template_and_commands_run_in_turn() {
    let scene = Scene::new(
        "well",
        "site {site} from {from} on {node}, {generation}; ${host} {}\n",
    );
    let target = scene.path("target");
    let log = scene.path("log");
    let done = scene.run(&[
        &format!("cat {target} > {log}"),
        &format!("echo $TIDEGATE_FROM $TIDEGATE_SITE >> {log}"),
    ]);
    assert_eq!(
        done,
        HookDone {
            end: end(Some(0), true),
            said: vec![]
        }
    );
    let expected = "site shop from blog on n1, 5; ${host} {}\nblog shop\n";
    assert_eq!(scene.read("log").unwrap(), expected);
}

#[test]
fn a_command_that_fails_has_the_target_put_back_and_the_commands_run_for_it() {
    let scene = Scene::new("undo", "{site}");
    let (target, log) = (scene.path("target"), scene.path("log"));
    let test = format!("cat {target} >> {log}; ! grep -q shop {target} || exit 7");
    // Nothing was there before: the commands find nothing either, and go on.
    let done = scene.run(&[&test.replace("cat", "cat 2>/dev/null")]);
    assert_eq!(done.end, end(Some(7), true), "{:?}", done.said);
    assert_eq!(scene.read("target"), None);
    std::fs::write(&target, "blog").unwrap();
    std::fs::remove_file(&log).unwrap();
    let done = scene.run(&[&test, "exit 9"]);
    // The second command fails for what was there before as well.
    assert_eq!(done.end, end(Some(7), false), "{:?}", done.said);
    assert_eq!(scene.read("target").unwrap(), "blog");
    assert_eq!(scene.read("log").unwrap(), "shopblog");
    assert!(
        done.said[0].ends_with("ended with exit code 7"),
        "{:?}",
        done.said
    );
    assert!(done.said.last().unwrap().contains("could not be undone"));
    let done = scene.run(&[&test]);
    assert_eq!(done.end, end(Some(7), true));
}

#[test]
fn what_undoes_a_hook_has_the_names_of_both_sites_exchanged() {
    let scene = Scene::new("exchanged", "{site}");
    let log = scene.path("log");
    let once =
        format!("echo $TIDEGATE_FROM $TIDEGATE_SITE >> {log}; [ $TIDEGATE_SITE = blog ] || exit 7");
    let done = scene.run(&[&once]);
    assert_eq!(done.end, end(Some(7), true), "{:?}", done.said);
    assert_eq!(scene.read("log").unwrap(), "blog shop\nshop blog\n");
}

#[test]
fn a_hook_that_takes_too_long_or_is_stopped_has_no_exit_code() {
    let scene = Scene::new("long", "{site}");
    let hook = SiteHook {
        timeout: Duration::from_millis(100),
        ..scene.hook(&["sleep 600"])
    };
    let of = HookRun {
        from: None,
        node: "n1".into(),
        generation: 5,
    };
    let done = hook.run(&of, &AtomicBool::new(false), None);
    assert_eq!(done.end, end(None, false));
    assert!(
        done.said[0].contains("the hook's time is over"),
        "{:?}",
        done.said
    );
    let done = scene
        .hook(&["sleep 600"])
        .run(&of, &AtomicBool::new(true), None);
    assert_eq!(done.end, end(None, false), "what it did is not known");
}

#[test]
fn what_is_wrong_is_found_before_anything_is_done() {
    let scene = Scene::new("wrong", "a\nb {site}\n  {sight} {other}\n");
    let errors = scene.hook(&[]).check();
    assert_eq!(errors.len(), 1);
    assert_eq!(errors[0].part, HookPart::Template);
    let expected =
        "line 3: unknown placeholder {sight}; expected one of {site}, {from}, {node}, {generation}";
    assert!(errors[0].why.ends_with(expected), "{}", errors[0].why);
    std::fs::write(scene.path("template"), "{site}").unwrap();
    std::fs::set_permissions(
        scene.path("template"),
        std::fs::Permissions::from_mode(0o666),
    )
    .unwrap();
    let hook = SiteHook {
        commands: vec![vec!["true".into()], vec!["/no/such".into()]],
        ..scene.hook(&[])
    };
    let parts: Vec<_> = hook.check().into_iter().map(|it| it.part).collect();
    let expected = [
        HookPart::Template,
        HookPart::Command(0),
        HookPart::Command(1),
    ];
    assert_eq!(parts, expected);
    let of = HookRun {
        from: None,
        node: "n1".into(),
        generation: 5,
    };
    let done = hook.run(&of, &AtomicBool::new(false), None);
    assert_eq!((done.end, done.said.len()), (end(None, true), 3));
    assert_eq!(scene.read("target"), None);
    // A link under the target's name is no target.
    std::os::unix::fs::symlink("/etc/passwd", scene.path("target")).unwrap();
    let parts: Vec<_> = hook.check().into_iter().map(|it| it.part).collect();
    assert!(parts.contains(&HookPart::Target));
}

#[test]
fn placeholders_are_words_in_braces_and_not_servers_own() {
    let filled = |text| fill(text, |name| (name == "site").then(|| "shop".to_owned()));
    for (text, expected) in [
        ("server { listen 80; }", "server { listen 80; }"),
        ("{site}", "shop"),
        ("{{site}}", "{shop}"),
        ("${site} %{site} {site}", "${site} %{site} shop"),
        ("a{2,3} {Site} {si te} {site", "a{2,3} {Site} {si te} {site"),
        ("ä{site}ö{", "äshopö{"),
    ] {
        assert_eq!(filled(text), expected);
    }
}
