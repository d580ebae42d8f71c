//! What discovery is given by the front-end that it runs in.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::culprits::RequestEvent;
use tidegate_core::culprits::delay_experiment::Assignment;
use tidegate_core::load::Counters;
use tidegate_core::throttle::{ClassPattern, SetBy, SetError, Throttle, ThrottleLimits};
use tidegate_core::time::Timestamp;

/// The clocks of the process.
#[derive(Clone, Copy, Debug)]
pub struct Clocks {
    /// The time by which all that happens is ordered.
    pub now: fn() -> Timestamp,
    /// The time since the Unix epoch.
    pub unix: fn() -> Duration,
}

/// What workers say of requests.
pub trait RequestEvents: Debug + Send {
    /// Takes what there is, of each worker in its order. True if events are missing: requests may seem to never end.
    fn drain(&mut self, take: &mut dyn FnMut(RequestEvent)) -> bool;
}

/// The throttles of the front-end.
pub trait Throttles: Debug + Send {
    /// All that stand.
    fn all(&self) -> Vec<Throttle>;

    /// Throttles a class from now on, or changes how it is throttled.
    ///
    /// # Errors
    /// The limits make no sense, or there are too many throttles; then nothing has changed.
    fn set(
        &self,
        pattern: ClassPattern,
        limits: ThrottleLimits,
        set_by: SetBy,
        now: Timestamp,
    ) -> Result<(), SetError>;

    /// Releases the class of this name; what its throttle has done, if there was one.
    fn release(&self, name: &str, now: Timestamp) -> Option<Throttle>;
}

/// The delay experiments of the front-end, one at a time.
pub trait DelayExperiments: Debug + Send {
    /// From now on requests of the class are assigned, until the time is over or the result is dropped.
    ///
    /// # Errors
    /// Why the class cannot be tested.
    fn begin(
        &self,
        pattern: ClassPattern,
        delay: Duration,
        until: Timestamp,
    ) -> Result<Box<dyn Assignments>, String>;
}

/// A delay experiment that runs there. Dropping it ends it: delayed requests go on at once.
pub trait Assignments: Debug + Send {
    /// What was assigned since it was last asked, each worker's in order.
    fn take(&mut self) -> Vec<Assignment>;
}

/// Nodes that serve no requests and whose load is read all the same.
pub trait ResourceNodes: Debug + Send + Sync {
    /// Those that there are now.
    fn nodes(&self) -> Arc<ResourceSet>;

    /// The counters of the one at a place, as they were read last.
    fn counters(&self, place: u32) -> Option<Counters>;

    /// Those whose load is not read.
    fn unread(&self) -> Vec<UnreadNode>;
}

/// The nodes that are resources alone, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceSet {
    /// Grows with each change.
    pub version: u64,
    /// All of them.
    pub nodes: Vec<ResourceNode>,
}

/// A node that is a resource alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceNode {
    /// Its name.
    pub name: String,
    /// Its host.
    pub address: SocketAddr,
    /// Where its counters are.
    pub place: u32,
    /// Which of the nodes that have had its place.
    pub generation: u32,
}

/// A node whose load is not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadNode {
    /// Its name.
    pub name: String,
    /// Its host.
    pub address: SocketAddr,
    /// Why it is not.
    pub why: String,
}

/// Where it is said what happens.
pub trait EventLog: Debug + Send + Sync {
    /// Something of this kind happened now.
    fn event(&self, event: &str, text: &str);
}

/// A file that is kept over a restart, in a folder that one front-end at a time has for itself.
pub trait KeptFile: Debug + Send {
    /// Its path.
    fn path(&self) -> &Path;

    /// The folder that it is in.
    fn folder(&self) -> &Path;

    /// What it is called once it was set aside.
    fn aside(&self) -> PathBuf;

    /// What is in it, if it is there and no other user could have written it; at most so many bytes.
    ///
    /// # Errors
    /// Why it is not used, without the path.
    fn read(&self, most: usize) -> Result<Option<Vec<u8>>, String>;

    /// What is there now was not read: the next write sets it aside rather than replacing it.
    fn spare(&mut self);

    /// Whether this front-end has the folder.
    fn has_folder(&self) -> bool;

    /// Takes the folder, until this is dropped.
    ///
    /// # Errors
    /// It cannot be written to, or another front-end has it.
    fn take_folder(&mut self) -> Result<(), String>;

    /// Replaces it.
    ///
    /// # Errors
    /// It cannot be written, another front-end has the folder, or it can be neither replaced nor set aside.
    fn write(&mut self, bytes: &[u8]) -> Result<(), String>;
}
