//! Programs that stay when the process ends: installed, shown, removed.
//!
//! XDP and TC programs stay at their interface by themselves; what counts task switches stays
//! through a pin in the BPF file system, beside the programs and their maps. The folder's name
//! is made of the network namespace and the port, so that containers with agents of their own
//! do not meet.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use libbpf_rs::query::ProgInfoIter;
use libbpf_rs::{Link, MapHandle, Program};
use rustix::mount::MountFlags;
use tidegate_core::load::Rung;

use super::cost::Cost;
use super::hook::Hook;
use super::object::{listen, refused};
use super::{KernelError, KernelOptions, KernelResponder, map};
use crate::interface::Interface;
use crate::udp::ResponderStats;

/// Where the BPF file system is.
const BPF_FILES: &str = "/sys/fs/bpf";
/// What statfs calls it.
const BPF_MAGIC: i64 = 0xcafe_4a11;
const FOLDER: &str = "tidegate";
/// Of that folder and those in it: for their user alone.
const FOLDER_MODE: u32 = 0o700;
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
        // Nothing else answers front-ends on the node's own host then.
        let silent_locally = self.answer_locally()?;
        mount();
        let folder = folder(options.listen.port())?;
        make_own(&folder)?;
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
    if fs::symlink_metadata(&folder).is_err() {
        return Ok(None);
    }
    check_own(&folder)?;
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

/// Makes the folder of a port, and the one around it where that is missing: both of this user alone.
fn make_own(folder: &Path) -> Result<(), KernelError> {
    let make = |path: &Path| fs::DirBuilder::new().mode(FOLDER_MODE).create(path);
    let around = folder.parent().unwrap_or(Path::new(BPF_FILES));
    match make(around) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            return Err(pins(around, &error.to_string()));
        }
        Ok(()) | Err(_) => {}
    }
    is_own(around)?;
    make(folder).map_err(|error| {
        if error.kind() == ErrorKind::AlreadyExists {
            pins(folder, "something is installed here already")
        } else {
            pins(folder, &error.to_string())
        }
    })
}

/// Checks the folder of a port and the one around it: another user could have put programs there.
fn check_own(folder: &Path) -> Result<(), KernelError> {
    folder.parent().map_or(Ok(()), is_own)?;
    is_own(folder)
}

/// Whether a folder is one, is this user's, and is closed to all others.
fn is_own(path: &Path) -> Result<(), KernelError> {
    let about = fs::symlink_metadata(path).map_err(|error| pins(path, &error.to_string()))?;
    let own = rustix::process::geteuid().as_raw();
    let mode = about.mode() & 0o7777;
    if about.is_dir() && about.uid() == own && mode == FOLDER_MODE {
        return Ok(());
    }
    let user = about.uid();
    let text =
        format!("it is not a folder of this user alone (user {user}, mode {mode:04o}); remove it");
    Err(pins(path, &text))
}

/// Mounts the BPF file system where it is missing; systemd does that at start. Whether it could
/// is seen when it is looked for.
fn mount() {
    if !is_mounted(BPF_FILES) {
        mount_at(BPF_FILES).ok();
    }
}

/// Closed to other users, as systemd does it; the kernel's own default is open to all.
fn mount_at(path: &str) -> rustix::io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount("bpf", path, "bpf", flags, c"mode=0700")
}

fn is_mounted(path: &str) -> bool {
    rustix::fs::statfs(path).is_ok_and(|it| it.f_type == BPF_MAGIC)
}

/// The folder for a port of this network namespace.
fn folder(port: u16) -> Result<PathBuf, KernelError> {
    let files = Path::new(BPF_FILES);
    if !is_mounted(BPF_FILES) {
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let name = format!("tidegate-pins-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn folders_are_closed_to_others_and_none_that_was_planted_is_used() {
        let scratch = scratch("folders");
        let around = scratch.join(FOLDER);
        let folder = around.join("1-9901");
        make_own(&folder).unwrap();
        for path in [&around, &folder] {
            let mode = fs::metadata(path).unwrap().permissions().mode();
            assert_eq!(mode & 0o7777, FOLDER_MODE, "{}", path.display());
        }
        check_own(&folder).unwrap();
        let again = make_own(&folder).unwrap_err().to_string();
        assert!(again.contains("installed here already"), "{again}");
        // Open to others: what is in it may be theirs.
        for mode in [0o777, 0o755, 0o1777] {
            fs::set_permissions(&around, PermissionsExt::from_mode(mode)).unwrap();
            let why = check_own(&folder).unwrap_err().to_string();
            assert!(why.contains("not a folder of this user alone"), "{why}");
            assert!(make_own(&around.join("1-9902")).is_err());
        }
        fs::remove_dir_all(&around).unwrap();
        // A link to a folder that is ours.
        let elsewhere = scratch.join("elsewhere");
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&elsewhere)
            .unwrap();
        symlink(&elsewhere, &around).unwrap();
        assert!(make_own(&folder).is_err());
        assert!(check_own(&folder).is_err());
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
        fs::remove_dir_all(&scratch).unwrap();
    }

    #[test]
    fn the_file_system_is_mounted_for_its_user_alone() {
        let path = scratch("mount");
        let name = path.to_str().unwrap().to_owned();
        // A thread of its own, with mounts of its own that end with it.
        let mounted = std::thread::spawn(move || {
            // SAFETY: this thread shares no descriptors, and has no more use for its parent's mounts.
            let apart =
                unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) };
            apart.map_err(|error| format!("mounts of its own: {error}"))?;
            let private = rustix::mount::MountPropagationFlags::PRIVATE
                | rustix::mount::MountPropagationFlags::REC;
            rustix::mount::mount_change("/", private)
                .map_err(|error| format!("mounts of its own: {error}"))?;
            mount_at(&name).map_err(|error| format!("a BPF file system: {error}"))?;
            assert!(is_mounted(&name));
            Ok::<_, String>(fs::metadata(&name).unwrap().permissions().mode())
        });
        match mounted.join().unwrap() {
            Ok(mode) => assert_eq!(mode & 0o777, 0o700),
            Err(why) => println!("SKIPPED: not permitted: {why}"),
        }
        fs::remove_dir_all(&path).unwrap();
    }
}
