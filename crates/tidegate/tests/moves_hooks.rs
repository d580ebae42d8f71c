//! A node with a real nginx that its agent sets up for the site that it is to serve: a hook that fails, one that ends well, and
//! an agent that is killed while one runs. Requests go on all the while, and each is answered by its own site.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use support::{
    Agent, FrontEnd, Process, eventually, free_address, master_key, nginx, node_key, request,
    signal, tidegate,
};

/// Nodes and their own sites.
const NODES: [(&str, &str); 3] = [("s1", "shop"), ("b1", "blog"), ("b2", "blog")];
const SITES: [&str; 2] = ["blog", "shop"];
/// How many requests show which nodes serve a site.
const MANY: usize = 24;

fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// An nginx that serves one site at a time, and its agent.
struct Node {
    folder: PathBuf,
    address: SocketAddr,
    agent_address: SocketAddr,
    agent: Option<Process>,
    nginx: Process,
}

impl Node {
    fn start(folder: &Path, master: &Path, name: &str, site: &str) -> Self {
        let key = node_key(master, name);
        let folder = folder.join(name);
        let (address, agent_address) = (free_address(), free_address());
        for site in SITES {
            let root = folder.join("www").join(site);
            std::fs::create_dir_all(&root).unwrap();
            std::fs::write(root.join("index.html"), format!("{site} {name}\n")).unwrap();
        }
        std::fs::create_dir_all(folder.join("state")).unwrap();
        let root = folder.display().to_string();
        let vhost =
            format!("# {{site}}\nserver {{ listen {address}; root {root}/www/{{site}}; }}\n");
        std::fs::write(folder.join("template"), &vhost).unwrap();
        std::fs::write(folder.join("vhost.conf"), vhost.replace("{site}", site)).unwrap();
        let configuration = format!(
            "daemon off; worker_processes 1; pid {root}/nginx.pid; error_log {root}/error.log;\n\
             events {{ }}\n\
             http {{ access_log off; client_body_temp_path body; proxy_temp_path proxy;\n\
             fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;\n\
             include {root}/vhost.conf; }}\n"
        );
        std::fs::write(folder.join("nginx.conf"), configuration).unwrap();
        // Notes its run, and stands still while there is a file `hold`.
        let gate = format!(
            "#!/bin/sh\necho $TIDEGATE_GENERATION $TIDEGATE_SITE >> {root}/runs\n\
             while [ -e {root}/hold ]; do touch {root}/held; sleep 0.01; done\n"
        );
        std::fs::write(folder.join("gate"), gate).unwrap();
        let reload =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/hooks/reload-nginx");
        std::fs::copy(reload, folder.join("reload-nginx")).unwrap();
        for (path, bits) in [
            ("state", 0o700),
            ("template", 0o644),
            ("gate", 0o755),
            ("reload-nginx", 0o755),
            ("", 0o755),
        ] {
            mode(&folder.join(path), bits);
        }
        let mut command = Command::new(nginx().unwrap());
        command
            .arg("-p")
            .arg(&folder)
            .args(["-c", "nginx.conf", "-e", "error.log"]);
        let nginx = Process::start(&mut command);
        eventually("nginx listens", || TcpStream::connect(address).ok());
        let mut node = Self {
            folder,
            address,
            agent_address,
            agent: None,
            nginx,
        };
        node.write_agent(&key);
        node.start_agent();
        node
    }

    fn write_agent(&self, key: &Path) {
        let root = self.folder.display();
        let mut text = format!(
            "[agent]\nlisten = \"{}\"\nkey_file = \"{}\"\ninterval = \"10ms\"\nrealtime = false\n\
             [agent.moves]\nport = {}\nstate = \"state\"\n",
            self.agent_address,
            key.display(),
            self.address.port()
        );
        let nginx = nginx().unwrap();
        for site in SITES {
            text.push_str(&format!(
                "[[agent.moves.site]]\nname = \"{site}\"\ntemplate = \"template\"\ntarget = \"{root}/vhost.conf\"\n\
                 commands = [[\"{root}/gate\"], [\"{root}/reload-nginx\", \"{root}/nginx.pid\", \"{nginx}\", \"-p\", \"{root}\", \
                 \"-c\", \"nginx.conf\", \"-e\", \"error.log\"]]\n"
            ));
        }
        std::fs::write(self.folder.join("agent.toml"), text).unwrap();
    }

    fn start_agent(&mut self) {
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.folder.join("agent.log"));
        let mut command = tidegate();
        command
            .arg("agent")
            .arg("-c")
            .arg(self.folder.join("agent.toml"));
        command.stdout(Stdio::null()).stderr(log.unwrap());
        self.agent = Some(Process::start(&mut command));
    }

    /// Generation and site of each run of the hook.
    fn runs(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.folder.join("runs")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        std::fs::remove_file(self.folder.join("hold")).ok();
        // The worker goes with its master.
        signal(self.nginx.id(), "QUIT");
    }
}

struct Scene {
    folder: PathBuf,
    nodes: Vec<Node>,
    front_end: FrontEnd,
    /// Moves nothing, and follows.
    other: FrontEnd,
    _home: Agent,
}

impl Scene {
    fn start(name: &str) -> Self {
        // Not below the build's folder: others may be able to write to a folder above it.
        let folder = std::env::temp_dir().join(format!("tidegate-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        mode(&folder, 0o755);
        let master = master_key(&folder);
        let home = Agent::start(&node_key(&master, "home"));
        let nodes: Vec<_> = NODES
            .into_iter()
            .map(|(name, site)| Node::start(&folder, &master, name, site))
            .collect();
        let mut text = format!(
            "[cluster]\nfront_ends = 2\n[load]\nkey_file = \"{}\"\ninterval = \"10ms\"\nrealtime = false\n\
             [reconfigure]\nenabled = true\nengine = \"region\"\nhome = \"udp://{}\"\nhome_key_name = \"home\"\n\
             drain = \"20s\"\nhook = \"60s\"\nhigh = 1000.0\nwarm_up = \"0s\"\n",
            master.display(),
            home.address
        );
        for site in SITES {
            text.push_str(&format!(
                "[[site]]\nname = \"{site}\"\nhosts = [\"{site}.example\"]\npolicy = \"round_robin\"\nnodes = {{ min = 1 }}\n"
            ));
        }
        for (node, (name, site)) in nodes.iter().zip(NODES) {
            text.push_str(&format!(
                "[[node]]\nname = \"{name}\"\naddress = \"{}\"\nsite = \"{site}\"\nload = {{ transport = \"udp\", address = \"{}\" }}\n",
                node.address, node.agent_address
            ));
        }
        let [front_end, other] = ["one", "other"].map(|name| {
            let folder = folder.join(name);
            std::fs::create_dir_all(&folder).unwrap();
            FrontEnd::start(&folder, &text)
        });
        Self {
            folder,
            nodes,
            front_end,
            other,
            _home: home,
        }
    }

    /// Moves the last node, and waits for what becomes of it: whether it was done, and what was said.
    fn move_to(&self, site: &str, more: &[&str]) -> (bool, String) {
        let admin = self.front_end.admin.to_string();
        let done = tidegate()
            .args(["move", "b2", site, "--admin", &admin])
            .args(more)
            .output()
            .unwrap();
        let text = [done.stdout, done.stderr].concat();
        (done.status.success(), String::from_utf8(text).unwrap())
    }

    /// Whether the last node answers for a site, through both front-ends or through one alone.
    fn serves(&self, site: &str) -> bool {
        let host = format!("{site}.example");
        let own = format!("{site} b2\n");
        let through = |front_end: &FrontEnd| {
            let mut bodies = (0..MANY).map(|_| front_end.get(&host, "/").body);
            bodies.any(|it| it == own)
        };
        through(&self.front_end) && through(&self.other)
    }

    fn last(&self) -> &Node {
        self.nodes.last().unwrap()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.nodes.clear();
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

/// Asks for both sites until it is enough; each is answered by itself.
fn ask_on(
    front_end: SocketAddr,
    enough: &Arc<AtomicBool>,
    asked: &Arc<AtomicUsize>,
) -> JoinHandle<()> {
    let (enough, asked) = (Arc::clone(enough), Arc::clone(asked));
    std::thread::spawn(move || {
        while !enough.load(Ordering::Relaxed) {
            for site in SITES {
                let head =
                    format!("GET / HTTP/1.1\r\nhost: {site}.example\r\nconnection: close\r\n\r\n");
                let answer = request(front_end, &head).unwrap();
                let is_own = answer.body.starts_with(site);
                assert!(
                    answer.status == 200 && is_own,
                    "{site}: {} {}",
                    answer.status,
                    answer.body
                );
                asked.fetch_add(1, Ordering::Relaxed);
            }
        }
    })
}

#[test]
fn a_moved_nodes_nginx_is_set_up_before_it_serves_its_new_site() {
    if nginx().is_none() {
        println!("SKIPPED: nginx is not installed");
        return;
    }
    let mut scene = Scene::start("moves-hooks");
    let (enough, asked) = (Arc::default(), Arc::default());
    let askers = [&scene.front_end, &scene.other].map(|it| ask_on(it.address, &enough, &asked));
    eventually("b2 serves the blog", || scene.serves("blog").then_some(()));

    eventually("words have begun, and agents follow them", || {
        scene.move_to("shop", &["--dry-run"]).0.then_some(())
    });

    // nginx refuses what the template makes for the shop.
    let template = scene.last().folder.join("template");
    let sound = std::fs::read_to_string(&template).unwrap();
    std::fs::write(&template, format!("{sound}nonsense_{{site}};\n")).unwrap();
    let (moved, said) = scene.move_to("shop", &[]);
    assert!(
        !moved && said.contains("its hook failed with exit code 1: it is back at blog"),
        "{said}"
    );
    eventually("b2 serves the blog again", || {
        scene.serves("blog").then_some(())
    });
    assert!(!scene.serves("shop"));
    let failure = "its last move, from blog to shop, was not carried through: its hook failed with exit code 1";
    let status = scene.front_end.api("/api/status").to_string();
    assert!(status.contains(failure), "{status}");
    let runs = scene.last().runs();
    assert_eq!(runs.len(), 2, "and once more for what was: {runs:?}");
    let generation = runs[0].strip_suffix(" shop").unwrap();
    assert_eq!(runs[1], format!("{generation} blog"));

    std::fs::write(&template, &sound).unwrap();
    let (moved, said) = scene.move_to("shop", &[]);
    assert!(moved, "{said}");
    eventually("b2 serves the shop", || scene.serves("shop").then_some(()));
    let status = scene.front_end.api("/api/status").to_string();
    assert!(!status.contains(failure), "{status}");
    assert_eq!(scene.last().runs().len(), 3);

    killed_while_its_hook_runs(&mut scene);
    enough.store(true, Ordering::Relaxed);
    for asker in askers {
        asker.join().unwrap();
    }
    assert!(asked.load(Ordering::Relaxed) > MANY);
}

/// The agent of the last node is killed while that is set up for the blog: the move is taken back, and the next agent sets the
/// node up for the shop, where it has stayed.
fn killed_while_its_hook_runs(scene: &mut Scene) {
    let before = scene.last().runs().len();
    let hold = scene.last().folder.join("hold");
    std::fs::write(&hold, "").unwrap();
    let admin = scene.front_end.admin.to_string();
    let mut moving = tidegate();
    moving.args(["move", "b2", "blog", "--admin", &admin]);
    let moving = moving
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let held = scene.last().folder.join("held");
    eventually("the hook runs", || held.exists().then_some(()));
    let node = scene.nodes.last_mut().unwrap();
    signal(node.agent.as_ref().unwrap().id(), "KILL");
    node.agent = None;
    std::fs::remove_file(&hold).unwrap();
    node.start_agent();
    let done = moving.wait_with_output().unwrap();
    assert!(!done.status.success(), "{done:?}");
    eventually("b2 serves the shop again", || {
        scene.serves("shop").then_some(())
    });
    assert!(!scene.serves("blog"));
    let runs = scene.last().runs();
    let (cut, again) = (&runs[before], &runs[before + 1]);
    assert_eq!(runs.len(), before + 2, "{runs:?}");
    assert!(
        cut.ends_with(" blog") && again.ends_with(" shop"),
        "{runs:?}"
    );
    let generation = |run: &str| run.split(' ').next().unwrap().to_owned();
    assert_ne!(generation(cut), generation(again), "once per generation");
}
