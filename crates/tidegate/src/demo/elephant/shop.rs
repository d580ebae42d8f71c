//! The shop: its nodes, its pages, and which page is asked for when.
//!
//! ```text
//! rate of the page of rank k  ~  1 / k^0.9                 Poisson, from the start
//! demand of a request         exponential around the page's mean
//! all pages together          40 % of the nodes' CPUs
//! the heavy class             66 %, each request 40 times the mean of all others, from some moment on
//! ```
//!
//! No page but the heavy class is dear and frequent at once, so no other class is to blame. What the discovery
//! gets of all this is what any front-end sees: URLs, times, and the nodes' records.

use std::net::SocketAddr;
use std::time::Duration;

use http::Request;
use http::header::HOST as HOST_HEADER;
use tidegate_core::admission::AdmissionConfig;
use tidegate_core::policy::{PolicyConfig, PolicyKind};
use tidegate_core::prng::Prng;
use tidegate_core::throttle::ClassPattern;
use tidegate_core::topology::{Capacity, ClusterSpec, NodeSpec, SiteId, SiteSpec};
use tidegate_emulator::WORK_HEADER;
use tidegate_emulator::load::NoBody;
use tidegate_sim::model::Stream;

use super::super::visitors::{Visit, exponential, poisson};

/// Kinds of requests.
pub(super) const OTHERS: usize = 0;
pub(super) const HEAVY: usize = 1;
/// The site's name and host.
const SITE: &str = "shop";
const HOST: &str = "shop.demo";
/// Nodes: name, CPUs.
pub(super) const NODES: [(&str, u32); 4] =
    [("shop-1", 2), ("shop-2", 2), ("shop-3", 2), ("shop-4", 2)];
/// Load as a share of all CPUs.
const LOAD: f64 = 0.40;
const ELEPHANT_LOAD: f64 = 0.66;
/// Demand of a heavy request, in means of all others.
const ELEPHANT_TIMES: f64 = 40.0;
/// Exponent of the rates.
const ZIPF: f64 = 0.9;

/// One page.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) method: &'static str,
    /// `{n}` stands for a number, `{word}` for a word, `{date}` for a day.
    url: &'static str,
    /// Mean demand, milliseconds.
    demand_ms: f64,
}

const fn page(method: &'static str, url: &'static str, demand_ms: f64) -> Page {
    Page {
        method,
        url,
        demand_ms,
    }
}

/// By rank.
const PAGES: [Page; 16] = [
    page("GET", "/img/items/{n}.jpg", 1.0),
    page("GET", "/item/{n}", 6.0),
    page("GET", "/", 5.0),
    page("GET", "/search?q={word}", 6.0),
    page("GET", "/static/site.css", 1.0),
    page("GET", "/static/app.js", 1.0),
    page("GET", "/category/{n}?page={n}", 7.0),
    page("GET", "/cart", 4.0),
    page("GET", "/item/{n}/reviews", 7.0),
    page("GET", "/api/stock/{n}", 2.0),
    page("POST", "/cart", 5.0),
    page("GET", "/account", 6.0),
    page("GET", "/account/orders", 10.0),
    page("GET", "/help/{word}", 3.0),
    page("GET", "/invoice/{n}", 12.0),
    page("POST", "/checkout", 15.0),
];
const ELEPHANT: Page = page("GET", "/report/{date}", 0.0);
const WORDS: [&str; 6] = ["kettle", "lamp", "chair", "tent", "rope", "clock"];

/// A request that will be sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Arrival {
    /// When, since the start.
    pub(super) at: Duration,
    /// The page's rank from 0 on; none is the heavy class.
    page: Option<usize>,
    /// What the URL's places are filled with.
    number: usize,
    /// CPU time that it wants.
    pub(super) demand: Duration,
}

impl Arrival {
    fn is_elephant(&self) -> bool {
        self.page.is_none()
    }

    fn of(&self) -> &'static Page {
        self.page.map_or(&ELEPHANT, |rank| &PAGES[rank])
    }
}

impl Visit for Arrival {
    fn at(&self) -> Duration {
        self.at
    }

    fn kind(&self) -> usize {
        match self.is_elephant() {
            true => HEAVY,
            false => OTHERS,
        }
    }

    fn request(&self) -> http::Result<Request<NoBody>> {
        let page = self.of();
        Request::builder()
            .method(page.method)
            .uri(page.target(self.number))
            .header(HOST_HEADER, HOST)
            .header(WORK_HEADER, format!("cpu={}us", self.demand.as_micros()))
            .body(NoBody::new())
    }
}

impl Page {
    fn target(&self, number: usize) -> String {
        let word = WORDS[number % WORDS.len()];
        let date = format!("2024-05-{:02}", number % 28 + 1);
        let url = self.url.replace("{n}", &number.to_string());
        url.replace("{word}", word).replace("{date}", &date)
    }
}

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shop {
    /// Demands are this many times longer and requests as many times rarer than on a fast machine.
    pub(super) stretch: f64,
}

impl Shop {
    /// CPUs of all nodes.
    pub(super) fn cpus() -> f64 {
        NODES.iter().map(|(_, cores)| f64::from(*cores)).sum()
    }

    /// Mean demand of a request that is not heavy.
    pub(super) fn mean_demand(&self) -> Duration {
        let weights: f64 = weights_of_pages().sum();
        let demands = PAGES.iter().zip(weights_of_pages());
        let sum: f64 = demands.map(|(page, weight)| page.demand_ms * weight).sum();
        Duration::from_secs_f64(sum / weights * 1e-3 * self.stretch)
    }

    /// Mean demand of a heavy request.
    pub(super) fn elephant_demand(&self) -> Duration {
        self.mean_demand().mul_f64(ELEPHANT_TIMES)
    }

    /// Requests per second without the heavy class.
    pub(super) fn rate(&self) -> f64 {
        LOAD * Self::cpus() / self.mean_demand().as_secs_f64()
    }

    /// Heavy requests per second.
    pub(super) fn elephant_rate(&self) -> f64 {
        ELEPHANT_LOAD * Self::cpus() / self.elephant_demand().as_secs_f64()
    }

    /// All requests for `length`, heavy requests from `injected` on, in the order in which they are due.
    pub(super) fn arrivals(&self, seed: u64, injected: Duration, length: Duration) -> Vec<Arrival> {
        let mut arrivals = self.pages(&mut Stream::Requests(0).prng(seed), length);
        let mut prng = Stream::Requests(1).prng(seed);
        let mean = self.elephant_demand().as_secs_f64();
        for at in poisson(self.elephant_rate(), injected, length, &mut prng) {
            arrivals.push(Arrival {
                at,
                page: None,
                number: prng.below(1000),
                demand: exponential(mean, &mut prng),
            });
        }
        arrivals.sort_by_key(|arrival| arrival.at);
        arrivals
    }

    fn pages(&self, prng: &mut Prng, length: Duration) -> Vec<Arrival> {
        let weights: Vec<f64> = weights_of_pages().collect();
        let all: f64 = weights.iter().sum();
        let times = poisson(self.rate(), Duration::ZERO, length, prng);
        let mut arrivals = Vec::with_capacity(times.len());
        for at in times {
            let mut place = prng.unit() * all;
            let rank = weights.iter().position(|weight| {
                place -= weight;
                place < 0.0
            });
            let rank = rank.unwrap_or(0);
            let mean = PAGES[rank].demand_ms * 1e-3 * self.stretch;
            arrivals.push(Arrival {
                at,
                page: Some(rank),
                number: prng.below(1000),
                demand: exponential(mean, prng),
            });
        }
        arrivals
    }

    /// As the front-end is configured.
    pub(super) fn spec(addresses: &[SocketAddr]) -> ClusterSpec {
        let nodes = NODES.iter().zip(addresses);
        let nodes = nodes.map(|((name, _), address)| NodeSpec {
            name: (*name).into(),
            address: *address,
            site: SiteId(0),
            weight: 1.0,
            capacity: Capacity::default(),
        });
        ClusterSpec {
            sites: vec![SiteSpec {
                name: SITE.into(),
                hosts: vec![HOST.into()],
                paths: Vec::new(),
                policy: PolicyConfig::new(PolicyKind::Auto),
                admission: AdmissionConfig::default(),
                health: Default::default(),
            }],
            nodes: nodes.collect(),
            groups: Vec::new(),
            front_ends: 1,
        }
    }

    /// Whether a class that was named is the heavy one: all of its requests, and no others.
    pub(super) fn is_elephant(pattern: &str) -> bool {
        let Ok(class) = pattern.parse::<ClassPattern>() else {
            return false;
        };
        let has = |page: &Page| {
            let target = page.target(17);
            class.matches(SITE, page.method, &target)
        };
        has(&ELEPHANT) && !PAGES.iter().any(has)
    }

    /// What was made, for people.
    pub(super) fn describe(&self, seed: u64) -> String {
        format!(
            "shop:    one site of {} pages on {} emulated nodes with {:.0} CPUs together, behind one front-end \
             with policy auto\nload:    {:.0} requests/s (open loop, Poisson, seed {seed}), {:.1} ms of CPU each \
             on the average: {:.0} % of the CPUs",
            PAGES.len(),
            NODES.len(),
            Self::cpus(),
            self.rate(),
            self.mean_demand().as_secs_f64() * 1e3,
            LOAD * 100.0,
        )
    }

    /// The heavy class, for people.
    pub(super) fn describe_elephant(&self) -> String {
        format!(
            "{:.1} requests/s more, of one class and {:.0} ms of CPU each: the CPUs are {:.0} % loaded",
            self.elephant_rate(),
            self.elephant_demand().as_secs_f64() * 1e3,
            (LOAD + ELEPHANT_LOAD) * 100.0
        )
    }
}

fn weights_of_pages() -> impl Iterator<Item = f64> {
    (1..=PAGES.len()).map(|rank| (rank as f64).powf(-ZIPF))
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Duration = Duration::from_secs(50);
    const LENGTH: Duration = Duration::from_secs(200);

    /// CPUs that arrivals want between two moments.
    fn load(arrivals: &[Arrival], from: Duration, to: Duration) -> f64 {
        let due = arrivals.iter().filter(|it| it.at >= from && it.at < to);
        let wanted: f64 = due.map(|it| it.demand.as_secs_f64()).sum();
        wanted / (to - from).as_secs_f64() / Shop::cpus()
    }

    #[test]
    fn the_load_is_as_it_is_told_whatever_the_machine() {
        for stretch in [1.0, 4.0] {
            let shop = Shop { stretch };
            let arrivals = shop.arrivals(1, QUIET, LENGTH);
            assert!(arrivals.is_sorted_by_key(|it| it.at));
            assert!((load(&arrivals, Duration::ZERO, QUIET) - LOAD).abs() < 0.03);
            let full = load(&arrivals, QUIET, LENGTH);
            assert!((full - LOAD - ELEPHANT_LOAD).abs() < 0.07, "{full}");
            let mut early = arrivals.iter().take_while(|it| it.at < QUIET);
            assert!(!early.any(Arrival::is_elephant));
        }
    }

    #[test]
    fn a_seed_gives_the_same_arrivals() {
        let shop = Shop { stretch: 1.0 };
        let of = |seed| shop.arrivals(seed, QUIET, QUIET + Duration::from_secs(1));
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
    }

    #[test]
    fn nobody_but_the_elephant_is_dear_and_frequent() {
        let mean = Shop { stretch: 1.0 }.mean_demand().as_secs_f64() * 1e3;
        let all: f64 = weights_of_pages().sum();
        for (page, weight) in PAGES.iter().zip(weights_of_pages()) {
            let lift = page.demand_ms / mean;
            let share = LOAD * lift * weight / all;
            assert!(lift < 1.75 || share < 0.032, "{}: {lift} {share}", page.url);
        }
    }

    #[test]
    fn the_elephants_class_is_told_from_others() {
        for (class, expected) in [
            ("GET /report/{date}", true),
            ("GET /report/{date}?", true),
            ("GET /report/{date}?format", false),
            ("GET /report/*", true),
            ("POST /report/{date}", false),
            ("GET /*", false),
            ("GET /item/{n}", false),
            ("other", false),
        ] {
            assert_eq!(Shop::is_elephant(class), expected, "{class}");
        }
        assert_eq!(ELEPHANT.target(30), "/report/2024-05-03");
        assert_eq!(PAGES[3].target(1), "/search?q=lamp");
    }
}
