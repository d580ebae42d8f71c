//! A real server whose file descriptors run out, with the agent beside it: it is out before it refuses a connection, every
//! view says why, limits follow a reload, and it is back once it has descriptors again.

#![allow(clippy::unwrap_used, reason = "test code")]

mod support;

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use support::{
    FrontEnd, Nginx, Process, eventually, folder, free_address, master_key, nginx, node_key,
    tidegate,
};

/// Files that the server may have open. It needs a dozen itself.
const FILES: usize = 100;

/// An nginx of one process that may have few files open.
struct SmallServer {
    address: SocketAddr,
    _process: Process,
}

impl SmallServer {
    fn start(program: &str, folder: &Path) -> Self {
        std::fs::create_dir_all(folder.join("www")).unwrap();
        std::fs::write(folder.join("www/index.html"), "small\n").unwrap();
        let address = free_address();
        let text = format!(
            "daemon off; master_process off; pid nginx.pid; error_log error.log;\n\
             events {{ worker_connections {FILES}; }}\n\
             http {{ access_log off; client_header_timeout 1h; client_body_temp_path body;\n\
             proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;\n\
             server {{ listen {address}; root www; }} }}\n"
        );
        std::fs::write(folder.join("nginx.conf"), text).unwrap();
        let mut limited = Command::new("sh");
        let script = format!("ulimit -n {FILES} && exec \"$0\" \"$@\"");
        limited.args(["-c", &script, program, "-p"]).arg(folder);
        limited.args(["-c", "nginx.conf", "-e", "error.log"]);
        let process = Process::start(limited.stdout(Stdio::null()));
        eventually("the small server listens", || {
            TcpStream::connect(address).ok()
        });
        Self {
            address,
            _process: process,
        }
    }
}

/// The small server is `n1`, with an agent that watches it, and the other one `n2`.
struct Scene {
    small: SmallServer,
    _large: Nginx,
    _agent: Process,
    front_end: FrontEnd,
    file: std::path::PathBuf,
}

impl Scene {
    fn start(program: &str) -> Self {
        let folder = folder("soft-limits");
        let master = master_key(&folder);
        let key = node_key(&master, "n1");
        let small = SmallServer::start(program, &folder.join("small"));
        let large = Nginx::start(&folder, "large");
        let agent_at = free_address();
        let agent = agent(&folder, agent_at, &key);
        let text = format!(
            "[limits]\nworkers = 1\n[load]\nkey_file = \"{}\"\n\
             [[site]]\nname = \"shop\"\nhosts = [\"shop.example\"]\npolicy = \"round_robin\"\nsoft_limits = {{ files = 0.9 }}\n\
             [[node]]\nname = \"n1\"\naddress = \"{}\"\nsite = \"shop\"\nload = {{ address = \"{agent_at}\" }}\n\
             [[node]]\nname = \"n2\"\naddress = \"{}\"\nsite = \"shop\"\nload = {{ transport = \"none\" }}\n",
            master.display(),
            small.address,
            large.address,
        );
        Self {
            small,
            _large: large,
            _agent: agent,
            front_end: FrontEnd::start(&folder, &text),
            file: folder.join("tidegate.toml"),
        }
    }

    fn node(&self) -> Value {
        self.front_end.api("/api/status")["sites"][0]["nodes"][0].clone()
    }

    /// The node, once it is up or ejected.
    fn node_once(&self, health: &str) -> Value {
        eventually(health, || {
            Some(self.node()).filter(|node| node["health"] == health)
        })
    }

    /// How many of ten requests each server answers; all are answered.
    fn answers(&self) -> (usize, usize) {
        let bodies: Vec<_> = (0..10)
            .map(|_| {
                let answer = self.front_end.get("shop.example", "/index.html");
                assert_eq!(answer.status, 200);
                answer.body
            })
            .collect();
        let of = |name: &str| bodies.iter().filter(|body| body.trim() == name).count();
        (of("small"), of("large"))
    }

    fn said(&self, arguments: &[&str]) -> String {
        let admin = self.front_end.admin.to_string();
        let mut command = tidegate();
        let output = command.args(arguments).args(["--admin", &admin]).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    }

    /// Another soft limit of files, by a reload.
    fn set_limit(&self, from: &str, to: &str) {
        let text = std::fs::read_to_string(&self.file).unwrap();
        let (from, to) = (format!("files = {from} "), format!("files = {to} "));
        assert!(text.contains(&from), "{text}");
        std::fs::write(&self.file, text.replace(&from, &to)).unwrap();
        let said = self.said(&["reload"]);
        assert!(said.contains("shop"), "{said}");
    }
}

fn agent(folder: &Path, address: SocketAddr, key: &Path) -> Process {
    let file = folder.join("agent.toml");
    let text = format!(
        "[agent]\nlisten = \"{address}\"\nkey_file = \"{}\"\ninterval = \"20ms\"\nrealtime = false\nwatch = [\"{}\"]\n",
        key.display(),
        folder.join("small/nginx.pid").display()
    );
    std::fs::write(&file, text).unwrap();
    let log = std::fs::File::create(folder.join("agent.log")).unwrap();
    let mut command = tidegate();
    command.arg("agent").arg("-c").arg(&file);
    Process::start(command.stdout(Stdio::null()).stderr(log))
}

#[test]
fn a_server_whose_descriptors_run_out_has_no_requests_until_it_has_some_again() {
    let Some(program) = nginx() else {
        println!("SKIPPED: nginx is not installed");
        return;
    };
    let scene = Scene::start(program);
    let files = eventually("its files are counted", || {
        scene.node()["load"]["files"].as_f64()
    });
    assert!(files < 0.5, "{files}");
    assert_eq!(scene.answers(), (5, 5));

    // One connection more as long as it is in: it is out before it refuses one.
    let mut held = Held::default();
    let node = eventually("it is ejected", || {
        let node = scene.node();
        let out = node["health"] == "ejected";
        if !out {
            held.one_more(&scene);
        }
        out.then_some(node)
    });
    assert_eq!(node["trouble"]["ejected_for"], "soft_limit");
    assert_eq!(node["trouble"]["errors"], serde_json::json!({}));
    let crossing = &node["soft_limit"];
    assert_eq!(crossing["resource"], "files");
    assert_eq!(crossing["out"], true);
    assert_eq!(scene.answers(), (0, 10));
    views(&scene);

    reloads(&scene, &mut held);

    drop(held);
    let node = scene.node_once("up");
    assert_eq!(node["soft_limit"], Value::Null);
    assert_eq!(scene.answers(), (5, 5));
}

/// Connections to the small server that say nothing.
#[derive(Default)]
struct Held {
    connections: Vec<TcpStream>,
    /// How much was used when the last one was made.
    used: f64,
}

impl Held {
    /// Makes one once the last one is known of: what is read lags behind.
    fn one_more(&mut self, scene: &Scene) {
        let used = scene.node()["load"]["files"].as_f64();
        if self.connections.len() < FILES && used.is_some_and(|it| (it - self.used).abs() > 1e-9) {
            self.used = used.unwrap_or_default();
            let connection = TcpStream::connect(scene.small.address);
            self.connections.push(connection.unwrap());
        }
    }
}

/// Every view says what it is over.
fn views(scene: &Scene) {
    let labels = "{site=\"shop\",node=\"n1\"";
    let metric = |name: &str| scene.front_end.metric(&format!("{name}{labels}"));
    assert_eq!(metric("tidegate_node_soft_limit_crossed"), Some(1.0));
    let limit = metric("tidegate_node_soft_limit_ratio").unwrap();
    assert!((limit - 0.9).abs() < 1e-6, "{limit}");
    let why = scene.said(&["why", "n1"]);
    for wanted in ["soft limit", "of its file descriptors", "90%"] {
        assert!(why.contains(wanted), "no `{wanted}` in: {why}");
    }
    assert!(
        scene
            .said(&["why", "shop"])
            .contains("n1 is ejected (soft_limit)")
    );
    let known = scene.front_end.api("/api/why/n1")["metrics"][2].clone();
    assert_eq!(known["name"], "files");
    assert!(known["value"].as_f64().unwrap() > 0.4, "{known}");
    assert!(known["age_seconds"].is_number(), "{known}");
    assert_eq!(
        (&known["believed"], &known["limit"]),
        (&true.into(), &0.9.into())
    );
    let log = std::fs::read_to_string(scene.file.with_file_name("front-end.log")).unwrap();
    assert!(log.contains("of its file descriptors is used"), "{log}");
}

/// A limit that is gone brings the node back at once, and one that is there again takes it out.
fn reloads(scene: &Scene, held: &mut Held) {
    scene.set_limit("0.9", "\"none\"");
    scene.node_once("up");
    assert_eq!(scene.answers(), (5, 5));
    eventually("more than half is used", || {
        let used = scene.node()["load"]["files"].as_f64()?;
        if used < 0.6 {
            held.one_more(scene);
        }
        (used >= 0.6).then_some(())
    });
    scene.set_limit("\"none\"", "0.6");
    let node = scene.node_once("ejected");
    assert_eq!(node["trouble"]["ejected_for"], "soft_limit");
    assert_eq!(scene.answers(), (0, 10));
}
