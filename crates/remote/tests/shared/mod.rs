//! Shared memory: whose it is, what may be done to it, and what becomes of those that map it.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use tidegate_core::record::AGGREGATE_LINES;
use tidegate_remote::shm::ShmRegion;
use tidegate_remote::{Region, RegionError, RegionMemory};

use crate::support::{path, record};

#[test]
fn a_record_that_stands_still_makes_the_name_be_looked_up() {
    // A dead owner cannot mark its memory; here the name is swapped unseen.
    let (old, new) = (path("old"), path("new"));
    let first = RegionMemory::create(&old).unwrap();
    first.publish(&record(1), &[]);
    let mut handle = ShmRegion::new(&old);
    handle.read(AGGREGATE_LINES).unwrap();
    let second = RegionMemory::create(&new).unwrap();
    second.publish(&record(2), &[]);
    std::fs::rename(&new, &old).unwrap();
    // However long that takes: it does come.
    while handle.read(AGGREGATE_LINES).unwrap().record().unwrap().t_ns != 2 {
        std::thread::yield_now();
    }
    // An atomic does not wait for that.
    let third = RegionMemory::create(&new).unwrap();
    std::fs::rename(&new, &old).unwrap();
    handle.fetch_and_add(0, 1).unwrap();
    assert_eq!(third.word(0).unwrap(), 1);
    std::fs::remove_file(&old).unwrap();
}

#[test]
fn what_is_no_region_is_refused() {
    let path = path("other");
    let refused = || ShmRegion::new(&path).read(1).unwrap_err();
    for bytes in [0, 100, 8192, 20_000] {
        std::fs::write(&path, vec![0x55; bytes]).unwrap();
        let refused = refused();
        assert!(matches!(refused, RegionError::NotRegion(_)), "{refused}");
        std::fs::remove_file(&path).unwrap();
    }
    assert!(matches!(refused(), RegionError::Absent));
    // A socket whose owner is dead.
    drop(UnixListener::bind(&path).unwrap());
    assert!(matches!(refused(), RegionError::Absent));
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn no_link_is_followed() {
    let (real, link) = (path("real"), path("link"));
    let memory = RegionMemory::create(&real).unwrap();
    memory.publish(&record(1), &[]);
    symlink(&real, &link).unwrap();
    let refused = ShmRegion::new(&link).read(1).unwrap_err();
    assert!(matches!(refused, RegionError::NotRegion(_)), "{refused}");
    // An owner does not take a link for a region that it could replace, either.
    let refused = RegionMemory::create(&link).unwrap_err();
    assert!(matches!(refused, RegionError::NotRegion(_)), "{refused}");
    std::fs::remove_file(&link).unwrap();
}

/// Cuts a file short in a process of its own; gives what that said.
fn truncate(file: &Path) -> String {
    let output = Command::new("truncate")
        .args(["--no-create", "--size=0"])
        .arg(file)
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_region_that_somebody_cuts_short_while_it_is_read_stays_whole() {
    let path = path("short");
    let memory = RegionMemory::create(&path).unwrap();
    memory.publish(&record(7), &[]);
    let mut handle = ShmRegion::new(&path);
    handle.read(AGGREGATE_LINES).unwrap();
    let own = std::process::id();
    let descriptor = std::os::fd::AsRawFd::as_raw_fd(&memory.as_fd());
    // By root, by the owner's user, in the middle of it all.
    truncate(&Path::new("/proc").join(format!("{own}/fd/{descriptor}")));
    truncate(&path);
    let seen = handle.read(AGGREGATE_LINES).unwrap().record().unwrap();
    assert_eq!(seen.t_ns, 7);
    memory.publish(&record(8), &[]);
    let seen = handle.read(AGGREGATE_LINES).unwrap().record().unwrap();
    assert_eq!(seen.t_ns, 8);
}

/// Hands these out under a name, once, as an owner would.
fn hand_out(path: &Path, descriptors: Vec<OwnedFd>) -> std::thread::JoinHandle<()> {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    let listener = UnixListener::bind(path).unwrap();
    std::thread::spawn(move || {
        let (client, _) = listener.accept().unwrap();
        let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        let mut room = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut room);
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        let byte = [std::io::IoSlice::new(&[1])];
        sendmsg(&client, &byte, &mut control, SendFlags::NOSIGNAL).unwrap();
    })
}

/// Whether a front-end takes these for a region. Nothing is published in it.
fn is_region(descriptors: Vec<OwnedFd>) -> bool {
    let path = path("handed");
    let owner = hand_out(&path, descriptors);
    let refused = ShmRegion::new(&path).read(1).unwrap_err();
    owner.join().unwrap();
    std::fs::remove_file(&path).unwrap();
    let is_region = matches!(refused, RegionError::Absent);
    assert!(
        is_region || matches!(refused, RegionError::NotRegion(_)),
        "{refused}"
    );
    is_region
}

#[test]
fn memory_that_could_be_cut_short_is_not_mapped() {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
    let memory = |bytes, seals| {
        let file = memfd_create("region", MemfdFlags::ALLOW_SEALING).unwrap();
        // What a region says of itself, where it says it.
        rustix::io::pwrite(&file, b"TGRM\x02\0\0\0", 2048).unwrap();
        ftruncate(&file, bytes).unwrap();
        fcntl_add_seals(&file, seals).unwrap();
        file
    };
    let sealed = |bytes| memory(bytes, SealFlags::SHRINK);
    let exe = || OwnedFd::from(std::fs::File::open("/proc/self/exe").unwrap());
    assert!(is_region(vec![sealed(8192)]));
    assert!(!is_region(vec![memory(8192, SealFlags::GROW)]));
    // Nor what is cut short already, nor any other file, however large.
    assert!(!is_region(vec![sealed(4096)]));
    assert!(!is_region(vec![sealed(8191)]));
    assert!(!is_region(vec![sealed(8193)]));
    assert!(!is_region(vec![exe()]));
    // Nor words that are not in a map of the kernel's.
    assert!(!is_region(vec![sealed(8192), exe()]));
    assert!(!is_region(vec![sealed(8192), sealed(8192)]));
}

#[test]
fn a_region_of_another_user_is_not_believed() {
    let path = path("user");
    let memory = RegionMemory::create(&path).unwrap();
    memory.publish(&record(1), &[]);
    let changed = std::os::unix::fs::lchown(&path, Some(12_345), None);
    if changed.is_err() {
        println!("SKIPPED: only root can give a file to another user");
        return;
    }
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
    let refused = ShmRegion::new(&path).read(1).unwrap_err();
    assert!(
        matches!(refused, RegionError::Untrusted { uid: 12_345, .. }),
        "{refused}"
    );
    std::os::unix::fs::lchown(&path, Some(0), None).unwrap();
    ShmRegion::new(&path).read(AGGREGATE_LINES).unwrap();
}
