//! Nodes and the requests that are there.

use tidegate_core::prng::Prng;

/// A node: the site that it serves, and what it has of each site.
#[derive(Clone, Debug)]
struct Node {
    site: usize,
    in_flight: u32,
    /// Of those, by site; sites of which it has none are left out.
    of: Vec<(usize, u32)>,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Cluster {
    cpus: u32,
    nodes: Vec<Node>,
    /// Nodes by site.
    serve: Vec<Vec<usize>>,
    /// Requests that found no node.
    waiting: Vec<u64>,
}

impl Cluster {
    /// So many nodes of so many CPUs for each site.
    pub(super) fn new(nodes: &[usize], cpus: u32) -> Self {
        let mut all = Self {
            cpus,
            nodes: Vec::new(),
            serve: vec![Vec::new(); nodes.len()],
            waiting: vec![0; nodes.len()],
        };
        for (site, count) in nodes.iter().enumerate() {
            for _ in 0..*count {
                all.serve[site].push(all.nodes.len());
                all.nodes.push(Node {
                    site,
                    in_flight: 0,
                    of: Vec::new(),
                });
            }
        }
        all
    }

    pub(super) fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// All CPUs.
    pub(super) fn cpus(&self) -> usize {
        self.nodes.len() * self.cpus as usize
    }

    /// Runnable tasks of a node.
    pub(super) fn load(&self, node: usize) -> u32 {
        self.nodes[node].in_flight
    }

    pub(super) fn site(&self, node: usize) -> usize {
        self.nodes[node].site
    }

    /// Nodes that serve a site.
    pub(super) fn count(&self, site: usize) -> usize {
        self.serve[site].len()
    }

    /// Demand of a site, as front-ends see it.
    pub(super) fn demand(&self, site: usize) -> u64 {
        let nodes = self.serve[site].iter();
        let runnable: u64 = nodes.map(|node| u64::from(self.load(*node))).sum();
        runnable + self.waiting[site]
    }

    /// Requests of a site that are somewhere.
    pub(super) fn in_flight(&self, site: usize) -> u64 {
        let own = self.nodes.iter().flat_map(|node| &node.of);
        let own = own.filter(|(of, _)| *of == site);
        own.map(|(_, count)| u64::from(*count)).sum::<u64>() + self.waiting[site]
    }

    /// A request comes.
    pub(super) fn arrive(&mut self, site: usize) {
        let nodes = self.serve[site].iter().copied();
        let Some(node) = nodes.min_by_key(|node| self.nodes[*node].in_flight) else {
            self.waiting[site] += 1;
            return;
        };
        let node = &mut self.nodes[node];
        node.in_flight += 1;
        match node.of.iter_mut().find(|(of, _)| *of == site) {
            Some((_, count)) => *count += 1,
            None => node.of.push((site, 1)),
        }
    }

    /// One of all CPUs ends what it does: the site whose request that was, if it was at work.
    pub(super) fn complete(&mut self, prng: &mut Prng) -> Option<usize> {
        let slot = prng.below(self.cpus());
        let (node, cpu) = (slot / self.cpus as usize, slot % self.cpus as usize);
        let node = &mut self.nodes[node];
        if cpu as u32 >= node.in_flight {
            return None;
        }
        // All requests have the same share, so each is as likely to be the one.
        let mut place = prng.below(node.in_flight as usize) as u32;
        let which = node.of.iter().position(|(_, count)| match place < *count {
            true => true,
            false => {
                place -= count;
                false
            }
        });
        let which = which?;
        node.in_flight -= 1;
        let (site, count) = &mut node.of[which];
        let site = *site;
        *count -= 1;
        if *count == 0 {
            node.of.swap_remove(which);
        }
        Some(site)
    }

    /// A node serves another site from now on.
    pub(super) fn assign(&mut self, node: usize, site: usize) {
        let from = std::mem::replace(&mut self.nodes[node].site, site);
        self.serve[from].retain(|it| *it != node);
        self.serve[site].push(node);
        for _ in 0..std::mem::take(&mut self.waiting[site]) {
            self.arrive(site);
        }
    }
}
