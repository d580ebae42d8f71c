//! Tests that did not run: which they are, why, and whether that may be.
//!
//! A test that cannot run prints `SKIPPED: reason` and returns; one that can run only in part prints
//! `SKIPPED what: reason` for the rest. `allowed-skips.txt` lists what may be skipped. Any other skip fails the run
//! where what is missing could have been installed, so that a test is not lost unseen.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// The list, beside this crate's manifest.
const LIST: &str = "xtask/allowed-skips.txt";

/// A test, or a part of one, that did not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Skip {
    /// The test's name; that of a step of the run for what is no test.
    pub(crate) test: String,
    /// What of it; empty for all of it.
    pub(crate) part: String,
    pub(crate) reason: String,
}

impl Skip {
    /// A step of the run that could not be done.
    pub(crate) fn of_step(name: &str, reason: String) -> Self {
        Self {
            test: name.to_owned(),
            part: String::new(),
            reason,
        }
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.part.is_empty()
    }

    fn text(&self) -> String {
        let part = match self.part.as_str() {
            "" => String::new(),
            part => format!(" ({part})"),
        };
        format!("{}{part}: {}", self.test, self.reason)
    }
}

/// Finds skips in the output of `cargo test -- --show-output`, line by line.
#[derive(Debug, Default)]
pub(crate) struct Finder {
    /// The test whose output is being read.
    test: Option<String>,
}

impl Finder {
    /// What a line says of a skip.
    pub(crate) fn line(&mut self, line: &str) -> Option<Skip> {
        if let Some(test) = section(line) {
            self.test = Some(test.to_owned());
            return None;
        }
        if line.starts_with("test result: ") || line.starts_with("running ") {
            self.test = None;
            return None;
        }
        let (part, reason) = line.strip_prefix("SKIPPED")?.split_once(": ")?;
        // `SKIPPED: why` or `SKIPPED what: why`, not a longer word.
        if !part.is_empty() && !part.starts_with(' ') {
            return None;
        }
        Some(Skip {
            test: self.test.clone().unwrap_or_else(|| "no test".to_owned()),
            part: part.trim().to_owned(),
            reason: reason.trim().to_owned(),
        })
    }
}

/// The name in a line like `---- net::tests::x stdout ----`.
fn section(line: &str) -> Option<&str> {
    line.strip_prefix("---- ")?.strip_suffix(" stdout ----")
}

/// A line of the list: `test | part of the reason | why it cannot run everywhere`.
#[derive(Debug, PartialEq, Eq)]
struct Allowed {
    /// The name; with `*` at its end what it begins with.
    test: String,
    reason: String,
    why: String,
}

impl Allowed {
    fn fits(&self, skip: &Skip) -> bool {
        let named = match self.test.strip_suffix('*') {
            Some(start) => skip.test.starts_with(start),
            None => skip.test == self.test,
        };
        named && skip.reason.contains(&self.reason)
    }
}

/// What may be skipped.
#[derive(Debug)]
pub(crate) struct List(Vec<Allowed>);

impl List {
    pub(crate) fn load(root: &Path) -> Result<Self, String> {
        let text = fs::read_to_string(root.join(LIST));
        Self::parse(&text.map_err(|error| format!("{LIST}: {error}"))?)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let lines = text.lines().enumerate();
        let lines = lines.filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
        let allowed = lines.map(|(number, line)| {
            let fields: Vec<_> = line.split('|').map(str::trim).collect();
            match fields.as_slice() {
                [test, reason, why] if !test.is_empty() && !why.is_empty() => Ok(Allowed {
                    test: (*test).to_owned(),
                    reason: (*reason).to_owned(),
                    why: (*why).to_owned(),
                }),
                _ => Err(format!(
                    "{LIST}:{}: `test | part of the reason | why it cannot run everywhere`",
                    number + 1
                )),
            }
        });
        allowed.collect::<Result<_, _>>().map(Self)
    }

    /// Says what was skipped; gives what may not be, unless nothing can be installed here.
    pub(crate) fn judge(&self, skips: &[Skip], installs: impl FnOnce() -> bool) -> Vec<String> {
        let mut others = Vec::new();
        for skip in skips {
            let text = skip.text();
            match self.0.iter().find(|it| it.fits(skip)) {
                Some(allowed) => println!("skipped {text} [{}]", allowed.why),
                None => others.push(text),
            }
        }
        if others.is_empty() || installs() {
            let failure = |text| format!("skipped, which {LIST} does not allow: {text}");
            return others.into_iter().map(failure).collect();
        }
        for text in others {
            println!("skipped {text} [nothing can be installed here]");
        }
        Vec::new()
    }
}

/// Whether what tests lack could have been installed: `scripts/setup.sh` does so as root or with sudo, if the
/// mirror answers.
pub(crate) fn installs() -> bool {
    let succeeds = |program: &str, arguments: &[&str]| {
        let command = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        command.is_ok_and(|status| status.success())
    };
    let root = fs::metadata("/proc/self").is_ok_and(|own| {
        use std::os::unix::fs::MetadataExt as _;
        own.uid() == 0
    });
    let update = [
        "-n",
        "apt-get",
        "update",
        "-o",
        "APT::Update::Error-Mode=any",
    ];
    if root {
        succeeds(update[1], &update[2..])
    } else {
        succeeds("sudo", &update)
    }
}

/// `cargo xtask skips LOG`: judges what a log of a test run says was skipped.
pub(crate) fn check(root: &Path, log: &Path) -> Result<bool, String> {
    let text = fs::read(log).map_err(|error| format!("{}: {error}", log.display()))?;
    let text = String::from_utf8_lossy(&text);
    let mut finder = Finder::default();
    let skips: Vec<_> = text.lines().filter_map(|line| finder.line(line)).collect();
    let failures = List::load(root)?.judge(&skips, || true);
    for failure in &failures {
        println!("FAILED: {failure}");
    }
    println!("{} skipped, {} not allowed", skips.len(), failures.len());
    Ok(failures.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `cargo test -- --show-output` prints it.
    const LOG: &str = "\
running 3 tests
test front::every ... ok
test metrics::promtool ... ok
test net::sums ... ok

successes:

---- front::every stdout ----
SKIPPED haproxy leastconn: haproxy is not installed
SKIPPEDNESS: is a word
a line that says SKIPPED: in its midst
SKIPPED envoy: no binary

---- metrics::promtool stdout ----
SKIPPED: promtool is not installed

successes:
    front::every
    metrics::promtool

test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s

SKIPPED: after the last test
";

    fn skip(test: &str, part: &str, reason: &str) -> Skip {
        let [test, part, reason] = [test, part, reason].map(str::to_owned);
        Skip { test, part, reason }
    }

    fn found(log: &str) -> Vec<Skip> {
        let mut finder = Finder::default();
        log.lines().filter_map(|line| finder.line(line)).collect()
    }

    #[test]
    fn each_skip_has_its_tests_name_whole_or_in_part() {
        let expected = [
            skip(
                "front::every",
                "haproxy leastconn",
                "haproxy is not installed",
            ),
            skip("front::every", "envoy", "no binary"),
            skip("metrics::promtool", "", "promtool is not installed"),
            skip("no test", "", "after the last test"),
        ];
        assert_eq!(found(LOG), expected);
        assert!(expected[2].is_whole() && !expected[0].is_whole());
    }

    #[test]
    fn what_is_not_on_the_list_fails_where_it_could_have_been_installed() {
        let list = List::parse(
            "# a comment\n\nmetrics::promtool | promtool | a large package\nfront::* | haproxy | x\n",
        );
        let list = list.unwrap();
        let skips = found(LOG);
        let failures = list.judge(&skips, || true);
        assert_eq!(failures.len(), 2, "{failures:?}");
        assert!(failures[0].contains("front::every (envoy): no binary"));
        assert!(failures[1].contains("no test: after the last"));
        assert!(list.judge(&skips, || false).is_empty());
        // Another reason of a test that is on the list is not allowed by that.
        let other = skip("metrics::promtool", "", "chromium is not installed");
        assert_eq!(list.judge(&[other], || true).len(), 1);
    }

    #[test]
    fn a_line_without_its_three_parts_is_an_error() {
        for broken in ["a", "a | b", "a | b |", "| b | c", "a | b | c | d"] {
            let error = List::parse(&format!("# first\n{broken}")).unwrap_err();
            assert!(error.contains("allowed-skips.txt:2"), "{broken}: {error}");
        }
    }

    #[test]
    fn a_log_is_judged_by_the_list() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let log = std::env::temp_dir().join(format!("tidegate-skips-{}.log", std::process::id()));
        let judge = |reason: &str| {
            let text = format!("---- front::every stdout ----\nSKIPPED: {reason}\n");
            fs::write(&log, text).unwrap();
            check(&root, &log)
        };
        let [allowed, other] = ["it is not permitted here", "no such program"].map(judge);
        fs::remove_file(&log).unwrap();
        assert_eq!((allowed, other), (Ok(true), Ok(false)));
        assert!(check(&root, &log).is_err());
    }

    #[test]
    fn the_list_itself_can_be_read() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        assert!(!List::load(&root).unwrap().0.is_empty());
    }
}
