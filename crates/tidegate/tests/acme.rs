//! Certificates that come by themselves, from a real ACME authority: Pebble.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::fs::Permissions;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use support::acme::Pebble;
use support::scene::{Cluster, Scene};
use support::server::server;
use support::tls::{Authority, Connection};
use support::upgrade::upgrade;
use support::{FrontEnd, eventually, free_address, request};

/// A front-end's configuration, and the authority that it asks.
struct Shop {
    folder: PathBuf,
    state: PathBuf,
    pebble: Pebble,
    plain: SocketAddr,
    secure: SocketAddr,
}

/// A folder in this one for its owner alone.
fn private(folder: &Path) -> PathBuf {
    let path = folder.join("state");
    std::fs::create_dir(&path).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
    path
}

impl Shop {
    /// The authority is down; none where it cannot be had.
    fn new(name: &str) -> Option<Self> {
        let folder = support::folder(&format!("{name}-files"));
        let state = private(&folder);
        let pebble = Pebble::new(&folder)?;
        let [plain, secure] = pebble.proofs;
        Some(Self {
            folder,
            state,
            pebble,
            plain,
            secure,
        })
    }

    /// Both listeners, with this TLS, and more of `[acme]`.
    fn cluster(&self, tls: &str, more: &str) -> Cluster {
        self.cluster_at([self.plain, self.secure], tls, more)
    }

    fn cluster_at(&self, [plain, secure]: [SocketAddr; 2], tls: &str, more: &str) -> Cluster {
        let text = format!(
            "[[listener]]\naddress = \"{plain}\"\nredirect_to_https = true\n\
             [[listener]]\naddress = \"{secure}\"\ntls = {{ {tls} }}\n\
             [acme]\n{}agree_to_terms = true\nstate = \"{}\"\ncontact = [\"ops@shop.test\"]\n{more}\n",
            self.pebble.keys(),
            self.state.display()
        );
        Cluster::default()
            .site("shop", "*")
            .node("n1", server("an answer"), "shop")
            .more(&text)
    }

    /// Connects once that is to be believed.
    fn connected(&self, name: &str) -> Connection {
        let client = self.pebble.client();
        eventually("a certificate is shown", || {
            client.connect(self.secure, name).ok()
        })
    }
}

/// What is known of the first certificate.
fn certificate(front_end: &FrontEnd) -> Value {
    front_end.api("/api/status")["certificates"][0].clone()
}

/// Waits for its last error to be said.
fn error(front_end: &FrontEnd) -> String {
    eventually("a try has failed", || {
        Some(certificate(front_end)["error"].as_str()?.to_owned())
    })
}

/// The server's own certificate.
fn shown(connection: &Connection) -> Vec<u8> {
    connection.conn.peer_certificates().unwrap()[0].to_vec()
}

/// Asks for `/` and reads the answer's end.
fn ask(connection: &mut Connection) {
    let text = "GET / HTTP/1.1\r\nhost: shop.test\r\n\r\n";
    connection.write_all(text.as_bytes()).unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"an answer") {
        let mut byte = [0];
        connection.read_exact(&mut byte).unwrap();
        answer.push(byte[0]);
    }
    assert!(answer.starts_with(b"HTTP/1.1 200 "), "{answer:?}");
}

fn number(of: &Value, field: &str) -> f64 {
    of[field].as_f64().unwrap()
}

/// Names of the files in a folder; each is for its owner alone.
fn kept(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| {
            let entry = entry.unwrap();
            let mode = entry.metadata().unwrap().permissions().mode() & 0o7777;
            assert_eq!(mode, 0o600, "{entry:?}");
            entry.file_name().into_string().unwrap()
        })
        .collect();
    names.sort();
    names
}

/// A certificate comes by this challenge alone.
fn comes_by(challenge: &str) -> Option<Scene> {
    let name = format!("acme-{challenge}");
    let mut shop = Shop::new(&name)?;
    shop.pebble.refused_nonces = 30;
    shop.pebble.revive();
    let more = format!("challenges = [\"{challenge}\"]");
    let tls = "acme = [\"shop.test\", \"www.shop.test\"]";
    let scene = Scene::start(&name, &shop.cluster(tls, &more));
    for name in ["shop.test", "www.shop.test"] {
        ask(&mut shop.connected(name));
    }
    let known = certificate(&scene.front_end);
    assert_eq!(
        known["names"],
        serde_json::json!(["shop.test", "www.shop.test"])
    );
    assert_eq!(
        (&known["issued"], &known["error"]),
        (&1.into(), &Value::Null)
    );
    let life = shop.pebble.life as f64;
    assert!(number(&known, "expires_in_seconds") > 0.9 * life, "{known}");
    let due = number(&known, "next_try_in_seconds");
    assert!((0.6 * life..0.7 * life).contains(&due), "{known}");
    let files = kept(&shop.state);
    let ends: Vec<_> = files
        .iter()
        .map(|it| it.rsplit('.').next().unwrap())
        .collect();
    assert_eq!(ends, ["json", "lock", "pem"], "{files:?}");
    let log = scene.log();
    assert!(
        log.contains("shop.test (+1): a new certificate is in force, valid until "),
        "{log}"
    );
    let said = String::from_utf8(scene.command(&["status"]).stdout).unwrap();
    assert!(
        said.contains("certificate shop.test, www.shop.test: valid for "),
        "{said}"
    );
    // What is not pending is as it was before.
    let text = "GET /.well-known/acme-challenge/x HTTP/1.1\r\nhost: shop.test\r\nconnection: close\r\n\r\n";
    assert_eq!(request(shop.plain, text).unwrap().status, 308);
    let at_site = scene
        .front_end
        .get("shop.test", "/.well-known/acme-challenge/x");
    assert_eq!((at_site.status, at_site.body.as_str()), (200, "an answer"));
    Some(scene)
}

const LOOKED_AT: &str = "tidegate_tls_handshake_failures_total{reason=\"challenge\"}";
const ISSUED: &str =
    "tidegate_certificate_orders_total{names=\"shop.test,www.shop.test\",result=\"issued\"}";

#[test]
fn a_certificate_comes_by_http_01() {
    let Some(scene) = comes_by("http-01") else {
        return;
    };
    assert_eq!(scene.front_end.metric(ISSUED), Some(1.0));
    assert_eq!(scene.front_end.metric(LOOKED_AT), Some(0.0));
}

#[test]
fn a_certificate_comes_by_tls_alpn_01() {
    let Some(scene) = comes_by("tls-alpn-01") else {
        return;
    };
    assert_eq!(scene.front_end.metric(ISSUED), Some(1.0));
    assert!(scene.front_end.metric(LOOKED_AT) >= Some(2.0));
}

#[test]
fn a_renewal_is_shown_to_new_connections_and_ends_none_even_behind_a_reload() {
    let Some(mut shop) = Shop::new("acme-renewal") else {
        return;
    };
    (shop.pebble.life, shop.pebble.refused_nonces) = (15, 30);
    shop.pebble.revive();
    let scene = Scene::start("acme-renewal", &shop.cluster("acme = [\"shop.test\"]", ""));
    let mut open = shop.connected("shop.test");
    let first = shown(&open);
    scene.reload(&[]);
    assert_eq!(shown(&shop.connected("shop.test")), first);
    let mut renewed = eventually("a renewal is shown", || {
        ask(&mut open);
        let connection = shop.connected("shop.test");
        (shown(&connection) != first).then_some(connection)
    });
    ask(&mut renewed);
    ask(&mut open);
    assert!(number(&certificate(&scene.front_end), "issued") >= 2.0);
    assert_eq!(kept(&shop.state).len(), 3);
    // The second order proves nothing again or does so anew, by the account of the first.
    let accounts = shop
        .pebble
        .log()
        .matches("There are now 1 accounts")
        .count();
    assert_eq!(accounts, 1, "{}", shop.pebble.log());
}

#[test]
fn a_refusal_leaves_what_is_in_force_and_is_said() {
    let Some(mut shop) = Shop::new("acme-refused") else {
        return;
    };
    shop.pebble.revive();
    let authority = Authority::new(&shop.folder).unwrap();
    let own = authority.issue("shop", &["shop.test"]);
    let tls = format!("{}, acme = [\"blocked.test\"]", own.keys());
    let scene = Scene::start("acme-refused", &shop.cluster(&tls, ""));
    let why = error(&scene.front_end);
    assert!(
        why.contains("the authority says: ") && why.contains("blocked"),
        "{why}"
    );
    ask(&mut authority
        .client()
        .connect(shop.secure, "shop.test")
        .unwrap());
    let known = certificate(&scene.front_end);
    assert_eq!(known["expires_in_seconds"], Value::Null);
    assert!(number(&known, "failed") >= 1.0, "{known}");
    // Refusals are not asked for again at once, and a reload does not change that.
    assert!(number(&known, "next_try_in_seconds") > 20.0, "{known}");
    scene.reload(&[]);
    let known = certificate(&scene.front_end);
    assert!(number(&known, "failed") <= 1.0, "{known}");
    assert!(
        scene.log().contains("blocked.test: no new certificate: "),
        "{}",
        scene.log()
    );
}

#[test]
fn a_proof_that_is_not_found_is_said_with_the_name() {
    let Some(mut shop) = Shop::new("acme-unproved") else {
        return;
    };
    // Nothing listens there.
    shop.pebble.proofs = [free_address(), free_address()];
    shop.pebble.revive();
    let scene = Scene::start("acme-unproved", &shop.cluster("acme = [\"shop.test\"]", ""));
    let why = error(&scene.front_end);
    assert!(why.starts_with("shop.test: the authority says: "), "{why}");
    // There is nothing to show until then.
    let refused = shop.pebble.client().connect(shop.secure, "shop.test");
    assert!(refused.is_err(), "{:?}", refused.map(|it| shown(&it)));
    let failures = "tidegate_tls_handshake_failures_total{reason=\"no_certificate\"}";
    eventually("the failure is counted", || {
        (scene.front_end.metric(failures) == Some(1.0)).then_some(())
    });
}

#[test]
fn an_authority_that_is_down_is_asked_again() {
    let Some(mut shop) = Shop::new("acme-down") else {
        return;
    };
    let scene = Scene::start("acme-down", &shop.cluster("acme = [\"shop.test\"]", ""));
    let why = error(&scene.front_end);
    assert!(why.contains(&shop.pebble.url()), "{why}");
    shop.pebble.revive();
    ask(&mut shop.connected("shop.test"));
    eventually("the error is gone", || {
        certificate(&scene.front_end)["error"]
            .is_null()
            .then_some(())
    });
}

#[test]
fn a_certificate_that_cannot_be_written_is_shown_and_written_later() {
    let Some(mut shop) = Shop::new("acme-unwritten") else {
        return;
    };
    shop.pebble.revive();
    // A folder stands where its file is to be.
    let digest = Sha256::digest(format!("{}\nshop.test", shop.pebble.url()));
    let hash = data_encoding::HEXLOWER.encode(&digest[..8]);
    let file = shop.state.join(format!("shop.test-{hash}.pem"));
    std::fs::create_dir(&file).unwrap();
    let scene = Scene::start(
        "acme-unwritten",
        &shop.cluster("acme = [\"shop.test\"]", ""),
    );
    ask(&mut shop.connected("shop.test"));
    let unwritten = "tidegate_certificate_unwritten{names=\"shop.test\"}";
    let is = |value: f64| (scene.front_end.metric(unwritten) == Some(value)).then_some(());
    eventually("it is not written", || is(1.0));
    assert!(error(&scene.front_end).contains("cannot write"));
    // A reload forgets nothing of it.
    scene.reload(&[]);
    std::fs::remove_dir(&file).unwrap();
    eventually("it is written", || is(0.0));
    assert!(
        std::fs::read_to_string(&file)
            .unwrap()
            .contains("CERTIFICATE")
    );
    let known = certificate(&scene.front_end);
    assert_eq!(
        (number(&known, "issued"), &known["error"]),
        (1.0, &Value::Null)
    );
}

#[test]
fn a_restart_shows_what_is_kept_and_orders_nothing() {
    let Some(mut shop) = Shop::new("acme-restart") else {
        return;
    };
    shop.pebble.revive();
    let cluster = shop.cluster("acme = [\"shop.test\"]", "");
    let scene = Scene::start("acme-restart", &cluster);
    let first = shown(&shop.connected("shop.test"));
    drop(scene);
    shop.pebble.kill();
    let scene = Scene::start("acme-restart", &cluster);
    let connection = shop.pebble.client().connect(shop.secure, "shop.test");
    assert_eq!(shown(&connection.unwrap()), first);
    let known = eventually("it is known when the next is due", || {
        let known = certificate(&scene.front_end);
        known["next_try_in_seconds"].is_number().then_some(known)
    });
    assert_eq!((&known["issued"], &known["failed"]), (&0.into(), &0.into()));
    // A file that others can read is not used.
    let file = kept(&shop.state).pop().unwrap();
    let open = Permissions::from_mode(0o644);
    std::fs::set_permissions(shop.state.join(&file), open).unwrap();
    drop(scene);
    let scene = Scene::start("acme-restart", &cluster);
    let log = scene.log();
    assert!(log.contains(&file) && log.contains("0644"), "{log}");
}

#[test]
fn an_upgrade_shows_the_same_and_the_new_process_orders() {
    let Some(mut shop) = Shop::new("acme-upgrade") else {
        return;
    };
    shop.pebble.revive();
    let cluster = shop.cluster("acme = [\"shop.test\"]", "");
    let mut scene = Scene::start("acme-upgrade", &cluster);
    let first = shown(&shop.connected("shop.test"));
    let _successor = upgrade(&mut scene.front_end);
    let connection = shop.pebble.client().connect(shop.secure, "shop.test");
    assert_eq!(shown(&connection.unwrap()), first);
    let known = eventually("the folder is the new process's", || {
        let known = certificate(&scene.front_end);
        known["next_try_in_seconds"].is_number().then_some(known)
    });
    assert_eq!(
        (&known["issued"], &known["error"]),
        (&0.into(), &Value::Null)
    );
}

#[test]
fn another_authoritys_certificate_is_shown_until_this_ones_is_there() {
    let Some(mut shop) = Shop::new("acme-another") else {
        return;
    };
    shop.pebble.revive();
    let tls = "acme = [\"shop.test\"]";
    let scene = Scene::start("acme-another", &shop.cluster(tls, ""));
    let first = shown(&shop.connected("shop.test"));
    let mut other = Pebble::new(&support::folder("acme-another-authority")).unwrap();
    other.proofs = shop.pebble.proofs;
    let former = std::mem::replace(&mut shop.pebble, other);
    for _ in 0..2 {
        scene.write(&shop.cluster(tls, "").text());
        scene.reload(&[]);
        let connection = former.client().connect(shop.secure, "shop.test");
        assert_eq!(shown(&connection.unwrap()), first);
        let why = error(&scene.front_end);
        assert!(why.contains(&shop.pebble.url()), "{why}");
    }
    shop.pebble.revive();
    assert_ne!(shown(&shop.connected("shop.test")), first);
    assert_eq!(kept(&shop.state).len(), 5);
}

#[test]
fn names_that_are_added_or_taken_out_leave_what_is_shown_until_the_new_one_is_there() {
    let Some(mut shop) = Shop::new("acme-names") else {
        return;
    };
    shop.pebble.revive();
    let with = |names: &str| format!("acme = [{names}]");
    let one = shop.cluster(&with("\"shop.test\""), "");
    let two = shop.cluster(&with("\"shop.test\", \"new.test\""), "");
    let scene = Scene::start("acme-names", &one);
    let first = shown(&shop.connected("shop.test"));
    shop.pebble.kill();
    let (client, secure) = (shop.pebble.client(), shop.secure);
    let is_first = || {
        let connection = client.connect(secure, "shop.test");
        assert_eq!(shown(&connection.unwrap()), first);
    };
    for _ in 0..2 {
        scene.write(&two.text());
        scene.reload(&[]);
        is_first();
        let why = error(&scene.front_end);
        assert!(why.contains(&shop.pebble.url()), "{why}");
    }
    // A start anew finds it in the folder.
    drop(scene);
    let scene = Scene::start("acme-names", &two);
    is_first();
    shop.pebble.revive();
    let second = shown(&shop.connected("new.test"));
    assert_ne!(second, first);
    assert_eq!(shown(&shop.connected("shop.test")), second);
    // What is left of the names is covered by a file that is there already.
    scene.write(&one.text());
    scene.reload(&[]);
    let known = certificate(&scene.front_end);
    assert_eq!(known["names"], serde_json::json!(["shop.test"]));
    assert!(number(&known, "expires_in_seconds") > 0.0, "{known}");
    assert_eq!(
        (&known["issued"], &known["error"]),
        (&0.into(), &Value::Null)
    );
}

#[test]
fn a_file_that_is_for_other_names_is_not_used() {
    let Some(mut shop) = Shop::new("acme-swapped") else {
        return;
    };
    shop.pebble.revive();
    let scene = Scene::start("acme-swapped", &shop.cluster("acme = [\"shop.test\"]", ""));
    let first = shown(&shop.connected("shop.test"));
    let own = kept(&shop.state).into_iter().find(|it| it.ends_with("pem"));
    let own = shop.state.join(own.unwrap());
    drop(scene);
    let other = Authority::new(&shop.folder).unwrap();
    let other = other.issue("other", &["other.test"]);
    let pem = [other.certificate, other.key].map(|it| std::fs::read_to_string(it).unwrap());
    std::fs::write(&own, pem.concat()).unwrap();
    let scene = Scene::start("acme-swapped", &shop.cluster("acme = [\"shop.test\"]", ""));
    assert_ne!(shown(&shop.connected("shop.test")), first);
    let log = scene.log();
    assert!(log.contains("it is not for shop.test"), "{log}");
}

/// The number of a user without rights that every system has.
fn powerless() -> u32 {
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap();
    let line = passwd.lines().find(|it| it.starts_with("nobody:")).unwrap();
    line.split(':').nth(2).unwrap().parse().unwrap()
}

#[test]
fn what_a_front_end_keeps_that_gave_its_rights_away_is_its_users() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: it takes root to give root's privileges away");
        return;
    }
    let Some(mut shop) = Shop::new("acme-user") else {
        return;
    };
    // Every user reaches that.
    let place = std::env::temp_dir().join(format!("tidegate-acme-user-{}", std::process::id()));
    std::fs::create_dir(&place).unwrap();
    shop.state = private(&place);
    let user = powerless();
    chown(&shop.state, Some(user), None).unwrap();
    shop.pebble.revive();
    let cluster = shop.cluster("acme = [\"shop.test\"]", "[process]\nuser = \"nobody\"");
    let scene = Scene::start("acme-user", &cluster);
    ask(&mut shop.connected("shop.test"));
    assert_eq!(certificate(&scene.front_end)["error"], Value::Null);
    for name in kept(&shop.state) {
        let owner = std::fs::metadata(shop.state.join(&name)).unwrap().uid();
        assert_eq!(owner, user, "{name}");
    }
    drop(scene);
    std::fs::remove_dir_all(&place).unwrap();
}

#[test]
fn of_two_with_one_folder_one_orders_and_both_show_it() {
    let Some(mut shop) = Shop::new("acme-two") else {
        return;
    };
    shop.pebble.revive();
    let tls = "acme = [\"shop.test\"]";
    let first = Scene::start("acme-two", &shop.cluster(tls, ""));
    let shown_first = shown(&shop.connected("shop.test"));
    let other = [free_address(), free_address()];
    let second = Scene::start("acme-two-other", &shop.cluster_at(other, tls, ""));
    let connection = shop.pebble.client().connect(other[1], "shop.test").unwrap();
    assert_eq!(shown(&connection), shown_first);
    let why = error(&second.front_end);
    assert!(why.contains("another front-end orders"), "{why}");
    drop(first);
    // It takes over.
    eventually("the other one orders", || {
        certificate(&second.front_end)["error"]
            .is_null()
            .then_some(())
    });
}

#[test]
fn the_example_of_the_documentation_runs() {
    let Some(mut shop) = Shop::new("acme-example") else {
        return;
    };
    shop.pebble.revive();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/acme.md");
    let page = std::fs::read_to_string(page).unwrap();
    let example = page.split("```toml\n").nth(1).unwrap();
    let example = example.split("```").next().unwrap();
    let authorities = shop.pebble.authorities();
    let own = format!(
        "{}\"\nauthorities = \"{}\"",
        shop.pebble.url(),
        authorities.display()
    );
    let text = example
        .replace("0.0.0.0:80\"", &format!("{}\"", shop.plain))
        .replace("0.0.0.0:443\"", &format!("{}\"", shop.secure))
        .replace("10.0.0.11:80", &server("an answer").to_string())
        .replace("letsencrypt\"", &own)
        .replace("/var/lib/tidegate-acme", &shop.state.display().to_string())
        .replace(".example", ".test");
    let folder = support::folder("acme-example");
    let _front_end = FrontEnd::start(&folder, &text);
    for name in ["shop.test", "www.shop.test"] {
        ask(&mut shop.connected(name));
    }
}
