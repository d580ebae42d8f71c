//! The constitution: numbers of sites and nodes that all front-ends have in common, and what they agree on.
//!
//! ```text
//! number of a site, of a node = place in the list sorted by name
//! digest = FNV-1a of (drain, count, sites by name with floor, ceiling, priority, count, nodes by name with home site),
//!          64 bits folded to 32; each text with its length before it
//! K      = digest << 32 | serial
//! join   K is blank: write it.  same: moves.  older serial, all locks free: replace it.  else: no moves by this front-end
//! ```
//!
//! Places in a configuration file (`NodeId`, `SiteId`) differ between front-ends; names do not. A front-end with
//! another list would move other nodes than the words say, so it moves none.
//!
//! Inputs: names and rules of the configuration. Failure case: two configurations with the same digest, one in
//! 4 billion. Two front-ends whose files differ in what is no part of it are not noticed.
//! Source: FNV-2011; not in Reconfiguration-2004, whose front-ends are configured alike by hand.

use super::words::{NODES_MAX, NodeNumber, SITES_MAX, SiteNumber};

/// What moves may do with a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteRules {
    /// The site's name.
    pub name: String,
    /// It keeps at least so many nodes that serve.
    pub floor: u16,
    /// It has at most so many nodes.
    pub ceiling: u16,
    /// 0 is the highest. A site gives no node to one of a lower priority.
    pub priority: u8,
}

/// A node that may be moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovableNode {
    /// Its name.
    pub name: String,
    /// The name of the site that it serves by the configuration.
    pub home: String,
}

/// Why there is no constitution.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NumberingError {
    /// More sites than there are words.
    #[error("{count} sites take part in moves, at most {SITES_MAX} can")]
    Sites {
        /// How many.
        count: usize,
    },
    /// More nodes than there are numbers.
    #[error("{count} nodes can be moved, at most {NODES_MAX} can")]
    Nodes {
        /// How many.
        count: usize,
    },
    /// A name that stands for two.
    #[error("{what} \"{name}\" is there twice")]
    Twice {
        /// Site or node.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A node's site is none of the sites.
    #[error("node \"{node}\" is of site \"{site}\", which takes no part in moves")]
    Home {
        /// The node.
        node: String,
        /// The site.
        site: String,
    },
    /// A site that may never have what it must have.
    #[error(
        "site \"{site}\" has a floor of {floor} nodes and a ceiling of {ceiling}; expected floor <= ceiling"
    )]
    Bounds {
        /// The site.
        site: String,
        /// Its floor.
        floor: u16,
        /// Its ceiling.
        ceiling: u16,
    },
}

/// What all front-ends that move nodes have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constitution {
    sites: Vec<SiteRules>,
    nodes: Vec<(String, SiteNumber)>,
    drain: bool,
    /// Whether agents set them up for their new site.
    hook: bool,
    serial: u32,
}

/// K: which constitution is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConstitutionWord {
    /// The digest of all that front-ends agree on.
    pub digest: u32,
    /// Which of two constitutions is the later one, as operators say.
    pub serial: u32,
}

/// What a front-end does about the constitution that it finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joining {
    /// It is ours: moves may begin.
    Agrees,
    /// There is none, or an older one while all locks are free: swap it for ours.
    Swap {
        /// What K holds.
        expected: u64,
        /// What it is to hold.
        new: u64,
    },
    /// It is older, and locks are taken: look again when they are free.
    Waits,
    /// It is another one: this front-end moves nothing, and says so.
    Disagrees(ConstitutionWord),
}

impl Constitution {
    /// Sorts and checks what the configuration says. `drain`: whether nodes end their requests before they serve
    /// another site.
    ///
    /// # Errors
    /// Too many, a name twice, a node of an unknown site, a floor above its ceiling.
    pub fn new(
        mut sites: Vec<SiteRules>,
        mut nodes: Vec<MovableNode>,
        drain: bool,
        serial: u32,
    ) -> Result<Self, NumberingError> {
        if sites.len() > SITES_MAX {
            let count = sites.len();
            return Err(NumberingError::Sites { count });
        }
        if nodes.len() > NODES_MAX {
            let count = nodes.len();
            return Err(NumberingError::Nodes { count });
        }
        sites.sort_by(|a, b| a.name.cmp(&b.name));
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        twice("site", sites.iter().map(|it| it.name.as_str()))?;
        twice("node", nodes.iter().map(|it| it.name.as_str()))?;
        if let Some(it) = sites.iter().find(|it| it.floor > it.ceiling) {
            return Err(NumberingError::Bounds {
                site: it.name.clone(),
                floor: it.floor,
                ceiling: it.ceiling,
            });
        }
        let find = |node: MovableNode| match place(&sites, &node.home, |it| &it.name) {
            Some(home) => Ok((node.name, SiteNumber(home as u8))),
            None => Err(NumberingError::Home {
                node: node.name,
                site: node.home,
            }),
        };
        let nodes = nodes.into_iter().map(find).collect::<Result<_, _>>()?;
        Ok(Self {
            sites,
            nodes,
            drain,
            hook: false,
            serial,
        })
    }

    /// The same, with nodes that their agents set up for their new site.
    #[must_use]
    pub fn with_hook(self) -> Self {
        Self { hook: true, ..self }
    }

    /// Its word.
    pub fn word(&self) -> ConstitutionWord {
        ConstitutionWord {
            digest: self.digest(),
            serial: self.serial,
        }
    }

    fn digest(&self) -> u32 {
        let mut hash = Fnv::new();
        hash.number(u64::from(self.drain) + 2 * u64::from(self.hook));
        hash.number(self.sites.len() as u64);
        for site in &self.sites {
            hash.text(&site.name);
            hash.number(u64::from(site.floor));
            hash.number(u64::from(site.ceiling));
            hash.number(u64::from(site.priority));
        }
        hash.number(self.nodes.len() as u64);
        for (name, home) in &self.nodes {
            hash.text(name);
            hash.number(u64::from(home.0));
        }
        hash.folded()
    }

    /// What to do about the word K that a home holds. `idle`: whether all locks of the home are free or blank.
    pub fn join(&self, held: u64, idle: bool) -> Joining {
        let ours = self.word();
        let there = ConstitutionWord::unpack(held);
        match held {
            0 => Joining::Swap {
                expected: 0,
                new: ours.pack(),
            },
            _ if there == ours => Joining::Agrees,
            _ if there.serial < ours.serial && idle => Joining::Swap {
                expected: held,
                new: ours.pack(),
            },
            _ if there.serial < ours.serial => Joining::Waits,
            _ => Joining::Disagrees(there),
        }
    }

    /// A site's number.
    pub fn site_number(&self, name: &str) -> Option<SiteNumber> {
        place(&self.sites, name, |it| &it.name).map(|place| SiteNumber(place as u8))
    }

    /// A node's number.
    pub fn node_number(&self, name: &str) -> Option<NodeNumber> {
        place(&self.nodes, name, |it| &it.0).map(|place| NodeNumber(place as u16))
    }

    /// What moves may do with a site.
    pub fn site(&self, site: SiteNumber) -> Option<&SiteRules> {
        self.sites.get(site.index())
    }

    /// The site that a node serves by the configuration.
    pub fn home(&self, node: NodeNumber) -> Option<SiteNumber> {
        self.nodes.get(node.index()).map(|it| it.1)
    }

    /// A node's name.
    pub fn node_name(&self, node: NodeNumber) -> Option<&str> {
        self.nodes.get(node.index()).map(|it| it.0.as_str())
    }

    /// How many sites there are.
    pub fn sites(&self) -> usize {
        self.sites.len()
    }

    /// How many nodes can be moved.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// L, of its sites.
    pub fn site_list(&self) -> u64 {
        site_list(self.sites.iter().map(|it| it.name.as_str()))
    }

    /// Whether nodes end their requests before they serve another site.
    pub fn drains(&self) -> bool {
        self.drain
    }
}

impl ConstitutionWord {
    /// As bits. Never 0: that is a home that has none.
    pub fn pack(self) -> u64 {
        (u64::from(self.digest) << 32 | u64::from(self.serial)).max(1)
    }

    /// From bits.
    pub fn unpack(word: u64) -> Self {
        Self {
            digest: (word >> 32) as u32,
            serial: word as u32,
        }
    }
}

/// L: which sites numbers mean, as front-ends write it for an agent that knows them by name. Never 0.
pub fn site_list<'n>(names: impl IntoIterator<Item = &'n str>) -> u64 {
    let mut names: Vec<_> = names.into_iter().collect();
    names.sort_unstable();
    let mut hash = Fnv::new();
    for name in &names {
        hash.text(name);
    }
    (u64::from(hash.folded()) << 32 | names.len() as u64).max(1)
}

fn place<T>(sorted: &[T], name: &str, name_of: impl Fn(&T) -> &str) -> Option<usize> {
    sorted.binary_search_by(|it| name_of(it).cmp(name)).ok()
}

fn twice<'n>(
    what: &'static str,
    sorted: impl Iterator<Item = &'n str> + Clone,
) -> Result<(), NumberingError> {
    let same = sorted.clone().zip(sorted.skip(1)).find(|(a, b)| a == b);
    match same {
        None => Ok(()),
        Some((name, _)) => Err(NumberingError::Twice {
            what,
            name: name.to_owned(),
        }),
    }
}

struct Fnv(u64);

impl Fnv {
    const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }

    fn number(&mut self, number: u64) {
        self.bytes(&number.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.bytes(text.as_bytes());
    }

    fn folded(&self) -> u32 {
        (self.0 ^ self.0 >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(name: &str, floor: u16, ceiling: u16) -> SiteRules {
        SiteRules {
            name: name.into(),
            floor,
            ceiling,
            priority: 1,
        }
    }

    fn node(name: &str, home: &str) -> MovableNode {
        MovableNode {
            name: name.into(),
            home: home.into(),
        }
    }

    fn made(sites: &[SiteRules], nodes: &[MovableNode], serial: u32) -> Constitution {
        Constitution::new(sites.to_vec(), nodes.to_vec(), true, serial).unwrap()
    }

    #[test]
    fn the_order_of_the_file_changes_no_number_and_no_digest() {
        let (a, b) = (site("shop", 1, 9), site("news", 2, 4));
        let nodes = [node("w2", "news"), node("w10", "shop"), node("w1", "shop")];
        let one = made(&[a.clone(), b.clone()], &nodes, 3);
        let [first, second, third] = nodes;
        let other = made(&[b, a], &[third, first, second], 3);
        assert_eq!(one.word(), other.word());
        assert_eq!(one.site_number("news"), Some(SiteNumber(0)));
        assert_eq!(one.node_number("w10"), Some(NodeNumber(1)));
        assert_eq!(one.node_name(NodeNumber(2)), Some("w2"));
        assert_eq!(one.home(NodeNumber(2)), Some(SiteNumber(0)));
        assert_eq!(one.site_number("w1"), None);
        assert_eq!((one.sites(), one.nodes()), (2, 3));
    }

    #[test]
    fn whatever_front_ends_must_agree_on_changes_the_digest() {
        let sites = [site("a", 1, 9), site("b", 2, 4)];
        let nodes = [node("n", "a"), node("m", "b")];
        let one = made(&sites, &nodes, 1).word().digest;
        let with = |edit: &dyn Fn(&mut SiteRules)| {
            let mut sites = sites.clone();
            edit(&mut sites[1]);
            made(&sites, &nodes, 1).word().digest
        };
        assert_ne!(one, with(&|it| it.floor = 3));
        assert_ne!(one, with(&|it| it.ceiling = 5));
        assert_ne!(one, with(&|it| it.priority = 0));
        let moved = made(&sites, &[node("n", "a"), node("m", "a")], 1);
        assert_ne!(one, moved.word().digest);
        let renamed = [site("a", 1, 9), site("c", 2, 4)];
        let one_node = |sites| made(sites, &nodes[..1], 1).word().digest;
        assert_ne!(one_node(&sites), one_node(&renamed));
        assert_ne!(one, one_node(&sites));
        let at_once = Constitution::new(sites.to_vec(), nodes.to_vec(), false, 1).unwrap();
        assert_ne!(one, at_once.word().digest);
        let with_hook = made(&sites, &nodes, 1).with_hook();
        assert_ne!(one, with_hook.word().digest);
        assert_eq!(
            one,
            made(&sites, &nodes, 2).word().digest,
            "the serial is apart"
        );
    }

    #[test]
    fn the_list_of_sites_is_that_of_their_names_whatever_their_order_and_rules() {
        let one = made(&[site("b", 1, 9), site("a", 2, 4)], &[], 1);
        assert_eq!(one.site_list(), site_list(["a", "b"]));
        let other = made(&[site("a", 0, 1), site("b", 0, 1)], &[], 7);
        assert_eq!(one.site_list(), other.site_list());
        for names in [&["a"][..], &["a", "c"], &["ab"], &["a", "b", "c"], &[]] {
            assert_ne!(site_list(names.iter().copied()), one.site_list());
        }
        assert_ne!(site_list([]), 0);
    }

    #[test]
    fn what_cannot_be_numbered_is_refused_with_its_name() {
        let error = |sites: Vec<SiteRules>, nodes: Vec<MovableNode>| {
            let error = Constitution::new(sites, nodes, true, 1).unwrap_err();
            error.to_string()
        };
        let a = || site("a", 1, 9);
        assert_eq!(error(vec![a(), a()], vec![]), "site \"a\" is there twice");
        let twice = vec![node("n", "a"), node("n", "a")];
        assert_eq!(error(vec![a()], twice), "node \"n\" is there twice");
        assert_eq!(
            error(vec![a()], vec![node("n", "b")]),
            "node \"n\" is of site \"b\", which takes no part in moves"
        );
        assert_eq!(
            error(vec![site("a", 3, 2)], vec![]),
            "site \"a\" has a floor of 3 nodes and a ceiling of 2; expected floor <= ceiling"
        );
        let many = (0..=SITES_MAX).map(|it| site(&format!("s{it}"), 0, 1));
        assert_eq!(
            error(many.collect(), vec![]),
            "113 sites take part in moves, at most 112 can"
        );
        let many = (0..=NODES_MAX).map(|it| node(&format!("n{it}"), "a"));
        assert_eq!(
            error(vec![a()], many.collect()),
            "4097 nodes can be moved, at most 4096 can"
        );
    }

    #[test]
    fn a_front_end_joins_the_same_constitution_and_no_other() {
        let sites = [site("a", 1, 9)];
        let ours = made(&sites, &[node("n", "a")], 2);
        let word = ours.word().pack();
        assert_eq!(ConstitutionWord::unpack(word), ours.word());
        let swap = |expected| Joining::Swap {
            expected,
            new: word,
        };
        assert_eq!(ours.join(0, true), swap(0));
        assert_eq!(ours.join(word, false), Joining::Agrees);
        let other = |serial| made(&sites, &[node("m", "a")], serial).word();
        let older = other(1).pack();
        assert_eq!(ours.join(older, true), swap(older));
        assert_eq!(ours.join(older, false), Joining::Waits);
        for serial in [2, 3] {
            let there = other(serial);
            assert_eq!(ours.join(there.pack(), true), Joining::Disagrees(there));
        }
    }
}
