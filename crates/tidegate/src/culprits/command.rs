//! `tidegate culprits`: its arguments, and whether files or a front-end are asked.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tidegate_core::classes::Pattern;
use tidegate_culprits::delay_experiment::{ExperimentReport, ExperimentState};
use tidegate_culprits::names::class_pattern;
use tidegate_culprits::page::offline_page;
use tidegate_culprits::picture::report::Report;
use tidegate_culprits::search::{Options, search};
use tidegate_culprits::utc_offset;

use crate::client::AdminArgs;
use crate::failure::Failure;
use crate::output::Output;
use crate::replace::replace;
use tidegate_culprits::live::ExperimentRequest;

/// Time between two looks at an experiment that runs: this command learns of its end by asking, and the front-end
/// ends each within a minute or so.
const LOOK: Duration = Duration::from_millis(500);

/// Options of `tidegate culprits`.
#[derive(Debug, Args)]
pub(crate) struct CulpritsArgs {
    /// Access logs of Apache, nginx, HAProxy or Tidegate, or JSON; also gzipped, `-` is standard
    /// input. The format of each is found out by itself. Without files the front-end is asked.
    #[arg(long, value_name = "FILE", num_args = 1.., requires = "resource", conflicts_with_all = ["config", "admin", "token_file"])]
    access_log: Vec<PathBuf>,
    /// What resources did meanwhile: sadf -d, -j or -p, sar, vmstat -t, node_exporter's text, or
    /// a CSV of time,busy_seconds,capacity.
    #[arg(long, value_name = "FILE", num_args = 1.., requires = "access_log")]
    resource: Vec<PathBuf>,
    /// The access logs' format as it stands in the configuration of Apache (`%h %l %u %t …`) or
    /// nginx (`$remote_addr …`). `FILE=FORMAT` is for one of the files; repeatable.
    #[arg(long, value_name = "FORMAT")]
    log_format: Vec<String>,
    /// Zone of times that do not say theirs, like +02:00 [default: UTC, unless the load tells
    /// otherwise].
    #[arg(long, value_name = "OFFSET", value_parser = utc_offset, allow_hyphen_values = true)]
    utc_offset: Option<i64>,
    /// CPUs of hosts whose recordings do not say it, as sadf -d and vmstat; without it all of them count
    /// as one.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    cpus: Option<u32>,
    /// Take clocks as they are, even if load and requests fit better otherwise.
    #[arg(long)]
    no_align: bool,
    /// A class of one's own: `/search/*` or `search=/search/*`; repeatable, the first that fits
    /// counts.
    #[arg(long, value_name = "PATTERN", value_parser = class_pattern)]
    class: Vec<Pattern>,
    /// Classes to show for each resource.
    #[arg(long, value_name = "N", default_value_t = 20)]
    top: usize,
    /// Also write the page with all pictures: one file that needs nothing else.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Find out by an experiment whether this class loads a resource: a random half of its requests is delayed by
    /// 300 ms, for a minute at most; none is refused. Only GET and HEAD: other methods may change something.
    #[arg(long, value_name = "CLASS", conflicts_with_all = ["access_log", "html"])]
    experiment: Option<String>,
    /// The resource [default: the one of which the class is thought to use most].
    #[arg(long, value_name = "RESOURCE", requires = "experiment")]
    against: Option<String>,
    #[command(flatten)]
    admin: AdminArgs,
}

/// Looks into files, or asks a running front-end.
pub(crate) fn run(args: &CulpritsArgs, output: Output) -> Result<(), Failure> {
    if !args.access_log.is_empty() {
        return read(args, output);
    }
    if let Some(class) = &args.experiment {
        return experiment(args, class, output);
    }
    let found: Option<Report> = args
        .admin
        .client()?
        .find("/api/culprits")
        .map_err(Failure::Failed)?;
    let nobody =
        "this front-end does not look for culprits; of files, --access-log and --resource tell";
    let report = found.ok_or_else(|| Failure::Failed(nobody.into()))?;
    show(args, &report, output)
}

/// Looks into files.
fn read(args: &CulpritsArgs, output: Output) -> Result<(), Failure> {
    let found = search(&Options {
        access_logs: args.access_log.clone(),
        recordings: args.resource.clone(),
        log_formats: args.log_format.clone(),
        utc_offset: args.utc_offset,
        cpus: args.cpus,
        keeps_clocks: args.no_align,
        classes: args.class.clone(),
    })?;
    write_page(args, &found.report)?;
    output.result(&found.text(args.top), &found.printed())?;
    match found.doubt() {
        Some(why) => Err(Failure::Failed(why.into())),
        None => Ok(()),
    }
}

/// Shows what a running front-end knows.
fn show(args: &CulpritsArgs, report: &Report, output: Output) -> Result<(), Failure> {
    let text = match report.resources.is_empty() && report.classes.is_empty() {
        true => {
            let notes: String = report
                .notes
                .iter()
                .map(|note| format!("{note}\n"))
                .collect();
            notes + "not known yet: some seconds of requests and of nodes' load are needed\n"
        }
        false => report.text(args.top),
    };
    write_page(args, report)?;
    Ok(output.result(&text, report)?)
}

/// Writes the page, if it is wanted.
fn write_page(args: &CulpritsArgs, report: &Report) -> Result<(), Failure> {
    let Some(path) = &args.html else {
        return Ok(());
    };
    let json = serde_json::to_string(report).map_err(|error| Failure::Failed(error.to_string()))?;
    let page = offline_page(&json);
    replace(path, page.as_bytes())
        .map_err(|error| Failure::Failed(format!("cannot write {}: {error}", path.display())))
}

/// Begins a delay experiment and waits for its end.
fn experiment(args: &CulpritsArgs, class: &str, output: Output) -> Result<(), Failure> {
    let client = args.admin.client()?;
    let request = ExperimentRequest {
        class: class.into(),
        resource: args.against.clone(),
    };
    let begun = client.post_json("/api/culprits/experiment", &request);
    let mut report: ExperimentReport = begun.map_err(Failure::Failed)?;
    while report.state == ExperimentState::Running {
        std::thread::sleep(LOOK);
        report = client
            .get("/api/culprits/experiment")
            .map_err(Failure::Failed)?;
        if report.class != class {
            return Err(Failure::Failed(
                "an experiment on another class runs by now".into(),
            ));
        }
    }
    Ok(output.result(&format!("{}\n", report.text), &report)?)
}
