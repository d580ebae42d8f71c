//! Addresses that are this host's. An interface takes in more than what is for its host: a router's
//! forwards the rest, a container host's hands it to the containers. The programs answer only what
//! is for an address on their list; all else goes to the stack.
//!
//! The list is made when the programs are put in place, and an agent keeps it current. Without a
//! process it stays as it is. Then a new address is not answered for, and one that moved to where
//! the kernel forwards its packets is not either: the programs ask for the route as well.

use std::collections::BTreeSet;
use std::net::IpAddr;

use libbpf_rs::{MapCore as _, MapFlags};

use super::KernelError;
use super::hook::Interface;
use super::object::{Programs, refused};
use crate::region::RegionError;

/// Most addresses on the list.
pub(super) const ADDRESSES_MAX: usize = 1024;

/// The programs' list.
#[derive(Debug)]
pub(super) struct LocalAddresses {
    listen: IpAddr,
    listed: BTreeSet<IpAddr>,
    /// Why the last attempt to bring it up to date failed.
    failure: Option<String>,
}

impl LocalAddresses {
    /// Lists this address, or all of this host's if it is an unspecified one.
    pub(super) fn write(programs: &Programs, listen: IpAddr) -> Result<Self, KernelError> {
        let mut list = Self {
            listen: listen.to_canonical(),
            listed: BTreeSet::new(),
            failure: None,
        };
        list.update(programs)?;
        Ok(list)
    }

    /// Brings the list up to date; tells a failure once.
    pub(super) fn follow(&mut self, programs: &Programs) -> Option<String> {
        let failure = self.update(programs).err().map(|error| error.to_string());
        let news = failure.clone().filter(|_| failure != self.failure);
        self.failure = failure;
        news
    }

    fn update(&mut self, programs: &Programs) -> Result<(), KernelError> {
        let current = match self.listen.is_unspecified() {
            true => own().map_err(RegionError::io("list this host's addresses"))?,
            false => BTreeSet::from([self.listen]),
        };
        let map = programs.map("addresses")?;
        // First those that went: the list may be full.
        for address in self.listed.difference(&current) {
            map.delete(&key(*address))
                .map_err(refused("take an address from the kernel's list"))?;
        }
        self.listed.retain(|address| current.contains(address));
        if current.len() > ADDRESSES_MAX {
            let text = format!(
                "this host has {} addresses, the kernel takes {ADDRESSES_MAX}; \
                 choose the one to listen on",
                current.len()
            );
            return Err(KernelError::Options(text));
        }
        for address in current {
            if self.listed.contains(&address) {
                continue;
            }
            map.update(&key(address), &1_u32.to_ne_bytes(), MapFlags::ANY)
                .map_err(refused("give the kernel an address of this host"))?;
            self.listed.insert(address);
        }
        Ok(())
    }
}

/// As the programs compare it.
fn key(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// The addresses of this host that others can reach: those of the loopback interface too, where
/// routed services have theirs, but for the ones that never leave the host.
fn own() -> std::io::Result<BTreeSet<IpAddr>> {
    let interfaces = Interface::all()?.into_iter().chain(Interface::loopback()?);
    let addresses = interfaces.flat_map(|interface| interface.addresses);
    let canonical = addresses.map(|address| address.to_canonical());
    Ok(canonical.filter(|address| !address.is_loopback()).collect())
}
