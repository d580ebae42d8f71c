//! Memory that a card may reach: mapped, pinned and registered, with no more rights than it takes.
//!
//! | memory | mapped | rights of a card |
//! |---|---|---|
//! | record area of a node | to read; where the kernel refuses that, to read and write | READ from afar |
//! | words of a node | to read and write | atomics from afar, which take writing by the card itself |
//! | where a front-end's answers arrive | to read and write | writing by the card itself |
//!
//! Kernels up to 6.1 pin memory as if it were written to, whatever the rights, and answer EFAULT to a shared mapping
//! that may not be. The rights of the card stay the same then: it is the registration that keeps front-ends from writing.
//!
//! Failure case: a limit of locked memory (`ulimit -l`) below some pages; the error says ENOMEM.

use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use memmap2::{MmapOptions, MmapRaw};

use super::RdmaDevice;
use super::abi::{ACCESS_LOCAL_WRITE, ACCESS_REMOTE_ATOMIC, ACCESS_REMOTE_READ, MemoryRegion};
use crate::region::RegionError;

/// Registered memory; the card forgets it when this is dropped.
pub(super) struct Registered {
    device: Arc<RdmaDevice>,
    region: NonNull<MemoryRegion>,
    map: MmapRaw,
    bytes: usize,
}

// SAFETY: the library takes calls from any thread, and the mapping belongs to the process.
unsafe impl Send for Registered {}

/// Where registered memory lies, for requests from afar.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteMemory {
    /// Its first byte, as the card counts.
    pub address: u64,
    /// The key that a request must carry.
    pub key: u32,
    /// Bytes; 0: there is none.
    pub bytes: u32,
}

impl Registered {
    /// The first bytes of a node's memory, which others may read.
    pub(super) fn records(
        device: &Arc<RdmaDevice>,
        memory: impl AsFd,
        bytes: usize,
    ) -> Result<Self, RegionError> {
        let mut options = MmapOptions::new();
        options.len(bytes);
        let descriptor = memory.as_fd().as_raw_fd();
        let map = options.map_raw_read_only(descriptor).map_err(unmapped)?;
        match Self::register(device, map, bytes, ACCESS_REMOTE_READ) {
            Err(error) if error.raw_os_error() == Some(libc::EFAULT) => {
                let map = options.map_raw(descriptor).map_err(unmapped)?;
                Self::register(device, map, bytes, ACCESS_REMOTE_READ)
            }
            done => done,
        }
        .map_err(RegionError::io("register a record"))
    }

    /// A node's words, whose page begins there in its memory. Others may carry atomics out on them.
    pub(super) fn words(
        device: &Arc<RdmaDevice>,
        memory: impl AsFd,
        start: usize,
        bytes: usize,
    ) -> Result<Self, RegionError> {
        let mut options = MmapOptions::new();
        let options = options.len(bytes).offset(start as u64);
        let map = options.map_raw(memory.as_fd().as_raw_fd());
        let access = ACCESS_LOCAL_WRITE | ACCESS_REMOTE_ATOMIC;
        Self::register(device, map.map_err(unmapped)?, bytes, access)
            .map_err(RegionError::io("register words"))
    }

    /// Memory of this process where answers arrive.
    pub(super) fn buffer(device: &Arc<RdmaDevice>, bytes: usize) -> Result<Self, RegionError> {
        // A page that is shared stays where it is when the process forks.
        let name = c"tidegate-rdma";
        let file = rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC);
        let file = file.map_err(unmapped)?;
        rustix::fs::ftruncate(&file, bytes as u64).map_err(unmapped)?;
        let map = MmapOptions::new().len(bytes).map_raw(file.as_raw_fd());
        Self::register(device, map.map_err(unmapped)?, bytes, ACCESS_LOCAL_WRITE)
            .map_err(RegionError::io("register a buffer"))
    }

    fn register(
        device: &Arc<RdmaDevice>,
        map: MmapRaw,
        bytes: usize,
        access: i32,
    ) -> Result<Self, std::io::Error> {
        let address = map.as_mut_ptr().cast();
        // SAFETY: the mapping is so long and lives as long as the registration. The library reads nothing of it; the
        // kernel pins its pages and checks the rights against those of the mapping.
        let region =
            unsafe { (device.library().register)(device.domain(), address, bytes, access) };
        let region = NonNull::new(region).ok_or_else(std::io::Error::last_os_error)?;
        Ok(Self {
            device: Arc::clone(device),
            region,
            map,
            bytes,
        })
    }

    /// What others need to reach it.
    pub(super) fn remote(&self) -> RemoteMemory {
        RemoteMemory {
            address: self.address(),
            // SAFETY: made by the library, and not given back before `self` is dropped.
            key: unsafe { self.region.as_ref() }.remote_key,
            bytes: self.bytes as u32,
        }
    }

    pub(super) fn address(&self) -> u64 {
        self.map.as_ptr() as u64
    }

    /// The key with which this process's own requests name it.
    pub(super) fn local_key(&self) -> u32 {
        // SAFETY: as in `remote`.
        unsafe { self.region.as_ref() }.local_key
    }

    /// Copies what lies there from `at` on, even while it is written.
    pub(super) fn copy(&self, at: usize, out: &mut [u8]) {
        assert!(
            at.checked_add(out.len())
                .is_some_and(|end| end <= self.bytes),
            "within the memory"
        );
        fence(Ordering::Acquire);
        for (place, byte) in out.iter_mut().enumerate() {
            // SAFETY: within the mapping, as was just made sure. A card or another thread may write it at the same
            // time: each byte is then an old or a new one, and the caller looks whether all belong together.
            *byte = unsafe { self.map.as_ptr().add(at + place).read_volatile() };
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: made by the library, and given back once, before the mapping goes.
        unsafe { (self.device.library().deregister)(self.region.as_ptr()) };
    }
}

fn unmapped(error: impl Into<std::io::Error>) -> RegionError {
    RegionError::io("map memory for an RDMA device")(error)
}
