//! Resources: nodes that serve no requests and whose load is read all the same, like the host of a database
//! that stands behind the servers.
//!
//! They have a load table and a reader of their own: no policy sees them, nothing is sent to them, and
//! their losing touch changes nothing for any request. Read each [`INTERVAL`] or as seldom as nodes are:
//! the search for what loads them wants windows of a tenth of a second.
//!
//! They follow the configuration. What keeps its name keeps its place; a place that is free goes to another one once the
//! reader knows that, with a generation more.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tidegate_core::load::{Counters, LoadTable, NodeLoad};
use tidegate_core::topology::NodeId;
use tidegate_culprits::live::front_end::{ResourceNode, ResourceSet};
use tidegate_remote::reader::{ReaderError, ReaderOptions};

use crate::config::{ReadPace, Resource};
use crate::models::ReadStatus;
use crate::reads::{ReadNode, Reads, WantedReads};

/// Shortest time between two reads.
pub(crate) const INTERVAL: Duration = Duration::from_millis(10);

/// See the module.
#[derive(Debug)]
pub(crate) struct Resources {
    set: ArcSwap<ResourceSet>,
    /// By place: which node has it or had it last.
    places: Mutex<Vec<Place>>,
    table: Arc<LoadTable>,
    reads: Reads,
}

/// A place in the table.
#[derive(Clone, Debug)]
struct Place {
    name: String,
    generation: u32,
    /// Since which version it is free; none: it is in use.
    free_since: Option<u64>,
}

impl Resources {
    /// Starts to read them.
    pub(crate) fn start(
        resources: &[Resource],
        options: ReaderOptions,
    ) -> Result<Self, ReaderError> {
        let table = Arc::new(LoadTable::new(resources.len(), 0));
        let interval = options.interval;
        let started = Self {
            reads: Reads::start(&WantedReads::default(), &[], options, &table)?,
            table,
            ..Self::default()
        };
        started.follow(resources, interval)?;
        Ok(started)
    }

    /// These are the resources from now on, and nodes are read so often.
    ///
    /// # Errors
    /// They are not read as wanted.
    pub(crate) fn follow(
        &self,
        resources: &[Resource],
        interval: Duration,
    ) -> Result<(), ReaderError> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let version = self.set.load().version + 1;
        for place in places.iter_mut().filter(|it| it.free_since.is_none()) {
            if resources.iter().all(|it| it.name != place.name) {
                place.free_since = Some(version);
            }
        }
        let followed = self.reads.followed();
        let nodes = resources.iter().map(|it| {
            let place = self.place(&mut places, &it.name, followed);
            ResourceNode {
                name: it.name.clone(),
                address: it.address,
                place: place as u32,
                generation: places[place].generation,
            }
        });
        let nodes: Vec<_> = nodes.collect();
        let wanted = WantedReads {
            nodes: resources
                .iter()
                .map(|it| (it.name.clone(), it.read.clone()))
                .collect(),
            interval: interval.max(INTERVAL),
            pace: ReadPace::default(),
        };
        let read = nodes.iter().map(|node| ReadNode {
            id: NodeId(node.place),
            generation: node.generation,
            name: &node.name,
        });
        let read: Vec<_> = read.collect();
        let read = self.reads.follow(&wanted, &read, version);
        self.set.store(Arc::new(ResourceSet { version, nodes }));
        read
    }

    /// The place of that name; one that is free by now, or a new one.
    fn place(&self, places: &mut Vec<Place>, name: &str, followed: u64) -> usize {
        let in_use = |it: &Place| it.free_since.is_none() && it.name == name;
        if let Some(known) = places.iter().position(in_use) {
            return known;
        }
        let is_free = |it: &Place| it.free_since.is_some_and(|since| since <= followed);
        let free = places.iter().position(is_free);
        let place = free.unwrap_or(places.len());
        let had = free.map(|place| places[place].generation);
        let new = Place {
            name: name.into(),
            generation: had.map_or(0, |generation| generation + 1),
            free_since: None,
        };
        match places.get_mut(place) {
            Some(it) => *it = new,
            None => places.push(new),
        }
        self.table.reserve(place + 1, 0);
        self.table.clear(NodeId(place as u32));
        place
    }

    /// Those that there are now.
    pub(crate) fn set(&self) -> Arc<ResourceSet> {
        self.set.load_full()
    }

    /// The counters of the one at a place, as they were read last.
    pub(crate) fn counters(&self, place: u32) -> Option<Counters> {
        self.table.counters(NodeId(place))
    }

    /// The same of all, by their places.
    pub(crate) fn counters_of_all(&self) -> Arc<[Option<Counters>]> {
        let places = 0..self.table.nodes() as u32;
        places.map(|place| self.counters(place)).collect()
    }

    /// Each with its last load and how the reads go.
    pub(crate) fn all(&self) -> Vec<(ResourceNode, NodeLoad, Option<ReadStatus>)> {
        let set = self.set.load_full();
        let of = |node: &ResourceNode| {
            let id = NodeId(node.place);
            (node.clone(), self.table.last(id), self.reads.status(id))
        };
        set.nodes.iter().map(of).collect()
    }
}

impl Default for Resources {
    fn default() -> Self {
        Self {
            set: ArcSwap::default(),
            places: Mutex::default(),
            table: Arc::new(LoadTable::new(0, 0)),
            reads: Reads::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::NodeRead;

    fn resource(name: &str) -> Resource {
        Resource {
            name: name.into(),
            address: ([127, 0, 0, 1], 0).into(),
            read: NodeRead::None,
        }
    }

    fn places(resources: &Resources) -> Vec<(String, u32, u32)> {
        let set = resources.set();
        let nodes = set.nodes.iter();
        nodes
            .map(|it| (it.name.clone(), it.place, it.generation))
            .collect()
    }

    #[test]
    fn what_keeps_its_name_keeps_its_place_and_a_free_one_is_another_ones_with_a_generation_more() {
        let resources = Resources::default();
        let follow = |names: &[&str]| {
            let wanted: Vec<_> = names.iter().map(|name| resource(name)).collect();
            resources.follow(&wanted, INTERVAL).unwrap();
            places(&resources)
        };
        let is = |name: &str, place, generation| (name.to_owned(), place, generation);
        assert_eq!(follow(&["db", "disk"]), [is("db", 0, 0), is("disk", 1, 0)]);
        let version = resources.set().version;
        assert_eq!(
            follow(&["disk", "mail"]),
            [is("disk", 1, 0), is("mail", 0, 1)]
        );
        assert_eq!(resources.set().version, version + 1);
        assert_eq!(follow(&["db"]), [is("db", 0, 2)]);
        assert_eq!(follow(&[]), []);
    }
}
