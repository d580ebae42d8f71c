//! Programs that stay when the process ends: installed, shown, removed.
//!
//! XDP and TC programs stay at their interface by themselves; what counts task switches stays
//! through a pin in the BPF file system, beside the programs and their maps. The folder's name
//! is made of the network namespace and the port, so that containers with agents of their own
//! do not meet.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use libbpf_rs::query::ProgInfoIter;
use libbpf_rs::{Link, MapHandle, Program};
use rustix::mount::MountFlags;
use tidegate_core::load::Rung;

use super::cost::Cost;
use super::hook::{Hook, Interface};
use super::object::{listen, refused};
use super::{KernelError, KernelOptions, KernelResponder, map};
use crate::udp::ResponderStats;

/// Where the BPF file system is.
const BPF_FILES: &str = "/sys/fs/bpf";
/// What statfs calls it.
const BPF_MAGIC: i64 = 0xcafe_4a11;
const FOLDER: &str = "tidegate";
/// What is pinned, by its name.
const PROGRAMS: [&str; 2] = ["xdp_respond", "tc_respond"];
const SWITCHES: &str = "on_switch";
/// What holds an XDP program at an interface is pinned under this and the interface's number.
const LINK: &str = "at-";
const MAPS: [&str; 4] = ["counts", "slow", "words", "keys"];

/// What is installed.
#[derive(Debug)]
pub struct Installed {
    /// Its folder in the BPF file system.
    pub folder: PathBuf,
    /// Interfaces and the rungs at which they answer.
    pub rungs: Vec<(Interface, Rung)>,
    /// Whether task switches are counted.
    pub counts_switches: bool,
    /// What it has done so far.
    pub stats: ResponderStats,
    /// Why front-ends on this host get no answer, if it was found when this was installed.
    pub silent_locally: Option<String>,
    /// CPU time that a packet took, ours or not; known while `kernel.bpf_stats_enabled` is 1.
    pub cost: Option<Duration>,
}

impl KernelResponder {
    /// Leaves the programs where they are: they answer from then on without any process.
    ///
    /// # Errors
    /// If something is installed for this port already, or there is no BPF file system. Then
    /// nothing stays.
    pub fn install(mut self, options: &KernelOptions) -> Result<Installed, KernelError> {
        // Nobody else answers front-ends on the node's own host then.
        let silent_locally = self.answer_locally()?;
        mount();
        let folder = folder(options.listen.port())?;
        if folder.exists() {
            return Err(pins(&folder, "something is installed here already"));
        }
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)
            .map_err(|error| pins(&folder, &error.to_string()))?;
        if let Err(error) = self.pin(&folder) {
            remove(&folder)?;
            return Err(error);
        }
        // Not detached when this is dropped.
        self.hooks.clear();
        let installed = show(options.listen.port())?
            .ok_or_else(|| pins(&folder, "what was installed is gone again"))?;
        Ok(Installed {
            silent_locally,
            ..installed
        })
    }

    fn pin(&mut self, folder: &Path) -> Result<(), KernelError> {
        for name in PROGRAMS {
            let mut program = self.programs.program(name)?;
            program
                .pin(folder.join(name))
                .map_err(refused("keep a program"))?;
        }
        for name in MAPS {
            let mut map = self.programs.map_mut(name)?;
            map.pin(folder.join(name)).map_err(refused("keep a map"))?;
        }
        for hook in &self.hooks {
            let name = format!("{LINK}{}", hook.interface.index);
            hook.pin(&folder.join(name))
                .map_err(refused("keep a program at its interface"))?;
        }
        self.switches
            .pin(folder.join(SWITCHES))
            .map_err(refused("keep counting task switches"))
    }
}

/// What is installed for a port of this network namespace, if anything is.
///
/// # Errors
/// If the kernel does not tell.
pub fn show(port: u16) -> Result<Option<Installed>, KernelError> {
    listen();
    let folder = folder(port)?;
    if !folder.exists() {
        return Ok(None);
    }
    let counts = MapHandle::from_pinned_path(folder.join("counts"))
        .map_err(refused("open the counters of what is installed"))?;
    let hooks = hooks(&folder, port)?;
    let cost = cost(&hooks);
    let rungs = hooks
        .into_iter()
        .map(|hook| (hook.interface, hook.rung))
        .collect();
    Ok(Some(Installed {
        cost,
        rungs,
        counts_switches: Link::open(folder.join(SWITCHES)).is_ok(),
        stats: map::stats(&counts)?,
        silent_locally: None,
        folder,
    }))
}

/// Removes what is installed for a port; gives what it was.
///
/// # Errors
/// If something cannot be removed.
pub fn uninstall(port: u16) -> Result<Option<Installed>, KernelError> {
    let Some(installed) = show(port)? else {
        return Ok(None);
    };
    let failed = "take a program from its interface";
    for link in links(&installed.folder)? {
        link.detach().map_err(refused(failed))?;
    }
    // Those that no link holds.
    for hook in hooks(&installed.folder, port)? {
        hook.detach().map_err(refused(failed))?;
    }
    remove(&installed.folder)?;
    Ok(Some(installed))
}

/// Whether programs are installed for a port of this network namespace.
pub(super) fn is_installed(port: u16) -> bool {
    // Without a BPF file system nothing is.
    folder(port).is_ok_and(|folder| folder.exists())
}

/// What holds installed XDP programs at their interfaces.
fn links(folder: &Path) -> Result<Vec<Link>, KernelError> {
    let listed = fs::read_dir(folder).map_err(|error| pins(folder, &error.to_string()))?;
    let mut links = Vec::new();
    for entry in listed {
        let entry = entry.map_err(|error| pins(folder, &error.to_string()))?;
        if entry.file_name().to_string_lossy().starts_with(LINK) {
            let link = Link::open(entry.path());
            links.push(link.map_err(refused("open what holds a program"))?);
        }
    }
    Ok(links)
}

fn hooks(folder: &Path, port: u16) -> Result<Vec<Hook>, KernelError> {
    let mut hooks = Vec::new();
    for name in PROGRAMS {
        let program = Program::fd_from_pinned_path(folder.join(name))
            .map_err(refused("open an installed program"))?;
        let at =
            Hook::of_program(program.as_fd(), port).map_err(refused("look at the interfaces"))?;
        hooks.extend(at);
    }
    Ok(hooks)
}

/// Mean run time of these programs.
fn cost(hooks: &[Hook]) -> Option<Duration> {
    let numbers: BTreeSet<_> = hooks.iter().map(Hook::number).collect();
    let ours = ProgInfoIter::default().filter(|it| numbers.contains(&it.id));
    ours.fold(Cost::default(), |cost, it| cost.and(&it)).mean()
}

fn remove(folder: &Path) -> Result<(), KernelError> {
    fs::remove_dir_all(folder).map_err(|error| pins(folder, &error.to_string()))
}

/// Mounts the BPF file system where it is missing; systemd does that at start. Whether it could
/// is seen when it is looked for.
fn mount() {
    if !is_mounted() {
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        rustix::mount::mount("bpf", BPF_FILES, "bpf", flags, None).ok();
    }
}

fn is_mounted() -> bool {
    rustix::fs::statfs(BPF_FILES).is_ok_and(|it| it.f_type == BPF_MAGIC)
}

/// The folder for a port of this network namespace.
fn folder(port: u16) -> Result<PathBuf, KernelError> {
    let files = Path::new(BPF_FILES);
    if !is_mounted() {
        let how = "no BPF file system is mounted here; `mount -t bpf bpf /sys/fs/bpf` does it";
        return Err(pins(files, how));
    }
    let namespace = fs::metadata("/proc/self/ns/net")
        .map_err(|error| pins(Path::new("/proc/self/ns/net"), &error.to_string()))?;
    Ok(files
        .join(FOLDER)
        .join(format!("{}-{port}", namespace.ino())))
}

fn pins(path: &Path, error: &str) -> KernelError {
    KernelError::Pins {
        path: path.to_path_buf(),
        error: error.to_owned(),
    }
}
