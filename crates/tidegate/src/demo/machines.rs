//! The demo's nodes: emulated by the lab, with their load records in a folder of their own.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tidegate_emulator::CachePlan;
use tidegate_emulator::nodes::{self as emulated, AgentPlan, EmulatedError, WORKERS_MAX};
use tidegate_remote::clock;

/// Time between two records of a node.
const INTERVAL: Duration = Duration::from_millis(1);

/// See the module. Dropped in this order.
#[derive(Debug)]
pub(super) struct Machines {
    pub(super) nodes: emulated::Machines,
    _folder: Folder,
}

impl Machines {
    /// Starts nodes of these names, with so many CPUs.
    pub(super) fn start<'a>(
        nodes: impl Iterator<Item = (&'a str, u32)>,
    ) -> Result<Self, EmulatedError> {
        let folder = Folder::make()?;
        let plan = |(name, cores): (&str, u32)| emulated::NodePlan {
            name: name.to_owned(),
            cores: f64::from(cores),
            workers: WORKERS_MAX,
            cache: CachePlan::default(),
            agents: vec![AgentPlan {
                interval: INTERVAL,
                inside: false,
            }],
        };
        let plans: Vec<_> = nodes.map(plan).collect();
        Ok(Self {
            nodes: emulated::Machines::start(&plans, &folder.0)?,
            _folder: folder,
        })
    }

    /// Where the nodes publish their load.
    pub(super) fn regions(&self) -> impl Iterator<Item = &PathBuf> {
        self.nodes.regions().iter().flatten()
    }
}

#[derive(Debug)]
struct Folder(PathBuf);

impl Folder {
    /// A folder of our own for the regions, in memory where there is such a place.
    fn make() -> io::Result<Self> {
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() {
            memory.to_path_buf()
        } else {
            std::env::temp_dir()
        };
        // A demo that was killed leaves its folder, and numbers of processes come again.
        let now = clock::now().nanos();
        let folder = parent.join(format!("tidegate-demo-{}-{now:x}", std::process::id()));
        std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700)
            .create(&folder)?;
        Ok(Self(folder))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // The regions have removed their files; what is left is an empty folder.
        std::fs::remove_dir(&self.0).ok();
    }
}
