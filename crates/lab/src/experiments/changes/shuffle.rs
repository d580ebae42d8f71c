//! Which servers the sites have after each change: an endless row of changes that leave each site its capacity.
//!
//! ```text
//! 1 add          the spare joins a site                     sites of 3 and 4
//! 2 move         one server of each site changes places
//! 3 remove       a server of the larger site is the spare   sites of 3 and 3
//! 4 re-address   a server has the spare's address and load, the spare its
//! ```
//!
//! Inputs: the first layout, and a seed that says which servers. Names stay with their servers.

use std::mem;

use tidegate_core::prng::Prng;

use crate::front::{Server, Site};

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Add,
    Move,
    Remove,
    ReAddress,
}

/// In their order.
const STEPS: [Step; 4] = [Step::Add, Step::Move, Step::Remove, Step::ReAddress];

/// See the module.
#[derive(Debug)]
pub(super) struct Shuffle {
    sites: Vec<Site>,
    spares: Vec<Server>,
    prng: Prng,
    number: usize,
}

impl Shuffle {
    /// Two sites or more with a server each or more, and a spare or more.
    pub(super) fn new(sites: Vec<Site>, spares: Vec<Server>, seed: u64) -> Self {
        Self {
            sites,
            spares,
            prng: Prng::new(seed),
            number: 0,
        }
    }

    /// The sites after the next change.
    pub(super) fn next(&mut self) -> Vec<Site> {
        let step = STEPS[self.number % STEPS.len()];
        self.number += 1;
        match step {
            Step::Add => self.add(),
            Step::Move => self.swap_sites(),
            Step::Remove => self.remove(),
            Step::ReAddress => self.re_address(),
        }
        self.sites.clone()
    }

    fn draw(&mut self, of: usize) -> usize {
        self.prng.below(of)
    }

    fn add(&mut self) {
        let spare = self.draw(self.spares.len());
        let site = self.draw(self.sites.len());
        let server = self.spares.swap_remove(spare);
        self.sites[site].servers.push(server);
    }

    fn swap_sites(&mut self) {
        let first = self.draw(self.sites[0].servers.len());
        let second = self.draw(self.sites[1].servers.len());
        let (head, tail) = self.sites.split_at_mut(1);
        mem::swap(&mut head[0].servers[first], &mut tail[0].servers[second]);
    }

    fn remove(&mut self) {
        let lengths = self.sites.iter().map(|site| site.servers.len());
        let largest = lengths.enumerate().max_by_key(|(_, length)| *length);
        let site = largest.map_or(0, |(site, _)| site);
        let server = self.draw(self.sites[site].servers.len());
        let gone = self.sites[site].servers.swap_remove(server);
        self.spares.push(gone);
    }

    fn re_address(&mut self) {
        let spare = self.draw(self.spares.len());
        let site = self.draw(self.sites.len());
        let server = self.draw(self.sites[site].servers.len());
        let (server, spare) = (
            &mut self.sites[site].servers[server],
            &mut self.spares[spare],
        );
        mem::swap(&mut server.address, &mut spare.address);
        mem::swap(&mut server.load, &mut spare.load);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::SocketAddr;

    use super::*;

    fn server(number: u16) -> Server {
        Server {
            name: format!("s{number}"),
            address: SocketAddr::from(([127, 0, 0, 1], number)),
            load: Default::default(),
            agent_check: None,
        }
    }

    #[test]
    fn no_site_ever_has_fewer_servers_than_at_the_start_and_none_serves_twice() {
        let site = |name: &str, numbers: [u16; 3]| Site::of(name, numbers.map(server).into());
        let sites = vec![site("shop", [1, 2, 3]), site("blog", [4, 5, 6])];
        let mut shuffle = Shuffle::new(sites, vec![server(7), server(8)], 1);
        let (mut moved, mut re_addressed) = (BTreeSet::new(), 0);
        for _ in 0..400 {
            let sites = shuffle.next();
            let all: Vec<_> = sites.iter().flat_map(|site| &site.servers).collect();
            let names: BTreeSet<_> = all.iter().map(|it| &it.name).collect();
            let addresses: BTreeSet<_> = all.iter().map(|it| it.address).collect();
            assert_eq!((names.len(), addresses.len()), (all.len(), all.len()));
            assert!(
                sites
                    .iter()
                    .all(|site| (3..=4).contains(&site.servers.len()))
            );
            assert!((6..=7).contains(&all.len()));
            let in_shop = sites[0].servers.iter().map(|it| it.name.clone());
            moved.extend(in_shop);
            let own = |it: &&&Server| it.name == format!("s{}", it.address.port());
            re_addressed += all.iter().filter(|it| !own(it)).count();
        }
        assert_eq!(moved.len(), 8, "each has served the shop");
        assert!(re_addressed > 100);
    }
}
