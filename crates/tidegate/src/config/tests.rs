//! Round trips, documentation, and hostile texts. What is wrong and how it is shown is in
//! `tests/broken`.

use std::net::Ipv6Addr;
use std::path::Path;

use tidegate_proxy::{LimitStatus, SessionSource};
use tidegate_reported::AgentCheckConfig;

use super::*;
use crate::testing::key_folder;

const SMALL: &str = r#"
[[listener]]
address = "127.0.0.1:8080"
[[site]]
name = "shop"
policy = { name = "auto" }
[[node]]
name = "n1"
address = "10.0.0.11:80"
site = "shop"
"#;

fn parsed(text: &str) -> Config {
    match Config::parse(text, "test.toml", Path::new("")) {
        Ok(config) => config,
        Err(error) => panic!("{}", error.render(false)),
    }
}

#[test]
fn the_effective_configuration_reads_back_to_itself() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut texts = vec![SMALL.to_owned()];
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_some_and(|extension| extension == "toml")
        {
            texts.push(std::fs::read_to_string(path).unwrap());
        }
    }
    for text in texts {
        let first =
            Config::parse(&text, "first", key_folder()).map_err(|error| error.render(false));
        let printed = print::print(&first.unwrap().file);
        let second = Config::parse(&printed, "second", key_folder());
        let second = second.map_err(|error| error.render(false)).unwrap();
        assert_eq!(print::print(&second.file), printed);
    }
}

#[test]
fn a_site_looks_after_its_nodes_as_it_is_told() {
    use tidegate_core::topology::{BytesCheck, CheckMethod, CheckRequest, HttpCheck};

    let with = |keys: &str| {
        let text = SMALL.replace("[[node]]", &format!("{keys}\n[[node]]"));
        let config = parsed(&text);
        let printed = print::print(&config.file);
        assert_eq!(print::print(&parsed(&printed).file), printed);
        let spec = &config.front_end.unwrap().cluster.sites[0];
        spec.health.clone()
    };
    assert_eq!(with(""), Default::default(), "off");
    let slow = with("slow_start = \"30s\"");
    assert_eq!(slow.slow_start, Duration::from_secs(30));
    let usual = HttpCheck {
        method: CheckMethod::Get,
        path: "/".into(),
        host: Some("shop.example".into()),
        statuses: vec![200..=399],
        body: None,
    };
    let of = |keys: &str| with(keys).checks.remove(0);
    let plain = of("hosts = [\"*.example\", \"shop.example\"]\n[site.check]");
    assert_eq!(plain.request, CheckRequest::Http(usual.clone()));
    assert_eq!((plain.rise, plain.fall), (2, 3));
    let tcp = of("check = { kind = \"tcp\", port = 81, interval = \"5s\" }");
    let connection = CheckRequest::Tcp(BytesCheck::NOTHING);
    assert_eq!((tcp.request, tcp.port), (connection, Some(81)));
    let full = of(
        "check = { path = \"/a?b\", host = \"h:8\", status = [200, \"204-206\"], body = \"ok\" }",
    );
    let wanted = HttpCheck {
        path: "/a?b".into(),
        host: Some("h:8".into()),
        statuses: vec![200..=200, 204..=206],
        body: Some("ok".into()),
        ..usual
    };
    assert_eq!(full.request, CheckRequest::Http(wanted));
}

#[test]
fn services_that_are_no_web_servers_are_asked_in_their_own_way() {
    use tidegate_core::topology::{
        BytesCheck, CheckRequest, DnsCheck, DnsRecords, FtpLogin, NfsVersion, SoaWanted,
    };

    let of = |check: &str| {
        let text = SMALL.replace("[[node]]", &format!("check = {{ {check} }}\n[[node]]"));
        let config = parsed(&text);
        let printed = print::print(&config.file);
        assert_eq!(print::print(&parsed(&printed).file), printed);
        let spec = &config.front_end.unwrap().cluster.sites[0];
        let check = spec.health.checks[0].clone();
        (check.request, check.port)
    };
    let wanted = BytesCheck {
        send: b"PING \"x\"\r\n\0".into(),
        expect: b"\n\xff".into(),
    };
    let keys = r#"send = "PING \"x\"\r\n\u0000", expect = { hex = "0AfF" }"#;
    let tcp = of(&format!("kind = \"tcp\", {keys}"));
    assert_eq!(tcp, (CheckRequest::Tcp(wanted.clone()), None));
    let udp = of(&format!("kind = \"udp\", port = 81, {keys}"));
    assert_eq!(udp, (CheckRequest::Udp(wanted), Some(81)));
    let primary = SoaWanted::Primary("ns1.shop.example".into());
    for (keys, records) in [
        ("record = \"A\"", DnsRecords::A(None)),
        (
            "answer = \"::1\", record = \"AAAA\"",
            DnsRecords::Aaaa(Some(Ipv6Addr::LOCALHOST)),
        ),
        (
            "answer = \"7\", record = \"SOA\"",
            DnsRecords::Soa(Some(SoaWanted::Serial(7))),
        ),
        (
            "answer = \"ns1.shop.example\", record = \"SOA\"",
            DnsRecords::Soa(Some(primary)),
        ),
    ] {
        let dns = of(&format!("kind = \"dns\", name = \"shop.example.\", {keys}"));
        let name = "shop.example.".into();
        assert_eq!(
            dns,
            (CheckRequest::Dns(DnsCheck { name, records }), Some(53))
        );
    }
    let anonymous = FtpLogin {
        user: "anonymous".into(),
        password: "tidegate-check".into(),
    };
    let ftp = of("kind = \"ftp\", user = \"anonymous\"");
    assert_eq!(ftp, (CheckRequest::Ftp(Some(anonymous)), Some(21)));
    assert_eq!(of("kind = \"ftp\""), (CheckRequest::Ftp(None), Some(21)));
    let nfs = (CheckRequest::Nfs(NfsVersion::Four), Some(2049));
    assert_eq!(of("kind = \"nfs\""), nfs);
    assert_eq!(of("kind = \"smb\""), (CheckRequest::Smb, Some(445)));
    let whole = (CheckRequest::Grpc(String::new()), None);
    assert_eq!(of("kind = \"grpc\""), whole);
    let service = (CheckRequest::Grpc("shop.Cart".into()), None);
    assert_eq!(of("kind = \"grpc\", service = \"shop.Cart\""), service);
    let command = ["/bin/sh", "-c", "exit 0"].map(str::to_owned).into();
    let exec = of(r#"kind = "exec", command = ["/bin/sh", "-c", "exit 0"]"#);
    assert_eq!(exec, (CheckRequest::Exec(command), None));
}

#[test]
fn a_site_has_one_check_or_several() {
    let labels = |keys: &str| {
        let config = parsed(&SMALL.replace("[[node]]", &format!("{keys}\n[[node]]")));
        let printed = print::print(&config.file);
        assert_eq!(print::print(&parsed(&printed).file), printed);
        let checks = &config.front_end.unwrap().cluster.sites[0].health.checks;
        let labels: Vec<_> = checks.iter().map(|it| it.label.clone()).collect();
        labels.join(" ")
    };
    assert_eq!(labels("[site.check]"), "http");
    assert_eq!(labels("check = { kind = \"tcp\", label = \"db\" }"), "db");
    let several = "[[site.check]]\n[[site.check]]\nkind = \"tcp\"\n[[site.check]]\npath = \"/b\"";
    assert_eq!(labels(several), "http tcp http-2");
    let inline = "check = [{ kind = \"tcp\" }, { kind = \"tcp\", label = \"db\" }]";
    assert_eq!(labels(inline), "tcp db");
}

#[test]
fn every_key_is_printed() {
    let printed = print::print(&parsed(SMALL).file);
    for needed in [
        "[admin]\naddress = \"127.0.0.1:9900\"",
        "# interval is not set",
        "timeout = \"5ms\"",
        "policy = \"auto\"",
        "load = { transport = \"auto\" }",
        "# key_file is not set",
    ] {
        assert!(printed.contains(needed), "{needed} in:\n{printed}");
    }
}

#[test]
fn the_page_of_documentation_is_up_to_date() {
    up_to_date("docs/config.md", &docs::page());
}

#[test]
fn the_manual_page_of_the_file_is_up_to_date() {
    up_to_date("contrib/man/tidegate.toml.5", &man_page::page());
}

/// Compares a page that is made from the tables with the one in the repository.
fn up_to_date(page: &str, wanted: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(page);
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, wanted).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == wanted,
        "{page}: run with UPDATE_EXPECT=1 and read the diff"
    );
}

#[test]
fn without_a_key_nothing_is_read_and_with_one_the_agents_port_is_asked() {
    let config = parsed(SMALL);
    assert_eq!(config.front_end.unwrap().reads, [NodeRead::None]);
    let text = format!("{SMALL}\n[load]\nkey_file = \"master.key\"");
    let config = Config::parse(&text, "", key_folder()).unwrap();
    let reads = config.front_end.unwrap().reads;
    let NodeRead::Udp { address, .. } = &reads[0] else {
        panic!("{reads:?}");
    };
    assert_eq!(address.to_string(), "10.0.0.11:9901");
}

/// The interface takes runtime overrides: beyond loopback it needs a token.
#[test]
fn an_admin_interface_without_a_token_is_on_loopback_only() {
    for (address, sound) in [
        ("127.0.0.1:9900", true),
        ("127.255.255.254:9900", true),
        ("[::1]:9900", true),
        ("0.0.0.0:9900", false),
        ("[::]:9900", false),
        ("10.0.0.1:9900", false),
        ("128.0.0.1:9900", false),
        ("[fe80::1]:9900", false),
    ] {
        let text = format!("{SMALL}\n[admin]\naddress = \"{address}\"");
        let config = Config::parse(&text, "", Path::new(""));
        assert_eq!(config.is_ok(), sound, "{address}");
        if let Err(error) = config {
            let told = error.render(false);
            assert!(told.contains("asks for no token"), "{told}");
        }
    }
}

const PRIORITIES: &str = r#"
[[listener]]
address = "127.0.0.1:8080"
[[site]]
name = "shop"
hosts = ["shop.example"]
admission = { mode = "adaptive", priorities = 3, retry_after = ["2s", "1m"], priority = { cookie = "plan", values = { gold = 0, "a b" = 1 }, paths = { "/checkout" = 0 }, default = 1 }, session = { header = "x-user", window = "5m" } }
retry_budget = { ratio = 0.1, min_per_second = 2 }
[[site]]
name = "api"
admission = { mode = "static", connections = 200, status = 429, body = "busy.json" }
[[node]]
name = "n1"
address = "10.0.0.11:80"
site = "shop"
[[node]]
name = "n2"
address = "10.0.0.12:80"
site = "api"
[[node]]
name = "n3"
address = "10.0.0.13:80"
site = "api"
"#;

#[test]
fn a_site_says_who_goes_first_and_what_the_others_are_told() {
    let folder = std::env::temp_dir().join(format!("tidegate-config-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("busy.json"), "{}").unwrap();
    let read = |text: &str| {
        let config = Config::parse(text, "test.toml", &folder);
        config.map_err(|error| error.render(false)).unwrap()
    };
    let config = read(PRIORITIES);
    let again = read(&print::print(&config.file));
    std::fs::remove_dir_all(&folder).unwrap();
    for config in [config, again] {
        let [shop, api] = &config.front_end.as_ref().unwrap().sites[..] else {
            panic!("two sites");
        };
        assert_eq!(shop.priorities.cookie.as_deref(), Some("plan"));
        assert_eq!(
            shop.priorities.values,
            [("gold".into(), 0), ("a b".into(), 1)]
        );
        assert_eq!(shop.priorities.paths, [("/checkout".into(), 0)]);
        assert_eq!(shop.priorities.default, Some(1));
        assert_eq!(shop.answers.retry_after, 2..=60);
        let sessions = shop.sessions.as_ref().unwrap();
        let header = http::HeaderName::from_static("x-user");
        assert_eq!(sessions.source, SessionSource::Header(header));
        assert_eq!(sessions.window, Duration::from_secs(300));
        assert_eq!((shop.retry.ratio, shop.retry.min_per_second), (0.1, 2.0));
        assert_eq!(api.answers.limit_status, LimitStatus::TooManyRequests);
        let quota = api.answers.quota.as_ref().unwrap();
        assert_eq!((quota.name.as_str(), quota.requests), ("api", 400));
        let body = api.answers.body.as_ref().unwrap();
        assert_eq!(
            (body.content_type, &body.bytes[..]),
            ("application/json", &b"{}"[..])
        );
    }
}

/// Cuts and flips of a good file: whatever comes, there is an answer and it can be drawn.
#[test]
fn damaged_files_never_panic() {
    let mut prng = tidegate_core::prng::Prng::new(7);
    for _ in 0..2000 {
        let text = [SMALL, PRIORITIES][prng.below(2)];
        let mut bytes = text.as_bytes().to_vec();
        for _ in 0..=prng.below(3) {
            let at = prng.below(bytes.len());
            match prng.below(3) {
                0 => bytes[at] = prng.bits() as u8,
                1 => bytes.truncate(at.max(1)),
                _ => bytes.insert(at, b"[]{}=\"'\n.#"[prng.below(10)]),
            }
        }
        let text = String::from_utf8_lossy(&bytes);
        if let Err(error) = Config::parse(&text, "damaged.toml", Path::new("")) {
            assert!(!error.render(false).is_empty());
            assert!(!error.render(true).is_empty());
            assert!(!error.reports().is_empty());
        }
    }
}

/// How node `n1` is read if this stands in its `load`, or what is wrong.
fn read_of_n1(load: &str, shared: &str) -> Result<NodeRead, String> {
    let text = SMALL.trim_end().to_owned() + &format!("\nload = {{ {load} }}\n{shared}");
    let config = Config::parse(&text, "", key_folder());
    let config = config.map_err(|error| error.render(false))?;
    Ok(config.front_end.unwrap().reads.remove(0))
}

/// What files beside the configuration hold, for their owner alone.
fn secret_at(name: &str, text: &str) -> String {
    use std::os::unix::fs::PermissionsExt;
    let name = format!("tidegate-config-{name}-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    path.display().to_string()
}

#[test]
fn a_load_by_snmp_has_what_its_version_needs_and_nothing_else() {
    let good = secret_at("snmp-good", "long-enough\n");
    let lines = secret_at("snmp-lines", "long-enough\nlong-enough\n");
    let short = secret_at("snmp-short", "short");
    let community = format!("transport = \"snmp\", community_file = \"{good}\"");
    let user = format!(
        "transport = \"snmp\", version = \"3\", user = \"monitor\", auth_file = \"{good}\""
    );
    for load in [
        community.clone(),
        format!("{user}, privacy_file = \"{good}\""),
    ] {
        let NodeRead::Reported(source) = read_of_n1(&load, SHARED).unwrap() else {
            panic!("{load} is another way");
        };
        let printed = format!("{source:?}");
        assert!(printed.contains(":161") && !printed.contains("long-enough"));
    }
    for (load, wanted) in [
        ("transport = \"snmp\"".into(), "`community_file` is missing"),
        (community.replace(&good, &lines), "it is to hold one line"),
        (
            format!("{community}, user = \"a\""),
            "version 2c of SNMP has no `user`",
        ),
        (
            format!("{community}, path = \"/a\""),
            "transport `snmp` has no `path`",
        ),
        (
            format!("{community}, period = \"1h\""),
            "`period` must be from",
        ),
        (
            format!("{community}, oids = [{{ oid = \"x\", metric = \"cpu\" }}]"),
            "`x` is no name of an object",
        ),
        (
            format!("{community}, oids = [{{ oid = \"1.3.6.1\", metric = \"cpu\", max = 0 }}]"),
            "`scale` and `max` are to be above 0",
        ),
        (user.replace("monitor", ""), "asks as a `user`"),
        (user.replace(&good, &short), "cannot use this user"),
        (
            format!(
                "transport = \"snmp\", version = \"3\", user = \"a\", privacy_file = \"{good}\""
            ),
            "are authenticated as well",
        ),
        (
            "transport = \"none\", oids = []".into(),
            "transport `none` has no `oids`",
        ),
    ] {
        let found = read_of_n1(&load, "").unwrap_err();
        assert!(found.contains(wanted), "{load}: {found}");
    }
    for path in [good, lines, short] {
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn an_agent_that_is_asked_as_haproxy_does_has_an_address_and_a_question() {
    let load = "transport = \"agent_check\", address = \"10.0.0.1:9902\"";
    let NodeRead::Reported(source) = read_of_n1(load, SHARED).unwrap() else {
        panic!("{load} is another way");
    };
    let wanted = AgentCheckConfig {
        address: ([10, 0, 0, 1], 9902).into(),
        send: String::new(),
        period: Duration::from_secs(2),
    };
    assert_eq!(*source, SourceConfig::AgentCheck(wanted));
    for (load, wanted) in [
        ("transport = \"agent_check\"".into(), "`address` is missing"),
        (
            format!("{load}, send = \"{}\"", "x".repeat(513)),
            "`send` is longer than 512 bytes",
        ),
        (
            format!("{load}, oids = []"),
            "transport `agent_check` has no `oids`",
        ),
        (
            "transport = \"none\", send = \"a\"".into(),
            "transport `none` has no `send`",
        ),
    ] {
        let found = read_of_n1(&load, "").unwrap_err();
        assert!(found.contains(wanted), "{load}: {found}");
    }
}

#[test]
fn words_over_rdma_take_a_record_over_rdma() {
    let with = |keys: &str| {
        let text = format!("[agent]\nkey_file = \"n1.key\"\n{keys}\n");
        Config::parse(&text, "test.toml", key_folder()).map_err(|error| error.render(false))
    };
    let agent = |keys| with(keys).unwrap().agent.unwrap();
    assert!(!agent("rdma = true").rdma_words);
    assert!(agent("rdma = true\nrdma_words = true").rdma_words);
    let rungs = |rungs| format!("rdma = true\nrdma_words = true\nrungs = [{rungs}]");
    let refused = with(&rungs("\"xdp_native\", \"tc\"")).unwrap_err();
    let wanted = "`rdma_words` leaves none of these rungs";
    assert!(refused.contains(wanted), "{refused}");
    assert!(refused.contains("test.toml:5"), "{refused}");
    assert!(with(&rungs("\"tc\", \"agent\"")).is_ok());
    let refused = with("rdma_words = true").unwrap_err();
    let wanted = "`rdma_words` needs `rdma = true`";
    assert!(refused.contains(wanted), "{refused}");
    assert!(refused.contains("test.toml:3"), "{refused}");
}

const SHARED: &str = "[load]\nkey_file = \"master.key\"\n";

#[test]
fn a_nodes_key_follows_from_the_master_and_its_name_or_stands_in_a_file_of_its_own() {
    let derived = read_of_n1("", SHARED).unwrap();
    let own = read_of_n1("key_file = \"n1.key\"", "").unwrap();
    assert_eq!(derived, own);
    assert_eq!(read_of_n1("key_file = \"master.key\"", "").unwrap(), own);
    // Nodes that share an agent share its key.
    let other = read_of_n1("key_name = \"n2\"", SHARED).unwrap();
    assert_ne!(other, own);
    let shared = "key_name = \"n2\", key_file = \"n2.key\"";
    assert_eq!(read_of_n1(shared, "").unwrap(), other);
}

#[test]
fn a_key_in_the_wrong_place_is_said() {
    let cases = [
        (
            ("key_file = \"n2.key\"", ""),
            "this is the key of node `n2`, not of `n1`",
        ),
        (
            ("", "[load]\nkey_file = \"n1.key\"\n"),
            "it holds the key of node `n1`, and a master is wanted here",
        ),
        (
            ("", "[agent]\nkey_file = \"master.key\"\n"),
            "it holds a master, which stays on front-ends",
        ),
        (("key_name = \"n 2\"", SHARED), "bad name `n 2`"),
        (
            ("transport = \"none\", key_name = \"n2\"", SHARED),
            "transport `none` has no `key_name`",
        ),
    ];
    for ((load, more), wanted) in cases {
        let found = read_of_n1(load, more).unwrap_err();
        assert!(found.contains(wanted), "{load} {more}: {found}");
    }
}

#[test]
fn examples_of_the_page_of_discovery_are_sound() {
    let page = include_str!("../../../../docs/discovery.md");
    let blocks = page.split("```toml\n").skip(1);
    let blocks = blocks.map(|it| it.split("```").next().unwrap());
    let mut sources = Vec::new();
    for block in blocks.filter(|it| it.contains("[[site]]")) {
        let config = Config::parse(block, "discovery.md", key_folder());
        let config = config.map_err(|error| error.render(false));
        let front_end = config.unwrap_or_else(|error| panic!("{error}")).front_end;
        sources.extend(front_end.unwrap().sources);
    }
    let read = |it: &NodeSource| it.read != ReadPlan::NONE;
    assert_eq!(sources.iter().filter(|it| read(it)).count(), 1);
    let all: Vec<_> = sources
        .iter()
        .map(|it| it.config.kind.to_string())
        .collect();
    for wanted in [
        "dns web.internal, port 80",
        "kubernetes shop/web",
        "consul web",
    ] {
        assert!(all.contains(&wanted.into()), "{all:?}");
    }
}

/// The configuration within the Deployment that the page names.
#[test]
fn the_deployment_for_kubernetes_has_a_sound_configuration() {
    let yaml = include_str!("../../../../contrib/kubernetes/deployment.yaml");
    let text = yaml.split("tidegate.toml: |\n").nth(1).unwrap();
    let lines = text.lines().take_while(|line| *line != "---");
    let text: String = lines.map(|line| format!("{}\n", line.trim())).collect();
    let config = Config::parse(&text, "tidegate.toml", key_folder());
    let config = config.map_err(|error| error.render(false)).unwrap();
    let sources = config.front_end.unwrap().sources;
    assert_eq!(sources[0].config.kind.to_string(), "kubernetes shop/web");
}

#[test]
fn a_certificate_and_a_key_that_are_swapped_are_named_so() {
    let folder = std::env::temp_dir().join(format!("tidegate-swapped-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let pem = |name: &str, kind: &str| {
        let text = format!("-----BEGIN {kind}-----\nAAAA\n-----END {kind}-----\n");
        std::fs::write(folder.join(name), text).unwrap();
    };
    pem("key.pem", "RSA PRIVATE KEY");
    pem("certificate.pem", "CERTIFICATE");
    let text = "[[listener]]\naddress = \"0.0.0.0:443\"\n\
                tls = { certificate = \"key.pem\", key = \"certificate.pem\" }\n";
    let error = Config::parse(text, "test.toml", &folder).unwrap_err();
    std::fs::remove_dir_all(&folder).unwrap();
    let error = error.render(false);
    assert!(
        error.contains("test.toml:3:23") && error.contains("are swapped"),
        "{error}"
    );
}
