//! `tidegate throttle` and `tidegate release`: runtime overrides of request classes.

use std::time::Duration;

use clap::Args;
use tidegate_core::units::{Size, parse_duration, parse_size};

use super::show;
use crate::client::AdminArgs;
use crate::failure::Failure;
use crate::models::{
    LimitsModel, ReleaseRequest, ThrottleGiven, ThrottleRequest, ThrottleStatus, Throttles,
};
use crate::output::Output;
use crate::text::limits;

/// A class, and what is done to it.
#[derive(Debug, Args)]
pub(crate) struct ThrottleArgs {
    /// The class: a method and a path like `GET /search/*`, with a site before them if it is one site's.
    class: Option<String>,
    /// At most so many of its requests in flight; the others wait.
    #[arg(long, value_name = "N", requires = "class")]
    concurrency: Option<u32>,
    /// At most so many of its requests per second; the others wait.
    #[arg(
        long,
        value_name = "R",
        requires = "class",
        allow_negative_numbers = true
    )]
    rate: Option<f64>,
    /// Bytes per second that its responses share, like 64KiB.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, requires = "class")]
    bandwidth: Option<Size>,
    /// How long a request waits at most; then it is answered 429.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, requires = "class")]
    queue: Option<Duration>,
    /// Its requests give way to all others.
    #[arg(long, requires = "class")]
    priority: bool,
    /// SO_MARK of its connections to nodes.
    #[arg(long, value_name = "N", requires = "class")]
    mark: Option<u32>,
    /// Code point (DSCP) of its connections to nodes.
    #[arg(long, value_name = "N", requires = "class", value_parser = clap::value_parser!(u8).range(0..=63))]
    dscp: Option<u8>,
    /// SO_PRIORITY of its connections to nodes.
    #[arg(long, value_name = "N", requires = "class")]
    so_priority: Option<u32>,
    /// Release it by itself after so long.
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration, requires = "class")]
    lasts: Option<Duration>,
    #[command(flatten)]
    admin: AdminArgs,
}

/// Throttles a class, or lists those that are.
pub(super) fn throttle(args: &ThrottleArgs, output: Output) -> Result<(), Failure> {
    let Some(class) = &args.class else {
        let throttles: Throttles = args
            .admin
            .client()?
            .get("/api/throttles")
            .map_err(Failure::Failed)?;
        return Ok(output.result(&show::throttles(&throttles), &throttles)?);
    };
    let wanted = ThrottleRequest {
        class: class.clone(),
        limits: LimitsModel {
            concurrency: args.concurrency,
            rate: args.rate,
            bandwidth: args.bandwidth.map(|size| size.0),
            queue_seconds: args.queue.map(|queue| queue.as_secs_f64()),
            priority: args.priority,
            mark: args.mark,
            dscp: args.dscp,
            so_priority: args.so_priority,
        },
        for_seconds: args.lasts.map(|lasts| lasts.as_secs_f64()),
    };
    wanted.limits.checked().map_err(Failure::Usage)?;
    let given: ThrottleGiven = args
        .admin
        .client()?
        .post_json("/api/throttle", &wanted)
        .map_err(Failure::Failed)?;
    let throttle = &given.throttle;
    let text = format!("{}: {}", throttle.class, limits(throttle));
    tell(&text, &given, output)
}

/// Releases a class.
pub(super) fn release(class: String, admin: &AdminArgs, output: Output) -> Result<(), Failure> {
    let wanted = ReleaseRequest { class };
    let given: ThrottleGiven = admin
        .client()?
        .post_json("/api/release", &wanted)
        .map_err(Failure::Failed)?;
    let ThrottleStatus {
        class,
        arrived,
        held,
        rejected,
        ..
    } = &given.throttle;
    let text = format!(
        "{class}: released; of {arrived} requests {held} were held, {rejected} answered 429"
    );
    tell(&text, &given, output)
}

fn tell(text: &str, given: &ThrottleGiven, output: Output) -> Result<(), Failure> {
    let text = match &given.note {
        Some(note) => format!("{text}\nin force, but not over a restart: {note}"),
        None => text.to_owned(),
    };
    Ok(output.result(&text, given)?)
}
