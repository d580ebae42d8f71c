//! How much the programs' maps take.

use std::collections::BTreeMap;

use super::*;

#[test]
fn so_many_keys_networks_and_addresses_are_taken_and_no_more() {
    let Some(bench) = Bench::new(|_| {}) else {
        return;
    };
    let programs = &bench.0;
    let check = |taken: Result<(), KernelError>, refused: Result<(), KernelError>, why: &str| {
        taken.unwrap_or_else(|error| panic!("{why}: {error}"));
        let refused = refused.expect_err(why).to_string();
        assert!(refused.contains(why), "{refused}");
    };
    let keys = |count| write_keys(programs, &vec![key(); count]);
    check(keys(8), keys(9), "9 keys; the kernel takes 1 to 8");
    check(keys(1), keys(0), "0 keys; the kernel takes 1 to 8");
    let networks = |count: u32| {
        let network = |it| format!("10.{}.{}.0/24", it / 256, it % 256);
        let all: Vec<_> = (0..count)
            .map(|it| network(it).parse().expect("a network"))
            .collect();
        write_networks(programs, &all)
    };
    check(
        networks(1024),
        networks(1025),
        "1025 networks; the kernel takes 1024",
    );
    for v6 in [false, true] {
        // Those of the bench go.
        let (here, _) = Wrap { v6, ..PLAIN }.addresses();
        let listed = LocalAddresses::write(programs, here);
        let cleared = listed.and_then(|mut listed| listed.list(programs, BTreeMap::new()));
        cleared.expect("an empty list");
    }
    let mut listed = LocalAddresses::write(programs, Ipv4Addr::LOCALHOST.into()).expect("a list");
    let mut addresses = |count: u32| {
        let address = |it: u32| (Ipv4Addr::from_bits(0x0a00_0000 + it).into(), 0);
        listed.list(programs, (0..count).map(address).collect())
    };
    check(
        addresses(1024),
        addresses(1025),
        "1025 addresses, the kernel takes 1024",
    );
}
