//! Nodes that move between two sites by words that front-ends share, wherever these are kept.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tidegate_core::moves::numbering::site_list;
use tidegate_core::moves::words::{
    AGENT_WORD, ASSIGNMENT_WORD, AgentStatus, AgentStep, Assignment, SITE_LIST_WORD,
};
use tidegate_remote::RegionMemory;
use tidegate_remote::udp::key_file::KeyFile;
use tidegate_remote::udp::{Responder, ResponderOptions};

use super::published::PublishedLoad;
use super::server::server_at;
use super::{FrontEnd, eventually, folder, master_key, node_key, request};

/// Between two looks, and two requests.
pub(crate) const PACE: Duration = Duration::from_millis(1);
pub(crate) const NODES: [(&str, &str); 4] = [
    ("s1", "shop"),
    ("b1", "blog"),
    ("b2", "blog"),
    ("b3", "blog"),
];
/// Sites by number: their names, sorted.
pub(crate) const SITES: [&str; 2] = ["blog", "shop"];

/// A node that publishes the load that the test says, and answers over UDP.
pub(crate) struct Node {
    pub(crate) memory: Arc<RegionMemory>,
    pub(crate) address: SocketAddr,
    /// None: it does not answer.
    pub(crate) responder: Option<Responder>,
    pub(crate) load: PublishedLoad,
}

impl Node {
    pub(crate) fn start(test: &str, master: &Path, name: &str, ip: IpAddr) -> Self {
        let path = format!(
            "/dev/shm/tidegate-moves-region-{test}-{name}-{}",
            std::process::id()
        );
        let memory = Arc::new(RegionMemory::create(path.as_ref()).unwrap());
        let key = std::fs::read_to_string(node_key(master, name)).unwrap();
        let keys = KeyFile::parse(&key).unwrap().nodes().unwrap();
        let keys = keys.into_iter().map(|it| it.key).collect();
        let options = ResponderOptions {
            realtime: false,
            ..ResponderOptions::new((ip, 0).into(), keys)
        };
        let responder = Responder::spawn(Arc::clone(&memory), options).unwrap();
        let load = PublishedLoad::start(Arc::clone(&memory));
        Self {
            memory,
            address: responder.address(),
            responder: Some(responder),
            load,
        }
    }

    /// Writes words A and L as front-ends have left them.
    pub(crate) fn begin(&self, assignment: Assignment) {
        let words = [
            (ASSIGNMENT_WORD, assignment.pack()),
            (SITE_LIST_WORD, site_list(SITES)),
        ];
        for (word, value) in words {
            assert_eq!(self.memory.compare_and_swap(word, 0, value).unwrap(), 0);
        }
    }

    pub(crate) fn word(&self) -> u64 {
        self.memory.word(0).unwrap()
    }

    /// Says what an agent says that follows this word of the node and has nothing to do.
    pub(crate) fn follow(&self, assignment: Assignment, has_hooks: bool) {
        let status = AgentStatus {
            generation: assignment.generation,
            step: AgentStep::Begun,
            connections: 0,
            exit_code: 0,
            has_hooks,
        };
        let held = self.memory.word(AGENT_WORD).unwrap();
        let swapped = self
            .memory
            .compare_and_swap(AGENT_WORD, held, status.pack());
        assert_eq!(swapped.unwrap(), held, "the test alone writes it");
    }
}

/// All words of nodes at one moment; none before each has one.
pub(crate) fn assignments(nodes: &[Node]) -> Option<Vec<Assignment>> {
    let read = || nodes.iter().map(Node::word).collect::<Vec<_>>();
    let (mut words, mut again) = (read(), read());
    while words != again {
        (words, again) = (again, read());
    }
    let words = words.into_iter();
    words
        .map(|word| Assignment::unpack(word).unwrap())
        .collect()
}

/// Watches the words of nodes until it is enough: floors hold, and no generation goes back.
fn watch(nodes: &[Node], enough: &AtomicBool, looks: &AtomicU64) {
    let mut before: Option<Vec<Assignment>> = None;
    while !enough.load(Ordering::Relaxed) {
        let Some(now) = assignments(nodes) else {
            continue;
        };
        for (number, site) in SITES.iter().enumerate() {
            let serves = |it: &&Assignment| it.is_serving() && it.site.index() == number;
            let count = now.iter().filter(serves).count();
            assert!((1..=3).contains(&count), "{site}: {now:?}");
        }
        if let Some(before) = &before {
            for (before, now) in before.iter().zip(&now) {
                assert!(
                    !before.generation.is_after(now.generation),
                    "{before:?} {now:?}"
                );
            }
        }
        before = Some(now);
        looks.fetch_add(1, Ordering::Relaxed);
        std::thread::park_timeout(PACE);
    }
}

/// Asks for both sites until it is enough. Every request is answered.
pub(crate) fn ask_on(address: SocketAddr, enough: &AtomicBool, asked: &AtomicUsize) {
    while !enough.load(Ordering::Relaxed) {
        for site in SITES {
            let head =
                format!("GET / HTTP/1.1\r\nhost: {site}.example\r\nconnection: close\r\n\r\n");
            let status = request(address, &head).map(|it| it.status);
            assert_eq!(status, Some(200), "{site}");
            asked.fetch_add(1, Ordering::Relaxed);
        }
        std::thread::park_timeout(PACE);
    }
}

/// Where the words are kept that are no node's.
pub(crate) trait Home {
    /// Its lines of `[reconfigure]`.
    fn lines(&self) -> String;
    /// From now on it does not answer.
    fn kill(&mut self);
    /// It answers again, at the same address.
    fn revive(&mut self);
}

/// The cluster, and the home of its words.
pub(crate) struct Scene<H> {
    pub(crate) folder: PathBuf,
    pub(crate) master: PathBuf,
    pub(crate) nodes: Arc<Vec<Node>>,
    pub(crate) servers: Vec<SocketAddr>,
    pub(crate) home: H,
}

impl<H: Home> Scene<H> {
    /// With the home that is made of the folder and the masters.
    pub(crate) fn with(test: &str, home: impl FnOnce(&Path, &Path) -> H) -> Self {
        Self::at(test, [Ipv4Addr::LOCALHOST.into(); 2], home)
    }

    /// The same with addresses of the nodes' agents and of their servers.
    pub(crate) fn at(
        test: &str,
        [agents, servers]: [IpAddr; 2],
        home: impl FnOnce(&Path, &Path) -> H,
    ) -> Self {
        let folder = folder(test);
        let master = master_key(&folder);
        Self {
            nodes: Arc::new(
                NODES
                    .map(|(name, _)| Node::start(test, &master, name, agents))
                    .into(),
            ),
            servers: NODES.map(|(name, _)| server_at(servers, name)).into(),
            home: home(&folder, &master),
            folder,
            master,
        }
    }

    pub(crate) fn front_end(&self, name: &str, blog_min: u32) -> FrontEnd {
        self.front_end_with(name, blog_min, "history = \"50ms\"\n")
    }

    /// With more lines of `[reconfigure]`, also `history`.
    pub(crate) fn front_end_with(&self, name: &str, blog_min: u32, more: &str) -> FrontEnd {
        let mut text = format!(
            "[cluster]\nfront_ends = 3\n[load]\nkey_file = \"{}\"\ninterval = \"2ms\"\nrealtime = false\n[reconfigure]\nenabled = true\n\
             {}moves_max = 1000\nwarm_up = \"0s\"\n{more}",
            self.master.display(),
            self.home.lines()
        );
        for (site, min) in [("shop", 1), ("blog", blog_min)] {
            text.push_str(&format!(
                "[[site]]\nname = \"{site}\"\nhosts = [\"{site}.example\"]\npolicy = \"round_robin\"\nnodes = {{ min = {min}, max = 3 }}\n"
            ));
        }
        for (((node, site), address), own) in NODES.iter().zip(&self.servers).zip(&*self.nodes) {
            text.push_str(&format!(
                "[[node]]\nname = \"{node}\"\naddress = \"{address}\"\nsite = \"{site}\"\nload = {{ transport = \"udp\", address = \"{}\" }}\n",
                own.address
            ));
        }
        let folder = self.folder.join(name);
        std::fs::create_dir_all(&folder).unwrap();
        FrontEnd::start(&folder, &text)
    }

    /// Loads follow the requests: nodes that serve the site by their words have work that waits.
    pub(crate) fn load(&self, loaded: &str) {
        let Some(assignments) = assignments(&self.nodes) else {
            return;
        };
        for (node, assignment) in self.nodes.iter().zip(assignments) {
            let is_loaded = SITES[assignment.site.index()] == loaded;
            node.load.set(if is_loaded { 8 } else { 0 });
        }
    }

    /// Nodes that serve a site by their words.
    pub(crate) fn count(&self, site: &str) -> usize {
        let all = assignments(&self.nodes).unwrap_or_default();
        all.iter()
            .filter(|it| SITES[it.site.index()] == site)
            .count()
    }

    /// Moves since the nodes began.
    pub(crate) fn moves(&self) -> u32 {
        let all = assignments(&self.nodes).unwrap_or_default();
        all.iter().map(|it| it.generation.get() - 1).sum()
    }

    /// The load is at one site until it has three nodes.
    pub(crate) fn flow_to(&self, site: &str) {
        eventually(&format!("two nodes come to {site}"), || {
            self.load(site);
            (self.count(site) == 3).then_some(())
        });
    }
}

/// How many nodes a front-end has serve a site, as its clients see it.
pub(crate) fn serving(front_end: &FrontEnd, site: &str) -> usize {
    let host = format!("{site}.example");
    let answers = (0..24).map(|_| front_end.get(&host, "/").body);
    answers.collect::<BTreeSet<_>>().len()
}

pub(crate) fn all_serve(front_ends: &[&FrontEnd], site: &str, nodes: usize) {
    for front_end in front_ends {
        eventually("a front-end follows the words", || {
            (serving(front_end, site) == nodes).then_some(())
        });
    }
}

pub(crate) fn trouble(front_end: &FrontEnd) -> Option<String> {
    let trouble = front_end.api("/api/moves")["trouble"].clone();
    trouble.as_str().map(ToOwned::to_owned)
}

/// What goes on beside a test ends with it, however it ends.
pub(crate) struct EndsWith<'a>(pub(crate) &'a AtomicBool);

impl Drop for EndsWith<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Does this while clients ask two front-ends and nodes' words are watched; it is given how many answers there were.
pub(crate) fn while_asked(
    nodes: &[Node],
    front_ends: [&FrontEnd; 2],
    acts: impl FnOnce(&AtomicUsize),
) {
    let (enough, asked, looks) = (
        AtomicBool::new(false),
        AtomicUsize::new(0),
        AtomicU64::new(0),
    );
    let ends = EndsWith(&enough);
    std::thread::scope(|scope| {
        let _ends = ends;
        scope.spawn(|| watch(nodes, &enough, &looks));
        for front_end in front_ends {
            let (address, enough, asked) = (front_end.address, &enough, &asked);
            scope.spawn(move || ask_on(address, enough, asked));
        }
        acts(&asked);
    });
    assert!(looks.load(Ordering::Relaxed) > 100);
}

/// Three times a front-end is killed after its first move, and the others follow the load from site to site; `at_rest` looks at
/// what is left each time.
pub(crate) fn front_ends_are_killed<H: Home>(
    scene: &Scene<H>,
    others: &[&FrontEnd],
    at_rest: impl Fn(),
) {
    for _ in 0..3 {
        let mut victim = scene.front_end("victim", 1);
        let before = scene.moves();
        eventually("a move, and the front-end dies", || {
            scene.load("shop");
            (scene.moves() > before).then_some(())
        });
        victim.process.signal("KILL");
        victim.process.wait();
        scene.flow_to("shop");
        scene.flow_to("blog");
        all_serve(others, "blog", 3);
        at_rest();
    }
}

/// While the home is silent nodes stay and requests go on. Once it is back, nodes follow the load to the shop.
pub(crate) fn home_is_silent<H: Home>(
    scene: &mut Scene<H>,
    front_ends: &[&FrontEnd],
    asked: &AtomicUsize,
) {
    scene.home.kill();
    eventually("the front-ends say that it is silent", || {
        let silent = |it: &&FrontEnd| trouble(it).is_some_and(|it| it.contains("does not answer"));
        front_ends.iter().all(silent).then_some(())
    });
    let (before, answered) = (scene.moves(), asked.load(Ordering::Relaxed));
    eventually("requests go on", || {
        scene.load("shop");
        (asked.load(Ordering::Relaxed) > answered + 200).then_some(())
    });
    assert_eq!(scene.moves(), before, "nothing moves without a home");
    scene.home.revive();
    scene.flow_to("shop");
    all_serve(front_ends, "shop", 3);
    for front_end in front_ends {
        eventually("nothing is wrong", || {
            trouble(front_end).is_none().then_some(())
        });
    }
}
