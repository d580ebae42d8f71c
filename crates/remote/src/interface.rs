//! Network interfaces of this host, and their addresses.

use std::ffi::{CStr, CString};
use std::io;
use std::net::IpAddr;

/// A network interface of this network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its number.
    pub index: i32,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
}

impl Interface {
    /// All that are up, but for the loopback one.
    ///
    /// # Errors
    /// If the system does not tell.
    pub fn all() -> io::Result<Vec<Self>> {
        Self::up(false)
    }

    /// The loopback one, if it is up.
    pub(crate) fn loopback() -> io::Result<Option<Self>> {
        Ok(Self::up(true)?.pop())
    }

    /// All that are up: the loopback one, or the others.
    fn up(loopback: bool) -> io::Result<Vec<Self>> {
        let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
        // SAFETY: `list` is a place for a pointer; on success it points to a list that lives
        // until `freeifaddrs`.
        if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let mut interfaces: Vec<Self> = Vec::new();
        let mut next = list;
        while !next.is_null() {
            // SAFETY: not null, so an entry of the list, which is not freed yet; its name is a
            // C string and its address, if any, of the length that its family says.
            let (name, flags, address) = unsafe {
                let entry = &*next;
                next = entry.ifa_next;
                let name = CStr::from_ptr(entry.ifa_name)
                    .to_string_lossy()
                    .into_owned();
                (name, entry.ifa_flags as i32, address_of(entry.ifa_addr))
            };
            if flags & libc::IFF_UP == 0 || (flags & libc::IFF_LOOPBACK != 0) != loopback {
                continue;
            }
            let known = interfaces.iter_mut().find(|it| it.name == name);
            if let Some(interface) = known {
                interface.addresses.extend(address);
            } else if let Some(index) = index_of(&name) {
                let addresses = address.into_iter().collect();
                interfaces.push(Self {
                    name,
                    index,
                    addresses,
                });
            }
        }
        // SAFETY: the list that `getifaddrs` gave, once, and nothing points into it any more.
        unsafe { libc::freeifaddrs(list) };
        Ok(interfaces)
    }
}

/// # Safety
/// Null, or a socket address as long as its family says.
unsafe fn address_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: not null; the family says which structure it is.
    unsafe {
        match i32::from((*address).sa_family) {
            libc::AF_INET => {
                let v4 = &*address.cast::<libc::sockaddr_in>();
                Some(IpAddr::from(v4.sin_addr.s_addr.to_ne_bytes()))
            }
            libc::AF_INET6 => {
                let v6 = &*address.cast::<libc::sockaddr_in6>();
                Some(IpAddr::from(v6.sin6_addr.s6_addr))
            }
            _ => None,
        }
    }
}

fn index_of(name: &str) -> Option<i32> {
    let name = CString::new(name).ok()?;
    // SAFETY: a C string that lives through the call.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    i32::try_from(index).ok().filter(|index| *index > 0)
}
