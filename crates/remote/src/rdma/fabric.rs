//! What a port is plugged into, and the way from there to a peer.
//!
//! | fabric | a port's address | the way to a peer |
//! |---|---|---|
//! | Ethernet, RoCE v2 | its IP address, as an IPv6 address | that of the peer: frames are UDP, and cross routers |
//! | InfiniBand | a number within its subnet, the local identifier (LID), which the subnet manager gives | the peer's LID |
//!
//! Front-ends and agents know each other by IP address. A port of InfiniBand has those of its interface for IP over
//! InfiniBand, whose hardware address ends with the port's GID (RFC 4391 §9.1.1): 1 byte of flags, 3 of a queue pair,
//! 16 of the GID. A port without such an interface is not used.
//!
//! Within a subnet alone: the LID of a router to another one would have to be asked of the subnet manager (IBA-2020
//! §15.2.5.16), and so would the service level where a fabric routes by it. The first partition of the port's table is used,
//! which is the default one by convention: interfaces of other partitions are passed over.
//!
//! Failure case: two fabrics whose subnets have the same prefix, the one that is there from the start: a LID of one is a
//! stranger's in the other. READs fail, and loads go over UDP. A subnet manager that gives a port another LID. What is connected fails, and what connects anew opens the
//! device anew. It was never tried with a fabric of InfiniBand: what is pure is tested here.

use std::net::IpAddr;

use super::abi::{Gid, GlobalRoute, Route};
use super::queue::Endpoint;
use crate::interface::Interface;

/// Routers that a frame may cross.
const HOPS_MAX: u8 = 64;
/// Largest LID of one port; those above are of groups (IBA-2020 §4.1.3).
pub(super) const LOCAL_ID_MAX: u16 = 0xbfff;
/// Where the kernel shows interfaces.
const INTERFACES: &str = "/sys/class/net";
/// An interface's type, as the kernel numbers it (ARPHRD_INFINIBAND).
const TYPE_INFINIBAND: &str = "32";
/// The default partition, but for its highest bit, of which one of two that speak must have it set.
const DEFAULT_PARTITION: u16 = 0x7fff;
/// Bytes of an interface's hardware address on InfiniBand, and of the GID at its end.
const HARDWARE_BYTES: usize = 20;
const GID_BYTES: usize = 16;
/// First half of a GID: the subnet.
const SUBNET_BYTES: usize = 8;

/// What a port is plugged into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fabric {
    Ethernet,
    InfiniBand { local_id: u16, needs_global: bool },
}

/// Where a device is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) address: IpAddr,
    pub(super) gid: Gid,
    /// Of the address, in the port's table.
    pub(super) index: u8,
    pub(super) port: u8,
    pub(super) fabric: Fabric,
}

/// Why there is no way to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoWay {
    #[error("one side is on InfiniBand, the other on Ethernet")]
    Fabric,
    #[error("the other side is in another subnet of InfiniBand")]
    Subnet,
}

impl Place {
    /// Its LID; 0 on Ethernet.
    pub(super) fn local_id(&self) -> u16 {
        match self.fabric {
            Fabric::Ethernet => 0,
            Fabric::InfiniBand { local_id, .. } => local_id,
        }
    }

    /// The way from here to this peer.
    pub(super) fn route(&self, peer: &Endpoint) -> Result<Route, NoWay> {
        let route = Route {
            port: self.port,
            ..Route::default()
        };
        let global = GlobalRoute {
            destination: Gid(peer.gid),
            source_index: self.index,
            hops_max: HOPS_MAX,
            ..GlobalRoute::default()
        };
        match (self.fabric, peer.local_id) {
            (Fabric::Ethernet, 0) => Ok(Route {
                global,
                is_global: 1,
                ..route
            }),
            (Fabric::Ethernet, _) | (Fabric::InfiniBand { .. }, 0) => Err(NoWay::Fabric),
            (Fabric::InfiniBand { .. }, _)
                if self.gid.0[..SUBNET_BYTES] != peer.gid[..SUBNET_BYTES] =>
            {
                Err(NoWay::Subnet)
            }
            // Ports of virtual machines say that they need both.
            (Fabric::InfiniBand { needs_global, .. }, local_id) => Ok(Route {
                local_id,
                global,
                is_global: needs_global.into(),
                ..route
            }),
        }
    }
}

/// The IP addresses of ports of InfiniBand.
#[derive(Debug, Default)]
pub(super) struct PortAddresses(Vec<(Gid, IpAddr)>);

impl PortAddresses {
    /// Of this host's interfaces.
    pub(super) fn of_host() -> std::io::Result<Self> {
        let shown = |interface: &str, file: &str| {
            std::fs::read_to_string(format!("{INTERFACES}/{interface}/{file}")).ok()
        };
        Ok(Self::of(&Interface::all()?, shown))
    }

    /// Of these; `shown`: what the kernel shows of an interface under this name. One that goes away meanwhile has no addresses.
    fn of(interfaces: &[Interface], shown: impl Fn(&str, &str) -> Option<String>) -> Self {
        let known = interfaces.iter().filter_map(|interface| {
            let shown = |file| shown(&interface.name, file);
            let is_infiniband = shown("type")?.trim() == TYPE_INFINIBAND;
            // A bond has none.
            let is_default = shown("pkey").is_none_or(|it| is_default(it.trim()));
            let hardware = (is_infiniband && is_default).then(|| shown("address"));
            let hardware = hardware.flatten()?;
            let gid = gid_at_end(hardware.trim())?;
            Some(interface.addresses.iter().map(move |it| (gid, *it)))
        });
        Self(known.flatten().collect())
    }

    /// Those of the port that has this GID.
    pub(super) fn with(&self, gid: Gid) -> impl Iterator<Item = IpAddr> {
        let of_port = self.0.iter().filter(move |it| it.0 == gid);
        of_port.map(|it| it.1)
    }
}

/// Whether this is the default partition, `0xffff` or `0x7fff`.
fn is_default(partition: &str) -> bool {
    let number = partition.strip_prefix("0x");
    let number = number.and_then(|it| u16::from_str_radix(it, 16).ok());
    number.is_some_and(|it| it & DEFAULT_PARTITION == DEFAULT_PARTITION)
}

/// The GID at the end of a hardware address, which is 20 bytes in hexadecimal with colons between.
fn gid_at_end(hardware: &str) -> Option<Gid> {
    let bytes = hardware.split(':').map(|it| u8::from_str_radix(it, 16));
    let bytes: Vec<u8> = bytes.collect::<Result<_, _>>().ok()?;
    let whole = (bytes.len() == HARDWARE_BYTES).then_some(bytes)?;
    let gid = whole[HARDWARE_BYTES - GID_BYTES..].try_into().ok()?;
    Some(Gid(gid))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GID: [u8; 16] = [
        0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0xec, 0x0d, 0x9a, 0x03, 0, 0x12, 0x34, 0x56,
    ];
    const HARDWARE: &str = "00:00:10:29:fe:80:00:00:00:00:00:00:ec:0d:9a:03:00:12:34:56";

    const INFINIBAND: Fabric = Fabric::InfiniBand {
        local_id: 7,
        needs_global: false,
    };

    fn place(fabric: Fabric) -> Place {
        Place {
            address: [10, 0, 0, 1].into(),
            gid: Gid(GID),
            index: 3,
            port: 2,
            fabric,
        }
    }

    fn peer(local_id: u16, subnet: u8) -> Endpoint {
        let mut gid = GID;
        gid[7] = subnet;
        gid[15] = 0x57;
        Endpoint {
            queue_pair: 2,
            first_packet: 0,
            gid,
            mtu: 5,
            local_id,
        }
    }

    #[test]
    fn a_peer_is_reached_by_its_address_on_ethernet_and_by_its_number_on_infiniband() {
        let there = peer(0, 0);
        let route = place(Fabric::Ethernet).route(&there).unwrap();
        assert_eq!((route.is_global, route.local_id, route.port), (1, 0, 2));
        let global = route.global;
        assert_eq!((global.destination.0, global.source_index), (there.gid, 3));
        assert_eq!(global.hops_max, HOPS_MAX);

        let infiniband = place(INFINIBAND);
        let route = infiniband.route(&peer(9, 0)).unwrap();
        assert_eq!((route.is_global, route.local_id, route.port), (0, 9, 2));
        let virtual_port = Fabric::InfiniBand {
            local_id: 7,
            needs_global: true,
        };
        let route = place(virtual_port).route(&peer(9, 0)).unwrap();
        assert_eq!((route.is_global, route.local_id), (1, 9));
        assert_eq!(route.global.destination.0, there.gid);
        assert_eq!(
            (infiniband.local_id(), place(Fabric::Ethernet).local_id()),
            (7, 0)
        );
    }

    #[test]
    fn there_is_no_way_to_another_fabric_or_subnet() {
        let infiniband = place(INFINIBAND);
        let no_way = |from: Place, to| from.route(&to).err();
        assert_eq!(no_way(infiniband, peer(0, 0)), Some(NoWay::Fabric));
        assert_eq!(no_way(infiniband, peer(9, 1)), Some(NoWay::Subnet));
        let ethernet = place(Fabric::Ethernet);
        assert_eq!(no_way(ethernet, peer(9, 0)), Some(NoWay::Fabric));
        // Another network of Ethernet is behind a router.
        assert_eq!(no_way(ethernet, peer(0, 1)), None);
    }

    #[test]
    fn an_interface_of_infiniband_says_whose_addresses_it_has() {
        let all = [
            ("eth0", "1", None, "52:54:00:12:34:56".to_owned()),
            ("ib0", "32", Some("0xffff"), HARDWARE.to_owned()),
            ("ib1", "32", Some("0x7fff"), HARDWARE.replace("56", "57")),
            ("bond0", "32", None, HARDWARE.to_owned()),
            ("ib0.8001", "32", Some("0x8001"), HARDWARE.to_owned()),
            ("short", "32", None, "fe:80".to_owned()),
        ];
        let interfaces: Vec<_> = (1..)
            .zip(&all)
            .map(|(index, it)| Interface {
                name: it.0.to_owned(),
                index,
                addresses: vec![[10, 0, 0, index as u8].into()],
            })
            .chain([Interface {
                name: "gone".to_owned(),
                index: 99,
                addresses: vec![[10, 0, 0, 99].into()],
            }])
            .collect();
        let found = PortAddresses::of(&interfaces, |interface, file| {
            let (_, kind, partition, hardware) = all.iter().find(|it| it.0 == interface)?;
            Some(match file {
                "type" => format!("{kind}\n"),
                "pkey" => format!("{}\n", (*partition)?),
                _ => format!("{hardware}\n"),
            })
        });
        let of_port: Vec<_> = found.with(Gid(GID)).collect();
        assert_eq!(
            of_port,
            [IpAddr::from([10, 0, 0, 2]), IpAddr::from([10, 0, 0, 4])]
        );
        assert_eq!(found.with(Gid([0; 16])).count(), 0);
    }

    #[test]
    fn a_hardware_address_of_another_length_has_no_gid() {
        assert_eq!(gid_at_end(HARDWARE), Some(Gid(GID)));
        for text in [
            "",
            "52:54:00:12:34:56",
            &HARDWARE[3..],
            &HARDWARE.replace("ec", "xx"),
        ] {
            assert_eq!(gid_at_end(text), None, "{text}");
        }
    }
}
