//! How a region's memory gets to the other processes of its host: a socket under the region's name
//! hands it out.
//!
//! Memory without a name cannot be replaced, opened through a link or cut short behind a reader's
//! back. The owner seals it, and each front-end makes sure of the seals and of the owner's user
//! before it touches a byte.
//!
//! ```text
//!  owner:     memory, sealed ── .<random> bound, then renamed ──> accept: send descriptors, close
//!  front-end: open the name without following links ── whose is it? ── connect ── whose process is
//!             it? ── take the descriptors ── sealed? ── map
//! ```

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, RenameFlags, SealFlags, chmodat, fcntl_get_seals, fstat, openat,
    renameat_with, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind,
    connect, listen, recvmsg, sendmsg, shutdown, socket_with,
};

use super::layout::REGION_BYTES;
use super::random;
use crate::clock;
use crate::privilege;
use crate::region::RegionError;

/// Connections that wait for the owner's thread.
const BACKLOG: i32 = 64;
/// Rest after the system refused a connection for a reason that may last.
const REFUSED_REST: Duration = Duration::from_millis(10);
/// Stack of the thread, which calls next to nothing.
const STACK_BYTES: usize = 64 * 1024;
/// Descriptors that are handed out: the region, and the kernel's words if they are elsewhere.
const DESCRIPTORS_MAX: usize = 2;
/// Last bytes of a region's name that are part of its turn's address, which has 107 at most. Names
/// with the same end take turns with each other.
const TURN_BYTES: usize = 48;
/// How the kernel calls its maps' descriptors.
const KERNEL_MAP: &str = "anon_inode:bpf-map";

/// Hands a region's memory out as long as it lives.
#[derive(Debug)]
pub(super) struct Door {
    listener: Arc<OwnedFd>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    name: Name,
    /// Which of all files of that name is ours.
    identity: (u64, u64),
}

impl Door {
    /// Takes the region's name, unless it has an owner, and hands this memory out from then on.
    pub(super) fn open(path: &Path, mode: u32, memory: Vec<OwnedFd>) -> Result<Self, RegionError> {
        let name = Name::of(path)?;
        let (listener, identity) = name.listen(mode)?;
        let (listener, stop) = (Arc::new(listener), Arc::new(AtomicBool::new(false)));
        let (tell, told) = sync_channel(1);
        let thread = std::thread::Builder::new()
            .name("tidegate-region".to_owned())
            .stack_size(STACK_BYTES)
            .spawn({
                let (listener, stop) = (Arc::clone(&listener), Arc::clone(&stop));
                move || {
                    let settled = privilege::keep(privilege::NONE);
                    let failed = settled.is_err();
                    // The thread that spawned this one waits for it.
                    tell.send(settled).ok();
                    if !failed {
                        serve(&listener, &memory, &stop);
                    }
                }
            })
            .map_err(RegionError::io("start the region's thread"))?;
        told.recv()
            .unwrap_or(Ok(()))
            .map_err(RegionError::io("give the region's privileges away"))?;
        Ok(Self {
            listener,
            stop,
            thread: Some(thread),
            name,
            identity,
        })
    }

    /// The region's name.
    pub(super) fn path(&self) -> &Path {
        &self.name.path
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // Wakes the thread.
        shutdown(&*self.listener, rustix::net::Shutdown::Both).ok();
        if let Some(thread) = self.thread.take() {
            // A panic was printed by the thread itself; there is nothing to add.
            thread.join().ok();
        }
        // Only what is ours: another owner may have taken the name over, or does so now. What
        // is not removed is replaced by the next owner.
        let turn = self.name.turn();
        if turn.is_ok() && self.name.identity().is_ok_and(|it| it == self.identity) {
            unlinkat(&self.name.folder, &self.name.last, AtFlags::empty()).ok();
        }
    }
}

/// Gives each client the descriptors.
fn serve(listener: &OwnedFd, memory: &[OwnedFd], stop: &AtomicBool) {
    while !stop.load(Ordering::Acquire) {
        match accept(listener) {
            // A client that has gone again gets nothing.
            Ok(client) => drop(send(&client, memory)),
            Err(Errno::INTR | Errno::CONNABORTED) => {}
            // No descriptor is free: others may end meanwhile.
            Err(_) if !stop.load(Ordering::Acquire) => {
                clock::sleep_until(clock::now() + REFUSED_REST);
            }
            Err(_) => {}
        }
    }
}

/// The next client; the owner's thread never waits for it.
fn accept(listener: &OwnedFd) -> Result<OwnedFd, Errno> {
    accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
}

fn send(client: &OwnedFd, memory: &[OwnedFd]) -> io::Result<usize> {
    let descriptors: Vec<BorrowedFd<'_>> = memory.iter().map(AsFd::as_fd).collect();
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    // Descriptors go with at least one byte.
    let byte = [memory.len() as u8];
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    Ok(sendmsg(
        client,
        &[IoSlice::new(&byte)],
        &mut control,
        flags,
    )?)
}

/// A name in an open folder, so that it is the same folder throughout and paths may be long.
#[derive(Debug)]
struct Name {
    path: PathBuf,
    folder: OwnedFd,
    last: std::ffi::OsString,
}

impl Name {
    fn of(path: &Path) -> Result<Self, RegionError> {
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let last = path.file_name().ok_or_else(|| {
            let error = io::Error::new(io::ErrorKind::InvalidInput, "it names no file");
            RegionError::io("name a region")(error)
        })?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(CWD, folder, flags, Mode::empty())
            .map_err(RegionError::io("open a region's folder"))?;
        Ok(Self {
            path: path.to_path_buf(),
            folder,
            last: last.to_owned(),
        })
    }

    /// What has the name now.
    fn identity(&self) -> Result<(u64, u64), Errno> {
        identity(&self.folder, &self.last)
    }

    /// The right to change whose the name is, which one process has at a time and loses with its
    /// life: an abstract address. [`Errno::ADDRINUSE`]: another has it.
    fn turn(&self) -> Result<OwnedFd, Errno> {
        let folder = fstat(&self.folder)?;
        let (device, folder) = (folder.st_dev, folder.st_ino);
        let mut address = format!("tidegate-region-{device:x}-{folder:x}-").into_bytes();
        let last = self.last.as_bytes();
        address.extend(&last[last.len().saturating_sub(TURN_BYTES)..]);
        let socket = stream()?;
        bind(&socket, &SocketAddrUnix::new_abstract_name(&address)?)?;
        Ok(socket)
    }

    /// A socket with the name, and which file it is.
    fn listen(&self, mode: u32) -> Result<(OwnedFd, (u64, u64)), RegionError> {
        let temporary = format!(".{:016x}", random()?);
        let socket = stream().map_err(RegionError::io("make a region's socket"))?;
        self.bind(&socket, &temporary, mode)
            .map_err(RegionError::io("create a region"))?;
        // By the name that is its own: the other may stand for another's for a moment.
        let identity = identity(&self.folder, &temporary)
            .map_err(RegionError::io("look at a region's socket"));
        let taken = identity.and_then(|it| self.take(&temporary).map(|()| it));
        if taken.is_err() {
            // Why it failed is what matters, not that a stray socket may remain.
            unlinkat(&self.folder, &temporary, AtFlags::empty()).ok();
        }
        taken.map(|identity| (socket, identity))
    }

    fn bind(&self, socket: &OwnedFd, temporary: &str, mode: u32) -> Result<(), Errno> {
        let folder = self.folder.as_raw_fd();
        bind(
            socket,
            &SocketAddrUnix::new(format!("/proc/self/fd/{folder}/{temporary}"))?,
        )?;
        // Before anybody can come.
        chmodat(
            &self.folder,
            temporary,
            Mode::from_raw_mode(mode),
            AtFlags::empty(),
        )?;
        listen(socket, BACKLOG)?;
        // Waits for connections, having been made not to wait for its own.
        rustix::io::ioctl_fionbio(socket, false)
    }

    /// Gives the socket the name, in place of one whose owner is dead. At no moment is there
    /// none, and of many that come at once all but one are refused.
    fn take(&self, temporary: &str) -> Result<(), RegionError> {
        let rename =
            |flags| renameat_with(&self.folder, temporary, &self.folder, &self.last, flags);
        let failed = RegionError::io::<Errno>;
        match rename(RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => {}
            done => return done.map_err(failed("give a region its name")),
        }
        let _turn = match self.turn() {
            Err(Errno::ADDRINUSE) => return Err(RegionError::Owned(self.path.clone())),
            turn => turn.map_err(failed("take turns at a region's name"))?,
        };
        let there = openat(
            &self.folder,
            &self.last,
            OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(failed("open the region of before"))?;
        let dead = fstat(&there).map_err(failed("look at the region of before"))?;
        if !is_socket(&dead) {
            return Err(RegionError::NotRegion(self.path.clone()));
        }
        let foreign = || RegionError::Foreign {
            path: self.path.clone(),
            uid: dead.st_uid,
        };
        match connect_to(&there) {
            Err(Errno::CONNREFUSED) => {}
            // Whether its owner lives, others cannot find out.
            Err(Errno::ACCESS) => return Err(foreign()),
            _ => return Err(RegionError::Owned(self.path.clone())),
        }
        rename(RenameFlags::EXCHANGE).map_err(|error| match error {
            // In a folder like /dev/shm only the owner and root can.
            Errno::PERM | Errno::ACCESS => foreign(),
            error => failed("give a region its name")(error),
        })?;
        let replaced = identity(&self.folder, temporary);
        if replaced != Ok((dead.st_dev, dead.st_ino)) {
            // Another came in between, from another network's namespace: it keeps the name.
            rename(RenameFlags::EXCHANGE).map_err(failed("give a region's name back"))?;
            return Err(RegionError::Owned(self.path.clone()));
        }
        // One that stays is in no other's way.
        unlinkat(&self.folder, temporary, AtFlags::empty()).ok();
        Ok(())
    }
}

fn identity(folder: &OwnedFd, name: impl rustix::path::Arg) -> Result<(u64, u64), Errno> {
    let about = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok((about.st_dev, about.st_ino))
}

fn is_socket(about: &rustix::fs::Stat) -> bool {
    rustix::fs::FileType::from_raw_mode(about.st_mode) == rustix::fs::FileType::Socket
}

/// A socket that never makes its user wait.
fn stream() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

/// Connects to a socket's file that is open already.
fn connect_to(file: &OwnedFd) -> Result<OwnedFd, Errno> {
    let socket = stream()?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// A front-end that has asked for a region's memory.
#[derive(Debug)]
pub(crate) struct Visitor {
    path: PathBuf,
    socket: OwnedFd,
    /// Which file of that name was asked.
    pub(crate) identity: (u64, u64),
}

/// What was handed out.
#[derive(Debug)]
pub(crate) struct Handed {
    /// A region, sealed.
    pub(crate) region: OwnedFd,
    /// The kernel's words, if they are not in the region.
    pub(crate) words: Option<OwnedFd>,
}

impl Visitor {
    /// Asks the owner of this name, if that is a user that this process trusts.
    pub(crate) fn ask(path: &Path) -> Result<Self, RegionError> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match openat(CWD, path, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Err(RegionError::Absent),
            opened => opened.map_err(RegionError::io("open a region"))?,
        };
        let about = fstat(&file).map_err(RegionError::io("look at a region's file"))?;
        if !is_socket(&about) {
            return Err(RegionError::NotRegion(path.to_path_buf()));
        }
        let own = rustix::process::geteuid().as_raw();
        trust(path, about.st_uid, own)?;
        let socket = match connect_to(&file) {
            // Its owner is dead.
            Err(Errno::CONNREFUSED) => return Err(RegionError::Absent),
            connected => connected.map_err(RegionError::io("ask for a region"))?,
        };
        let owner = socket_peercred(&socket).map_err(RegionError::io("ask whose a region is"))?;
        trust(path, owner.uid.as_raw(), own)?;
        Ok(Self {
            path: path.to_path_buf(),
            socket,
            identity: (about.st_dev, about.st_ino),
        })
    }

    /// The answer; nothing if it has not come within this time.
    pub(crate) fn take(&self, patience: Duration) -> Result<Option<Handed>, RegionError> {
        let failed = RegionError::io::<Errno>;
        let deadline = clock::now() + patience;
        loop {
            match receive(&self.socket) {
                Err(Errno::AGAIN) => {}
                Err(error) => return Err(failed("take a region")(error)),
                Ok(descriptors) => return self.check(descriptors).map(Some),
            }
            let rest = deadline.since(clock::now());
            if rest.is_zero() {
                return Ok(None);
            }
            let flags = rustix::event::PollFlags::IN;
            let mut wanted = [rustix::event::PollFd::new(&self.socket, flags)];
            match rustix::event::poll(&mut wanted, Some(&clock::timespec(rest))) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(failed("wait for a region")(error)),
            }
        }
    }

    /// Lets through only memory that no process can cut short.
    fn check(&self, descriptors: Vec<OwnedFd>) -> Result<Handed, RegionError> {
        let refused = || RegionError::NotRegion(self.path.clone());
        let mut descriptors = descriptors.into_iter();
        // An owner that ends hands nothing out any more.
        let region = descriptors.next().ok_or(RegionError::Absent)?;
        let words = descriptors.next();
        let seals = fcntl_get_seals(&region).map_err(|_| refused())?;
        let about = fstat(&region).map_err(|_| refused())?;
        let sealed = seals.contains(SealFlags::SHRINK) && about.st_size == REGION_BYTES as i64;
        let kernels = |words: &OwnedFd| {
            let link = format!("/proc/self/fd/{}", words.as_raw_fd());
            std::fs::read_link(link).is_ok_and(|it| it == Path::new(KERNEL_MAP))
        };
        if !sealed || !words.as_ref().is_none_or(kernels) {
            return Err(refused());
        }
        Ok(Handed { region, words })
    }
}

/// Whether a process of the user `own` believes what that user publishes: its own, and root.
fn trust(path: &Path, uid: u32, own: u32) -> Result<(), RegionError> {
    if uid == 0 || uid == own {
        return Ok(());
    }
    Err(RegionError::Untrusted {
        path: path.to_path_buf(),
        uid,
    })
}

fn receive(socket: &OwnedFd) -> Result<Vec<OwnedFd>, Errno> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    let mut byte = [0];
    let flags = RecvFlags::CMSG_CLOEXEC;
    recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut byte)],
        &mut control,
        flags,
    )?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(some) = message {
            descriptors.extend(some);
        }
    }
    Ok(descriptors)
}

#[cfg(test)]
mod tests {
    use rustix::fs::fcntl_getfl;
    use rustix::io::{FdFlags, fcntl_getfd};

    use super::*;

    /// How it was opened, if programs that this process starts do not get it.
    fn kept(descriptor: &OwnedFd) -> OFlags {
        let flags = fcntl_getfd(descriptor).unwrap();
        assert!(flags.contains(FdFlags::CLOEXEC));
        fcntl_getfl(descriptor).unwrap()
    }

    #[test]
    fn no_socket_makes_the_door_wait_or_gets_to_another_program() {
        let listener = stream().unwrap();
        let name = format!("tidegate-test-door-{:016x}", random().unwrap());
        let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
        bind(&listener, &address).unwrap();
        listen(&listener, BACKLOG).unwrap();
        let client = stream().unwrap();
        connect(&client, &address).unwrap();
        for socket in [&accept(&listener).unwrap(), &client] {
            assert!(kept(socket).contains(OFlags::NONBLOCK));
        }
    }

    #[test]
    fn a_regions_folder_is_one_and_need_not_be_readable() {
        let name = Name::of(Path::new("/dev/shm/region")).unwrap();
        let flags = kept(&name.folder);
        assert!(flags.contains(OFlags::PATH | OFlags::DIRECTORY));
    }

    #[test]
    fn ones_own_regions_and_roots_are_believed() {
        let believes = |uid, own| trust(Path::new("region"), uid, own).is_ok();
        assert!(believes(7, 7) && believes(0, 7) && believes(0, 0));
        assert!(!believes(8, 7) && !believes(7, 0));
    }
}
