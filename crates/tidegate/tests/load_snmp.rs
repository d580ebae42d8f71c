//! Nodes without an agent of ours: the front-end asks a stock `snmpd` for their load, as a community and as a user, and says what
//! is wrong where it gets none.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test ends where something is missing"
)]

mod support;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::Value;
use support::snmpd::Snmpd;
use support::{FrontEnd, eventually, folder, free_address, free_port, tidegate};

const COMMUNITY: &str = "secret-community";

/// An object that says how many of a hundred file descriptors are used: 95, as this `snmpd` is configured.
const FILES: &str = "1.3.6.1.4.1.8072.9999.9999.85.1.0";

/// What is said of an agent that does not know the community.
const SILENT: &str = "no answer in time: does an agent of SNMP listen there, and does it know our community and address?";

/// The same of a user.
const SILENT_USER: &str = "no answer in time: does an agent of SNMP listen there, and does it know our user with these passwords?";

/// A community and a user that may read all, and an object of its own.
fn usual() -> String {
    format!(
        "rocommunity {COMMUNITY} 127.0.0.1\n\
         createUser monitor SHA-256 \"auth-password\" AES \"privacy-password\"\nrouser monitor priv\n\
         override .{FILES} integer 95\n"
    )
}

/// One with all that.
fn snmpd(folder: &Path) -> Snmpd {
    Snmpd::start_at(folder, free_port(), COMMUNITY, &usual())
}

/// A file for its owner alone.
fn secret(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, format!("{text}\n")).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    path
}

/// A front-end before nodes whose load is read so.
fn front_end(folder: &Path, port: u16, loads: &[String]) -> FrontEnd {
    let mut text =
        String::from("[limits]\nworkers = 1\n[[site]]\nname = \"shop\"\nhosts = [\"*\"]\n");
    for (index, load) in loads.iter().enumerate() {
        text.push_str(&format!(
            "[[node]]\nname = \"n{}\"\naddress = \"{}\"\nsite = \"shop\"\n\
             load = {{ transport = \"snmp\", address = \"127.0.0.1:{port}\", {load} }}\n",
            index + 1,
            free_address(),
        ));
    }
    FrontEnd::start(folder, &text)
}

fn nodes(front_end: &FrontEnd) -> Vec<Value> {
    let nodes = &front_end.api("/api/status")["sites"][0]["nodes"];
    nodes.as_array().unwrap().clone()
}

/// A node once its load is known.
fn known(front_end: &FrontEnd, index: usize) -> Value {
    eventually("a load", || {
        let node = nodes(front_end)[index].clone();
        let load = &node["load"];
        (load["fresh"] == true && load["cpu"].is_f64() && load["capacity"].is_f64()).then_some(node)
    })
}

#[test]
fn the_load_of_a_stock_snmpd_is_known_and_its_own_object_crosses_a_soft_limit() {
    if !Snmpd::is_installed() {
        return;
    }
    let folder = folder("load-snmp");
    let snmpd = snmpd(&folder);
    let community = secret(&folder, "community", "secret-community");
    let load = format!("community_file = \"{}\"", community.display());
    let with_files =
        format!("{load}, oids = [{{ oid = \"{FILES}\", metric = \"files\", max = 100 }}]");
    let first = format!("{load}, version = \"1\"");
    let front_end = front_end(&folder, snmpd.port, &[with_files, load, first]);
    for index in 0..3 {
        let node = known(&front_end, index);
        assert_eq!(node["rung"], "snmp");
        let of = |name: &str| node["load"][name].as_f64().unwrap();
        let cpus = std::thread::available_parallelism().unwrap().get();
        assert!(of("capacity") >= cpus as f64, "{node}");
        assert!((0.0..=1.0).contains(&of("cpu")), "{node}");
        assert!((0.01..1.0).contains(&of("memory")), "{node}");
        assert!((0.0..=2.0 * of("capacity")).contains(&of("runnable")));
        assert!(node["reads"]["reads"].as_u64().unwrap() > 0);
        assert_eq!(node["reads"]["last_error"], Value::Null);
    }
    let node = eventually("its soft limit is seen", || {
        let node = nodes(&front_end)[0].clone();
        (node["health"] == "ejected").then_some(node)
    });
    assert_eq!(node["soft_limit"]["resource"], "files");
    assert_eq!(node["load"]["files"].as_f64().unwrap() as f32, 0.95);
    let why = front_end.api("/api/why/n2").to_string();
    assert!(why.contains("its load is known by snmp"), "{why}");
    assert_eq!(nodes(&front_end)[1]["health"], "up");
}

#[test]
fn users_of_version_3_are_told_apart_and_what_is_wrong_is_said() {
    if !Snmpd::is_installed() {
        return;
    }
    let folder = folder("load-snmp-users");
    let snmpd = snmpd(&folder);
    let auth = secret(&folder, "auth", "auth-password");
    let privacy = secret(&folder, "privacy", "privacy-password");
    let wrong = secret(&folder, "wrong", "another-password");
    let user = |user: &str, auth: &Path, privacy: &Path| {
        format!(
            "version = \"3\", user = \"{user}\", auth_file = \"{}\", privacy_file = \"{}\"",
            auth.display(),
            privacy.display()
        )
    };
    let community = secret(&folder, "community", "no-such-community");
    let loads = [
        user("monitor", &auth, &privacy),
        user("stranger", &auth, &privacy),
        user("monitor", &wrong, &privacy),
        user("monitor", &auth, &wrong),
        format!("community_file = \"{}\"", community.display()),
    ];
    let front_end = front_end(&folder, snmpd.port, &loads);
    assert_eq!(known(&front_end, 0)["rung"], "snmp");
    let wrong_password = "refused: wrong password or `auth` for this user";
    for (index, wanted) in [
        (1, "refused: wrong user: it knows none of this name"),
        (2, wrong_password),
        // What cannot be decrypted this `snmpd` leaves unanswered.
        (3, SILENT_USER),
        (4, SILENT),
    ] {
        // Silence is what is seen first.
        let said = eventually("what is wrong", || {
            let node = nodes(&front_end)[index].clone();
            assert_eq!(node["rung"], "none");
            let said = node["reads"]["last_error"].as_str()?.to_owned();
            (index >= 3 || !said.starts_with("no answer")).then_some(said)
        });
        assert_eq!(said, wanted);
    }
    assert_eq!(nodes(&front_end)[0]["reads"]["last_error"], Value::Null);
    let why = front_end.api("/api/why/n5").to_string();
    assert!(
        why.contains("its load is not known yet (no answer in time"),
        "{why}"
    );
}

#[test]
fn doctor_says_what_is_read_of_a_stock_snmpd_and_which_user_is_wrong() {
    if !Snmpd::is_installed() {
        return;
    }
    let folder = folder("load-snmp-doctor");
    let snmpd = snmpd(&folder);
    let auth = secret(&folder, "auth", "auth-password");
    let user = |user: &str| {
        format!(
            "version = \"3\", user = \"{user}\", auth_file = \"{0}\", privacy_file = \"{0}\"",
            auth.display()
        )
    };
    let community = secret(&folder, "community", "secret-community");
    let community = format!("community_file = \"{}\"", community.display());
    // It runs, so that the agent is there.
    let front_end = front_end(&folder, snmpd.port, &[community, user("stranger")]);
    known(&front_end, 0);
    let ran = tidegate()
        .args(["doctor", "--json"])
        .arg(folder.join("tidegate.toml"))
        .output()
        .unwrap();
    let value: Value = serde_json::from_slice(&ran.stdout).unwrap();
    let all = value["checks"].as_array().unwrap().iter();
    let loads = all.filter(|it| it["check"] == "load");
    let texts: Vec<_> = loads.map(|it| it["text"].as_str().unwrap()).collect();
    let [read, wrong] = texts[..] else {
        panic!("{value}");
    };
    assert!(
        read.starts_with("the load of n1 is read at ") && read.contains("memory "),
        "{read}"
    );
    assert!(
        read.contains("nothing of ") && read.contains("in_flight"),
        "{read}"
    );
    let expected = format!(
        "the load of n2 is not known: snmp at 127.0.0.1:{}: refused: wrong user: it knows none of this name",
        snmpd.port
    );
    assert_eq!(wrong, expected);
}

/// One that shows the table of processors alone, with a row for each of a hundred: several answers to GETBULK, one each to GETNEXT.
#[test]
fn all_rows_of_a_table_are_read() {
    if !Snmpd::is_installed() {
        return;
    }
    const ROWS: u32 = 100;
    let folder = folder("load-snmp-rows");
    let mut text = String::from("rocommunity secret-community 127.0.0.1 -V rows\n");
    for row in 1..=ROWS {
        let row = format!(".1.3.6.1.2.1.25.3.3.1.2.{row}");
        text.push_str(&format!(
            "override {row} integer 30\nview rows included {row}\n"
        ));
    }
    let snmpd = Snmpd::start_at(&folder, free_port(), COMMUNITY, &text);
    let community = secret(&folder, "community", "secret-community");
    let load = format!("community_file = \"{}\"", community.display());
    let first = format!("{load}, version = \"1\"");
    let front_end = front_end(&folder, snmpd.port, &[load, first]);
    for index in 0..2 {
        let node = known(&front_end, index);
        let of = |name: &str| node["load"][name].as_f64().unwrap() as f32;
        assert_eq!((of("cpu"), of("capacity")), (0.3, ROWS as f32), "{node}");
        assert_eq!(node["reads"]["last_error"], Value::Null);
    }
}

/// Keys are made for an engine: those of the former one are of no use.
#[test]
fn an_agent_that_comes_back_as_another_engine_is_read_again() {
    if !Snmpd::is_installed() {
        return;
    }
    let folder = folder("load-snmp-engine");
    let port = free_port();
    let as_engine = |last: &str| {
        let text = format!("{}exactEngineID 0x80001f88800102030405{last}\n", usual());
        let folder = folder.join(last);
        std::fs::create_dir_all(&folder).unwrap();
        Snmpd::start_at(&folder, port, COMMUNITY, &text)
    };
    let auth = secret(&folder, "auth", "auth-password");
    let privacy = secret(&folder, "privacy", "privacy-password");
    let load = format!(
        "version = \"3\", user = \"monitor\", auth_file = \"{}\", privacy_file = \"{}\"",
        auth.display(),
        privacy.display()
    );
    let snmpd = as_engine("01");
    let front_end = front_end(&folder, port, &[load]);
    known(&front_end, 0);
    drop(snmpd);
    eventually("it is silent", || {
        let node = nodes(&front_end)[0].clone();
        node["reads"]["last_error"].is_string().then_some(())
    });
    let reads = || nodes(&front_end)[0]["reads"].clone();
    let before = reads()["reads"].as_u64().unwrap();
    let _snmpd = as_engine("02");
    eventually("it is read again", || {
        let reads = reads();
        let is_read = reads["reads"].as_u64()? > before + 2;
        (is_read && reads["last_error"] == Value::Null).then_some(())
    });
}
