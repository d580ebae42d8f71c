//! A node with a real server that its agent sets up for the site that it is to serve. With nginx: a hook that fails, one that ends
//! well, and an agent that is killed while one runs, also where the kernel keeps the node's words and answers for it; with Apache:
//! there and back. Requests go on all the while, and each is answered by its own site.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "../../remote/tests/support/namespaces.rs"]
#[expect(dead_code, reason = "its other users use the rest")]
mod namespaces;
mod support;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use namespaces::{Hosts, NODE_V4};
use support::{
    Agent, FrontEnd, Process, eventually, free_address_at, master_key, nginx, node_key, request,
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

/// Which server a node has.
#[derive(Clone, Copy)]
enum Server {
    Nginx,
    Apache,
}

impl Server {
    /// Its program, if it is installed.
    fn program(self) -> Option<&'static str> {
        match self {
            Self::Nginx => nginx(),
            Self::Apache => Some("/usr/sbin/apache2").filter(|it| Path::new(it).exists()),
        }
    }

    /// The hook of examples/hooks that has it read its files.
    fn hook(self) -> &'static str {
        match self {
            Self::Nginx => "reload-nginx",
            Self::Apache => "reload-apache",
        }
    }

    /// What follows the program's name, in a node's folder.
    fn arguments(self, root: &str) -> Vec<String> {
        let words: &[&str] = match self {
            Self::Nginx => &["-p", root, "-c", "server.conf", "-e", "error.log"],
            Self::Apache => &["-d", root, "-f", "server.conf"],
        };
        words.iter().copied().map(str::to_owned).collect()
    }

    /// Its own file, which includes the one that hooks write, and the template of that.
    fn files(self, root: &str, address: SocketAddr) -> [String; 2] {
        match self {
            Self::Nginx => [
                format!(
                    "daemon off; worker_processes 1; pid {root}/pid; error_log {root}/error.log;\n\
                     events {{ }}\n\
                     http {{ access_log off; client_body_temp_path body; proxy_temp_path proxy;\n\
                     fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;\n\
                     include {root}/vhost.conf; }}\n"
                ),
                format!("# {{site}}\nserver {{ listen {address}; root {root}/www/{{site}}; }}\n"),
            ],
            Self::Apache => {
                let module = |name: &str| {
                    format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n")
                };
                let modules = ["mpm_event", "authz_core", "dir"].map(module).concat();
                [
                    format!(
                        "ServerName node\nPidFile {root}/pid\nErrorLog {root}/error.log\n\
                         DefaultRuntimeDir {root}\nListen {address}\n{modules}\
                         User www-data\nGroup www-data\nStartServers 1\nInclude {root}/vhost.conf\n"
                    ),
                    format!("# {{site}}\nDocumentRoot {root}/www/{{site}}\n"),
                ]
            }
        }
    }

    /// In the foreground.
    fn start(self, root: &str, host: &Host) -> Process {
        let mut command = host.command(self.program().unwrap());
        command.args(self.arguments(root));
        if let Self::Apache = self {
            command.arg("-DFOREGROUND");
        }
        Process::start(&mut command)
    }
}

/// Where a node is.
#[derive(Clone)]
struct Host {
    ip: IpAddr,
    /// Of the network, by name; none: the test's own.
    namespace: Option<String>,
    /// More lines of `[agent]`.
    agent: String,
}

impl Host {
    /// The test's own, and addresses of it.
    fn own() -> (Self, [SocketAddr; 2]) {
        let host = Self {
            ip: Ipv4Addr::LOCALHOST.into(),
            namespace: None,
            agent: String::new(),
        };
        let free = [free_address_at(host.ip), free_address_at(host.ip)];
        (host, free)
    }

    /// A program there.
    fn command(&self, program: &str) -> Command {
        let Some(name) = &self.namespace else {
            return Command::new(program);
        };
        let mut command = Command::new("nsenter");
        command.args([&format!("--net=/run/netns/{name}"), "--", program]);
        command
    }
}

/// A server that serves one site at a time, and its agent.
struct Node {
    host: Host,
    folder: PathBuf,
    address: SocketAddr,
    agent_address: SocketAddr,
    agent: Option<Process>,
    kind: Server,
    server: Process,
}

impl Node {
    /// At addresses of its host that are free.
    fn start(
        folder: &Path,
        master: &Path,
        kind: Server,
        (name, site): (&str, &str),
        (host, [address, agent_address]): (Host, [SocketAddr; 2]),
    ) -> Self {
        let key = node_key(master, name);
        let folder = folder.join(name);
        for site in SITES {
            let root = folder.join("www").join(site);
            std::fs::create_dir_all(&root).unwrap();
            std::fs::write(root.join("index.html"), format!("{site} {name}\n")).unwrap();
        }
        std::fs::create_dir_all(folder.join("state")).unwrap();
        let root = folder.display().to_string();
        let [configuration, vhost] = kind.files(&root, address);
        std::fs::write(folder.join("template"), &vhost).unwrap();
        std::fs::write(folder.join("vhost.conf"), vhost.replace("{site}", site)).unwrap();
        std::fs::write(folder.join("server.conf"), configuration).unwrap();
        // Notes its run, and stands still while there is a file `hold`.
        let gate = format!(
            "#!/bin/sh\necho $TIDEGATE_GENERATION $TIDEGATE_SITE >> {root}/runs\n\
             echo $$ > {root}/gate.pid\n\
             [ -e {root}/bad ] && exit 3\n\
             while [ -e {root}/hold ]; do touch {root}/held; sleep 0.01; done\n"
        );
        std::fs::write(folder.join("gate"), gate).unwrap();
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/hooks");
        std::fs::copy(examples.join(kind.hook()), folder.join(kind.hook())).unwrap();
        for (path, bits) in [
            ("state", 0o700),
            ("template", 0o644),
            ("gate", 0o755),
            (kind.hook(), 0o755),
            ("", 0o755),
        ] {
            mode(&folder.join(path), bits);
        }
        let server = kind.start(&root, &host);
        eventually("the server listens", || TcpStream::connect(address).ok());
        let mut node = Self {
            host,
            folder,
            address,
            agent_address,
            agent: None,
            kind,
            server,
        };
        node.write_agent(&key);
        node.start_agent();
        node
    }

    fn write_agent(&self, key: &Path) {
        let root = self.folder.display();
        let mut text = format!(
            "[agent]\nlisten = \"{}\"\nkey_file = \"{}\"\ninterval = \"10ms\"\nrealtime = false\n{}\
             [agent.moves]\nport = {}\nstate = \"state\"\n",
            self.agent_address,
            key.display(),
            self.host.agent,
            self.address.port()
        );
        let mut reload = vec![
            self.folder.join(self.kind.hook()).display().to_string(),
            self.folder.join("pid").display().to_string(),
            self.kind.program().unwrap().to_owned(),
        ];
        reload.extend(self.kind.arguments(&root.to_string()));
        for site in SITES {
            text.push_str(&format!(
                "[[agent.moves.site]]\nname = \"{site}\"\ntemplate = \"template\"\ntarget = \"{root}/vhost.conf\"\n\
                 commands = [[\"{root}/gate\"], {reload:?}]\n"
            ));
        }
        std::fs::write(self.folder.join("agent.toml"), text).unwrap();
    }

    fn start_agent(&mut self) {
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.folder.join("agent.log"));
        let mut command = self.host.command(env!("CARGO_BIN_EXE_tidegate"));
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
        self.server.end("TERM");
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
    fn start(name: &str, kind: Server) -> Self {
        Self::start_at(name, kind, NODES.map(|_| Host::own()))
    }

    /// With nodes on these hosts, at these addresses of them.
    fn start_at(name: &str, kind: Server, hosts: [(Host, [SocketAddr; 2]); 3]) -> Self {
        // Not below the build's folder: others may be able to write to a folder above it.
        let folder = std::env::temp_dir().join(format!("tidegate-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        mode(&folder, 0o755);
        let master = master_key(&folder);
        let home = Agent::start(&node_key(&master, "home"));
        let nodes: Vec<_> = NODES
            .into_iter()
            .zip(hosts)
            .map(|(node, host)| Node::start(&folder, &master, kind, node, host))
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

    /// What `tidegate moves` says.
    fn moves(&self) -> String {
        let admin = self.front_end.admin.to_string();
        let said = tidegate().args(["moves", "--admin", &admin]).output();
        String::from_utf8(said.unwrap().stdout).unwrap()
    }

    /// Moves the last node, and does not wait.
    fn moving_to(&self, site: &str) -> Child {
        let admin = self.front_end.admin.to_string();
        let mut moving = tidegate();
        moving.args(["move", "b2", site, "--admin", &admin]);
        let moving = moving.stdout(Stdio::piped()).stderr(Stdio::piped());
        moving.spawn().unwrap()
    }

    /// Whether any front-end sends the last node a request.
    fn is_asked(&self) -> bool {
        let bodies = |front_end: &FrontEnd| {
            let bodies = SITES.map(|site| {
                let host = format!("{site}.example");
                let bodies = (0..MANY).map(|_| front_end.get(&host, "/").body);
                bodies.collect::<Vec<_>>()
            });
            bodies.concat()
        };
        let all = [&self.front_end, &self.other].map(bodies).concat();
        all.iter().any(|it| it.ends_with(" b2\n"))
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

/// Whether a process runs: it stays as a zombie where nothing waits for it.
fn runs(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|it| !it.contains(") Z "))
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
    let mut scene = Scene::start("moves-hooks", Server::Nginx);
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

    moved_again_after_its_hook_was_not_undone(&scene);
    killed_while_its_hook_runs(&mut scene);
    enough.store(true, Ordering::Relaxed);
    for asker in askers {
        asker.join().unwrap();
    }
    assert!(asked.load(Ordering::Relaxed) > MANY);
}

/// A hook of the last node, which serves the shop, fails and cannot be undone; then an operator has it moved once more: until its
/// servers are set up no front-end sends it a request.
fn moved_again_after_its_hook_was_not_undone(scene: &Scene) {
    let folder = &scene.last().folder;
    let [bad, hold, held] = ["bad", "hold", "held"].map(|it| folder.join(it));
    std::fs::write(&bad, "").unwrap();
    let (moved, said) = scene.move_to("blog", &[]);
    assert!(!moved && said.contains("exit code 3"), "{said}");
    assert!(!scene.is_asked(), "its servers may be set up for neither");
    let waits = "b2 gets no requests yet: its agent has not said yet that its servers are set up";
    eventually("that is said", || {
        scene.moves().contains(waits).then_some(())
    });
    std::fs::remove_file(&bad).unwrap();
    std::fs::write(&hold, "").unwrap();
    let moving = scene.moving_to("blog");
    eventually("the hook runs", || held.exists().then_some(()));
    assert!(!scene.is_asked(), "while it is set up");
    std::fs::remove_file(&hold).unwrap();
    let done = moving.wait_with_output().unwrap();
    assert!(done.status.success(), "{done:?}");
    eventually("b2 serves the blog", || scene.serves("blog").then_some(()));
    let (moved, said) = scene.move_to("shop", &[]);
    assert!(moved, "{said}");
    eventually("b2 serves the shop", || scene.serves("shop").then_some(()));
    std::fs::remove_file(&held).unwrap();
}

/// The agent of the last node is killed while that is set up for the blog: the move is taken back, and the next agent ends the
/// command that was left running, and then sets the node up for the shop, where it has stayed.
fn killed_while_its_hook_runs(scene: &mut Scene) {
    let before = scene.last().runs().len();
    let hold = scene.last().folder.join("hold");
    std::fs::write(&hold, "").unwrap();
    let moving = scene.moving_to("blog");
    let held = scene.last().folder.join("held");
    eventually("the hook runs", || held.exists().then_some(()));
    let node = scene.nodes.last_mut().unwrap();
    let left = std::fs::read_to_string(node.folder.join("gate.pid")).unwrap();
    let left = left.trim();
    // It is on the disk some time after the command has begun: one that is not noted yet is not known to the next agent.
    let note = node.folder.join("state/moves.command");
    eventually("the agent has noted that command", || {
        let noted = std::fs::read_to_string(&note).ok()?;
        noted.starts_with(&format!("{left} ")).then_some(())
    });
    signal(node.agent.as_ref().unwrap().id(), "KILL");
    node.agent = None;
    assert!(runs(left), "the command outlives its agent");
    node.start_agent();
    eventually("the next agent ends it", || (!runs(left)).then_some(()));
    std::fs::remove_file(&hold).unwrap();
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
    let said = format!("has left running was ended: process group {left}");
    let log = scene.last().folder.join("agent.log");
    eventually("the agent says that it ended that, and then began", || {
        let log = std::fs::read_to_string(&log).unwrap();
        (log.find(&said)? < log.rfind("hook begins")?).then_some(())
    });
    let generation = |run: &str| run.split(' ').next().unwrap().to_owned();
    assert_ne!(generation(cut), generation(again), "once per generation");
}

/// A second host for the last node; none where the kernel cannot answer, and why.
fn second_host() -> Result<Hosts, String> {
    let is_described = Path::new("/sys/kernel/btf/vmlinux").exists();
    if !rustix::process::geteuid().is_root() || !is_described {
        return Err("it takes root and a kernel that describes itself".into());
    }
    let hosts = Hosts::new()?;
    let up = ["link", "set", "lo", "up"];
    hosts.at_front(|| hosts.ip(&up))?;
    hosts.at_node(|| hosts.ip(&up))?;
    Ok(hosts)
}

#[test]
fn a_node_whose_words_the_kernel_keeps_is_set_up_and_outlives_its_agent() {
    if nginx().is_none() {
        println!("SKIPPED: nginx is not installed");
        return;
    }
    match second_host() {
        Ok(hosts) => hosts.at_front(|| {
            for rung in ["xdp_generic", "tc"] {
                moved_by_the_kernels_words(&hosts, rung);
            }
        }),
        Err(why) => println!("SKIPPED: {why}"),
    }
}

/// The last node is on the second host, whose network interface answers reads and swaps of its words.
fn moved_by_the_kernels_words(hosts: &Hosts, rung: &str) {
    let there = Host {
        ip: NODE_V4.parse().unwrap(),
        namespace: Some(hosts.node().to_owned()),
        agent: format!("rungs = [\"{rung}\"]\n"),
    };
    let free = hosts.at_node(|| [free_address_at(there.ip), free_address_at(there.ip)]);
    let name = format!("moves-{rung}");
    let nodes = [Host::own(), Host::own(), (there, free)];
    let mut scene = Scene::start_at(&name, Server::Nginx, nodes);
    let (enough, asked) = (Arc::default(), Arc::default());
    let askers = [&scene.front_end, &scene.other].map(|it| ask_on(it.address, &enough, &asked));
    eventually("words have begun, and agents follow them", || {
        scene.move_to("shop", &["--dry-run"]).0.then_some(())
    });
    let log = std::fs::read_to_string(scene.folder.join("one/front-end.log")).unwrap();
    let read = format!("node b2: load is read by {rung}\n");
    assert!(log.contains(&read), "{log}");
    for to in ["shop", "blog", "shop"] {
        let (moved, said) = scene.move_to(to, &[]);
        assert!(moved, "{said}");
        eventually("b2 serves its new site", || scene.serves(to).then_some(()));
    }
    assert_eq!(scene.last().runs().len(), 3);
    killed_while_its_hook_runs(&mut scene);
    enough.store(true, Ordering::Relaxed);
    for asker in askers {
        asker.join().unwrap();
    }
    assert!(asked.load(Ordering::Relaxed) > MANY);
}

#[test]
fn a_moved_nodes_apache_is_set_up_there_and_back() {
    if Server::Apache.program().is_none() {
        println!("SKIPPED: apache2 is not installed");
        return;
    }
    let scene = Scene::start("moves-apache", Server::Apache);
    let (enough, asked) = (Arc::default(), Arc::default());
    let askers = [&scene.front_end, &scene.other].map(|it| ask_on(it.address, &enough, &asked));
    eventually("words have begun, and agents follow them", || {
        scene.move_to("shop", &["--dry-run"]).0.then_some(())
    });
    for (to, from) in [("shop", "blog"), ("blog", "shop")] {
        let (moved, said) = scene.move_to(to, &[]);
        assert!(moved, "{said}");
        eventually("b2 serves its new site", || scene.serves(to).then_some(()));
        assert!(!scene.serves(from));
    }
    enough.store(true, Ordering::Relaxed);
    for asker in askers {
        asker.join().unwrap();
    }
    let runs = scene.last().runs();
    let sites: Vec<_> = runs.iter().filter_map(|it| it.split(' ').nth(1)).collect();
    assert_eq!(sites, ["shop", "blog"]);
    assert!(asked.load(Ordering::Relaxed) > MANY);
}
