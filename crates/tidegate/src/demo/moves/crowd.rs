//! Two sites that share a cluster, and a crowd that comes to one of them.
//!
//! ```text
//! load, as a part of the CPUs that a site has to itself      shop   blog
//! quiet    few come to either                                0.30   0.25
//! crowd    the shop is asked for more than its nodes can do  1.35   0.20
//! back     the crowd has gone, and the blog's readers come   0.25   0.80
//! ```
//!
//! Poisson arrivals, exponential demands. With all nodes that the blog can spare the shop is 84 % loaded in the crowd. In the
//! last phase the blog needs its own nodes again. The same arrivals come to both arms.

use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use http::Request;
use http::header::HOST;
use tidegate_emulator::WORK_HEADER;
use tidegate_emulator::load::NoBody;
use tidegate_sim::model::Stream;

use super::super::visitors::{Visit, exponential, poisson};

/// The sites; requests are of the kind that is the site's place.
pub(super) const SITES: [&str; 2] = ["shop", "blog"];
/// Names of the phases.
pub(super) const PHASES: [&str; 3] = ["quiet", "crowd", "back"];
/// Load by phase and site.
const LOADS: [[f64; 2]; 3] = [[0.30, 0.25], [1.35, 0.20], [0.25, 0.80]];
/// Nodes of a site, and CPUs of a node.
pub(super) const NODES_EACH: usize = 5;
const CPUS_EACH: u32 = 2;
/// A site keeps so many nodes and takes no more than so many.
const FLOOR: usize = 2;
const CEILING: usize = 2 * NODES_EACH - FLOOR;
/// Mean demand of a request before it is stretched for a slow machine.
const MEAN_DEMAND: Duration = Duration::from_millis(20);
/// The longest quiet time, crowd and time after it; and their parts of a shorter run.
const LONGEST: [Duration; 3] = [
    Duration::from_secs(4),
    Duration::from_secs(11),
    Duration::from_secs(12),
];

/// When the phases of a run begin and end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Schedule {
    ends: [Duration; 3],
}

impl Schedule {
    /// For so much time.
    pub(super) fn of(left: Duration) -> Self {
        let longest: Duration = LONGEST.iter().sum();
        let part = (left.as_secs_f64() / longest.as_secs_f64()).min(1.0);
        let mut end = Duration::ZERO;
        let ends = LONGEST.map(|length| {
            end += length.mul_f64(part);
            end
        });
        Self { ends }
    }

    /// From when to when a phase lasts.
    pub(super) fn phase(&self, phase: usize) -> (Duration, Duration) {
        let from = phase
            .checked_sub(1)
            .map_or(Duration::ZERO, |before| self.ends[before]);
        (from, self.ends[phase])
    }

    /// The phase that it is at a moment.
    pub(super) fn at(&self, now: Duration) -> usize {
        let last = PHASES.len() - 1;
        self.ends.iter().position(|end| now < *end).unwrap_or(last)
    }

    /// When the last request is due.
    pub(super) fn end(&self) -> Duration {
        self.ends[PHASES.len() - 1]
    }
}

/// A request that will be sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Arrival {
    at: Duration,
    site: usize,
    demand: Duration,
}

impl Visit for Arrival {
    fn at(&self) -> Duration {
        self.at
    }

    fn kind(&self) -> usize {
        self.site
    }

    fn request(&self) -> http::Result<Request<NoBody>> {
        Request::builder()
            .uri("/")
            .header(HOST, host(SITES[self.site]))
            .header(WORK_HEADER, format!("cpu={}us", self.demand.as_micros()))
            .body(NoBody::new())
    }
}

fn host(site: &str) -> String {
    format!("{site}.demo")
}

/// Nodes: name, CPUs.
pub(super) fn nodes() -> impl Iterator<Item = (String, u32)> {
    let numbered =
        |site| (1..=NODES_EACH).map(move |number| (format!("{site}-{number}"), CPUS_EACH));
    SITES.into_iter().flat_map(numbered)
}

/// CPUs of all nodes.
pub(super) fn cpus() -> f64 {
    (SITES.len() * NODES_EACH) as f64 * f64::from(CPUS_EACH)
}

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Crowd {
    /// Demands are this many times longer and requests as many times rarer than on a fast machine.
    pub(super) stretch: f64,
}

impl Crowd {
    /// Mean demand of a request.
    pub(super) fn mean_demand(&self) -> Duration {
        MEAN_DEMAND.mul_f64(self.stretch)
    }

    /// Requests per second for a site in a phase.
    pub(super) fn rate(&self, phase: usize, site: usize) -> f64 {
        let own = NODES_EACH as f64 * f64::from(CPUS_EACH);
        LOADS[phase][site] * own / self.mean_demand().as_secs_f64()
    }

    /// The most requests per second for both sites.
    pub(super) fn rate_max(&self) -> f64 {
        let rates = (0..PHASES.len()).map(|phase| self.rate(phase, 0) + self.rate(phase, 1));
        rates.fold(0.0, f64::max)
    }

    /// All requests, in the order in which they are due; a seed gives the same ones every time.
    pub(super) fn arrivals(&self, seed: u64, schedule: &Schedule) -> Vec<Arrival> {
        let mean = self.mean_demand().as_secs_f64();
        let mut arrivals = Vec::new();
        for site in 0..SITES.len() {
            let mut prng = Stream::Requests(site as u32).prng(seed);
            for phase in 0..PHASES.len() {
                let (from, to) = schedule.phase(phase);
                for at in poisson(self.rate(phase, site), from, to, &mut prng) {
                    let demand = exponential(mean, &mut prng);
                    arrivals.push(Arrival { at, site, demand });
                }
            }
        }
        arrivals.sort_by_key(|arrival| arrival.at);
        arrivals
    }

    /// What was made, for people.
    pub(super) fn describe(&self, seed: u64, schedule: &Schedule) -> String {
        let mut text = format!(
            "cluster: two sites, each with {NODES_EACH} emulated nodes of {CPUS_EACH} CPUs, behind one front-end; a site keeps {FLOOR} \
             nodes\nload:    open loop, Poisson, seed {seed}, {:.0} ms of CPU a request on the average (exponential)",
            self.mean_demand().as_secs_f64() * 1e3
        );
        for (phase, name) in PHASES.iter().enumerate() {
            let (from, to) = schedule.phase(phase);
            let [shop, blog] = [0, 1].map(|site| self.rate(phase, site));
            // Writing to a string cannot fail.
            write!(
                text,
                "\n  {name:<6} {:>4.1} to {:>4.1} s: shop {shop:.0} requests/s, {:.0} % of what its own nodes can do; blog {blog:.0}, {:.0} %",
                from.as_secs_f64(),
                to.as_secs_f64(),
                LOADS[phase][0] * 100.0,
                LOADS[phase][1] * 100.0
            )
            .ok();
        }
        text
    }
}

/// The front-end's configuration file, by the files of the nodes' loads.
pub(super) fn file<'a>(
    moves: bool,
    nodes: impl Iterator<Item = (std::net::SocketAddr, &'a PathBuf)>,
) -> String {
    let mut text = format!(
        "[reconfigure]\nenabled = {moves}\n\n[limits]\nworkers = 1\n\n[load]\nrealtime = false\n\n[[listener]]\naddress = \"127.0.0.1:0\"\n"
    );
    for site in SITES {
        // Writing to a string cannot fail.
        write!(
            text,
            "\n[[site]]\nname = \"{site}\"\nhosts = [\"{}\"]\nadmission = {{ mode = \"off\" }}\nnodes = {{ min = {FLOOR}, max = {CEILING} }}\n",
            host(site)
        )
        .ok();
    }
    for (place, ((name, _), (address, region))) in self::nodes().zip(nodes).enumerate() {
        let (site, region) = (SITES[place / NODES_EACH], region.display());
        write!(
            text,
            "\n[[node]]\nname = \"{name}\"\naddress = \"{address}\"\nsite = \"{site}\"\nload = {{ transport = \"shm\", path = \"{region}\" }}\n"
        )
        .ok();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_run_has_all_phases_and_a_long_one_is_no_longer_than_can_be_watched() {
        let all = Schedule::of(Duration::from_secs(100));
        assert_eq!(all.end(), Duration::from_secs(27));
        assert_eq!(
            all.phase(1),
            (Duration::from_secs(4), Duration::from_secs(15))
        );
        let short = Schedule::of(Duration::from_millis(2700));
        assert_eq!(short.phase(2).1, short.end());
        assert_eq!(short.at(Duration::from_millis(399)), 0);
        assert_eq!(short.at(Duration::from_millis(1000)), 1);
        assert_eq!(short.at(Duration::from_secs(9)), 2);
    }

    #[test]
    fn a_seed_gives_the_same_arrivals_and_they_are_as_many_as_is_said() {
        let (crowd, schedule) = (
            Crowd { stretch: 2.0 },
            Schedule::of(Duration::from_secs(30)),
        );
        let arrivals = crowd.arrivals(1, &schedule);
        assert_eq!(arrivals, crowd.arrivals(1, &schedule));
        assert_ne!(arrivals, crowd.arrivals(2, &schedule));
        let (from, to) = schedule.phase(1);
        let shop = arrivals
            .iter()
            .filter(|it| it.site == 0 && it.at >= from && it.at < to);
        let wanted = crowd.rate(1, 0) * (to - from).as_secs_f64();
        assert!((shop.count() as f64 / wanted - 1.0).abs() < 0.1);
    }

    #[test]
    fn the_configuration_is_sound_and_says_whether_nodes_move() {
        let path = PathBuf::from("/dev/shm/node");
        let nodes = || (0..10).map(|port| (([127, 0, 0, 1], 8000 + port).into(), &path));
        for moves in [false, true] {
            let text = file(moves, nodes());
            let config = crate::config::Config::parse(&text, "demo", std::path::Path::new(""));
            let front_end = config.unwrap().front_end.unwrap();
            assert_eq!(front_end.reconfigure.is_some(), moves);
            assert_eq!(front_end.cluster.nodes.len(), 10);
        }
    }
}
