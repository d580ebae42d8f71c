//! What operators ask for in experiments of moves: random nodes between two sites, and the light load beside it.
//!
//! ```text
//! shop, blog    4 of 8 servers each at first, 1 to 7 later     a request takes 1 ms of CPU
//! ```

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tidegate_core::prng::Prng;

use crate::front::{Site, SiteTargets};
use crate::load::{LoadPlan, Pacing, Requests, Stream};

use super::super::workload;
use super::WARM_UP;

pub(super) const SITES: [&str; 2] = ["shop", "blog"];
/// Nodes of a site at first.
pub(super) const EACH: usize = workload::NODES / SITES.len();
/// Least and most nodes of a site.
pub(super) const BOUNDS: (usize, usize) = (1, workload::NODES - 1);
/// Clients of each site.
pub(super) const KEPT: u32 = 8;
pub(super) const PER_REQUEST: u32 = 4;
/// Clients rest so long on the average.
pub(super) const THINK: Duration = Duration::from_millis(100);
const TIMEOUT: Duration = Duration::from_secs(10);
/// Of the moves: the same for all rounds.
const SEED: u64 = 1;

/// The sites with the nodes that they have at first, for front-ends that share them.
pub(super) fn site_targets() -> Vec<SiteTargets> {
    let sites = SITES.iter().enumerate().map(|(place, name)| SiteTargets {
        name: (*name).into(),
        nodes: (place * EACH..(place + 1) * EACH).collect(),
    });
    sites.collect()
}

/// Which node goes to which site next.
pub(super) struct Orders {
    /// Names of nodes, and the place of the site that each serves.
    nodes: Vec<(String, usize)>,
    prng: Prng,
}

impl Orders {
    /// With the nodes where these sites have them.
    pub(super) fn new(sites: &[Site]) -> Self {
        let nodes = sites.iter().enumerate().flat_map(|(place, site)| {
            let servers = site.servers.iter();
            servers.map(move |server| (server.name.clone(), place))
        });
        Self {
            nodes: nodes.collect(),
            prng: Prng::new(SEED),
        }
    }

    /// With the nodes where a front-end has them, by its answer to `GET /api/status`.
    pub(super) fn see(&mut self, status: &Value) {
        for (place, name) in SITES.iter().enumerate() {
            let sites = status["sites"].as_array().into_iter().flatten();
            let own = sites.filter(|it| it["name"] == *name);
            let nodes = own.flat_map(|it| it["nodes"].as_array().into_iter().flatten());
            for node in nodes {
                let known = self.nodes.iter_mut().find(|it| node["name"] == it.0);
                if let Some((_, at)) = known {
                    *at = place;
                }
            }
        }
    }

    /// Nodes that are at another site than that with which their name begins, each with that site.
    pub(super) fn away(&self) -> Vec<(String, &'static str)> {
        let home = |(name, at): &(String, usize)| {
            let home = SITES.iter().find(|site| name.starts_with(**site))?;
            (SITES[*at] != *home).then(|| (name.clone(), *home))
        };
        self.nodes.iter().filter_map(home).collect()
    }

    /// A random node of those whose site has more than its least, and the other site.
    pub(super) fn next(&mut self) -> (String, &'static str) {
        let count = |site| self.nodes.iter().filter(|(_, at)| *at == site).count();
        let may_give = [count(0) > BOUNDS.0, count(1) > BOUNDS.0];
        let nodes = 0..self.nodes.len();
        let may_go: Vec<_> = nodes.filter(|node| may_give[self.nodes[*node].1]).collect();
        let node = may_go[self.prng.below(may_go.len())];
        let (name, site) = &mut self.nodes[node];
        *site = 1 - *site;
        (name.clone(), SITES[*site])
    }
}

/// Some clients of each site, which rest between two requests, on connections that they keep or not.
pub(super) fn light_load(
    targets: Vec<SocketAddr>,
    length: Duration,
    connection_per_request: bool,
) -> LoadPlan {
    let clients = match connection_per_request {
        true => PER_REQUEST,
        false => KEPT,
    };
    let stream = |site: &str| Stream {
        site: site.into(),
        pacing: Pacing::Closed {
            clients,
            think: THINK,
        },
        requests: Requests::Single {
            path: "/work?cpu=1ms&bytes=1024".into(),
        },
        header: None,
    };
    LoadPlan {
        targets,
        streams: SITES.map(stream).into(),
        warm_up: WARM_UP,
        length,
        timeout: TIMEOUT,
        connection_per_request,
        ..LoadPlan::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::front::{self, Server};

    #[test]
    fn orders_leave_each_site_its_floor() {
        let server = |name: String| Server {
            name,
            address: ([127, 0, 0, 1], 80).into(),
            load: front::Load::None,
            agent_check: None,
        };
        let site = |name: &str| {
            let servers = (0..EACH).map(|number| server(format!("{name}-{number}")));
            Site::of(name, servers.collect())
        };
        let mut orders = Orders::new(&SITES.map(site));
        let mut least = EACH;
        for _ in 0..1000 {
            let before = orders.nodes.clone();
            let (name, site) = orders.next();
            let from = before.iter().find(|it| it.0 == name).unwrap().1;
            assert_ne!(SITES[from], site, "{name} is there already");
            let shop = orders.nodes.iter().filter(|it| it.1 == 0).count();
            least = least.min(shop).min(workload::NODES - shop);
        }
        assert_eq!(least, BOUNDS.0);
        let node = |number: usize| json!({ "name": format!("shop-{number}") });
        let status = json!({ "sites": [
            { "name": "shop", "nodes": [node(0), node(1), node(2)] },
            { "name": "blog", "nodes": [node(3)] },
        ]});
        let mut orders = Orders::new(&SITES.map(site));
        assert_eq!(orders.away(), []);
        orders.see(&status);
        assert_eq!(orders.away(), [("shop-3".to_owned(), "shop")]);
    }
}
