//! Tells a run to the discovery as a front-end would, and asks it every 2.5 s.

use tidegate_core::culprits::{Discovery, EVERY, Learned, Limits, Request, ResourceId, Verdicts};
use tidegate_core::time::Timestamp;

use super::trace::{Resource, Trace};

/// A run on its way to the discovery.
#[derive(Debug)]
pub struct Replay<'a> {
    trace: &'a Trace,
    discovery: Discovery,
    /// Finished requests by their end, as places in the trace.
    by_end: Vec<u32>,
    told: usize,
    /// Requests sent so far that had not ended when last looked at.
    open: Vec<u32>,
    sent: usize,
    read: usize,
    turns: u32,
}

/// One time that all judged resources were asked about.
#[derive(Debug)]
pub struct Evaluation {
    /// Seconds after the start.
    pub at: f64,
    /// For each judged resource.
    pub verdicts: Vec<(Resource, Verdicts)>,
}

impl<'a> Replay<'a> {
    /// From the start of a run.
    pub fn new(trace: &'a Trace) -> Self {
        let mut by_end: Vec<u32> = (0..trace.requests.len() as u32)
            .filter(|place| trace.requests[*place as usize].ended.is_some())
            .collect();
        by_end.sort_by_key(|place| trace.requests[*place as usize].ended);
        let classes = u16::try_from(trace.classes).unwrap_or(u16::MAX);
        Self {
            trace,
            discovery: Discovery::new(Limits {
                classes,
                resources: Resource::ALL.len() as u16,
            }),
            by_end,
            told: 0,
            open: Vec::new(),
            sent: 0,
            read: 0,
            turns: 0,
        }
    }

    /// The same, with what was learned of the site before.
    pub fn after(trace: &'a Trace, learned: &Learned) -> Self {
        let mut replay = Self::new(trace);
        for resource in &trace.judged {
            let (name, cores) = (resource.label(), trace.cores[resource.index()]);
            let Some(known) = learned.of(name, cores) else {
                continue;
            };
            for place in 0..trace.classes {
                if let Some(class) = known(&place.to_string()) {
                    let id = ResourceId(resource.index() as u16);
                    replay.discovery.recall(id, Trace::class(place), class);
                }
            }
        }
        replay
    }

    /// What was learned so far, at this moment of the Unix clock.
    pub fn learned(&self, unix_seconds: u64) -> Learned {
        let mut learned = Learned::default();
        for resource in &self.trace.judged {
            let known = self.discovery.learned(ResourceId(resource.index() as u16));
            let named = known
                .into_iter()
                .map(|(class, known)| (class.0.to_string(), known));
            let (name, cores) = (resource.label(), self.trace.cores[resource.index()]);
            learned.note(name, cores, named, unix_seconds);
        }
        learned
    }

    fn tell_until(&mut self, now: Timestamp) {
        let requests = &self.trace.requests;
        while let Some(place) = self.by_end.get(self.told) {
            let request = requests[*place as usize];
            if request.ended.is_none_or(|ended| ended > now) {
                break;
            }
            self.discovery.on_request(&request);
            self.told += 1;
        }
        while requests.get(self.sent).is_some_and(|it| it.sent <= now) {
            self.open.push(self.sent as u32);
            self.sent += 1;
        }
        let ended = |place: &u32| {
            requests[*place as usize]
                .ended
                .is_some_and(|ended| ended <= now)
        };
        self.open.retain(|place| !ended(place));
        self.discovery.forget_unfinished();
        for place in &self.open {
            let request = Request {
                ended: None,
                ..requests[*place as usize]
            };
            self.discovery.on_request(&request);
        }
        // A reading is handed over when it was made, whatever its clock says.
        let readings = ((now.nanos() - self.trace.at(0.0).nanos()) / 10_000_000) as usize + 1;
        for resource in &self.trace.judged {
            let points = &self.trace.usage[resource.index()];
            let new = self.read.min(points.len())..readings.min(points.len());
            for point in &points[new] {
                self.discovery
                    .on_usage(ResourceId(resource.index() as u16), *point);
            }
        }
        self.read = readings;
    }
}

impl Iterator for Replay<'_> {
    type Item = Evaluation;

    fn next(&mut self) -> Option<Evaluation> {
        self.turns += 1;
        let at = f64::from(self.turns) * EVERY.as_secs_f64();
        if at > self.trace.length + 1e-9 {
            return None;
        }
        let now = self.trace.at(at);
        self.tell_until(now);
        let verdicts = self
            .trace
            .judged
            .iter()
            .map(|resource| {
                let id = ResourceId(resource.index() as u16);
                (*resource, self.discovery.evaluate(now, id))
            })
            .collect();
        Some(Evaluation { at, verdicts })
    }
}
