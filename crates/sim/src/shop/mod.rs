//! A shop of two tiers behind one front-end: admission, discovery of culprits and `automatic` together.
//!
//! ```text
//! clients ──> throttle ──> Picker, WaitQueue ──> web CPU ──> database CPU ──> web CPU ──> answer
//!                ^            ^ limits               │ records       │ counters
//!                │            └──────── Director <───┘               │
//!                └── Automatic <── verdicts <── Discovery <──────────┘
//! ```
//!
//! All that decides is the core, unchanged; what a shell does between its parts is modelled here. The
//! database is read as a resource each 10 ms, the web server's record as often as the shop says.
//!
//! Known to be unlike real sites: no locks (but for one class's answers that others rest on), no disks, no connections, fair processors, one server.

mod front;
mod server;
mod tally;

use std::time::Duration;

use tidegate_core::admission::AdmissionConfig;
use tidegate_core::prng::Prng;
use tidegate_core::throttle::AutoConfig;
use tidegate_core::time::Timestamp;

use front::Front;
use server::Server;
pub use tally::{ClassSummary, ShopRun};

/// Virtual time at the start.
const START: Timestamp = Timestamp::from_millis(1000);
/// Between two looks of the front-end.
const TICK: Duration = Duration::from_millis(1);

/// How clients of a class come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Come {
    /// Independently, so many per second.
    Open(f64),
    /// So many, each of which thinks for so long on the average between an answer and its next request.
    Closed(u32, Duration),
}

/// A class of requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Class {
    /// Its path.
    pub path: &'static str,
    /// How its clients come.
    pub come: Come,
    /// From when on, and until when.
    pub from: Duration,
    /// See there.
    pub until: Duration,
    /// CPU time at the web server.
    pub web: Duration,
    /// Mean CPU time at the database; zero: it does not go there. Half of it is the same for all, the
    /// rest exponential.
    pub database: Duration,
    /// Mean time that it waits at the web server for something else before that, in the same way.
    pub elsewhere: Duration,
}

/// What one class works out for all others, which do it by themselves once it is too old.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cache {
    /// The class that renews it, by each of its answers.
    pub renewed_by: usize,
    /// How long it lasts.
    pub lasts: Duration,
    /// How much more others ask the database for without it. Before the first of those requests they need none.
    pub cold: f64,
}

/// What the front-end sees of the site.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sight {
    /// Whether the web server's record does not show requests that wait for a worker, as where a server in front of the
    /// workers has accepted them all.
    pub hidden_queue: bool,
    /// Between two records of the web server; zero: each is made as it is read.
    pub record_every: Duration,
    /// Over which time what a class has in flight is a mean; zero: it is that of the moment.
    pub smoothed_over: Duration,
    /// Whether a request whose answer is overdue may rest, see [`tidegate_core::picker::Picker::rest`].
    pub overdue_rest: bool,
}

impl Sight {
    /// All of it at once.
    pub const EXACT: Self = Self {
        hidden_queue: false,
        record_every: Duration::ZERO,
        smoothed_over: Duration::ZERO,
        overdue_rest: false,
    };
    /// As in the lab's `elephants`.
    pub const REAL: Self = Self {
        hidden_queue: true,
        record_every: Duration::from_millis(10),
        smoothed_over: Duration::from_secs(5),
        overdue_rest: true,
    };
}

/// A run.
#[derive(Clone, Debug, PartialEq)]
pub struct Shop {
    /// Its classes of requests.
    pub classes: Vec<Class>,
    /// What others wait for one class for.
    pub cache: Option<Cache>,
    /// CPUs of the web server, and of the database.
    pub cpus: [f64; 2],
    /// Requests that the web server works on at once; the others wait there, in order of arrival.
    pub workers: u32,
    /// What the front-end sees of it.
    pub sight: Sight,
    /// What the front-end lets in.
    pub admission: AdmissionConfig,
    /// Whether it slows culprits by itself.
    pub automatic: Option<AutoConfig>,
    /// Length.
    pub length: Duration,
    /// Everything random follows from it.
    pub seed: u64,
}

/// When dear requests set in at the [`auction`].
pub const ONSET: Duration = Duration::from_secs(60);

/// An auction site: pictures, pages that ask the database for a little, forms that ask for nothing; after a
/// minute searches set in, whose clients could fill the database three times over.
pub fn auction(admission: AdmissionConfig, automatic: Option<AutoConfig>, seed: u64) -> Shop {
    let class = |path, come, web, database| Class {
        path,
        come,
        from: Duration::ZERO,
        until: Duration::MAX,
        web: Duration::from_micros(web),
        database: Duration::from_micros(database),
        elsewhere: Duration::ZERO,
    };
    Shop {
        classes: vec![
            class("/static/logo.png", Come::Open(60.0), 300, 0),
            class("/sell.php", Come::Open(10.0), 2000, 0),
            class("/browse.php", Come::Open(60.0), 2500, 4000),
            class("/item.php", Come::Open(50.0), 2500, 3000),
            Class {
                from: ONSET,
                ..class("/search.php", search(100), 3000, 66_000)
            },
        ],
        cache: None,
        cpus: [2.0, 2.0],
        workers: u32::MAX,
        sight: Sight::EXACT,
        admission,
        automatic,
        length: Duration::from_secs(240),
        seed,
    }
}

/// The auction site of the lab's `elephants`: a database that searches fill from the first second on, and 1500 clients
/// that think for 7 s.
pub fn worn_out(admission: AdmissionConfig, automatic: Option<AutoConfig>, seed: u64) -> Shop {
    let class = |path, clients, web, database| Class {
        path,
        come: Come::Closed(clients, Duration::from_secs(7)),
        from: Duration::ZERO,
        until: Duration::MAX,
        web: Duration::from_micros(web),
        database: Duration::from_micros(database),
        elsewhere: Duration::ZERO,
    };
    Shop {
        classes: vec![
            class("/static/logo.png", 200, 300, 0),
            class("/sell.php", 100, 500, 100),
            class("/browse.php", 500, 500, 300),
            class("/item.php", 400, 500, 500),
            class("/search/category", 200, 500, 36_000),
            class("/search/region", 100, 500, 28_000),
            class("/search/all", 2, 500, 700_000),
        ],
        cache: None,
        cpus: [0.2, 0.75],
        workers: u32::MAX,
        sight: Sight::EXACT,
        admission,
        automatic,
        length: Duration::from_secs(120),
        seed,
    }
}

/// The same site with 80 workers of the web server and so many searchers: let in, searches take the workers, and
/// hundreds of requests wait for one, of which a record each 10 ms shows nothing.
pub fn queueing(
    searchers: u32,
    admission: AdmissionConfig,
    automatic: Option<AutoConfig>,
    seed: u64,
) -> Shop {
    let mut shop = worn_out(admission, automatic, seed);
    let think = Duration::from_secs(7);
    shop.classes[4].come = Come::Closed(searchers * 2 / 3, think);
    shop.classes[5].come = Come::Closed(searchers / 3, think);
    shop.classes[4].database = Duration::from_millis(28);
    shop.classes[5].database = Duration::from_millis(21);
    shop.classes[6].database = Duration::from_millis(590);
    Shop {
        workers: 80,
        sight: Sight::REAL,
        ..shop
    }
}

/// The same site with a page that waits for something else, longer than any search takes, and uses nothing: where lives
/// alone show what fills the database, it looks most guilty.
pub fn misleading(admission: AdmissionConfig, automatic: Option<AutoConfig>, seed: u64) -> Shop {
    let mut shop = worn_out(admission, automatic, seed);
    shop.classes.push(Class {
        path: "/browse/category",
        come: Come::Closed(60, Duration::from_secs(7)),
        elsewhere: Duration::from_millis(600),
        ..shop.classes[2]
    });
    shop
}

/// An auction site with more visitors than its database bears, of pages that all cost the same: none is a culprit.
pub fn overloaded(admission: AdmissionConfig, automatic: Option<AutoConfig>, seed: u64) -> Shop {
    let mut shop = worn_out(admission, automatic, seed);
    shop.classes.truncate(4);
    for class in &mut shop.classes {
        class.come = Come::Closed(400, Duration::from_secs(7));
        class.database = Duration::from_millis(6);
    }
    shop
}

/// Pages of the [`stocktaking`] shop.
const PAGES: [&str; 10] = ["/a", "/b", "/c", "/d", "/e", "/f", "/g", "/h", "/i", "/j"];

/// A shop of ten pages that ask the database for a little, as long as its stock was counted a moment ago; else each
/// counts for itself. After a minute requests for counting set in that fill the database: slowing them makes it worse
/// for all others.
pub fn stocktaking(admission: AdmissionConfig, automatic: Option<AutoConfig>, seed: u64) -> Shop {
    let count = Class {
        path: "/stock/count",
        come: Come::Closed(28, Duration::from_secs(1)),
        from: ONSET,
        until: Duration::MAX,
        web: Duration::from_millis(400),
        database: Duration::from_millis(80),
        elsewhere: Duration::ZERO,
    };
    let pages = PAGES.map(|path| Class {
        path,
        come: Come::Open(12.0),
        from: Duration::ZERO,
        web: Duration::from_micros(2500),
        database: Duration::from_micros(3250),
        ..count
    });
    Shop {
        classes: [&[count], &pages[..]].concat(),
        cache: Some(Cache {
            renewed_by: 0,
            lasts: Duration::from_millis(150),
            cold: 5.5,
        }),
        cpus: [40.0, 2.0],
        workers: u32::MAX,
        sight: Sight::EXACT,
        admission,
        automatic,
        length: ONSET + Duration::from_secs(120),
        seed,
    }
}

/// Clients that search each second or so.
fn search(clients: u32) -> Come {
    Come::Closed(clients, Duration::from_millis(1200))
}

/// Runs it; what became of each request.
pub fn run(shop: &Shop) -> ShopRun {
    let mut world = World {
        shop,
        now: START,
        prng: Prng::new(Prng::new(shop.seed).bits()),
        front: Front::new(shop),
        server: Server::new(shop, START),
        coming: Vec::new(),
        tally: ShopRun::new(START, shop.classes.len()),
        requests: Vec::new(),
        renewed: None,
    };
    world.run();
    world.tally.say(std::mem::take(&mut world.front.said));
    world.tally
}

/// A request on its way.
#[derive(Clone, Copy, Debug)]
struct Request {
    class: usize,
    arrived: Timestamp,
}

struct World<'a> {
    shop: &'a Shop,
    now: Timestamp,
    prng: Prng,
    front: Front,
    server: Server,
    /// When a request of a class comes.
    coming: Vec<(Timestamp, usize)>,
    tally: ShopRun,
    /// By number.
    requests: Vec<Request>,
    /// When the cache was last renewed.
    renewed: Option<Timestamp>,
}

impl World<'_> {
    fn run(&mut self) {
        for (number, class) in self.shop.classes.iter().enumerate() {
            let many = match class.come {
                Come::Open(_) => 1,
                Come::Closed(clients, _) => clients,
            };
            (0..many).for_each(|_| self.schedule(number, START + class.from));
        }
        let (end, mut tick) = (START + self.shop.length, START + TICK);
        while self.now < end {
            let next = self.coming.iter().map(|it| it.0).min();
            let server = self.server.next();
            let at = next.into_iter().chain(server).fold(tick, Timestamp::min);
            self.now = at.max(self.now);
            self.server.advance(self.now);
            while let Some(number) = self.server.poll_ended() {
                self.front.handle_end(number, self.now);
                self.finish(number, true);
            }
            while let Some(place) = self.coming.iter().position(|it| it.0 <= self.now) {
                let (_, class) = self.coming.swap_remove(place);
                self.arrive(class);
            }
            if self.now >= tick {
                tick = self.now + TICK;
                self.front.handle_tick(&mut self.server, self.now);
            }
            self.dispatch();
        }
    }

    fn arrive(&mut self, class: usize) {
        if let Come::Open(_) = self.shop.classes[class].come {
            self.schedule(class, self.now);
        }
        let number = self.requests.len();
        let arrived = self.now;
        self.requests.push(Request { class, arrived });
        self.front.handle_request(number as u64, class, self.now);
    }

    /// Sends what the front-end lets on, and ends what it refuses.
    fn dispatch(&mut self) {
        while let Some((number, admitted)) = self.front.poll(self.now) {
            if !admitted {
                self.finish(number, false);
                continue;
            }
            let place = self.requests[number as usize].class;
            let class = &self.shop.classes[place];
            let database = class.database.mul_f64(self.coldness(place));
            let (database, elsewhere) = (self.draw(database), self.draw(class.elsewhere));
            let stations = [class.web, elsewhere, database];
            self.server.begin(number, stations, self.now);
        }
    }

    /// A time with this mean, half of which is always the same.
    fn draw(&mut self, mean: Duration) -> Duration {
        let half = mean.as_secs_f64() / 2.0;
        match mean.is_zero() {
            true => Duration::ZERO,
            false => Duration::from_secs_f64(half + self.prng.exponential(half)),
        }
    }

    /// How much more of the database a request of this class needs now than with a cache.
    fn coldness(&self, class: usize) -> f64 {
        let cache = self.shop.cache.filter(|it| it.renewed_by != class);
        let is_cold = |it: &Cache| {
            let since = self.renewed.map(|at| self.now.since(at));
            since.is_some_and(|since| since > it.lasts)
        };
        cache.filter(is_cold).map_or(1.0, |it| it.cold)
    }

    fn finish(&mut self, number: u64, served: bool) {
        let Request { class, arrived } = self.requests[number as usize];
        if served && self.shop.cache.is_some_and(|it| it.renewed_by == class) {
            self.renewed = Some(self.now);
        }
        let took = served.then(|| self.now.since(arrived));
        self.tally.add(class, arrived, took);
        if let Come::Closed(..) = self.shop.classes[class].come {
            self.schedule(class, self.now);
        }
    }

    /// The next request of a client of this class.
    fn schedule(&mut self, class: usize, from: Timestamp) {
        let plan = &self.shop.classes[class];
        let pause = match plan.come {
            Come::Open(rate) => 1.0 / rate,
            Come::Closed(_, think) => think.as_secs_f64(),
        };
        let at = from + Duration::from_secs_f64(self.prng.exponential(pause));
        if at.since(START) < plan.until {
            self.coming.push((at, class));
        }
    }
}
