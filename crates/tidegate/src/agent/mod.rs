//! `tidegate agent`: stands beside a server, samples its kernel and publishes its load.

mod args;
mod checks;
mod reports;

use std::collections::BTreeSet;
use std::fmt;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use tidegate_node::{
    Agent, AgentConfig, AgentError, AgentHandle, AgentStatus, STARTING_CAPABILITIES, process_names,
    short_name,
};
use tidegate_remote::RegionError;
use tidegate_remote::kernel::{self, Installed, KernelResponder};
use tidegate_remote::udp::ResponderStats;
use tidegate_remote::udp::key_file::NodeKey;
use tidegate_remote::udp::wire::DropReason;
use tokio::time::{MissedTickBehavior, interval};

use crate::config::own_files::is_one;
use crate::config::problem::did_you_mean;
use crate::config::{AgentCheckReport, Config, OrcaReport, Problem, Reports, ServiceCheck};
use crate::failure::Failure;
use crate::key_file;
use crate::output::{self, Output};
use crate::privilege;
use crate::signals::Stop;
use args::{AgentAction, AgentArgs};
use reports::{SAMPLE_EVERY, SharedLoad};

pub(crate) use args::AgentCommand;

/// Between two looks at whether the sampling thread still runs.
const LOOK: Duration = Duration::from_secs(1);
/// Looks without another case of what an alert is about, after which the next one is worth a line again.
const QUIET_LOOKS: u32 = 60;

/// What `--json` tells.
#[derive(Debug, Serialize)]
struct Report {
    state: &'static str,
    address: SocketAddr,
    /// The names in its keys.
    nodes: Vec<String>,
    rung: &'static str,
    why: Vec<String>,
    interval_seconds: f64,
    samples: u64,
    overruns: u64,
    cost_mean_seconds: f64,
    cost_max_seconds: f64,
    cpu_share: f64,
    reads: u64,
    flood: FloodReport,
}

/// What floods have made the agent do, for `--json`.
#[derive(Debug, Serialize)]
struct FloodReport {
    /// Requests thrown away unexamined: too many came, or too many in names that had not proven that they have a key.
    unexamined: u64,
    /// Times that the responder rested, as it had looked at as many datagrams as it may.
    limited: u64,
    /// Times that the socket was closed for a second, or further, to what is not from proven front-ends.
    closed: u64,
    /// Times that the responder went to normal priority, as what was in vain had used its share.
    lowered: u64,
}

/// What is installed in the kernel, for `--json`.
#[derive(Debug, Serialize)]
struct InstalledReport {
    state: &'static str,
    folder: String,
    interfaces: Vec<InterfaceReport>,
    counts_switches: bool,
    reads: u64,
    atomics: u64,
    limited: u64,
    /// Over the rate too, in the names of front-ends that are proven.
    imitated: u64,
    elsewhere: u64,
    dropped: u64,
    /// Nothing unless the kernel measures it.
    cost_seconds: Option<f64>,
}

#[derive(Debug, Serialize)]
struct InterfaceReport {
    name: String,
    rung: &'static str,
}

/// Does what is asked for.
pub(crate) fn command(command: AgentCommand, output: Output) -> Result<(), Failure> {
    match command.action {
        None => run(command.args, output),
        Some(AgentAction::Install(args)) => install(*args, output),
        Some(AgentAction::Uninstall { port }) => {
            let removed = kernel::uninstall(port).map_err(failed)?;
            tell_installed("removed", removed.as_ref(), port, output)
        }
        Some(AgentAction::Show { port }) => {
            let installed = kernel::show(port).map_err(failed)?;
            tell_installed("installed", installed.as_ref(), port, output)
        }
    }
}

fn failed(error: impl ToString) -> Failure {
    Failure::Failed(error.to_string())
}

/// Leaves programs in the kernel and ends.
fn install(args: AgentArgs, output: Output) -> Result<(), Failure> {
    let Settings {
        agent: config,
        services,
        ..
    } = config(args)?;
    if !services.is_empty() {
        let text = "the service checks of the file are not made: that needs an agent that runs";
        output.event("check", text);
    }
    let options = tidegate_node::kernel_options(&config, config.listen).map_err(failed)?;
    let responder = KernelResponder::attach(&options).map_err(failed)?;
    let refusals = responder.refusals().to_vec();
    let installed = responder.install(&options).map_err(failed)?;
    for why in refusals {
        output.event("rung", &format!("not better: {why}"));
    }
    if let Some(why) = &installed.silent_locally {
        let text = format!("front-ends on this host get no answer: {why}");
        output.event("rung", &text);
    }
    let port = config.listen.port();
    tell_installed("installed", Some(&installed), port, output)
}

fn tell_installed(
    state: &'static str,
    installed: Option<&Installed>,
    port: u16,
    output: Output,
) -> Result<(), Failure> {
    let Some(installed) = installed else {
        let text = format!("nothing is installed for port {port} of this network");
        return Err(Failure::Failed(text));
    };
    let stats = &installed.stats;
    let dropped = stats.dropped.iter().map(|(_, count)| count).sum();
    let interfaces: Vec<_> = installed
        .rungs
        .iter()
        .map(|(interface, rung)| InterfaceReport {
            name: interface.name.clone(),
            rung: rung.label(),
        })
        .collect();
    let at: String = interfaces
        .iter()
        .map(|it| format!("\n  {}: rung {}", it.name, it.rung))
        .collect();
    let switches = match installed.counts_switches {
        true => "counted",
        false => "NOT counted: somebody removed the program",
    };
    let cost = installed.cost.map_or_else(String::new, |cost| {
        format!("\n  {:.2} us of a CPU per packet", cost.as_secs_f64() * 1e6)
    });
    let text = format!(
        "{state} for port {port} ({}){at}\n  task switches are {switches}\n  {} reads and {} atomics answered, \
         {} over the rate and {} more in the names of proven front-ends, {} for other hosts, {dropped} passed on as not ours",
        installed.folder.display(),
        stats.reads,
        stats.atomics,
        stats.limited,
        stats.imitated,
        stats.elsewhere,
    ) + &cost;
    let report = InstalledReport {
        state,
        folder: installed.folder.display().to_string(),
        interfaces,
        counts_switches: installed.counts_switches,
        reads: stats.reads,
        atomics: stats.atomics,
        limited: stats.limited,
        imitated: stats.imitated,
        elsewhere: stats.elsewhere,
        dropped,
        cost_seconds: installed.cost.map(|cost| cost.as_secs_f64()),
    };
    Ok(output.result(&text, &report)?)
}

/// Runs until it is asked to stop.
fn run(args: AgentArgs, output: Output) -> Result<(), Failure> {
    let Settings {
        agent: config,
        reports,
        services,
        user,
    } = config(args)?;
    privilege::settle(user.as_deref(), STARTING_CAPABILITIES, output)?;
    // A signal that comes while the agent starts is not lost.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Failed(format!("cannot start: {error}")))?;
    let mut stop = {
        let _guard = runtime.enter();
        Stop::new()?
    };
    let agent = Agent::spawn(&config);
    let mut agent = agent.map_err(|error| Failure::Failed(why_not(&error, config.listen)))?;
    let names = names(&config.keys);
    let load = SharedLoad::new(reports.soft_limits);
    let reported = {
        let _guard = runtime.enter();
        let node = names.first().copied().unwrap_or_default();
        load.set_services(checks::start(&services, node, &agent.services(), output));
        reports::start(&reports, &config.allow, node, &load, output)?
    };
    tell("started", &agent, &names, output);
    if let Some(why) = agent.rdma_fault() {
        output.event("rdma", why);
    }
    let reporting = !reported.is_empty();
    for text in reported {
        output.event("report", &text);
    }
    let mut alerts = Alerts::default();
    for text in not_found(&config.watch, &process_names(&config.root)) {
        output.event("watch", &text);
    }
    tidegate_remote::privilege::keep(agent.capabilities())
        .map_err(|error| Failure::Failed(format!("cannot give privileges away: {error}")))?;
    runtime.block_on(async {
        let (mut look, mut sample) = (interval(LOOK), interval(SAMPLE_EVERY));
        sample.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.wait() => return Ok(()),
                _ = sample.tick(), if reporting => {
                    if let Some((name, text)) = load.note(agent.last_sample()) {
                        output.event(name, &text);
                    }
                    continue;
                }
                _ = look.tick() => {}
            }
            for event in agent.moves_events() {
                output.event(event.name, &event.text);
            }
            for lost in agent.look() {
                output.event("rung", &lost);
            }
            let status = agent.status();
            alerts.look(&status, &names, output);
            alerts.look_at_rdma(&agent, output);
            if !status.running {
                return Err(Failure::Failed("a thread of the agent has ended".into()));
            }
        }
    })?;
    tell("stopped", &agent, &names, output);
    Ok(())
}

/// Why there is no agent, and what to do about an address or a name that something else has.
fn why_not(error: &AgentError, listen: SocketAddr) -> String {
    let AgentError::Region(region) = error else {
        return error.to_string();
    };
    if let RegionError::Io { error, .. } = region
        && error.kind() == ErrorKind::AddrInUse
    {
        return format!("cannot listen on {listen} (UDP): {error}; is there another agent?");
    }
    not_published(region).unwrap_or_else(|| region.to_string())
}

/// Why the agent cannot have its name in shared memory, if it is that.
fn not_published(error: &RegionError) -> Option<String> {
    let owner = |path: &Path| {
        let about = std::fs::symlink_metadata(path);
        about.map_or("another user".into(), |about| {
            format!("user {}", about.uid())
        })
    };
    let (path, what) = if let RegionError::NotRegion(path) = error {
        let owner = owner(path);
        let what = format!("what is there is no agent's, but a file of {owner}: remove it");
        (path, what)
    } else if let RegionError::Owned(path) = error {
        let owner = owner(path);
        let what = format!("a process of {owner} publishes there: stop it if it is another agent");
        (path, what)
    } else if let RegionError::Foreign { path, uid } = error {
        let what =
            format!("what is there belongs to user {uid}: remove it as that user or as root");
        (path, what)
    } else {
        return None;
    };
    Some(format!(
        "cannot publish at {}: {what}, or give another name (--shm, or `shm` in [agent])",
        path.display()
    ))
}

/// What is to be watched and does not run now: perhaps later, perhaps never.
fn not_found(watch: &[String], running: &BTreeSet<String>) -> Vec<String> {
    let missing = |name: &&String| match name.contains('/') {
        true => !Path::new(name).exists(),
        false => !running.contains(short_name(name)),
    };
    let tell = |name: &String| {
        let kind = if name.contains('/') {
            "pid file"
        } else {
            "process"
        };
        let like = did_you_mean(name, running.iter().map(String::as_str));
        let like = like.map_or(String::new(), |like| format!("; did you mean `{like}`?"));
        format!("watch: there is no {kind} `{name}` now{like}")
    };
    watch.iter().filter(missing).map(tell).collect()
}

/// What an agent is to do.
struct Settings {
    agent: AgentConfig,
    reports: Reports,
    services: Vec<ServiceCheck>,
    /// The user to become.
    user: Option<String>,
}

/// The file's settings, and what the command line says otherwise.
fn config(args: AgentArgs) -> Result<Settings, Failure> {
    let (mut config, mut reports, services, of_file) = match args.settings() {
        Some(file) => {
            let whole = Config::load(file)?;
            let none = || Failure::Usage(format!("{} has no [agent]", file.display()));
            let user = args
                .user
                .as_ref()
                .or(whole.file.process.user.value.as_ref());
            check_kept_folder(&whole, user.map(String::as_str))?;
            (
                whole.agent.ok_or_else(none)?,
                whole.reports,
                whole.service_checks,
                whole.file.process.user.value.clone(),
            )
        }
        None => (
            AgentConfig::new(keys(args.key_file.as_deref())?),
            Reports::default(),
            Vec::new(),
            None,
        ),
    };
    if let (Some(_), Some(key_file)) = (args.settings(), &args.key_file) {
        config.keys = keys(Some(key_file))?;
        spares(key_file, &config)?;
        if let (Some(moves), Some(key)) = (&mut config.moves, config.keys.first()) {
            moves.node.clone_from(&key.node);
        }
    }
    let AgentArgs {
        listen,
        interval,
        shm,
        scope,
        watch,
        no_realtime,
        rungs,
        allow,
        veth_native,
        user,
        agent_check,
        metrics,
        orca,
        agentx,
        ..
    } = args;
    config.listen = listen.unwrap_or(config.listen);
    config.interval = interval.unwrap_or(config.interval);
    config.shm = shm.or(config.shm);
    config.scope = scope.unwrap_or(config.scope);
    if !watch.is_empty() {
        config.watch = watch;
    }
    config.realtime &= !no_realtime;
    config.veth_native |= veth_native;
    if !rungs.is_empty() {
        config.rungs = rungs;
    }
    if !allow.is_empty() {
        config.allow = allow;
    }
    listen_at(&mut reports, agent_check, metrics, orca);
    reports.agentx = agentx.or(reports.agentx);
    Ok(Settings {
        agent: config,
        reports,
        services,
        user: user.or(of_file),
    })
}

/// Reports where the command line wants them, otherwise as the file says.
fn listen_at(
    reports: &mut Reports,
    agent_check: Option<SocketAddr>,
    metrics: Option<SocketAddr>,
    orca: Option<SocketAddr>,
) {
    if let Some(listen) = agent_check {
        let of_file = reports.agent_check;
        let report = of_file.unwrap_or(AgentCheckReport::new(listen));
        reports.agent_check = Some(AgentCheckReport { listen, ..report });
    }
    reports.metrics = metrics.or(reports.metrics);
    if let Some(listen) = orca {
        let report = reports.orca.unwrap_or(OrcaReport::new(listen));
        reports.orca = Some(OrcaReport { listen, ..report });
    }
}

/// Whether an agent of this user can keep what moves did where the file says; without a user it is that of this process.
pub(crate) fn check_kept_folder(config: &Config, user: Option<&str>) -> Result<(), Failure> {
    let moves = config.file.agent.value.as_ref();
    let moves = moves.and_then(|it| it.moves.value.as_ref());
    let used = config.agent.as_ref().and_then(|it| it.moves.as_ref());
    let (Some(moves), Some(folder)) = (moves, used.and_then(|it| it.state.as_ref())) else {
        return Ok(());
    };
    let wrong = tidegate_node::check_kept_folder(folder, privilege::user_number(user)?).err();
    wrong.map_or(Ok(()), |why| {
        let label = "expected a folder that is there, and that the agent's user and root alone can write to";
        let problem = Problem::new(moves.state.place(), why.to_string(), label);
        Err(config.source.error(problem).into())
    })
}

/// No hook makes another file of the key.
fn spares(key_file: &Path, config: &AgentConfig) -> Result<(), Failure> {
    let hooks = config.moves.iter().flat_map(|it| &it.sites);
    let mut targets = hooks.filter_map(|it| Some((&it.name, &it.template.as_ref()?.target)));
    match targets.find(|(_, target)| is_one(key_file, target)) {
        None => Ok(()),
        Some((site, target)) => Err(Failure::Usage(format!(
            "--key-file {} and the target {} of site `{site}` are one file; expected a file of its own",
            key_file.display(),
            target.display()
        ))),
    }
}

fn keys(file: Option<&Path>) -> Result<Vec<NodeKey>, Failure> {
    let file = file.ok_or_else(|| Failure::Usage("a key is needed: --key-file FILE".into()))?;
    key_file::nodes(file)
        .map_err(|reason| Failure::Usage(format!("cannot use {}: {reason}", file.display())))
}

/// The nodes whose keys these are, each once.
fn names(keys: &[NodeKey]) -> Vec<&str> {
    let mut names: Vec<_> = keys.iter().map(|key| key.node.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn list(names: &[&str]) -> String {
    let kind = if names.len() == 1 { "node" } else { "nodes" };
    format!("{kind} {}", names.join(", "))
}

fn wrong_key(names: &[&str]) -> String {
    format!(
        "wrong key: a front-end asks with a key that is none of ours. This agent has the key of {}: does the \
         front-end call it so, and has it the master of that key? Whoever reaches the port may send such a request, too",
        list(names)
    )
}

/// Requests made with keys that are not known here, but for those of front-ends that only try their keys.
fn with_unknown_keys(stats: &ResponderStats) -> u64 {
    let mut dropped = stats.dropped.iter();
    let keys = dropped.find(|(why, _)| *why == DropReason::Key);
    keys.map_or(0, |(_, dropped)| dropped.saturating_sub(stats.trials))
}

/// Notices when something begins to happen that should not.
#[derive(Debug, Default)]
struct Alert {
    seen: u64,
    quiet_looks: u32,
    told: bool,
}

impl Alert {
    /// Looks at how often it has happened; whether that is worth a line: once, and again after a minute without.
    fn look(&mut self, times: u64) -> bool {
        let more = times > std::mem::replace(&mut self.seen, times);
        self.quiet_looks = if more { 0 } else { self.quiet_looks + 1 };
        if self.quiet_looks >= QUIET_LOOKS {
            self.told = false;
        }
        more && !std::mem::replace(&mut self.told, true)
    }
}

/// What is worth a line while the agent runs.
#[derive(Debug, Default)]
struct Alerts {
    strangers: Alert,
    flood: Alert,
    refusals: Alert,
    refused: u64,
}

impl Alerts {
    fn look_at_rdma(&mut self, agent: &AgentHandle, output: Output) {
        let why = agent.rdma_refusal();
        self.refused += u64::from(why.is_some());
        if self.refusals.look(self.refused)
            && let Some(why) = why
        {
            let text = format!("a front-end is not connected over RDMA: {why}");
            output.event("rdma", &text);
        }
    }

    fn look(&mut self, status: &AgentStatus, names: &[&str], output: Output) {
        if self.strangers.look(with_unknown_keys(&status.responder)) {
            output.event("wrong_key", &wrong_key(names));
        }
        let met = FloodReport::new(status);
        if self.flood.look(met.unexamined + met.limited) {
            output.event("flood", &format!("this agent is flooded: {met}"));
        }
    }
}

impl FloodReport {
    fn new(status: &AgentStatus) -> Self {
        let in_kernel = status.kernel.as_ref();
        let in_kernel = in_kernel.map_or(0, |it| it.unexamined + it.limited + it.imitated);
        Self {
            unexamined: status.responder.unexamined + in_kernel,
            limited: status.responder.limited,
            closed: status.responder.closed,
            lowered: status.responder.lowered,
        }
    }
}

impl fmt::Display for FloodReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} requests thrown away unexamined, {} rests at the limit of the rate, socket closed {} times, at normal \
             priority {} times",
            self.unexamined, self.limited, self.closed, self.lowered
        )
    }
}

/// Says how it stands. A reader that is gone stops no agent.
fn tell(state: &'static str, agent: &AgentHandle, names: &[&str], output: Output) {
    let status = agent.status();
    let text = if state == "started" {
        let why: String = status.why.iter().map(|why| format!("\n  {why}")).collect();
        format!(
            "{} agent on {}: rung {}{why}\n  It answers as {}.",
            output::now(),
            agent.address(),
            status.rung.label(),
            list(names),
        )
    } else {
        format!(
            "{} stopped after {} samples, {} overruns, {:.2} % of a CPU, {} reads answered\n  floods: {}",
            output::now(),
            status.samples,
            status.overruns,
            status.cpu_share() * 100.0,
            reads(&status),
            FloodReport::new(&status)
        )
    };
    let report = Report::new(state, agent.address(), names, &status);
    output.result(&text, &report).unwrap_or_default();
}

/// Reads answered, by whomever.
fn reads(status: &AgentStatus) -> u64 {
    status.responder.reads + status.kernel.as_ref().map_or(0, |kernel| kernel.reads)
}

impl Report {
    fn new(state: &'static str, address: SocketAddr, names: &[&str], status: &AgentStatus) -> Self {
        Self {
            state,
            address,
            nodes: names.iter().map(|name| (*name).to_owned()).collect(),
            rung: status.rung.label(),
            why: status.why.clone(),
            interval_seconds: status.interval.as_secs_f64(),
            samples: status.samples,
            overruns: status.overruns,
            cost_mean_seconds: status.cost_mean.as_secs_f64(),
            cost_max_seconds: status.cost_max.as_secs_f64(),
            cpu_share: status.cpu_share(),
            reads: reads(status),
            flood: FloodReport::new(status),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_watched_and_does_not_run_is_named() {
        let running = ["nginx", "mariadbd", "postgres"].map(str::to_owned);
        let running = BTreeSet::from(running);
        let watch = ["nginx", "ngnix", "zzzzzzzz", "/no/such.pid", "/"].map(str::to_owned);
        let said = not_found(&watch, &running);
        assert_eq!(said.len(), 3, "{said:?}");
        assert!(said[0].contains("`ngnix`") && said[0].contains("did you mean `nginx`?"));
        assert!(said[1].ends_with("no process `zzzzzzzz` now"), "{said:?}");
        assert!(said[2].contains("pid file `/no/such.pid`"), "{said:?}");
    }

    #[test]
    fn an_alert_is_told_once_and_again_after_a_rest() {
        let mut alert = Alert::default();
        assert!(!alert.look(0));
        assert!(alert.look(3));
        assert!(!alert.look(9));
        for _ in 0..QUIET_LOOKS {
            assert!(!alert.look(9));
        }
        assert!(alert.look(10));
    }

    #[test]
    fn keys_that_are_not_known_are_counted_and_ours_are_named() {
        // A front-end that tries keys asks with a wrong one and means nothing by it.
        let stats = ResponderStats {
            dropped: vec![(DropReason::Mac, 7), (DropReason::Key, 93)],
            trials: 90,
            ..ResponderStats::default()
        };
        assert_eq!(with_unknown_keys(&stats), 3);
        let text = wrong_key(&["n1"]);
        assert!(text.contains("the key of node n1:"), "{text}");
    }

    #[test]
    fn a_long_name_is_found_by_what_the_kernel_keeps_of_it() {
        let running = BTreeSet::from(["a-process-with-a".to_owned()[..15].to_owned()]);
        let watch = ["a-process-with-a-long-name".to_owned()];
        assert_eq!(not_found(&watch, &running), Vec::<String>::new());
    }
}
