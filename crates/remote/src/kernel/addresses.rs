//! Addresses that are this host's. An interface takes in more than what is for its host: a router's
//! forwards the rest, a container host's hands it to the containers. The programs answer only what
//! is for an address on their list; all else goes to the stack.
//!
//! The list is made when the programs are put in place, and an agent keeps it current. Without a
//! process it stays as it is. Then a new address is not answered for, and one that moved to where
//! the kernel forwards its packets is not either: the programs ask for the route as well.

use std::collections::BTreeMap;
use std::net::IpAddr;

use libbpf_rs::{MapCore as _, MapFlags};

use super::KernelError;
use super::object::{Programs, refused};
use crate::interface::Interface;
use crate::region::RegionError;

/// Most addresses on the list.
pub(super) const ADDRESSES_MAX: usize = 1024;

/// Stands for any interface.
const ANYWHERE: u32 = 0;

/// The programs' list.
#[derive(Debug)]
pub(super) struct LocalAddresses {
    listen: IpAddr,
    /// Each with the interface by which alone its packets come in.
    listed: BTreeMap<IpAddr, u32>,
    /// Why the last attempt to bring it up to date failed.
    failure: Option<String>,
}

impl LocalAddresses {
    /// Lists this address, or all of this host's if it is an unspecified one.
    pub(super) fn write(programs: &Programs, listen: IpAddr) -> Result<Self, KernelError> {
        let mut list = Self {
            listen: listen.to_canonical(),
            listed: BTreeMap::new(),
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
            false => BTreeMap::from([(self.listen, ANYWHERE)]),
        };
        self.list(programs, current)
    }

    /// Has these on the list and no others.
    pub(super) fn list(
        &mut self,
        programs: &Programs,
        current: BTreeMap<IpAddr, u32>,
    ) -> Result<(), KernelError> {
        let map = programs.map("addresses")?;
        // First those that went: the list may be full.
        for (address, _) in self
            .listed
            .extract_if(.., |at, _| !current.contains_key(at))
        {
            map.delete(&key(address))
                .map_err(refused("take an address from the kernel's list"))?;
        }
        if current.len() > ADDRESSES_MAX {
            let text = format!(
                "this host has {} addresses, the kernel takes {ADDRESSES_MAX}; \
                 choose the one to listen on",
                current.len()
            );
            return Err(KernelError::Options(text));
        }
        for (address, interface) in current {
            if self.listed.get(&address) == Some(&interface) {
                continue;
            }
            map.update(&key(address), &interface.to_ne_bytes(), MapFlags::ANY)
                .map_err(refused("give the kernel an address of this host"))?;
            self.listed.insert(address, interface);
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

/// The addresses of this host. Those that never leave it count at the loopback interface alone; the
/// interface has others too, where routed services have theirs.
fn own() -> std::io::Result<BTreeMap<IpAddr, u32>> {
    let loopback = Interface::loopback()?;
    let inside = loopback.as_ref().map_or(ANYWHERE, |it| it.index as u32);
    let interfaces = Interface::all()?.into_iter().chain(loopback);
    let addresses = interfaces.flat_map(|interface| interface.addresses);
    let at = |address: IpAddr| match address.to_canonical() {
        address if address.is_loopback() => (address, inside),
        address => (address, ANYWHERE),
    };
    Ok(addresses.map(at).collect())
}
