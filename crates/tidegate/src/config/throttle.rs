//! Classes of requests that are throttled from the start: the table, and what it means.

use std::time::Duration;

use tidegate_core::throttle::{
    ClassPattern, Marks, ThrottleLimits, ThrottleLimitsError, Throttles,
};
use tidegate_core::units::Size;

use super::culprits::class_names;
use super::file::ConfigFile;
use super::problem::{Problem, Problems};
use super::setting::{At, table};

table! {
    /// A class of requests that is slowed, and still completes; other classes are never refused for it. See
    /// docs/throttles.md. All numbers are for this front-end, all of its workers together.
    pub(crate) struct ThrottleFile {
        /// A method and a path, like `GET /search/*`, with a site's name before them where it is one
        /// site's: `shop GET /item/{n}`. `{…}` and `*` are any one segment, `*` at the end is all that is left.
        /// Or a name of `[culprits] classes`.
        class: String;
        /// Most of its requests in flight; the others wait in order.
        concurrency: Option<u32> = None;
        /// Most of its requests per second; the others wait in order.
        rate: Option<f64> = None;
        /// Bytes per second that its response bodies share.
        bandwidth: Option<Size> = None;
        /// How long one waits for `concurrency` and `rate` at most, and is then answered 429; not set is as
        /// long as it takes.
        queue: Option<Duration> = None;
        /// Admission takes its requests for the lowest priority.
        priority: bool = false;
        /// `SO_MARK` of its connections to nodes, for rules and filters of this machine. Needs CAP_NET_ADMIN.
        mark: Option<u32> = None;
        /// Their code point (DSCP), for the network.
        dscp: Option<u32> = None;
        /// Their `SO_PRIORITY`, for queueing disciplines and VLAN tags; above 6 it needs CAP_NET_ADMIN.
        so_priority: Option<u32> = None;
    }
}

/// A class and what is done to it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Throttled {
    /// Whose requests.
    pub(crate) class: ClassPattern,
    /// What is done to them.
    pub(crate) limits: ThrottleLimits,
}

/// The throttles of a file; all that is wrong is among the problems.
pub(super) fn throttles(file: &ConfigFile, problems: &mut Problems) -> Vec<Throttled> {
    let mut found: Vec<(&At<String>, Throttled)> = Vec::new();
    for throttle in &file.throttle.value {
        let Some(class) = class(&throttle.class, file, problems) else {
            continue;
        };
        let mut before = found.iter();
        if let Some((first, _)) = before.find(|(_, it)| it.class == class) {
            let message = format!("class `{class}` is throttled twice");
            let problem = Problem::new(throttle.class.place(), message, "again here");
            problems.push(problem.context(first.place(), "first here"));
        }
        let limits = limits(throttle);
        if let Err(error) = limits.check() {
            let problem = Problem::new(place(throttle, error), error.to_string(), "here");
            problems.push(problem);
        }
        found.push((&throttle.class, Throttled { class, limits }));
    }
    if found.len() > Throttles::MAX {
        let message = format!("at most {} classes can be throttled", Throttles::MAX);
        let problem = Problem::new(
            file.throttle[Throttles::MAX].place(),
            message,
            "one too many",
        );
        problems.push(problem);
    }
    found.into_iter().map(|(_, throttled)| throttled).collect()
}

fn class(name: &At<String>, file: &ConfigFile, problems: &mut Problems) -> Option<ClassPattern> {
    let class = match class_names(file).pattern(&name.value) {
        Ok(class) => class,
        Err(error) => {
            let message = format!("bad class `{}`", name.value);
            problems.push(Problem::new(name.place(), message, format!("{error}")));
            return None;
        }
    };
    let mut sites = file.site.iter();
    if let Some(site) = class.site()
        && !sites.any(|it| it.name.value == site)
    {
        let message = format!("no site is called `{site}`");
        problems.push(Problem::new(name.place(), message, "unknown site"));
    }
    Some(class)
}

fn limits(file: &ThrottleFile) -> ThrottleLimits {
    ThrottleLimits {
        concurrency: file.concurrency.value,
        rate: file.rate.value,
        bandwidth: file.bandwidth.value.map(|size| size.0),
        queue: file.queue.value,
        lowest_priority: file.priority.value,
        marks: Marks {
            mark: file.mark.value,
            priority: file.so_priority.value,
            // What is no byte is no code point either, and refused as such.
            dscp: file
                .dscp
                .value
                .map(|dscp| u8::try_from(dscp).unwrap_or(u8::MAX)),
        },
    }
}

/// The key that is wrong.
fn place(file: &At<ThrottleFile>, error: ThrottleLimitsError) -> std::ops::Range<usize> {
    match error {
        ThrottleLimitsError::Nothing => file.place(),
        ThrottleLimitsError::Concurrency => file.concurrency.place(),
        ThrottleLimitsError::Rate => file.rate.place(),
        ThrottleLimitsError::Bandwidth => file.bandwidth.place(),
        ThrottleLimitsError::Queue => file.queue.place(),
        ThrottleLimitsError::Dscp => file.dscp.place(),
    }
}
