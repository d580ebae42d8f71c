//! `tidegate demo --elephant`: one class of requests costs all others, is named, and is slowed down at a click.
//!
//! ```text
//!  Visitors ──open loop──> front-end ──> emulated nodes of one shop
//!  (Shop: what is asked)     as in `run`   └─ load records ──> discovery ──> findings ──> Story ──> throttle
//! ```
//!
//! The name comes from the discovery of the front-end alone; which class is heavy, the demo only uses to say
//! whether that is right. The click is the override that the page sends; without a click the demo gives the
//! same one.

mod report;
mod shop;
mod story;

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::time::Timestamp;
use tidegate_culprits::live::{Actions, Finding};
use tidegate_emulator::nodes::NodeNow;
use tidegate_remote::clock;
use tidegate_sim::model::Stream;

use super::DemoArgs;
use super::calibration::{self, Cost, cpus};
use super::front_ends::front_end;
use super::live::Live;
use super::machines::Machines;
use super::open_loop::OpenLoop;
use super::page::Page;
use super::visitors::{Book, Visitors};
use super::{LOOK, SETTLE, SHOW, cannot_send};
use crate::admin::plane::Plane;
use crate::admin::throttles;
use crate::config::Culprits;
use crate::failure::Failure;
use crate::models::{LimitsModel, ThrottleRequest};
use crate::output::Output;
use crate::run::{Running, Start};
use crate::signals::Stop;
use report::{Phase, Summary, ThrottleSummary, ms, rounded};
use shop::{Arrival, HEAVY, NODES, OTHERS, Shop};
use story::{Schedule, Story, StoryEvent, StoryStage};

/// The last seconds, of which the live table tells.
const LAST: Duration = Duration::from_secs(3);
/// Between two lines where no table is redrawn.
const LINE: Duration = Duration::from_secs(5);
/// Stretched more, too few requests come in the time that there is.
const STRETCH_MAX: f64 = 3.0;
/// The class keeps this part of its requests in progress, and of all nodes at most.
const KEEPS: f64 = 0.25;
const KEEPS_OF_NODES: f64 = 0.5;

/// A class that discovery has named.
#[derive(Clone, Debug)]
struct Named {
    /// When, since the start.
    at: Duration,
    class: String,
    /// What an override of it calls it.
    pattern: String,
    resource: String,
    right: bool,
    confidence: &'static str,
    share: f64,
    cost_ms: f64,
}

/// The throttle of it.
#[derive(Clone, Debug)]
struct Throttled {
    at: Duration,
    limits: String,
    by_demo: bool,
}

/// Runs the demo and prints what it found. Fails if no class is named.
pub(super) async fn run(
    args: &DemoArgs,
    output: Output,
    started: Timestamp,
) -> Result<(), Failure> {
    let stop = Stop::new()?;
    let machines = Machines::start(NODES.into_iter());
    let machines = machines.map_err(|error| Failure::Failed(error.to_string()))?;
    let mut live = Live::new(output);
    let (shop, told) = calibrated(&machines, args.seed).await?;
    let running = start(&machines, args.seed)?;
    let page = Page::open(args.port, Arc::clone(&running.plane))?;
    live.say(
        "page",
        &format!(
            "page:    {}culprits (it goes when the demo ends)",
            page.address
        ),
    )?;
    live.say("cluster", &shop.describe(args.seed))?;
    if let Some(told) = told {
        live.say("calibrated", &told)?;
    }
    tokio::time::sleep(SETTLE).await;
    let all = Duration::from_secs(args.seconds.into());
    let schedule = Schedule::of(
        all.saturating_sub(clock::now().since(started)),
        live.is_watched(),
    );
    let begin = clock::now();
    let arrivals = shop.arrivals(args.seed, schedule.quiet, schedule.end);
    let visitors = Arc::new(Visitors::new(arrivals, begin));
    let mut demo = Demo {
        shop,
        schedule,
        start: begin,
        plane: Arc::clone(&running.plane),
        page,
        machines,
        visitors: Arc::clone(&visitors),
        live,
        stop,
        story: Story::new(schedule),
        named: None,
        last_cost_ms: None,
        wrong: Vec::new(),
        before: Vec::new(),
        throttled: None,
    };
    let requests = OpenLoop::start(visitors, &running.plane.listeners.load(), begin);
    let mut requests = requests.map_err(cannot_send)?;
    let turn = demo.watch().await?;
    let ended = clock::now().since(begin);
    requests.end();
    demo.live.say("end", "")?;
    let summary = demo.summary(ended);
    output.result(&output.fit(&summary.table()), &summary)?;
    match turn {
        Some(StoryEvent::NotNamed) => Err(Failure::Told),
        // It came to its end, or was interrupted.
        Some(_) | None => Ok(()),
    }
}

/// The front-end, which watches for culprits as `run` does by default.
fn start(machines: &Machines, seed: u64) -> Result<Running, Failure> {
    let spec = Shop::spec(machines.nodes.addresses());
    let culprits = Culprits {
        patterns: Vec::new(),
        peers: Vec::new(),
        peer_token: None,
        actions: Actions {
            automatic: None,
            delay_experiments: false,
            slo: Duration::from_millis(500),
        },
    };
    let seed = Stream::Picker(0).prng(seed).bits();
    let front_end = front_end(spec, machines, Some(culprits), seed);
    Running::start(front_end, Start::plain(), Output::QUIET)
}

/// The shop as this machine can carry it, and what is to be said of that.
async fn calibrated(machines: &Machines, seed: u64) -> Result<(Shop, Option<String>), Failure> {
    let running = start(machines, seed)?;
    tokio::time::sleep(SETTLE).await;
    let mut shop = Shop {
        stretch: calibration::STRETCH,
    };
    let arrivals = shop.arrivals(seed, calibration::LOADED, calibration::LOADED);
    let cost = Cost::measure(arrivals, &running.plane.listeners.load()).await;
    let cost = cost.map_err(cannot_send)?;
    shop.stretch = 1.0;
    // What shall be seen is what heavy requests do to all.
    let stretch = cost.stretch(shop.rate(), shop.elephant_demand(), cpus());
    shop.stretch = stretch.min(STRETCH_MAX);
    Ok((shop, cost.describe(shop.stretch, cpus())))
}

struct Demo {
    shop: Shop,
    schedule: Schedule,
    start: Timestamp,
    plane: Arc<Plane>,
    page: Page,
    machines: Machines,
    visitors: Arc<Visitors<Arrival>>,
    live: Live,
    stop: Stop,
    story: Story,
    /// What was named first after the heavy class had come, and was not before; classes that were named and are
    /// not it.
    named: Option<Named>,
    /// What it was said to cost last, before it was throttled.
    last_cost_ms: Option<f64>,
    wrong: Vec<String>,
    /// What was named before it came.
    before: Vec<String>,
    throttled: Option<Throttled>,
}

impl Demo {
    /// Follows the story to its end; nothing if someone interrupts.
    async fn watch(&mut self) -> Result<Option<StoryEvent>, Failure> {
        self.live
            .say("phase", "quiet:   everything is as it should be")?;
        let mut shown = self.start;
        loop {
            tokio::select! {
                () = self.stop.wait() => {
                    self.live.say("interrupted", "interrupted: this is what there is so far")?;
                    return Ok(None);
                }
                () = tokio::time::sleep(LOOK) => {}
            }
            let now = clock::now().since(self.start);
            self.hear(now)?;
            let turn = self
                .story
                .go_on(now, self.named.is_some(), self.is_throttled());
            if let Some(turn) = turn {
                self.turn(turn, now)?;
                if matches!(turn, StoryEvent::NotNamed | StoryEvent::End) {
                    return Ok(Some(turn));
                }
            }
            let every = if self.live.is_watched() { SHOW } else { LINE };
            let since = clock::now().since(shown);
            if since >= every {
                shown = clock::now();
                self.show(now, since)?;
            }
        }
    }

    /// What discovery says.
    fn hear(&mut self, now: Duration) -> Result<(), Failure> {
        let Some(culprits) = &self.plane.culprits else {
            return Ok(());
        };
        let findings = culprits.findings();
        for named in findings.flagged().filter_map(|it| Named::of(it, now)) {
            if !named.right && !self.wrong.contains(&named.class) {
                self.wrong.push(named.class.clone());
                if self.story.stage() == StoryStage::Quiet {
                    self.before.push(named.class.clone());
                }
                let text = format!("named, too: {}", named.sentence());
                self.live.say("wrong", &text)?;
            }
            let same = self
                .named
                .as_ref()
                .is_some_and(|it| it.class == named.class);
            if same && self.throttled.is_none() {
                self.last_cost_ms = Some(named.cost_ms);
            }
            let known = self.before.contains(&named.class);
            if self.named.is_none() && self.story.stage() == StoryStage::Elephant && !known {
                self.named = Some(named);
            }
        }
        Ok(())
    }

    /// The throttle of the class that was named, whatever has set it.
    fn is_throttled(&self) -> bool {
        self.limits_in_force().is_some()
    }

    fn limits_in_force(&self) -> Option<String> {
        let class = self
            .plane
            .names
            .pattern(&self.named.as_ref()?.pattern)
            .ok()?;
        let all = self.plane.shared.throttles.all();
        let own = all.iter().find(|it| it.pattern.covers(&class))?;
        Some(own.limits.to_string())
    }

    fn turn(&mut self, turn: StoryEvent, now: Duration) -> Result<(), Failure> {
        match turn {
            StoryEvent::Elephant => {
                let text = format!("heavy class: {}", self.shop.describe_elephant());
                self.live.say("phase", &text)?;
            }
            StoryEvent::Named => {
                let Some(named) = &self.named else {
                    return Ok(());
                };
                let after = (named.at - self.schedule.quiet).as_secs_f64();
                let mut text = format!("named after {after:.1} s: {}", named.sentence());
                if self.live.is_watched() {
                    text.push_str(&format!(
                        "\nthrottle it: a click at {}culprits",
                        self.page.address
                    ));
                }
                self.live.say("named", &text)?;
            }
            StoryEvent::Click => self.click(now)?,
            StoryEvent::Throttled => {
                let limits = self.limits_in_force().unwrap_or_default();
                let throttled = self.throttled.get_or_insert(Throttled {
                    at: now,
                    limits,
                    by_demo: false,
                });
                let who = if throttled.by_demo { "the demo" } else { "you" };
                let text = format!("throttled by {who}: {}", throttled.limits);
                self.live.say("throttled", &text)?;
            }
            StoryEvent::NotNamed => {
                let seconds = self.schedule.naming.as_secs_f64();
                let text = format!("nobody was named within {seconds:.0} s");
                self.live.say("not_named", &text)?;
            }
            StoryEvent::End => {}
        }
        Ok(())
    }

    /// The override that a click on the page sends.
    fn click(&mut self, now: Duration) -> Result<(), Failure> {
        let Some(named) = &self.named else {
            return Ok(());
        };
        let limits = LimitsModel {
            concurrency: Some(self.concurrency(&named.class)),
            ..LimitsModel::default()
        };
        let wanted = ThrottleRequest {
            class: named.pattern.clone(),
            limits,
            for_seconds: None,
        };
        throttles::throttle(&self.plane, &wanted).map_err(|error| {
            Failure::Failed(format!("cannot throttle {}: {error}", named.class))
        })?;
        self.throttled = Some(Throttled {
            at: now,
            limits: self.limits_in_force().unwrap_or_default(),
            by_demo: true,
        });
        Ok(())
    }

    /// A quarter of what is in progress of the class, and no more than half of the nodes.
    fn concurrency(&self, class: &str) -> u32 {
        let findings = self.plane.culprits.as_ref().map(|it| it.findings());
        let own = findings.and_then(|it| {
            let own = it.all.iter().find(|finding| &*finding.class == class)?;
            Some(own.in_progress)
        });
        let most = (NODES.len() as f64 * KEEPS_OF_NODES).max(1.0);
        (own.unwrap_or_default() * KEEPS).round().clamp(1.0, most) as u32
    }

    fn show(&mut self, now: Duration, since: Duration) -> Result<(), Failure> {
        let (others, elephants, waiting) = {
            let book = self.visitors.book();
            let from = now.saturating_sub(LAST);
            let (others, elephants) = (book.sum(OTHERS, from, now), book.sum(HEAVY, from, now));
            (others, elephants, book.under_way[HEAVY])
        };
        let (name, until) = self.phase();
        let mut text = format!(
            "{name}, {:.0} of {:.0} s. The last {:.0} s: all others {:.0} requests/s, p50 {} ms, p99 {} ms",
            now.as_secs_f64(),
            until.as_secs_f64(),
            LAST.as_secs_f64(),
            others.per_second,
            ms(others.p50_ms),
            ms(others.p99_ms)
        );
        if now > self.schedule.quiet {
            text.push_str(&format!(
                "; heavy class {:.0}/s, p50 {} ms, {waiting} sent and not answered",
                elephants.per_second,
                ms(elephants.p50_ms)
            ));
        }
        if !self.live.is_watched() {
            return Ok(self.live.say("progress", &text)?);
        }
        if let Some(named) = &self.named {
            text.push_str(&format!("\n{}", named.sentence()));
        }
        text = text
            .replace(": all others", "\nall others:")
            .replace("; heavy class", "\nheavy class: ");
        text.push_str(&format!("\npage {}culprits", self.page.address));
        let nodes = NODES.iter().zip(self.machines.nodes.now());
        let nodes: Vec<(&str, u32, NodeNow)> = nodes
            .map(|((name, cores), now)| (*name, *cores, now))
            .collect();
        Ok(self.live.show(&text, &nodes, since.as_secs_f64())?)
    }

    /// The name of the phase, and its end at the latest.
    fn phase(&self) -> (&'static str, Duration) {
        let Schedule {
            quiet, naming, end, ..
        } = self.schedule;
        match self.story.stage() {
            StoryStage::Quiet => ("quiet", quiet),
            StoryStage::Elephant => ("elephant", quiet + naming),
            StoryStage::Named(_) => ("named", end),
            StoryStage::Throttled(until) => ("throttled", until),
            StoryStage::End => ("end", end),
        }
    }

    fn summary(&self, ended: Duration) -> Summary {
        let book = self.visitors.book();
        let injected = self.schedule.quiet;
        let throttled = self.throttled.as_ref();
        let mut summary = Summary {
            mode: "elephant",
            nodes: NODES.len(),
            cpus: Shop::cpus(),
            offered_rps: rounded(self.shop.rate()),
            elephant_rps: rounded(self.shop.elephant_rate()),
            named_after_seconds: None,
            class: None,
            resource: None,
            right: false,
            confidence: None,
            share: None,
            cost_ms: None,
            last_cost_ms: self.last_cost_ms.map(rounded),
            true_cost_ms: rounded(self.shop.elephant_demand().as_secs_f64() * 1e3),
            wrong: self.wrong.clone(),
            throttle: throttled.map(|it| ThrottleSummary::new(it, injected)),
            phases: phases(&book, injected, throttled.map(|it| it.at), ended),
            elephants_waiting: book.under_way[HEAVY],
        };
        if let Some(named) = &self.named {
            summary.name(named, injected);
        }
        summary
    }
}

fn phases(
    book: &Book,
    injected: Duration,
    throttled: Option<Duration>,
    ended: Duration,
) -> Vec<Phase> {
    let calm = throttled.unwrap_or(ended);
    let phases = [
        ("quiet", Duration::ZERO, injected),
        ("elephant", injected, calm),
        ("throttled", calm, ended),
    ];
    let phases = phases.into_iter();
    phases
        .filter_map(|(name, from, to)| Phase::of(name, book, from, to.min(ended)))
        .collect()
}

impl Named {
    /// A finding, if it is named.
    fn of(finding: &Finding, at: Duration) -> Option<Self> {
        let (confidence, _) = finding.flagged.as_ref()?;
        let pattern = finding.pattern.as_deref().unwrap_or(&finding.class);
        Some(Self {
            at,
            class: finding.class.to_string(),
            pattern: pattern.to_owned(),
            resource: finding.resource.to_string(),
            right: Shop::is_elephant(pattern),
            confidence: confidence.label(),
            share: finding.share,
            cost_ms: finding.cost_seconds * 1e3,
        })
    }

    fn sentence(&self) -> String {
        format!(
            "{} uses {:.0} % of {}, {}, {:.0} ms per request",
            self.class,
            self.share * 100.0,
            self.resource,
            self.confidence,
            self.cost_ms
        )
    }
}
