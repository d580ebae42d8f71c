//! What every engine promises: the same tests over words of one process, regions in shared memory, regions by UDP, and etcd.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use tidegate_core::moves::arrivals::NodeWatch;
use tidegate_core::moves::home::{HomeState, HomeWatch};
use tidegate_core::moves::lease::Patience;
use tidegate_core::moves::numbering::{Constitution, MovableNode, SiteRules};
use tidegate_core::moves::plan::{
    EventWindow, MovePlan, MoveView, MoveWish, NodeReading, SiteReading,
};
use tidegate_core::moves::steps::{Attempt, AttemptEnd};
use tidegate_core::moves::words::{
    Assignment, CONSTITUTION_WORD, Count24, LockState, MoveCause, NodeNumber, SiteLock, SiteNumber,
};
use tidegate_remote::udp::{Key, Responder, ResponderOptions};
use tidegate_remote::{LATE_MAX, RegionMemory, clock};

use super::*;
use crate::config::{EtcdHomeConfig, NodeRead, UseRdma};

const X: SiteNumber = SiteNumber(0);
const Y: SiteNumber = SiteNumber(1);
const NODES: u16 = 4;
const ETCD: &str = "/usr/bin/etcd";
/// So that no answer is late beside other tests.
const PATIENT: UdpOptions = UdpOptions {
    wait: Duration::from_millis(100),
    tries: 8,
};
/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

fn constitution() -> Constitution {
    let site = |name: &str| SiteRules {
        name: name.into(),
        floor: 1,
        ceiling: 4,
        priority: 0,
    };
    let node = |number| MovableNode {
        name: format!("n{number}"),
        home: if number == 0 { "x" } else { "y" }.into(),
    };
    let nodes = (0..NODES).map(node).collect();
    Constitution::new(vec![site("x"), site("y")], nodes, false, 1).unwrap()
}

/// A front-end's way to the words.
trait Front: Send {
    fn home(&mut self, sites: usize) -> Result<HomeWords, String>;
    fn atomic(&mut self, atomic: WordAtomic) -> MoveReply;
}

impl Front for Reached {
    fn home(&mut self, sites: usize) -> Result<HomeWords, String> {
        self.home.read(sites)
    }

    fn atomic(&mut self, atomic: WordAtomic) -> MoveReply {
        Self::atomic(self, atomic)
    }
}

impl Front for Arc<Mutex<MemoryWords>> {
    fn home(&mut self, _: usize) -> Result<HomeWords, String> {
        Ok(self.lock().unwrap().home(clock::now()))
    }

    fn atomic(&mut self, atomic: WordAtomic) -> MoveReply {
        self.lock().unwrap().atomic(atomic)
    }
}

/// Words that front-ends share.
trait World {
    /// None where it cannot be.
    fn start() -> Option<Self>
    where
        Self: Sized;
    fn front(&self) -> Box<dyn Front>;
}

/// One whose words can be lost.
trait Mortal: World {
    fn kill_home(&mut self);
    fn revive_home(&mut self);
    fn kill_node(&mut self);
    fn revive_node(&mut self);
}

/// One whose home keeps its words when it ends.
trait Durable {
    fn kill_home(&mut self);
    fn revive_home(&mut self);
}

impl Durable for Etcd {
    fn kill_home(&mut self) {
        self.kill();
    }

    fn revive_home(&mut self) {
        self.revive();
    }
}

impl World for Arc<Mutex<MemoryWords>> {
    fn start() -> Option<Self> {
        let constitution = constitution();
        let words = MemoryWords::new(&constitution, |node| constitution.home(node).unwrap());
        Some(Self::new(Mutex::new(words)))
    }

    fn front(&self) -> Box<dyn Front> {
        Box::new(Self::clone(self))
    }
}

/// A region of the test's.
struct Place {
    path: PathBuf,
    name: String,
    read: NodeRead,
    owner: Option<(Arc<RegionMemory>, Option<Responder>)>,
}

static PLACES: AtomicU32 = AtomicU32::new(0);

impl Place {
    fn start(name: &str, by_udp: bool) -> Self {
        let number = PLACES.fetch_add(1, Ordering::Relaxed);
        let process = std::process::id();
        let path = PathBuf::from(format!("/dev/shm/tidegate-engine-{process}-{number}"));
        let read = match by_udp {
            false => NodeRead::Shm { path: path.clone() },
            true => NodeRead::Udp {
                address: "127.0.0.1:0".parse().unwrap(),
                keys: vec![key(name)],
                rdma: UseRdma::Never,
            },
        };
        let mut place = Self {
            path,
            name: name.into(),
            read,
            owner: None,
        };
        place.revive();
        place
    }

    /// Its owner begins, at the same place.
    fn revive(&mut self) {
        let memory = Arc::new(RegionMemory::create(&self.path).unwrap());
        let responder = match &mut self.read {
            NodeRead::Udp { address, .. } => {
                let options = ResponderOptions {
                    realtime: false,
                    ..ResponderOptions::new(*address, vec![key(&self.name)])
                };
                let responder = Responder::spawn(Arc::clone(&memory), options).unwrap();
                *address = responder.address();
                Some(responder)
            }
            NodeRead::Shm { .. }
            | NodeRead::None
            | NodeRead::Reported(_)
            | NodeRead::Responses { .. } => None,
        };
        self.owner = Some((memory, responder));
    }

    fn kill(&mut self) {
        self.owner = None;
    }
}

fn key(name: &str) -> Key {
    Key::new(name, *b"0123456789abcdef")
}

struct Regions {
    home: Place,
    nodes: Vec<Place>,
}

impl Regions {
    fn start(by_udp: bool) -> Self {
        let node = |number| Place::start(&format!("n{number}"), by_udp);
        let regions = Self {
            home: Place::start("home", by_udp),
            nodes: (0..NODES).map(node).collect(),
        };
        let mut front = regions.front();
        begin(&mut *front);
        regions
    }

    fn front(&self) -> Box<dyn Front> {
        let numbers = (0..NODES).map(NodeNumber);
        let reads = self.nodes.iter().map(|it| &it.read);
        let nodes = NodeRegions::new(numbers.zip(reads), PATIENT);
        let engine = MovesEngine::Region(self.home.read.clone());
        Box::new(Reached::by(&engine, nodes, PATIENT).unwrap().unwrap())
    }
}

macro_rules! regions {
    ($($world:ident: $by_udp:literal,)*) => { $(
        struct $world(Regions);

        impl World for $world {
            fn start() -> Option<Self> {
                Some(Self(Regions::start($by_udp)))
            }

            fn front(&self) -> Box<dyn Front> {
                self.0.front()
            }
        }

        impl Mortal for $world {
            fn kill_home(&mut self) {
                self.0.home.kill();
            }

            fn revive_home(&mut self) {
                self.0.home.revive();
            }

            fn kill_node(&mut self) {
                self.0.nodes[1].kill();
            }

            fn revive_node(&mut self) {
                self.0.nodes[1].revive();
            }
        }
    )* };
}

regions! {
    Shm: false,
    Udp: true,
}

/// A real etcd, and nodes in shared memory.
struct Etcd {
    address: SocketAddr,
    peers: SocketAddr,
    folder: PathBuf,
    process: Option<Child>,
    nodes: Vec<Place>,
}

impl Etcd {
    fn revive(&mut self) {
        let (own, peers) = (
            format!("http://{}", self.address),
            format!("http://{}", self.peers),
        );
        let mut command = Command::new(ETCD);
        command.arg("--data-dir").arg(&self.folder);
        command.args([
            "--listen-client-urls",
            &own,
            "--advertise-client-urls",
            &own,
        ]);
        command.args(["--listen-peer-urls", &peers]);
        command.args(["--initial-advertise-peer-urls", &peers]);
        command.args(["--initial-cluster", &format!("default={peers}")]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        self.process = Some(command.spawn().unwrap());
    }

    fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
        std::fs::remove_dir_all(&self.folder).unwrap();
    }
}

impl World for Etcd {
    fn start() -> Option<Self> {
        if !Path::new(ETCD).exists() {
            println!("SKIPPED: no {ETCD}");
            return None;
        }
        let free = || {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            listener.local_addr().unwrap()
        };
        let number = PLACES.fetch_add(1, Ordering::Relaxed);
        let folder = format!("tidegate-etcd-{}-{number}", std::process::id());
        let node = |number| Place::start(&format!("n{number}"), false);
        let mut etcd = Self {
            address: free(),
            peers: free(),
            // In memory: its disk is not what is tested.
            folder: Path::new("/dev/shm").join(folder),
            process: None,
            nodes: (0..NODES).map(node).collect(),
        };
        etcd.revive();
        begin(&mut *etcd.front());
        Some(etcd)
    }

    fn front(&self) -> Box<dyn Front> {
        let reads = self.nodes.iter().map(|it| &it.read);
        let nodes = NodeRegions::new((0..NODES).map(NodeNumber).zip(reads), PATIENT);
        let engine = MovesEngine::Etcd(EtcdHomeConfig {
            endpoints: vec![format!("http://{}", self.address).parse().unwrap()],
            prefix: "a-test".into(),
            ca_file: None,
        });
        Box::new(Reached::by(&engine, nodes, PATIENT).unwrap().unwrap())
    }
}

macro_rules! conforms {
    ($($engine:ident: $world:ty; $($test:ident)*;)*) => { $(
        mod $engine {
            $( #[test]
            fn $test() {
                super::$test::<$world>();
            } )*
        }
    )* };
}

conforms! {
    memory: std::sync::Arc<std::sync::Mutex<super::MemoryWords>>;
        a_swap_swaps_only_what_was_expected
        an_update_is_counted_once
        of_movers_that_race_one_moves_the_node;
    region_by_shared_memory: super::Shm;
        a_swap_swaps_only_what_was_expected
        an_update_is_counted_once
        of_movers_that_race_one_moves_the_node
        a_swap_of_a_node_that_comes_late_is_not_carried_out
        a_home_that_was_lost_says_nothing_and_begins_anew
        a_node_that_was_lost_begins_where_it_was_known
        a_lock_that_its_owner_left_is_finished_by_another;
    region_by_udp: super::Udp;
        a_swap_swaps_only_what_was_expected
        an_update_is_counted_once
        of_movers_that_race_one_moves_the_node
        a_swap_of_a_node_that_comes_late_is_not_carried_out
        a_home_that_was_lost_says_nothing_and_begins_anew
        a_node_that_was_lost_begins_where_it_was_known
        a_lock_that_its_owner_left_is_finished_by_another;
    etcd: super::Etcd;
        a_swap_swaps_only_what_was_expected
        an_update_is_counted_once
        of_movers_that_race_one_moves_the_node
        a_swap_of_a_node_that_comes_late_is_not_carried_out
        a_home_that_keeps_its_words_goes_on_with_them
        a_lock_that_its_owner_left_is_finished_by_another;
}

fn swap(place: WordPlace, expected: u64, new: u64) -> WordAtomic {
    WordAtomic::Swap {
        place,
        expected,
        new,
        born: None,
    }
}

fn held(front: &mut dyn Front, place: WordPlace) -> u64 {
    let reply = front.atomic(WordAtomic::Read(place));
    let MoveReply::Held(held) = reply else {
        panic!("{place:?}: {reply:?}");
    };
    held
}

/// Waits until it gives something.
fn eventually<T>(what: &str, mut happened: impl FnMut() -> Option<T>) -> T {
    let start = clock::now();
    loop {
        if let Some(value) = happened() {
            return value;
        }
        assert!(clock::now().since(start) < PATIENCE, "gave up: {what}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// Begins home and nodes, as front-ends do. How long the home was left alone.
fn begin(front: &mut dyn Front) -> Duration {
    let constitution = constitution();
    let patience = Patience::new(Duration::ZERO, 0.0, Duration::ZERO);
    let mut watch = HomeWatch::new(clock::now().nanos());
    let start = clock::now();
    let took = eventually("a home begins", || {
        let words = front.home(constitution.sites()).ok()?;
        let look = watch.look(&words, &constitution, &patience);
        for atomic in look.begin {
            front.atomic(atomic);
        }
        let is_begun = look.state == HomeState::Joined && look.sites.iter().all(Option::is_some);
        is_begun.then(|| clock::now().since(start))
    });
    eventually("nodes begin", || {
        let is_read = |it: &NodeReading| matches!(it, NodeReading::Read { .. });
        nodes(front).iter().all(is_read).then_some(())
    });
    took
}

/// All nodes' words, each begun if it is blank.
fn nodes(front: &mut dyn Front) -> Vec<NodeReading> {
    let constitution = constitution();
    let read = |number| {
        let (node, asked_at) = (NodeNumber(number), clock::now());
        let word = held(front, WordPlace::Node(node));
        let mut watch = NodeWatch::default();
        let look = watch.look(node, Some((word, asked_at)), &constitution, asked_at);
        if let Some(mend) = look.mend {
            front.atomic(mend);
        }
        look.reading
    };
    (0..NODES).map(read).collect()
}

fn sites(front: &mut dyn Front) -> Vec<Option<SiteReading>> {
    let words = front.home(2).unwrap();
    let read = |(lock, updates): &(u64, u64)| {
        let lock = SiteLock::unpack(*lock).unwrap()?;
        let (updates, at) = (*updates, words.at);
        Some(SiteReading { lock, updates, at })
    };
    words.sites.iter().map(read).collect()
}

/// The plan to move a node to another site.
fn plan(front: &mut dyn Front, node: NodeNumber, receiver: SiteNumber) -> MovePlan {
    let (constitution, sites) = (constitution(), sites(front));
    let reading = sites[receiver.index()].unwrap();
    let nodes = nodes(front);
    let window = EventWindow {
        lock: reading.lock,
        updates: reading.updates,
        began_at: reading.at,
    };
    let view = MoveView::new(&constitution, &sites, &nodes);
    let wish = MoveWish {
        node,
        receiver,
        cause: MoveCause::Load,
        owner: 0,
        force: false,
    };
    view.plan(&window, wish).unwrap()
}

fn run(front: &mut dyn Front, attempt: Attempt) -> AttemptEnd {
    let constitution = constitution();
    let mut attempt = attempt;
    loop {
        let reply = front.atomic(attempt.op(&constitution).atomic());
        match attempt.on_reply(reply, clock::now()) {
            Ok(next) => attempt = next,
            Err(end) => return end,
        }
    }
}

/// Helps with what stands until all locks are free.
fn rest(front: &mut dyn Front) {
    eventually("all locks are free", || {
        let mut is_free = true;
        for (number, site) in sites(front).into_iter().enumerate() {
            let lock = site.unwrap().lock;
            if lock.state != LockState::Idle {
                is_free = false;
                let site = SiteNumber(number as u8);
                run(front, Attempt::help(site, lock, clock::now()));
            }
        }
        is_free.then_some(())
    });
}

/// Moves a node, however long that takes beside other tests.
fn bring(front: &mut dyn Front, node: NodeNumber, receiver: SiteNumber) {
    eventually("the node is moved", || {
        if assignment(front, node).site == receiver {
            return Some(());
        }
        let plan = plan(front, node, receiver);
        run(front, Attempt::begin(plan, clock::now()));
        rest(front);
        None
    });
}

fn assignment(front: &mut dyn Front, node: NodeNumber) -> Assignment {
    let word = held(front, WordPlace::Node(node));
    Assignment::unpack(word).unwrap().unwrap()
}

fn a_swap_swaps_only_what_was_expected<W: World>() {
    let Some(world) = W::start() else { return };
    let (mut one, mut two) = (world.front(), world.front());
    let places = [X.lock_word(), Y.lock_word(), CONSTITUTION_WORD].map(WordPlace::Home);
    for place in places.into_iter().chain([WordPlace::Node(NodeNumber(2))]) {
        let before = held(&mut *one, place);
        let refused = two.atomic(swap(place, before ^ 1, 7));
        assert_eq!(refused, MoveReply::Held(before), "{place:?}");
        assert_eq!(one.atomic(swap(place, before, 7)), MoveReply::Held(before));
        assert_eq!(two.atomic(swap(place, before, 8)), MoveReply::Held(7));
        assert_eq!(held(&mut *two, place), 7, "{place:?}");
    }
}

fn an_update_is_counted_once<W: World>() {
    const UPDATES: u64 = 100;
    let Some(world) = W::start() else { return };
    let mut fronts = [world.front(), world.front(), world.front()];
    let before = sites(&mut *fronts[0])[0].unwrap().updates;
    std::thread::scope(|scope| {
        for front in &mut fronts {
            scope.spawn(move || {
                for _ in 0..UPDATES {
                    let reply = front.atomic(WordAtomic::Count(X.updates_word()));
                    assert!(matches!(reply, MoveReply::Held(_)), "{reply:?}");
                }
            });
        }
    });
    let after = sites(&mut *fronts[1]);
    assert_eq!(after[0].unwrap().updates, before + 3 * UPDATES);
    assert_eq!(after[1].unwrap().updates, before, "another site's");
}

fn of_movers_that_race_one_moves_the_node<W: World>() {
    let Some(world) = W::start() else { return };
    let mut fronts = [world.front(), world.front()];
    for round in 0..40 {
        let receiver = [X, Y][round % 2];
        let before = nodes(&mut *fronts[0]);
        // Each wants another node.
        let barrier = Barrier::new(fronts.len());
        let wanted = (1..).map(NodeNumber);
        let ends: Vec<_> = std::thread::scope(|scope| {
            let mut races = Vec::new();
            for (front, node) in fronts.iter_mut().zip(wanted) {
                let plan = plan(&mut **front, node, receiver);
                let barrier = &barrier;
                races.push(scope.spawn(move || {
                    barrier.wait();
                    run(&mut **front, Attempt::begin(plan, clock::now()))
                }));
            }
            races.into_iter().map(|it| it.join().unwrap()).collect()
        });
        rest(&mut *fronts[0]);
        let after = nodes(&mut *fronts[1]);
        let moved = |(before, after): &(&NodeReading, &NodeReading)| site(before) != site(after);
        let moved = before.iter().zip(&after).filter(moved).count();
        assert_eq!(moved, 1, "{round}: {ends:?} {before:?} {after:?}");
        // The other node follows alone, so that the next round begins with both at the same site.
        for node in [NodeNumber(1), NodeNumber(2)] {
            bring(&mut *fronts[0], node, receiver);
        }
    }
}

fn site(reading: &NodeReading) -> SiteNumber {
    match reading {
        NodeReading::Read { assignment, .. } => assignment.site,
        NodeReading::Silent | NodeReading::Unread => panic!("{reading:?}"),
    }
}

fn a_swap_of_a_node_that_comes_late_is_not_carried_out<W: World>() {
    let Some(world) = W::start() else { return };
    let mut front = world.front();
    let place = WordPlace::Node(NodeNumber(3));
    let before = held(&mut *front, place);
    let late = clock::now() - LATE_MAX - Duration::from_millis(1);
    let swap = WordAtomic::Swap {
        place,
        expected: before,
        new: 7,
        born: Some(late),
    };
    assert_eq!(front.atomic(swap), MoveReply::TooOld);
    assert_eq!(held(&mut *front, place), before);
}

fn a_home_that_was_lost_says_nothing_and_begins_anew<W: Mortal>() {
    let Some(mut world) = W::start() else { return };
    let mut front = world.front();
    let plan = plan(&mut *front, NodeNumber(1), X);
    world.kill_home();
    assert!(front.home(2).is_err());
    let end = run(&mut *front, Attempt::begin(plan, clock::now()));
    assert_eq!(end, AttemptEnd::Unknown);
    world.revive_home();
    let alone = begin(&mut *front);
    assert!(alone >= Duration::from_millis(400), "{alone:?}");
    // What was planned before is a plan no more, and nodes are where they were.
    let end = run(&mut *front, Attempt::begin(plan, clock::now()));
    assert_eq!(end, AttemptEnd::Overtaken);
    assert_eq!(assignment(&mut *front, NodeNumber(1)).site, Y);
    bring(&mut *front, NodeNumber(1), X);
}

fn a_home_that_keeps_its_words_goes_on_with_them<W: World + Durable>() {
    let Some(mut world) = W::start() else { return };
    let mut front = world.front();
    let plan = plan(&mut *front, NodeNumber(1), X);
    world.kill_home();
    assert!(front.home(2).is_err());
    let end = run(&mut *front, Attempt::begin(plan, clock::now()));
    assert_eq!(end, AttemptEnd::Unknown);
    world.revive_home();
    let again = eventually("the home answers", || front.home(2).ok());
    assert_eq!(again.sites[0].0, plan.receiver_lock.pack());
    bring(&mut *front, NodeNumber(1), X);
}

fn a_node_that_was_lost_begins_where_it_was_known<W: Mortal>() {
    let Some(mut world) = W::start() else { return };
    let mut front = world.front();
    let node = NodeNumber(1);
    bring(&mut *front, node, X);
    let mut watch = NodeWatch::default();
    let mut look = |word| {
        let now = clock::now();
        watch.look(node, Some((word, now)), &constitution(), now)
    };
    let known = assignment(&mut *front, node);
    look(known.pack());
    world.kill_node();
    let read = WordAtomic::Read(WordPlace::Node(node));
    assert_eq!(front.atomic(read), MoveReply::Lost);
    world.revive_node();
    let word = eventually("the node answers", || match front.atomic(read) {
        MoveReply::Held(held) => Some(held),
        MoveReply::Lost | MoveReply::Silent | MoveReply::TooOld => None,
    });
    assert_eq!(word, 0);
    assert_eq!(front.atomic(look(word).mend.unwrap()), MoveReply::Held(0));
    let begun = assignment(&mut *front, node);
    assert_eq!((begun.site, begun.generation), (X, known.generation.next()));
    // One that knew nothing of it comes too late.
    let ignorant = Assignment::first(Count24::FIRST, Y, false).pack();
    let place = WordPlace::Node(node);
    let reply = front.atomic(swap(place, 0, ignorant));
    assert_eq!(reply, MoveReply::Held(begun.pack()));
}

fn a_lock_that_its_owner_left_is_finished_by_another<W: World>() {
    let Some(world) = W::start() else { return };
    let (mut owner, mut helper) = (world.front(), world.front());
    let constitution = constitution();
    // It dies after each of its steps.
    for steps in 1..8 {
        let node = NodeNumber(1);
        let receiver = match assignment(&mut *owner, node).site {
            X => Y,
            _ => X,
        };
        let plan = plan(&mut *owner, node, receiver);
        let mut attempt = Attempt::begin(plan, clock::now());
        for _ in 0..steps {
            let reply = owner.atomic(attempt.op(&constitution).atomic());
            match attempt.on_reply(reply, clock::now()) {
                Ok(next) => attempt = next,
                Err(end) => {
                    // It was held up, and leaves the move there.
                    assert_eq!(end, AttemptEnd::TooOld);
                    break;
                }
            }
        }
        rest(&mut *helper);
        let now = assignment(&mut *helper, node);
        let is_moved = now.site == receiver;
        // Before the decision it may be ended; what gives and is not decided is finished.
        assert_eq!(is_moved, steps >= 2, "{steps}: {now:?}");
    }
}
