//! `tidegate doctor`: what could go wrong on this machine, with the remedy. It looks and changes nothing.
//!
//! ```text
//! /proc, /sys ──> Machine ──┐
//! configuration file ───────┴─> checks (pure) ──> Diagnosis: ok, warn or FAIL ──> text or JSON, exit code
//! ports, files, agents ─────────^
//! ```
//!
//! | file | what |
//! |---|---|
//! | `machine` | what the system says of itself |
//! | `kernel` | the kernel, its clock, and what an agent needs of it |
//! | `front_end` | open files, ports' privileges and system limits against a front-end's configuration |
//! | `ports` | addresses to listen on: taken, or not this machine's |
//! | `folders` | keys, state, access log |
//! | `reports` | what an agent needs for its reports: watched processes, the host's `snmpd` |
//! | `nodes` | which nodes and agents answer |
//! | `checks` | what each node answers to its site's checks, and services of this host to the agent's |
//! | `rdma` | the library, the devices and what they may do |
//! | `reported` | what is read of nodes whose load other programs report |
//!
//! Failure case: a limit or a privilege of the shell is not that of a service. Each line says what it looked at.

mod checks;
mod folders;
mod front_end;
mod home;
mod kernel;
mod machine;
mod nodes;
mod ports;
mod rdma;
mod reported;
mod reports;

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use tidegate_node::AgentConfig;

use crate::config::Config;
use crate::discovery;
use crate::failure::Failure;
use crate::output::Output;
pub(crate) use folders::{acme_note, log_note, state_note};
use machine::Machine;
pub(crate) use rdma::notes as rdma_notes;

/// What helps where nodes do not come.
const SOURCE_REMEDY: &str =
    "look at what is asked: docs/discovery.md says what each source must answer";

/// Nodes that are asked at the same time: a large cluster is to be through within seconds, with few threads.
const AT_ONCE: usize = 64;

/// What is to be examined.
#[derive(Clone, Debug, Args)]
pub(crate) struct DoctorArgs {
    /// The configuration file of a front-end or an agent. Without one the machine alone is examined.
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// The same, as an option.
    #[arg(short, long, value_name = "FILE", conflicts_with = "file")]
    config: Option<PathBuf>,
}

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// All is well.
    Ok,
    /// It works, but not as well as it could.
    Warn,
    /// It does not work.
    Fail,
}

impl Level {
    fn label(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "FAIL",
        }
    }
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Diagnosis {
    /// What was looked at.
    pub(crate) check: &'static str,
    /// How it came out.
    pub(crate) level: Level,
    /// What was found.
    pub(crate) text: String,
    /// What to do about it; null where all is well.
    pub(crate) remedy: Option<String>,
}

impl Diagnosis {
    fn ok(check: &'static str, text: impl Into<String>) -> Self {
        Self {
            check,
            level: Level::Ok,
            text: text.into(),
            remedy: None,
        }
    }

    fn warn(check: &'static str, text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            level: Level::Warn,
            remedy: Some(remedy.into()),
            ..Self::ok(check, text)
        }
    }

    fn fail(check: &'static str, text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            level: Level::Fail,
            ..Self::warn(check, text, remedy)
        }
    }
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Report<'a> {
    ok: bool,
    checks: &'a [Diagnosis],
}

/// Examines the machine, and what a configuration asks of it. Fails if a check does.
pub(crate) fn run(args: &DoctorArgs, output: Output) -> Result<(), Failure> {
    let file = args.file.as_deref().or(args.config.as_deref());
    let all = examine(file);
    let fails = all.iter().any(|it| it.level == Level::Fail);
    let report = Report {
        ok: !fails,
        checks: &all,
    };
    output.result(&output.fit(&text(&all)), &report)?;
    match fails {
        true => Err(Failure::Told),
        false => Ok(()),
    }
}

fn examine(file: Option<&Path>) -> Vec<Diagnosis> {
    let machine = Machine::of_system();
    let Some(file) = file else {
        let mut all = kernel::of_host(&machine);
        all.extend(kernel::of_agent(&machine, &AgentConfig::new(Vec::new())));
        all.extend(rdma::examine(&machine, None, None));
        return all;
    };
    let Ok(config) = Config::load(file) else {
        let mut all = vec![Diagnosis::fail(
            "configuration",
            format!("{} is not sound", file.display()),
            format!("`tidegate check {}` shows each error", file.display()),
        )];
        all.extend(kernel::of_host(&machine));
        return all;
    };
    let mut all = vec![Diagnosis::ok(
        "configuration",
        format!("{} is sound", file.display()),
    )];
    let noted = config.notes.iter();
    all.extend(noted.map(|it| Diagnosis::warn("configuration", it, "see docs/config.md")));
    all.extend(kernel::of_host(&machine));
    let (agent, front_end) = (config.agent.as_ref(), config.front_end.as_ref());
    all.extend(rdma::examine(&machine, agent, front_end));
    all.extend(folders::examine(&config, file));
    if let Some(agent) = &config.agent {
        all.extend(kernel::of_agent(&machine, agent));
        all.extend(ports::of_agent(agent, &config.reports, file));
        all.extend(reports::examine(agent, &config.reports));
        all.extend(checks::of_agent(&config, agent));
    }
    if let Some(front_end) = &config.front_end {
        all.extend(front_end::examine(&machine, &config, front_end));
        let wanted = ports::wanted(&config, front_end);
        let taken = ports::Taken::tcp();
        let running = ports::Running::ask(&taken, &config, file);
        all.extend(ports::examine(&taken, &wanted, running.as_ref()));
        all.extend(nodes::examine(front_end));
        all.extend(checks::of_sites(&config, front_end));
        all.extend(home::examine(front_end));
        let sources = discovery::notes(front_end).into_iter();
        all.extend(sources.map(|note| Diagnosis::warn("source", note, SOURCE_REMEDY)));
    }
    all
}

/// Asks all, some at the same time; in their order.
fn at_once<T: Sync>(all: &[T], ask: impl Fn(&T) -> Vec<Diagnosis> + Sync) -> Vec<Diagnosis> {
    let part = |some: &[T]| {
        std::thread::scope(|scope| {
            let threads = some.iter().map(|it| scope.spawn(|| ask(it)));
            let threads: Vec<_> = threads.collect();
            let each = threads.into_iter().map(|it| it.join().unwrap_or_default());
            each.flatten().collect::<Vec<_>>()
        })
    };
    all.chunks(AT_ONCE).flat_map(part).collect()
}

/// For one that is asked over sockets of the runtime's.
fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build()
}

/// A line for each check, with its remedy below it; and how many came out in which way.
fn text(all: &[Diagnosis]) -> String {
    let width = all.iter().map(|it| it.check.len()).max().unwrap_or(0);
    let mut out = String::new();
    for it in all {
        let (level, check) = (it.level.label(), it.check);
        out.push_str(&format!("{level:<4}  {check:<width$}  {}\n", it.text));
        if let Some(remedy) = &it.remedy {
            out.push_str(&format!("      {:width$}  remedy: {remedy}\n", ""));
        }
    }
    let count = |level| all.iter().filter(|it| it.level == level).count();
    out.push_str(&format!(
        "{} checks: {} ok, {} with a warning, {} failed\n",
        all.len(),
        count(Level::Ok),
        count(Level::Warn),
        count(Level::Fail)
    ));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_check_is_a_line_and_what_is_not_well_has_a_remedy() {
        let all = [
            Diagnosis::ok("kernel", "Linux 6.18"),
            Diagnosis::warn("open files", "1024", "ulimit -n"),
            Diagnosis::fail("port", "taken", "stop it"),
        ];
        let wanted = "ok    kernel      Linux 6.18\n\
                      warn  open files  1024\n                  remedy: ulimit -n\n\
                      FAIL  port        taken\n                  remedy: stop it\n\
                      3 checks: 1 ok, 1 with a warning, 1 failed\n";
        assert_eq!(text(&all), wanted);
    }

    #[test]
    fn a_broken_file_fails_and_the_machine_is_examined_all_the_same() {
        let all = examine(Some(Path::new("/nowhere/tidegate.toml")));
        assert_eq!(all[0].level, Level::Fail);
        assert!(all[0].remedy.as_ref().unwrap().contains("tidegate check"));
        assert!(all.iter().any(|it| it.check == "clock"));
    }
}
