//! What was learned, from one process to the next, and what is said where it cannot be kept.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use arc_swap::ArcSwap;
use tidegate_core::admission::AdmissionConfig;
use tidegate_core::culprits::{Basis, Limits, Request};
use tidegate_core::director::Director;
use tidegate_core::load::{Counters, LoadTable};
use tidegate_core::policy::PolicyConfig;
use tidegate_core::prng::Prng;
use tidegate_core::topology::{
    Capacity, ClusterSpec, NodeId, NodeSpec, SiteId, SiteSpec, Topology,
};

use super::*;
use crate::live::cluster::Cluster;
use crate::live::front_end::{ResourceNodes, ResourceSet, UnreadNode};
use crate::live::testing::{CPU, at};
use crate::live::watched::WatchedAll;

/// Two classes, and "other" before them.
const NAMES: [&str; 3] = ["other", "shop GET /", "shop GET /report/{n}"];

fn names() -> Vec<String> {
    NAMES.map(str::to_owned).to_vec()
}

fn unix() -> Duration {
    Duration::from_secs(1_700_000_000)
}

fn open(disk: &Disk) -> Memory {
    Memory::open(Some(disk.file()), None, Arc::new(NoLog), unix, at(0))
}

#[derive(Debug)]
struct NoLog;

impl EventLog for NoLog {
    fn event(&self, _event: &str, _text: &str) {}
}

#[derive(Debug)]
struct NoResources;

impl ResourceNodes for NoResources {
    fn nodes(&self) -> Arc<ResourceSet> {
        Arc::default()
    }

    fn counters(&self, _place: u32) -> Option<Counters> {
        None
    }

    fn unread(&self) -> Vec<UnreadNode> {
        Vec::new()
    }
}

/// A folder with one file, without a file system.
#[derive(Clone, Debug, Default)]
struct Disk(Arc<Mutex<Folder>>);

#[derive(Debug, Default)]
struct Folder {
    file: Option<Vec<u8>>,
    aside: Option<Vec<u8>>,
    is_taken: bool,
}

impl Disk {
    fn folder(&self) -> MutexGuard<'_, Folder> {
        self.0.lock().unwrap()
    }

    fn file(&self) -> Box<dyn KeptFile> {
        Box::new(DiskFile {
            disk: self.clone(),
            has_folder: false,
            is_spared: false,
        })
    }
}

/// The file, as one front-end has it.
#[derive(Debug)]
struct DiskFile {
    disk: Disk,
    has_folder: bool,
    is_spared: bool,
}

impl KeptFile for DiskFile {
    fn path(&self) -> &Path {
        Path::new("/s/f")
    }

    fn folder(&self) -> &Path {
        Path::new("/s")
    }

    fn aside(&self) -> PathBuf {
        "/s/f.refused".into()
    }

    fn read(&self, _most: usize) -> Result<Option<Vec<u8>>, String> {
        Ok(self.disk.folder().file.clone())
    }

    fn spare(&mut self) {
        self.is_spared = true;
    }

    fn has_folder(&self) -> bool {
        self.has_folder
    }

    fn take_folder(&mut self) -> Result<(), String> {
        let mut folder = self.disk.folder();
        if folder.is_taken && !self.has_folder {
            return Err("another front-end keeps files in /s".into());
        }
        folder.is_taken = true;
        self.has_folder = true;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.take_folder()?;
        let mut folder = self.disk.folder();
        if std::mem::take(&mut self.is_spared) {
            folder.aside = folder.file.take();
        }
        folder.file = Some(bytes.to_vec());
        Ok(())
    }
}

impl Drop for DiskFile {
    fn drop(&mut self) {
        if self.has_folder {
            self.disk.folder().is_taken = false;
        }
    }
}

/// Two sites: `shop` with n1 and n2, `blog` with n3.
fn topology() -> Arc<Topology> {
    let site = |name: &str, host: &str| SiteSpec {
        name: name.into(),
        hosts: vec![host.into()],
        paths: Vec::new(),
        policy: PolicyConfig::default(),
        admission: AdmissionConfig::default(),
        health: Default::default(),
    };
    let node = |number: u8, site| NodeSpec {
        name: format!("n{number}"),
        address: ([10, 0, 0, number], 80).into(),
        site: SiteId(site),
        weight: 1.0,
        capacity: Capacity::default(),
    };
    let cluster = ClusterSpec {
        sites: vec![site("shop", "shop.example"), site("blog", "*")],
        nodes: vec![node(1, 0), node(2, 0), node(3, 1)],
        groups: Vec::new(),
        front_ends: 1,
    };
    Director::new(cluster, 1).topology()
}

/// A front-end before one server: pages that cost next to nothing, and reports of 75 ms.
struct Life {
    watched: WatchedAll,
    discovery: Discovery,
}

impl Life {
    fn of(memory: &mut Memory, millis: u64) -> Self {
        let cluster = Cluster {
            topology: Arc::new(ArcSwap::new(topology())),
            table: Arc::new(LoadTable::new(3, 2)),
            resources: Arc::new(NoResources),
        };
        let mut life = Self {
            watched: WatchedAll::default(),
            discovery: Discovery::new(Limits::default()),
        };
        life.watched.follow(&cluster.members(), drop);
        let mut prng = Prng::new(1);
        let mut busy_ns = 0;
        for ms in (0..millis).step_by(20) {
            let mut request = |class, life_ms, cost_ns| {
                busy_ns += cost_ns;
                let sent = at(ms);
                let ended = Some(sent + Duration::from_millis(life_ms));
                let class = ClassId(class);
                life.discovery.on_request(&Request { class, sent, ended });
            };
            request(1, 20, 100_000);
            if prng.unit() < 0.06 {
                request(2, 20, 75_000_000);
            }
            let counters = Counters {
                at: at(ms + 20),
                generation: 1,
                cores: 1.0,
                busy_ns: Some(busy_ns),
                fine: true,
                disk_ns: None,
                network: None,
                context_switches: None,
            };
            cluster.table.store_counters(NodeId(0), &counters);
            let now = at(ms + 20);
            life.watched.read(&cluster, &mut life.discovery, now);
            if let Some(due) = life.watched.due(now) {
                memory.recall(life.watched.get(due), &names(), &mut life.discovery);
                let then = life.watched.known_until();
                life.watched.evaluate(due, &mut life.discovery, then, now);
            }
        }
        life
    }

    fn basis(&self) -> Basis {
        self.discovery.basis(self.watched.known_until(), CPU)
    }

    fn end(&self, memory: &mut Memory) {
        memory.end(self.watched.iter(), &names(), &self.discovery);
    }
}

#[test]
fn the_next_process_begins_with_what_this_one_has_learned() {
    let disk = Disk::default();
    let mut memory = open(&disk);
    assert_eq!(Life::of(&mut memory, 10_000).basis(), Basis::NotYet);
    let life = Life::of(&mut memory, 60_000);
    assert_eq!(life.basis(), Basis::Seen);
    life.end(&mut memory);
    let learned = memory.learned.clone();
    assert_eq!(learned.counts(), (2, 1));
    drop(memory);
    let mut memory = open(&disk);
    assert_eq!(memory.learned, learned);
    let mut next = Life::of(&mut memory, 10_000);
    assert_eq!(next.basis(), Basis::BeforeStart);
    // A life that was too short for a look at the long window forgets nothing of it.
    next.end(&mut memory);
    drop(memory);
    assert_eq!(open(&disk).learned.counts(), learned.counts());
    let mut third = open(&disk);
    assert_eq!(Life::of(&mut third, 10_000).basis(), Basis::BeforeStart);
    drop(third);
    // A class that has its number anew has what belongs to its name.
    let mut memory = open(&disk);
    let watched = next.watched.get(0);
    memory.recall(watched, &names(), &mut next.discovery);
    assert_eq!(memory.recalled.len(), 2);
    memory.recall(watched, &["other".into(), "b".into()], &mut next.discovery);
    assert_eq!(memory.recalled[&(0, ClassId(1))], "b");
    // And so it has after a while without one, when discovery has forgotten what was the number's.
    memory.recall(
        watched,
        &["other".into(), String::new()],
        &mut next.discovery,
    );
    assert_eq!(memory.recalled.len(), 0);
    next.discovery.forget(ClassId(1));
    assert_eq!(next.discovery.learned(CPU).get(&ClassId(1)), None);
    memory.recall(watched, &names(), &mut next.discovery);
    assert!(!next.discovery.learned(CPU)[&ClassId(1)].is_empty());
}

#[test]
fn it_is_written_each_minute_if_there_is_anything_new() {
    let disk = Disk::default();
    let mut memory = open(&disk);
    assert!(!memory.is_due(at(59_999)) && memory.is_due(at(60_000)));
    let life = Life::of(&mut memory, 60_000);
    let keep = |memory: &mut Memory| {
        memory.keep(life.watched.iter(), &names(), &life.discovery, at(60_000));
    };
    keep(&mut memory);
    assert!(!memory.is_due(at(119_999)) && memory.is_due(at(120_000)));
    drop(memory);
    let mut memory = open(&disk);
    assert_eq!(memory.learned.counts(), (2, 1));
    disk.folder().file = None;
    keep(&mut memory);
    drop(memory);
    assert!(disk.folder().file.is_none(), "nothing is new");
    let mut memory = open(&disk);
    life.end(&mut memory);
    assert!(!memory.is_due(at(u64::MAX >> 24)), "it has ended");
    drop(memory);
    assert!(disk.folder().file.is_some());
}

#[test]
fn a_file_that_is_of_no_use_stays_until_there_is_a_better_one() {
    let disk = Disk::default();
    let old = Learned::default().encode(1_000_000_000);
    for (bytes, is_precious) in [(b"damaged".to_vec(), true), (old, false)] {
        *disk.folder() = Folder {
            file: Some(bytes.clone()),
            ..Folder::default()
        };
        let mut memory = open(&disk);
        assert_eq!(memory.learned, Learned::default());
        Life::of(&mut memory, 100).end(&mut memory);
        drop(memory);
        let kept = disk.folder().file.clone();
        assert_eq!(kept.as_ref(), Some(&bytes), "nothing was learned");
        let mut memory = open(&disk);
        let life = Life::of(&mut memory, 60_000);
        life.end(&mut memory);
        let learned = memory.learned.clone();
        drop(memory);
        assert_eq!(open(&disk).learned, learned);
        let aside = disk.folder().aside.clone();
        assert_eq!(aside, is_precious.then_some(bytes));
    }
}

#[test]
fn one_that_has_ended_leaves_the_folder_to_its_successor_before_it_is_gone() {
    let disk = Disk::default();
    let mut first = open(&disk);
    let life = Life::of(&mut first, 60_000);
    let mut second = open(&disk);
    life.end(&mut second);
    drop(second);
    assert!(disk.folder().file.is_none(), "the first one has the folder");
    life.end(&mut first);
    // Closed when the thread has ended.
    assert!(first.writer.as_ref().unwrap().ended.recv().is_err());
    let mut next = open(&disk);
    assert_eq!(next.learned.counts(), (2, 1));
    disk.folder().file = None;
    life.end(&mut next);
    drop(next);
    assert!(disk.folder().file.is_some());
}

#[test]
fn that_nothing_can_be_written_is_told_once() {
    let file = Disk::default().file();
    let mut trouble = Trouble::default();
    let mut news =
        |written: Result<(), &str>| trouble.news(&*file, written.map_err(str::to_owned), false);
    assert_eq!(news(Ok(())), None);
    let full = news(Err("cannot write /s/f: full")).unwrap();
    assert!(
        full.starts_with("cannot write /s/f: full; until that"),
        "{full}"
    );
    assert_eq!(news(Err("cannot write /s/f: full")), None);
    assert!(news(Err("cannot write /s/f: gone")).is_some());
    assert_eq!(news(Ok(())), Some("/s/f: written again".into()));
    assert_eq!(news(Ok(())), None);
}
