//! `tidegate top` with a real front-end: on a terminal (that of `script`), and as text.

#![allow(clippy::unwrap_used, reason = "test code")]

mod support;

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use support::{FrontEnd, eventually, folder, free_address, signal, tidegate};

/// What a terminal is sent as it gets its own screen back.
const OWN_SCREEN: &str = "\u{1b}[?1049l";

fn front_end(name: &str) -> FrontEnd {
    let folder = folder(name);
    let text = format!(
        "[limits]\nworkers = 1\n[[site]]\nname = \"shop\"\nhosts = [\"*\"]\n\
         [[node]]\nname = \"s1\"\naddress = \"{}\"\nsite = \"shop\"\n",
        free_address()
    );
    FrontEnd::start(&folder, &text)
}

/// `tidegate top` on a terminal.
struct OnTerminal {
    script: Child,
    keys: ChildStdin,
    output: Receiver<Vec<u8>>,
    text: String,
}

impl OnTerminal {
    fn start(admin: std::net::SocketAddr) -> Self {
        let program = env!("CARGO_BIN_EXE_tidegate");
        let top =
            format!("stty cols 70 rows 30; exec {program} top --admin {admin} --interval 100ms");
        let mut script = Command::new("script")
            .args([
                "--quiet",
                "--return",
                "--flush",
                "--command",
                &top,
                "/dev/null",
            ])
            .env("TERM", "xterm")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("`script` of util-linux");
        let keys = script.stdin.take().unwrap();
        let mut screen = script.stdout.take().unwrap();
        let (sender, output) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // Some systems end a terminal with an error.
            while let Ok(count @ 1..) = screen.read(&mut bytes) {
                if sender.send(bytes[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self {
            script,
            keys,
            output,
            text: String::new(),
        }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// Reads until the screen has been sent this word. What stood there before is not sent again, nor are blanks.
    #[track_caller]
    fn wait_for(&mut self, word: &str) {
        let Self { output, text, .. } = self;
        eventually(word, || {
            while let Ok(bytes) = output.try_recv() {
                text.push_str(&String::from_utf8_lossy(&bytes));
            }
            text.contains(word).then_some(())
        });
        text.clear();
    }

    /// The process that draws.
    fn process(&self) -> u32 {
        let id = self.script.id();
        let children = format!("/proc/{id}/task/{id}/children");
        eventually("script has a child", || {
            let text = std::fs::read_to_string(&children).ok()?;
            text.split_whitespace().next()?.parse().ok()
        })
    }

    fn resize(&self, columns: u16, rows: u16) {
        let terminal = std::fs::read_link(format!("/proc/{}/fd/0", self.process())).unwrap();
        let (columns, rows) = (columns.to_string(), rows.to_string());
        let resized = Command::new("stty")
            .arg("--file")
            .arg(terminal)
            .args(["cols", &columns, "rows", &rows])
            .status();
        assert!(resized.unwrap().success());
    }

    /// How it ended, and whether the terminal was given back.
    fn ended(mut self) -> Option<i32> {
        self.wait_for(OWN_SCREEN);
        let code = eventually("it ends", || self.script.try_wait().unwrap()).code();
        while let Ok(bytes) = self.output.try_recv() {
            let rest = String::from_utf8_lossy(&bytes).into_owned();
            assert!(!rest.contains("panicked"), "{rest}");
        }
        code
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        // It may have ended already.
        let _killed = self.script.kill();
        let _status = self.script.wait();
    }
}

#[test]
fn keys_are_obeyed_and_the_terminal_is_given_back() {
    let front_end = front_end("top-keys");
    let mut top = OnTerminal::start(front_end.admin);
    top.wait_for("s1");
    top.press("?");
    top.wait_for("configured");
    top.press("?");
    // Another size has all of it drawn anew.
    top.resize(140, 40);
    top.wait_for("load age");
    top.press("p");
    top.wait_for("paused");
    top.press("q");
    assert_eq!(top.ended(), Some(0));
}

#[test]
fn a_front_end_that_is_gone_is_said_and_a_signal_gives_the_terminal_back() {
    let front_end = front_end("top-gone");
    let mut top = OnTerminal::start(front_end.admin);
    top.wait_for("s1");
    drop(front_end);
    top.wait_for("asking");
    signal(top.process(), "TERM");
    assert_eq!(top.ended(), Some(0));
}

#[test]
fn one_frame_is_printed_as_text_and_as_json() {
    let front_end = front_end("top-once");
    let ask = |more: &[&str]| {
        let admin = front_end.admin.to_string();
        let mut command = tidegate();
        command
            .args(["top", "--once", "--admin", &admin])
            .args(more);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let text = ask(&[]);
    assert!(
        text.contains("site  policy  nodes") && text.contains("s1    shop"),
        "{text}"
    );
    let strange = |it: char| it.is_control() && it != '\n';
    assert!(
        !text.contains(strange) && !text.contains("q ends"),
        "{text}"
    );
    let status: serde_json::Value = serde_json::from_str(&ask(&["--json"])).unwrap();
    assert_eq!(status["sites"][0]["name"], "shop");
}

#[test]
fn without_a_terminal_frames_are_text_until_the_reader_leaves() {
    let front_end = front_end("top-text");
    let admin = front_end.admin.to_string();
    let mut top = tidegate()
        .args(["top", "--interval", "100ms", "--admin", &admin])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = top.stdout.take().unwrap();
    let mut text = String::new();
    while text.matches("site  policy").count() < 2 {
        let mut bytes = [0; 512];
        let count = output.read(&mut bytes).unwrap();
        assert!(count > 0, "{text}");
        text.push_str(&String::from_utf8_lossy(&bytes[..count]));
    }
    drop(output);
    let status = eventually("it ends", || top.try_wait().unwrap());
    assert!(status.success(), "{status}");
}

#[test]
fn without_a_front_end_one_frame_fails_and_says_why() {
    let admin = free_address().to_string();
    let output = tidegate()
        .args(["top", "--once", "--admin", &admin])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains(&format!("no front-end answers at {admin}")),
        "{said}"
    );
    let output = tidegate()
        .args(["top", "--interval", "1ms"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
}
