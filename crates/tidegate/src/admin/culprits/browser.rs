//! Headless Chromium for tests: real keys and a real mouse, by its debugging protocol.
//!
//! The protocol runs over two pipes, as JSON with a zero byte after each message. Nothing listens
//! on a port, and the browser ends when the pipes do.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};

/// Without a screen, and without asking anybody anything.
pub(in crate::admin) const FLAGS: [&str; 7] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
];
/// A browser that says nothing for so long has failed.
const SILENCE_MAX: Duration = Duration::from_secs(120);
/// So long a browser may take to end.
const CLOSE_MAX: Duration = Duration::from_secs(10);
/// For so long the page may take to become as it should.
const WAIT_MAX_MS: u32 = 60_000;

/// One page in a browser of its own.
pub(super) struct Browser {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    profile: PathBuf,
    session: Option<String>,
    calls: u64,
    /// What the page complained of: exceptions, errors on the console, violations of its policy.
    pub(super) complaints: Vec<String>,
}

impl Browser {
    /// Starts it; `None`, and a line that says so, where there is none.
    pub(super) fn start() -> Option<Self> {
        if Command::new("chromium").arg("--version").output().is_err() {
            println!("SKIPPED: chromium is not installed");
            return None;
        }
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let name = format!("tidegate-culprits-{}-{number}", std::process::id());
        let profile = std::env::temp_dir().join(name);
        // The browser reads messages from descriptor 3 and writes them to 4.
        let mut child = Command::new("sh")
            .args([
                "-c",
                "exec chromium \"$@\" 3<&0 4>&1 </dev/null >/dev/null",
                "sh",
            ])
            .args(FLAGS)
            .args(["--remote-debugging-pipe", "--window-size=1300,1000"])
            .arg(format!("--user-data-dir={}", profile.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (to, from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (told, heard) = channel();
        std::thread::spawn(move || {
            for message in BufReader::new(from).split(0).map_while(Result::ok) {
                let message = serde_json::from_slice(&message).unwrap();
                if told.send(message).is_err() {
                    return;
                }
            }
        });
        let mut browser = Self {
            child,
            to,
            from: heard,
            profile,
            session: None,
            calls: 0,
            complaints: Vec::new(),
        };
        browser.open_page();
        Some(browser)
    }

    fn open_page(&mut self) {
        let page = self.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": page["targetId"], "flatten": true });
        let attached = self.call("Target.attachToTarget", &attach);
        self.session = Some(attached["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Page", "Runtime", "Log"] {
            self.call(&format!("{domain}.enable"), &json!({}));
        }
    }

    /// Calls a method of the protocol.
    pub(super) fn call(&mut self, method: &str, parameters: &Value) -> Value {
        let answer = self.exchange(method, parameters);
        assert!(answer.get("error").is_none(), "{method}: {answer}");
        answer["result"].clone()
    }

    /// Calls a method and returns the answer, or the refusal.
    fn exchange(&mut self, method: &str, parameters: &Value) -> Value {
        self.send(method, parameters).unwrap();
        loop {
            let heard = self.hear();
            if heard["id"] == self.calls {
                return heard;
            }
        }
    }

    fn send(&mut self, method: &str, parameters: &Value) -> std::io::Result<()> {
        self.calls += 1;
        let mut message = json!({ "id": self.calls, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes)
    }

    /// Waits for an event of the protocol.
    pub(super) fn wait_for_event(&mut self, method: &str) {
        while self.hear()["method"] != method {}
    }

    fn hear(&mut self) -> Value {
        let heard = self.from.recv_timeout(SILENCE_MAX).unwrap();
        let parameters = &heard["params"];
        match heard["method"].as_str() {
            Some("Runtime.exceptionThrown") => self.complaints.push(parameters.to_string()),
            Some("Runtime.consoleAPICalled") if parameters["type"] == "error" => {
                self.complaints.push(parameters["args"].to_string());
            }
            // That an answer is an error is what some tests are about.
            Some("Log.entryAdded") if parameters["entry"]["source"] != "network" => {
                self.complaints.push(parameters["entry"].to_string());
            }
            Some(_) | None => {}
        }
        heard
    }

    /// Goes to an address, and waits until the page is there.
    pub(super) fn go(&mut self, address: &str) {
        self.call("Page.navigate", &json!({ "url": address }));
        self.wait_for(&format!(
            "location.href === {} && document.readyState === 'complete'",
            json!(address)
        ));
    }

    /// The value of an expression in the page.
    pub(super) fn value(&mut self, expression: &str) -> Value {
        let wanted =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let done = self.call("Runtime.evaluate", &wanted);
        assert!(
            done.get("exceptionDetails").is_none(),
            "{expression}: {done}"
        );
        done["result"]["value"].clone()
    }

    /// The text of an element.
    pub(super) fn text(&mut self, selector: &str) -> String {
        let text = self.value(&format!(
            "document.querySelector({}).textContent",
            json!(selector)
        ));
        text.as_str().unwrap().trim().to_owned()
    }

    /// Waits until an expression is true in the page. A page that is just left is asked again.
    pub(super) fn wait_for(&mut self, expression: &str) {
        let look = format!(
            "new Promise((done) => {{
                const until = performance.now() + {WAIT_MAX_MS};
                const look = () => {{
                    if ({expression}) done(true);
                    else if (performance.now() > until) done(false);
                    else setTimeout(look, 10);
                }};
                look();
            }})"
        );
        let shown = "document.querySelector('main')?.innerText";
        for _ in 0..100 {
            let wanted = json!({ "expression": look, "returnByValue": true, "awaitPromise": true });
            let done = self.exchange("Runtime.evaluate", &wanted);
            match done["result"]["result"]["value"].as_bool() {
                Some(true) => return,
                Some(false) => break,
                // The page went away meanwhile.
                None => {}
            }
        }
        let page = self.value(shown);
        panic!("never came true: {expression}\n{page}");
    }

    /// Presses a key that writes nothing, such as an arrow.
    pub(super) fn press(&mut self, key: &str) {
        let code = match key {
            "Tab" => 9,
            "Enter" => 13,
            "Escape" => 27,
            "End" => 35,
            "Home" => 36,
            "ArrowLeft" => 37,
            "ArrowUp" => 38,
            "ArrowRight" => 39,
            "ArrowDown" => 40,
            other => panic!("no code for {other}"),
        };
        let text = if key == "Enter" { "\r" } else { "" };
        for kind in ["keyDown", "keyUp"] {
            let event = json!({
                "type": kind, "key": key, "code": key, "text": text, "windowsVirtualKeyCode": code,
            });
            self.call("Input.dispatchKeyEvent", &event);
        }
    }

    /// Writes into what has the focus.
    pub(super) fn write(&mut self, text: &str) {
        self.call("Input.insertText", &json!({ "text": text }));
    }

    /// Clicks the middle of an element.
    pub(super) fn click(&mut self, selector: &str) {
        self.drag(selector, 0.5, 0.5);
    }

    /// Drags along the middle of an element, between shares of its width.
    pub(super) fn drag(&mut self, selector: &str, from: f64, to: f64) {
        let rectangle = self.value(&format!(
            "(() => {{
                const element = document.querySelector({});
                element.scrollIntoView({{ block: 'center', behavior: 'instant' }});
                const {{ left, top, width, height }} = element.getBoundingClientRect();
                return {{ left, top, width, height }};
            }})()",
            json!(selector)
        ));
        let number = |name: &str| rectangle[name].as_f64().unwrap();
        let y = number("top") + number("height") / 2.0;
        let x = |share: f64| number("left") + number("width") * share;
        let mut mouse = |kind: &str, x: f64, buttons: u8| {
            let event = json!({
                "type": kind, "x": x, "y": y, "button": "left", "buttons": buttons, "clickCount": 1,
            });
            self.call("Input.dispatchMouseEvent", &event);
        };
        mouse("mouseMoved", x(from), 0);
        mouse("mousePressed", x(from), 1);
        if from != to {
            mouse("mouseMoved", x((from + to) / 2.0), 1);
            mouse("mouseMoved", x(to), 1);
        }
        mouse("mouseReleased", x(to), 0);
    }

    /// Fails if the page complained of anything.
    pub(super) fn assert_content(&self) {
        assert!(self.complaints.is_empty(), "{:#?}", self.complaints);
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It writes into its folder until it has ended; one that has gone already needs no end.
        self.session = None;
        self.send("Browser.close", &json!({})).unwrap_or_default();
        while self.from.recv_timeout(CLOSE_MAX).is_ok() {}
        self.child.kill().unwrap_or_default();
        self.child.wait().ok();
        std::fs::remove_dir_all(&self.profile).unwrap_or_default();
    }
}
