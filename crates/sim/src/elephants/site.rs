//! What a simulated site consists of: classes, what their requests do and when they come, what goes
//! on beside them.

/// How the work of a class's requests scatters around its mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Noise {
    Exponential,
    /// With this sigma.
    LogNormal(f64),
    /// From half to one and a half of the mean.
    Uniform,
}

/// When requests of a class come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Comes {
    /// At random, so many a second on the average, times what all share.
    Rate(f64),
    /// Every so many seconds, each as much too early or late as `jitter` says (standard deviation).
    Every {
        period: f64,
        jitter: f64,
        phase: f64,
    },
    /// After a request of another class was sent (or ended), with this probability, after `delay`
    /// seconds on the average (exponential above `least`).
    With {
        class: u16,
        chance: f64,
        least: f64,
        delay: f64,
        after: bool,
    },
    /// Sent and ended with each request of another class, and doing nothing itself.
    Twin { of: u16 },
}

/// A class of requests. Times are means in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Class {
    pub(super) comes: Comes,
    pub(super) noise: Noise,
    /// Work of the web servers, half of it before and half after the rest.
    pub(super) web: f64,
    /// Waits for something else before the database and after it.
    pub(super) wait_before: f64,
    pub(super) wait_after: f64,
    /// A wait after the database that is always as long: a download at a set pace.
    pub(super) paced: f64,
    /// Work of the database.
    pub(super) db: f64,
    /// Rounds of waiting, working and waiting that the database's work is split into, one after the other.
    pub(super) rounds: u8,
    /// Queries that the work is split into, which run side by side.
    pub(super) parallel: u8,
    /// Work of the disk.
    pub(super) disk: f64,
    /// The database's work comes so long after the reply, from and to.
    pub(super) behind: Option<(f64, f64)>,
    /// How long the client takes to read the answer, which the log shows as life.
    pub(super) client: f64,
    /// From when on the class is what it is, and what part of its rate and work it has before.
    pub(super) onset: Option<Onset>,
}

/// See [`Class::onset`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Onset {
    pub(super) at: f64,
    pub(super) rate: f64,
    pub(super) work: f64,
}

/// What multiplies the rates of all classes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Traffic {
    Even,
    /// A crowd: rates of all but elephants times `times` from `at` on for `length` seconds.
    Crowd {
        at: f64,
        length: f64,
        times: f64,
    },
    /// 1 + amplitude x sine.
    Wave {
        period: f64,
        amplitude: f64,
        phase: f64,
    },
    /// Bursts: `times` as much, for `length` seconds on the average, every `gap`.
    Bursts {
        times: f64,
        length: f64,
        gap: f64,
    },
}

/// Work of the database that no request asked for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Background {
    /// Jobs at random; their rate wanders (a mean-reverting walk, correlated over `lasts` seconds).
    Wandering { rate: f64, work: f64, lasts: f64 },
    /// A job every `period` seconds.
    Cron { period: f64, phase: f64, work: f64 },
    /// So many jobs at once, again and again from a time on, as a compiler's: `work` of each is a mean.
    Builds {
        from: f64,
        every: f64,
        many: usize,
        work: f64,
    },
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Site {
    pub(super) classes: Vec<Class>,
    pub(super) traffic: Traffic,
    /// Places of classes that a crowd or a burst does not change.
    pub(super) steady: Vec<u16>,
    pub(super) background: Vec<Background>,
    pub(super) web_cores: f64,
    pub(super) db_cores: f64,
    /// Part of them that can be used at the most: the rest goes to locks, or to waits for what is not measured.
    pub(super) db_usable: f64,
    /// Connections of the database's pool.
    pub(super) pool: Option<usize>,
    /// Requests in flight from which on others are turned away.
    pub(super) in_flight_max: usize,
    /// The work of the database is times 1 + excess x e^(-t / tau): a cache that warms up.
    pub(super) warm_up: Option<(f64, f64)>,
    /// How far the resources' clocks are ahead, seconds.
    pub(super) skew: f64,
    /// Part of the requests that the log has lost.
    pub(super) lost: f64,
    pub(super) seconds: f64,
    /// From when on elephants count as there.
    pub(super) onset: f64,
    /// Whether web servers and disk are judged too.
    pub(super) all_tiers: bool,
}
