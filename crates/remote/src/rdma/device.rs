//! A device, opened, and the address under which others reach it.
//!
//! Which device and which line of its table of addresses: the one whose IP address is wanted. On Ethernet that is an
//! address of RoCE v2 (frames in UDP, so that they cross routers), on InfiniBand one of the interface for IP over it
//! (`fabric`). The place in the table is never fixed: it changes with the order in which addresses are added.
//!
//! Failure case: an address that moves to another interface while the device is open. What is connected fails, and
//! a handle that connects anew opens anew.

use std::ffi::{CStr, c_int};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::ptr::NonNull;
use std::sync::Arc;

use super::abi::{
    ATOMICS_NONE, Context, Device, DeviceAttributes, GID_INFINIBAND, GID_ROCE_V2, Gid, GidEntry,
    LINK_INFINIBAND, PORT_ACTIVE, PORT_NEEDS_GLOBAL, PortAttributes, ProtectionDomain,
};
use super::fabric::{Fabric, Place, PortAddresses};
use super::library::{Library, last, library};
use crate::region::RegionError;

/// Lines of a device's table of addresses that are looked at; the kernel gives all or none.
const GIDS_MAX: usize = 65_536;
/// Makers of devices whose work the kernel does with its CPUs: rxe and siw.
const VENDORS_IN_SOFTWARE: [u32; 2] = [0x00ff_ffff, 0x0062_6d74];
/// Reads and atomics of one queue pair that are under way at once: what one read of a region posts.
const IN_FLIGHT_MAX: u8 = 4;

/// An open device with an address.
pub struct RdmaDevice {
    library: &'static Library,
    context: NonNull<Context>,
    domain: NonNull<ProtectionDomain>,
    name: String,
    place: Place,
    port: PortAttributes,
    limits: Limits,
}

/// What a device can do.
#[derive(Clone, Copy, Debug)]
struct Limits {
    reads_in: u8,
    reads_out: u8,
    has_atomics: bool,
    in_software: bool,
}

// SAFETY: the library takes calls from any thread at once (its manual, ibv_fork_init and verbs(7), names no
// exception); what it made is freed once, by the drop of the last owner.
unsafe impl Send for RdmaDevice {}
// SAFETY: as above.
unsafe impl Sync for RdmaDevice {}

impl fmt::Debug for RdmaDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RdmaDevice")
            .field("name", &self.name)
            .field("address", &self.address())
            .finish_non_exhaustive()
    }
}

impl RdmaDevice {
    /// Opens the device that has this address, or the first with any if none is wanted.
    ///
    /// # Errors
    /// Says what is missing: the library, a device, or one with this address.
    pub fn open(wanted: Option<IpAddr>) -> Result<Arc<Self>, RegionError> {
        let library = library()?;
        let devices = Devices::list(library)?;
        let mut seen = Vec::new();
        for device in devices.all() {
            let name = devices.name(*device);
            match Self::open_one(library, *device, &name, wanted) {
                Ok(Some(device)) => return Ok(Arc::new(device)),
                Ok(None) => seen.push(name),
                Err(error) => seen.push(format!("{name} ({error})")),
            }
        }
        let seen = seen.join(", ");
        let what = match wanted {
            _ if seen.is_empty() => "the kernel knows none (ls /sys/class/infiniband)".to_owned(),
            Some(address) => format!("none has the address {address}, of {seen}"),
            None => format!("none has an active port with an IP address, of {seen}"),
        };
        Err(RegionError::NoDevice(what))
    }

    /// Opens this device if it has the address.
    fn open_one(
        library: &'static Library,
        device: *mut Device,
        name: &str,
        wanted: Option<IpAddr>,
    ) -> Result<Option<Self>, RegionError> {
        // SAFETY: a device of a list that is not freed yet.
        let context = NonNull::new(unsafe { (library.open_device)(device) });
        let open = Opened {
            library,
            context: context.ok_or_else(|| last("open an RDMA device"))?,
        };
        let attributes = open.attributes()?;
        let places = open.places(attributes.ports)?;
        let places = places.into_iter().filter(|it| fits(it.address, wanted));
        for place in places {
            let port = open.port(place.port)?;
            if port.state != PORT_ACTIVE {
                continue;
            }
            // SAFETY: an open device.
            let domain = NonNull::new(unsafe { (library.allocate_domain)(open.context.as_ptr()) });
            let domain = domain.ok_or_else(|| last("allocate a protection domain"))?;
            return Ok(Some(Self {
                library,
                context: open.keep(),
                domain,
                name: name.to_owned(),
                place,
                port,
                limits: Limits::of(&attributes),
            }));
        }
        Ok(None)
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The address under which it was found.
    pub fn address(&self) -> IpAddr {
        self.place.address
    }

    /// Whether the kernel's CPUs do its work, word by word.
    pub fn is_in_software(&self) -> bool {
        self.limits.in_software
    }

    /// Whether it carries atomics out.
    pub fn has_atomics(&self) -> bool {
        self.limits.has_atomics
    }

    pub(super) fn library(&self) -> &'static Library {
        self.library
    }

    pub(super) fn context(&self) -> *mut Context {
        self.context.as_ptr()
    }

    pub(super) fn domain(&self) -> *mut ProtectionDomain {
        self.domain.as_ptr()
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// Size of its frames, as the library numbers them.
    pub(super) fn mtu(&self) -> u8 {
        self.port.mtu.try_into().unwrap_or(1)
    }

    /// Reads and atomics of one queue pair that it has under way, as the one that answers and as the one that asks.
    pub(super) fn in_flight(&self) -> (u8, u8) {
        (self.limits.reads_in, self.limits.reads_out)
    }
}

impl Drop for RdmaDevice {
    fn drop(&mut self) {
        // SAFETY: made by the library and freed once; all that was made in the domain holds an `Arc` of this device,
        // and is gone.
        unsafe {
            (self.library.free_domain)(self.domain.as_ptr());
            (self.library.close_device)(self.context.as_ptr());
        }
    }
}

impl Limits {
    fn of(attributes: &DeviceAttributes) -> Self {
        let in_flight = |max: c_int| u8::try_from(max).unwrap_or(u8::MAX).min(IN_FLIGHT_MAX);
        Self {
            reads_in: in_flight(attributes.reads_in_max),
            reads_out: in_flight(attributes.reads_out_max),
            has_atomics: attributes.atomics != ATOMICS_NONE,
            in_software: VENDORS_IN_SOFTWARE.contains(&attributes.vendor),
        }
    }
}

/// A device that is closed again unless it is kept.
struct Opened {
    library: &'static Library,
    context: NonNull<Context>,
}

impl Opened {
    fn keep(self) -> NonNull<Context> {
        let context = self.context;
        std::mem::forget(self);
        context
    }

    fn attributes(&self) -> Result<DeviceAttributes, RegionError> {
        // SAFETY: a structure of integers, for which all zeros are valid.
        let mut attributes: DeviceAttributes = unsafe { std::mem::zeroed() };
        // SAFETY: an open device, and a structure as long as the library's.
        let done =
            unsafe { (self.library.query_device)(self.context.as_ptr(), &raw mut attributes) };
        check("look at an RDMA device", done)?;
        Ok(attributes)
    }

    fn port(&self, port: u8) -> Result<PortAttributes, RegionError> {
        let mut attributes = PortAttributes::default();
        // SAFETY: as above.
        let done =
            unsafe { (self.library.query_port)(self.context.as_ptr(), port, &raw mut attributes) };
        check("look at a port of an RDMA device", done)?;
        Ok(attributes)
    }

    /// Where it is reached: its addresses of RoCE v2, and those of its ports on InfiniBand.
    fn places(&self, ports: u8) -> Result<Vec<Place>, RegionError> {
        let entries = self.gids(ports)?;
        let mut addresses = PortAddresses::default();
        if entries.iter().any(|it| it.kind == GID_INFINIBAND) {
            addresses = PortAddresses::of_host().map_err(RegionError::io("list interfaces"))?;
        }
        let mut places = Vec::new();
        for GidEntry {
            gid,
            index,
            port,
            kind,
            ..
        } in entries
        {
            let (Ok(index), Ok(port)) = (index.try_into(), port.try_into()) else {
                continue;
            };
            let place = |address, fabric| Place {
                address,
                gid,
                index,
                port,
                fabric,
            };
            match kind {
                GID_ROCE_V2 => places.push(place(address_of(gid), Fabric::Ethernet)),
                GID_INFINIBAND => {
                    let of_port = self.port(port)?;
                    let fabric = Fabric::InfiniBand {
                        local_id: of_port.local_id,
                        needs_global: of_port.flags & PORT_NEEDS_GLOBAL != 0,
                    };
                    // Older kernels name the first version of RoCE so too. Without a number no subnet manager has seen it.
                    if of_port.link == LINK_INFINIBAND && of_port.local_id != 0 {
                        places.extend(addresses.with(gid).map(|it| place(it, fabric)));
                    }
                }
                _ => {}
            }
        }
        Ok(places)
    }

    /// The table of addresses of so many ports.
    fn gids(&self, ports: u8) -> Result<Vec<GidEntry>, RegionError> {
        let mut room = 0;
        for port in 1..=ports {
            room += usize::try_from(self.port(port)?.gids).unwrap_or_default();
        }
        let mut entries = vec![GidEntry::default(); room.min(GIDS_MAX)];
        // SAFETY: an open device, and room for so many entries of this size.
        let count = unsafe {
            (self.library.query_gids)(
                self.context.as_ptr(),
                entries.as_mut_ptr(),
                entries.len(),
                0,
                size_of::<GidEntry>(),
            )
        };
        let Ok(count) = usize::try_from(count) else {
            let error = std::io::Error::from_raw_os_error(-count as i32);
            return Err(RegionError::io("read the addresses of an RDMA device")(
                error,
            ));
        };
        entries.truncate(count);
        Ok(entries)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: open, and closed once.
        unsafe { (self.library.close_device)(self.context.as_ptr()) };
    }
}

/// A device of this host.
#[derive(Debug)]
pub struct RdmaDeviceFound {
    /// Its name.
    pub name: String,
    /// What it is like, or why it cannot be opened.
    pub report: Result<RdmaDeviceReport, RegionError>,
}

/// What a device of this host is like, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RdmaDeviceReport {
    /// Its name.
    pub name: String,
    /// Whether the kernel's CPUs do its work.
    pub in_software: bool,
    /// Whether it carries atomics out.
    pub has_atomics: bool,
    /// Most queue pairs.
    pub queue_pairs_max: u32,
    /// Its ports.
    pub ports: Vec<RdmaPortReport>,
}

/// A port of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RdmaPortReport {
    /// Its number, from 1.
    pub port: u8,
    /// Whether it carries traffic.
    pub is_active: bool,
    /// Bytes of its frames.
    pub mtu: u32,
    /// Whether it is plugged into InfiniBand, not into Ethernet.
    pub is_infiniband: bool,
    /// The IP addresses under which it is reached.
    pub addresses: Vec<IpAddr>,
}

impl RdmaDevice {
    /// All devices of this host.
    ///
    /// # Errors
    /// If there is no library, or the kernel has no verbs.
    pub fn survey() -> Result<Vec<RdmaDeviceFound>, RegionError> {
        let library = library()?;
        let devices = Devices::list(library)?;
        let all = devices.all().iter().map(|device| {
            let name = devices.name(*device);
            let report = report(library, *device, &name);
            RdmaDeviceFound { name, report }
        });
        Ok(all.collect())
    }
}

fn report(
    library: &'static Library,
    device: *mut Device,
    name: &str,
) -> Result<RdmaDeviceReport, RegionError> {
    // SAFETY: a device of a list that is not freed yet.
    let context = NonNull::new(unsafe { (library.open_device)(device) });
    let open = Opened {
        library,
        context: context.ok_or_else(|| last("open an RDMA device"))?,
    };
    let attributes = open.attributes()?;
    let places = open.places(attributes.ports)?;
    let limits = Limits::of(&attributes);
    let port = |number| {
        let port = open.port(number)?;
        let own = places.iter().filter(|it| it.port == number);
        Ok(RdmaPortReport {
            port: number,
            is_active: port.state == PORT_ACTIVE,
            // Numbered from 1, for 256 bytes.
            mtu: 128 << port.mtu.min(5),
            is_infiniband: port.link == LINK_INFINIBAND,
            addresses: own.map(|it| it.address).collect(),
        })
    };
    let ports: Result<_, RegionError> = (1..=attributes.ports).map(port).collect();
    Ok(RdmaDeviceReport {
        name: name.to_owned(),
        in_software: limits.in_software,
        has_atomics: limits.has_atomics,
        queue_pairs_max: attributes.queue_pairs_max.try_into().unwrap_or_default(),
        ports: ports?,
    })
}

/// The library's list of devices.
struct Devices {
    library: &'static Library,
    list: NonNull<*mut Device>,
    count: usize,
}

impl Devices {
    fn list(library: &'static Library) -> Result<Self, RegionError> {
        let mut count = 0;
        // SAFETY: the count is written to.
        let list = NonNull::new(unsafe { (library.device_list)(&raw mut count) });
        let list = list.ok_or_else(|| {
            let error = std::io::Error::last_os_error();
            RegionError::NoDevice(format!(
                "the kernel has no verbs ({error}): modprobe ib_uverbs, or the card's driver"
            ))
        })?;
        let count = usize::try_from(count).unwrap_or_default();
        Ok(Self {
            library,
            list,
            count,
        })
    }

    fn all(&self) -> &[*mut Device] {
        // SAFETY: the list is as long as the library said, and is not freed before `self`.
        unsafe { std::slice::from_raw_parts(self.list.as_ptr(), self.count) }
    }

    fn name(&self, device: *mut Device) -> String {
        // SAFETY: a device of the list; its name ends with zero and lives as long as the list does.
        let name = unsafe { CStr::from_ptr((self.library.device_name)(device)) };
        name.to_string_lossy().into_owned()
    }
}

impl Drop for Devices {
    fn drop(&mut self) {
        // SAFETY: made by the library, and freed once.
        unsafe { (self.library.free_device_list)(self.list.as_ptr()) };
    }
}

/// Says what a number of errno means, unless it is zero.
pub(super) fn check(what: &'static str, done: c_int) -> Result<(), RegionError> {
    match done {
        0 => Ok(()),
        // Some functions set errno and say -1.
        -1 => Err(last(what)),
        number => {
            let error = std::io::Error::from_raw_os_error(number);
            Err(RegionError::io(what)(error))
        }
    }
}

/// Whether an address is the wanted one; without one, any that is not of one link alone.
fn fits(address: IpAddr, wanted: Option<IpAddr>) -> bool {
    match (wanted, address) {
        (Some(wanted), address) => address == wanted.to_canonical(),
        (None, IpAddr::V4(_)) => true,
        (None, IpAddr::V6(address)) => !address.is_unicast_link_local(),
    }
}

/// The IP address that an address of RoCE v2 is.
fn address_of(gid: Gid) -> IpAddr {
    IpAddr::V6(Ipv6Addr::from(gid.0)).to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_found_by_what_it_is() {
        let fits = |address: &str, wanted: Option<&str>| {
            let wanted = wanted.map(|it| it.parse().unwrap());
            fits(address.parse().unwrap(), wanted)
        };
        assert!(fits("10.0.0.1", Some("10.0.0.1")));
        assert!(fits("10.0.0.1", Some("::ffff:10.0.0.1")));
        assert!(!fits("10.0.0.2", Some("10.0.0.1")));
        assert!(fits("fd00::1", Some("fd00::1")));
        assert!(fits("10.0.0.1", None));
        assert!(!fits("fe80::1", None));
        assert!(fits("fe80::1", Some("fe80::1")));
    }

    #[test]
    fn an_address_of_roce_is_an_ip_address() {
        for text in ["10.0.0.1", "fd00::1"] {
            let address: IpAddr = text.parse().unwrap();
            let gid = match address {
                IpAddr::V4(address) => address.to_ipv6_mapped(),
                IpAddr::V6(address) => address,
            };
            assert_eq!(address_of(Gid(gid.octets())), address);
        }
    }

    #[test]
    fn without_a_device_it_says_what_is_missing() {
        // No interface has this address, so no device either.
        let error = RdmaDevice::open(Some("192.0.2.1".parse().unwrap())).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("no RDMA device: "), "{text}");
    }
}
