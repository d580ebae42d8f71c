//! The kernel's answers end to end: two hosts in namespaces, a cable, no process at the node.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, its helpers too"
)]

#[path = "support/namespaces.rs"]
#[expect(dead_code, reason = "its other users use the rest")]
mod namespaces;

use std::net::SocketAddr;
use std::time::Duration;

use namespaces::{Hosts, Kept, PATIENT, PORT, node_address};
use tidegate_core::load::Rung;
use tidegate_core::record::{AGGREGATE_LINES, LoadRecord, Sources};
use tidegate_remote::kernel::{
    KernelError, KernelOptions, KernelPublisher, KernelResponder, show, uninstall,
};
use tidegate_remote::udp::{Key, UdpOptions, UdpRegion};
use tidegate_remote::{Region, RegionError};

const IMPATIENT: UdpOptions = UdpOptions {
    wait: Duration::from_millis(20),
    tries: 2,
};

fn key() -> Key {
    Key::new("n1", 0x000102030405060708090a0b0c0d0e0f_u128.to_be_bytes())
}

fn options(rung: Rung) -> KernelOptions {
    KernelOptions {
        rungs: vec![rung],
        ..KernelOptions::new(SocketAddr::from(([0, 0, 0, 0], PORT)), vec![key()])
    }
}

#[expect(clippy::print_stdout, reason = "how a test says that it could not run")]
fn skip(why: &str) {
    println!("SKIPPED: {why}");
}

/// Two hosts, or why not.
fn hosts() -> Option<Hosts> {
    if !rustix::process::geteuid().is_root() {
        skip("namespaces and programs in the kernel need root");
        return None;
    }
    Hosts::new().map_err(|why| skip(&why)).ok()
}

/// Programs at the node, or why this kernel has none.
fn attach(hosts: &Hosts, options: KernelOptions) -> Option<Kept<KernelResponder>> {
    match hosts.keep_at_node(move || KernelResponder::attach(&options)) {
        Ok(kept) => Some(kept),
        Err(
            error @ KernelError::Refused {
                permission: true, ..
            },
        ) => {
            skip(&error.to_string());
            None
        }
        Err(error @ (KernelError::Refused { .. } | KernelError::Object(_)))
            if !std::path::Path::new("/sys/kernel/btf/vmlinux").exists() =>
        {
            skip(&error.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn region(hosts: &Hosts, v6: bool, options: UdpOptions) -> UdpRegion {
    hosts.at_front(|| UdpRegion::connect(node_address(v6, PORT), key(), options).unwrap())
}

fn read(region: &mut UdpRegion) -> LoadRecord {
    region.read(AGGREGATE_LINES).unwrap().record().unwrap()
}

#[test]
fn generic_xdp_and_tc_answer_at_a_cable_as_it_is() {
    for rung in [Rung::XdpGeneric, Rung::Tc] {
        let Some(hosts) = hosts() else { return };
        let Some(kept) = attach(&hosts, options(rung)) else {
            return;
        };
        for v6 in [false, true] {
            let mut region = region(&hosts, v6, PATIENT);
            let first = read(&mut region);
            let second = read(&mut region);
            assert_eq!(first.rung, rung as u8, "IPv6: {v6}");
            assert!(second.t_ns > first.t_ns && second.sequence != first.sequence);
            assert_eq!(second.generation, first.generation);
        }
        let stats = kept.ask(|kept| kept.stats().unwrap());
        assert_eq!(stats.reads, 4);
        drop(kept);
        let mut region = region(&hosts, false, IMPATIENT);
        let gone = region.read(AGGREGATE_LINES).unwrap_err();
        let silent = matches!(gone, RegionError::Timeout { .. } | RegionError::Io { .. });
        assert!(silent, "nothing is left: {gone}");
    }
}

#[test]
fn native_xdp_answers_where_the_other_end_has_a_program_too() {
    let Some(hosts) = hosts() else { return };
    let refused = hosts.at_node(|| KernelResponder::attach(&options(Rung::XdpNative)).unwrap_err());
    assert!(refused.to_string().contains("virtual cable"), "{refused}");
    let native = KernelOptions {
        veth_native: true,
        ..options(Rung::XdpNative)
    };
    let Some(_kept) = attach(&hosts, native) else {
        return;
    };
    let _other = hosts.at_front(|| tidegate_remote::kernel::pass_at("front0").unwrap());
    let mut region = region(&hosts, false, PATIENT);
    assert_eq!(read(&mut region).rung, Rung::XdpNative as u8);
}

#[test]
fn native_xdp_behind_a_switch_answers_on_the_cpu_that_received() {
    if !rustix::process::geteuid().is_root() {
        skip("namespaces and programs in the kernel need root");
        return;
    }
    let hosts = match Hosts::switched() {
        Ok(hosts) => hosts,
        Err(why) => return skip(&why),
    };
    let native = KernelOptions {
        veth_native: true,
        ..options(Rung::XdpNative)
    };
    let Some(_kept) = attach(&hosts, native) else {
        return;
    };
    let _other = hosts.at_switch(|| tidegate_remote::kernel::pass_at("port1").unwrap());
    let cpus = std::thread::available_parallelism().unwrap().get();
    // Whichever CPU the front-end sends from, the one that the switch steers to takes the packet.
    for cpu in [0, cpus - 1] {
        let mask = format!(
            "echo {:x} > /sys/class/net/port0/queues/rx-0/rps_cpus",
            1_u64 << cpu
        );
        let steer = ["netns", "exec", hosts.switch(), "sh", "-c", &mask];
        if let Err(why) = hosts.ip(&steer) {
            return skip(&why);
        }
        let mut region = region(&hosts, false, PATIENT);
        for _ in 0..50 {
            let record = read(&mut region);
            let at = (record.rung, record.on_cpu as usize);
            assert_eq!(at, (Rung::XdpNative as u8, cpu));
        }
    }
}

/// Hosts with a router between, and programs at the node; nothing where that cannot be.
fn routed() -> Option<(Hosts, Kept<KernelResponder>)> {
    if !rustix::process::geteuid().is_root() {
        skip("namespaces and programs in the kernel need root");
        return None;
    }
    let hosts = Hosts::routed().map_err(|why| skip(&why)).ok()?;
    let node = attach(&hosts, options(Rung::XdpGeneric))?;
    Some((hosts, node))
}

#[test]
fn a_router_with_programs_of_its_own_forwards_what_is_for_a_node_behind_it() {
    for rung in [Rung::XdpGeneric, Rung::Tc] {
        let Some((hosts, node)) = routed() else {
            return;
        };
        let router = hosts.keep_at_switch(move || KernelResponder::attach(&options(rung)));
        let router = router.unwrap_or_else(|error| panic!("{error}"));
        for v6 in [false, true] {
            read(&mut region(&hosts, v6, PATIENT));
        }
        let reads = |kept: &Kept<KernelResponder>| kept.ask(|kept| kept.stats().unwrap().reads);
        assert_eq!((reads(&router), reads(&node)), (0, 2), "{rung:?}");
        let elsewhere = router.ask(|router| router.stats().unwrap().elsewhere);
        assert_eq!(elsewhere, 2, "{rung:?}");
        // What is for the router itself it answers.
        for address in ["198.51.100.254", "192.0.2.254", "fd00:7468::fe"] {
            let address = SocketAddr::new(address.parse().unwrap(), PORT);
            let connect = || UdpRegion::connect(address, key(), PATIENT).unwrap();
            read(&mut hosts.at_front(connect));
        }
        assert_eq!((reads(&router), reads(&node)), (3, 2), "{rung:?}");
    }
}

#[test]
fn an_address_that_moved_on_is_answered_for_by_its_new_host_alone() {
    let Some((hosts, node)) = routed() else {
        return;
    };
    let address = "203.0.113.9/32";
    let change = |namespace: &str, what: &[&str]| {
        let arguments = [&["-n", namespace], what].concat();
        hosts.ip(&arguments).unwrap();
    };
    change(hosts.switch(), &["addr", "add", address, "dev", "port1"]);
    let router = hosts.keep_at_switch(|| KernelResponder::attach(&options(Rung::XdpGeneric)));
    let router = router.unwrap_or_else(|error| panic!("{error}"));
    let reads = |kept: &Kept<KernelResponder>| kept.ask(|kept| kept.stats().unwrap().reads);
    let read_it = || {
        let address = SocketAddr::from(([203, 0, 113, 9], PORT));
        let connect = || UdpRegion::connect(address, key(), PATIENT).unwrap();
        read(&mut hosts.at_front(connect));
    };
    read_it();
    assert_eq!((reads(&router), reads(&node)), (1, 0));
    // The router's programs still take it for their own then, as after `tidegate agent install`.
    change(hosts.switch(), &["addr", "del", address, "dev", "port1"]);
    change(
        hosts.switch(),
        &["route", "add", address, "via", "192.0.2.2"],
    );
    change(hosts.node(), &["addr", "add", address, "dev", "node0"]);
    node.ask(|node| assert_eq!(node.follow_addresses(), None));
    read_it();
    assert_eq!((reads(&router), reads(&node)), (1, 1));
}

#[test]
fn addresses_that_change_are_followed_by_an_agent_and_else_left_to_the_stack() {
    let Some(hosts) = hosts() else { return };
    let Some(kept) = attach(&hosts, options(Rung::XdpGeneric)) else {
        return;
    };
    let new = SocketAddr::from(([192, 0, 2, 77], PORT));
    let add = [
        "-n",
        hosts.node(),
        "addr",
        "add",
        "192.0.2.77/24",
        "dev",
        "node0",
    ];
    hosts.ip(&add).unwrap();
    let connect = |options| hosts.at_front(|| UdpRegion::connect(new, key(), options).unwrap());
    connect(IMPATIENT).read(AGGREGATE_LINES).unwrap_err();
    let stats = kept.ask(|kept| kept.stats().unwrap());
    assert!(stats.reads == 0 && stats.elsewhere > 0, "{stats:?}");
    kept.ask(|kept| assert_eq!(kept.follow_addresses(), None));
    read(&mut connect(PATIENT));
    let one = KernelOptions {
        listen: new,
        ..options(Rung::XdpGeneric)
    };
    drop(kept);
    // One that was chosen is the only one.
    let Some(kept) = attach(&hosts, one) else {
        return;
    };
    read(&mut connect(PATIENT));
    region(&hosts, false, IMPATIENT)
        .read(AGGREGATE_LINES)
        .unwrap_err();
    kept.ask(|kept| assert_eq!(kept.follow_addresses(), None));
    region(&hosts, false, IMPATIENT)
        .read(AGGREGATE_LINES)
        .unwrap_err();
}

#[test]
fn a_strangers_key_gets_nothing() {
    let Some(hosts) = hosts() else { return };
    let Some(kept) = attach(&hosts, options(Rung::XdpGeneric)) else {
        return;
    };
    let stranger = Key::new("n1", 0xff0102030405060708090a0b0c0d0e0f_u128.to_be_bytes());
    let mut region = hosts
        .at_front(|| UdpRegion::connect(node_address(false, PORT), stranger, IMPATIENT).unwrap());
    region.read(AGGREGATE_LINES).unwrap_err();
    let stats = kept.ask(|kept| kept.stats().unwrap());
    let dropped: u64 = stats.dropped.iter().map(|(_, count)| count).sum();
    assert!(stats.reads == 0 && dropped > 0, "{stats:?}");
}

#[test]
fn a_program_that_somebody_removed_is_missed() {
    let Some(hosts) = hosts() else { return };
    let Some(kept) = attach(&hosts, options(Rung::Tc)) else {
        return;
    };
    assert_eq!(kept.ask(|kept| kept.lost()), Vec::<String>::new());
    let remove = ["netns", "exec", hosts.node(), "tc", "filter", "del"];
    hosts
        .ip(&[&remove[..], &["dev", "node0", "ingress"]].concat())
        .unwrap();
    let lost = kept.ask(|kept| kept.lost());
    assert_eq!(lost, ["tc at node0 was removed by somebody else"]);
}

#[test]
fn an_xdp_program_is_taken_away_by_its_owner_alone() {
    let Some(hosts) = hosts() else { return };
    let Some(kept) = attach(&hosts, options(Rung::XdpGeneric)) else {
        return;
    };
    let off = [
        "-n",
        hosts.node(),
        "link",
        "set",
        "node0",
        "xdpgeneric",
        "off",
    ];
    hosts.ip(&off).unwrap_err();
    assert_eq!(kept.ask(|kept| kept.lost()), Vec::<String>::new());
    read(&mut region(&hosts, false, PATIENT));
}

#[test]
fn another_program_at_the_interface_is_left_alone() {
    let Some(hosts) = hosts() else { return };
    let Some(_first) = attach(&hosts, options(Rung::XdpGeneric)) else {
        return;
    };
    let second = hosts.at_node(|| {
        let all = KernelOptions::new(SocketAddr::from(([0, 0, 0, 0], PORT + 1)), vec![key()]);
        let second = KernelResponder::attach(&all).unwrap();
        let rungs: Vec<_> = second.rungs().map(|(_, rung)| rung).collect();
        (rungs, second.refusals().join("\n"))
    });
    assert_eq!(second.0, [Rung::Tc], "beside it");
    assert!(second.1.contains("left alone"), "{}", second.1);
}

#[test]
fn what_is_installed_answers_without_a_process_until_it_is_removed() {
    let Some(hosts) = hosts() else { return };
    let installed = hosts.at_node(|| {
        let options = options(Rung::XdpGeneric);
        let responder = KernelResponder::attach(&options)?;
        responder.install(&options)
    });
    let installed = match installed {
        Ok(installed) => installed,
        Err(KernelError::Pins { path, error }) => {
            skip(&format!("{}: {error}", path.display()));
            return;
        }
        Err(error) => panic!("{error}"),
    };
    assert!(installed.counts_switches);
    let mut handle = region(&hosts, false, PATIENT);
    let record = read(&mut handle);
    assert!(
        record
            .sources
            .has(Sources::BUSY_SWITCH.with(Sources::RUNNABLE))
    );
    handle.fetch_and_add(0, 5).unwrap();
    let (again, shown) = hosts.at_node(|| {
        let options = options(Rung::Tc);
        let again = KernelResponder::attach(&options).and_then(|it| it.install(&options));
        (again.map(drop), show(PORT).unwrap().unwrap())
    });
    let again = again.unwrap_err().to_string();
    assert!(
        again.contains("something is installed here already"),
        "{again}"
    );
    assert_eq!((shown.stats.reads, shown.stats.atomics), (1, 1));
    assert_eq!(shown.rungs.len(), 1);
    let removed = hosts.at_node(|| uninstall(PORT).unwrap());
    assert!(removed.is_some_and(|it| !it.folder.exists()));
    assert!(hosts.at_node(|| uninstall(PORT).unwrap()).is_none());
    let mut handle = region(&hosts, false, IMPATIENT);
    handle.read(AGGREGATE_LINES).unwrap_err();
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a test gives up on the real clock"
)]
fn a_timer_in_the_kernel_makes_the_record() {
    let Some(hosts) = hosts() else { return };
    let read = hosts.at_node(|| {
        let publisher =
            KernelPublisher::start(&options(Rung::KernelRecord), Duration::from_millis(1))?;
        let record = publisher.record()?;
        let deadline = std::time::Instant::now() + Duration::from_secs(10);
        let mut seen: Vec<LoadRecord> = Vec::new();
        while seen.len() < 5 && std::time::Instant::now() < deadline {
            if let Ok((record, _)) = record.read()
                && seen
                    .last()
                    .is_none_or(|last| last.sequence != record.sequence)
            {
                seen.push(record);
            }
        }
        Ok::<_, KernelError>(seen)
    });
    let seen = match read {
        Ok(seen) => seen,
        Err(error) if !std::path::Path::new("/sys/kernel/btf/vmlinux").exists() => {
            skip(&error.to_string());
            return;
        }
        Err(error) => panic!("{error}"),
    };
    assert_eq!(seen.len(), 5);
    for pair in seen.windows(2) {
        assert!(pair[1].t_ns > pair[0].t_ns);
        assert_eq!(pair[1].interval_ns, 1_000_000);
        assert_eq!(pair[1].rung, Rung::KernelRecord as u8);
    }
}
