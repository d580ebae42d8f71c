//! Checks of services that do not speak HTTP, with a real front-end, and with real servers where there are any.

#![allow(clippy::unwrap_used, reason = "test code")]
#![allow(clippy::print_stdout, reason = "a test that cannot run says why")]
#![allow(dead_code, reason = "not every test file needs all of `support`")]

mod support;

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;
use support::name_server::NameServer;
use support::{FrontEnd, Process, eventually, folder, free_address};

/// A site of one node at this address, which is checked so.
fn site(name: &str, address: SocketAddr, check: &str) -> String {
    format!(
        "[[site]]\nname = \"{name}\"\nhosts = [\"{name}.example\"]\n\
         [site.check]\ninterval = \"100ms\"\nfall = 2\nport = {port}\n{check}\n\
         [[node]]\nname = \"{name}-1\"\naddress = \"{address}\"\nsite = \"{name}\"\n",
        port = address.port(),
    )
}

struct Scene(FrontEnd);

impl Scene {
    /// Waits until the node of a site is as wanted by its checks.
    #[track_caller]
    fn wait(&self, site: &str, what: &str, wanted: impl Fn(&Value) -> bool) {
        eventually(&format!("{site}: {what}"), || {
            let status = self.0.api("/api/status");
            let sites = status["sites"].as_array().unwrap();
            let found = sites.iter().find(|it| it["name"] == site).unwrap();
            wanted(&found["nodes"][0]["checks"][0]).then_some(())
        });
    }

    #[track_caller]
    fn passes(&self, site: &str) {
        self.wait(site, "passes", |check| {
            check["failing"] == false && check["passed"].as_u64() > Some(1)
        });
    }

    #[track_caller]
    fn fails(&self, site: &str, why: &str) {
        self.wait(site, why, |check| {
            check["failing"] == true && check["error"] == why
        });
        let reasons = self.0.api(&format!("/api/why/{site}-1"))["reasons"].to_string();
        assert!(reasons.contains("because its check fails"), "{reasons}");
        assert!(reasons.contains(why), "{reasons}");
    }
}

#[test]
fn what_a_server_says_over_a_connection_decides() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let loading = Arc::new(AtomicBool::new(false));
    let is_loading = Arc::clone(&loading);
    // Ends with the test's process.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, mut asked) = (stream.unwrap(), [0; 6]);
            if stream.read_exact(&mut asked).is_err() || asked != *b"PING\r\n" {
                continue;
            }
            let answer = match is_loading.load(Ordering::Relaxed) {
                true => "-LOADING the data\r\n",
                false => "+PONG\r\n",
            };
            stream.write_all(answer.as_bytes()).ok();
        }
    });
    let check = r#"kind = "tcp"
send = "PING\r\n"
expect = "+PONG""#;
    let text = site("store", address, check);
    let scene = Scene(FrontEnd::start(&folder("service-tcp"), &text));
    scene.passes("store");
    loading.store(true, Ordering::Relaxed);
    scene.fails("store", "the answer had not what is wanted");
    let metric = "tidegate_node_checks_total{site=\"store\",node=\"store-1\",check=\"tcp\",result=\"answer\"}";
    assert!(scene.0.metric(metric) >= Some(2.0));
    loading.store(false, Ordering::Relaxed);
    scene.passes("store");
}

/// A question for the A records of `web.test`, as RFC 1035 has it.
const QUESTION: &str = "123401000001000000000000037765620474657374000001 0001";

#[test]
fn a_name_server_is_asked_for_a_name_and_by_a_datagram() {
    let folder = folder("service-dns");
    let known = "127.0.0.2 web.test\n";
    let Some(server) = NameServer::start(&folder, known) else {
        return;
    };
    let question = QUESTION.replace(' ', "");
    let text = [
        site(
            "names",
            server.address,
            "kind = \"dns\"\nname = \"web.test\"\nanswer = \"127.0.0.2\"",
        ),
        // Ends with the address as four bytes.
        site(
            "datagrams",
            server.address,
            &format!(
                "kind = \"udp\"\nsend = {{ hex = \"{question}\" }}\nexpect = {{ hex = \"00047f000002\" }}"
            ),
        ),
    ];
    let scene = Scene(FrontEnd::start(&folder, &text.concat()));
    scene.passes("names");
    scene.passes("datagrams");
    server.change("127.0.0.3 web.test\n");
    scene.fails("names", "the answer had not what is wanted");
    scene.fails("datagrams", "the answer had not what is wanted");
    server.change("127.0.0.2 other.test\n");
    scene.fails("names", "the response code was 3");
    server.process.signal("STOP");
    scene.fails("names", "no answer came in time");
    scene.fails("datagrams", "no answer came in time");
    server.process.signal("CONT");
    server.change(known);
    scene.passes("names");
    scene.passes("datagrams");
    drop(server);
    scene.fails("names", "nothing listens at the port");
    scene.fails("datagrams", "nothing listens at the port");
}

/// A real FTP server that lets in `anonymous` alone, whatever the password.
fn ftp_server(folder: &Path, address: SocketAddr) -> Option<Process> {
    let programs = ["/usr/sbin/vsftpd", "/usr/bin/vsftpd"];
    let Some(program) = programs.into_iter().find(|it| Path::new(it).exists()) else {
        println!("SKIPPED: vsftpd is not installed");
        return None;
    };
    let mut text = format!(
        "listen=YES\nlisten_address={}\nlisten_port={}\nbackground=NO\nrun_as_launching_user=YES\n\
         anonymous_enable=YES\nlocal_enable=NO\nseccomp_sandbox=NO\nxferlog_enable=NO\n",
        address.ip(),
        address.port()
    );
    for key in ["anon_root", "secure_chroot_dir"] {
        // It takes none that it could write to.
        let empty = folder.join(key);
        std::fs::create_dir_all(&empty).unwrap();
        std::fs::set_permissions(&empty, PermissionsExt::from_mode(0o555)).unwrap();
        writeln!(text, "{key}={}", empty.display()).unwrap();
    }
    let file = folder.join("vsftpd.conf");
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new(program);
    Some(Process::start(command.arg(file).stderr(Stdio::null())))
}

#[test]
fn an_ftp_server_greets_and_lets_its_users_in() {
    let folder = folder("service-ftp");
    let address = free_address();
    let Some(server) = ftp_server(&folder, address) else {
        return;
    };
    let password = folder.join("password");
    std::fs::write(&password, "secret\n").unwrap();
    std::fs::set_permissions(&password, PermissionsExt::from_mode(0o600)).unwrap();
    let text = [
        site("greeting", address, "kind = \"ftp\""),
        site("anyone", address, "kind = \"ftp\"\nuser = \"anonymous\""),
        site(
            "known",
            address,
            "kind = \"ftp\"\nuser = \"known\"\npassword_file = \"password\"",
        ),
    ];
    let scene = Scene(FrontEnd::start(&folder, &text.concat()));
    scene.passes("greeting");
    scene.passes("anyone");
    scene.fails("known", "the reply was 530");
    drop(server);
    scene.fails("greeting", "there was no connection");
    scene.fails("anyone", "there was no connection");
}

/// A server that reads a question of so many bytes and writes its answer, or another one once it is set.
struct Fake {
    address: SocketAddr,
    unwell: Arc<AtomicBool>,
}

impl Fake {
    fn start(asked: usize, well: Vec<u8>, other: Vec<u8>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let unwell = Arc::new(AtomicBool::new(false));
        let is_unwell = Arc::clone(&unwell);
        // Ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, mut question) = (stream.unwrap(), vec![0; asked]);
                if stream.read_exact(&mut question).is_err() {
                    continue;
                }
                let answer = match is_unwell.load(Ordering::Relaxed) {
                    true => &other,
                    false => &well,
                };
                stream.write_all(answer).ok();
            }
        });
        Self { address, unwell }
    }
}

/// RFC 5531 §9: 24 bytes in one fragment; the call's number, an accepted reply, no verifier; done, or no such program.
fn nfs_reply(status: u32) -> Vec<u8> {
    let words = [0x8000_0018, 0x7469_6465, 1, 0, 0, 0, status];
    words.into_iter().flat_map(u32::to_be_bytes).collect()
}

/// Servers of NFS and SMB are large, and some need the kernel, so these answer with the standards' bytes.
#[test]
fn file_servers_are_asked_in_their_own_protocols() {
    let nfs = Fake::start(44, nfs_reply(0), nfs_reply(1));
    // [MS-SMB2] 2.2.1.2 and 2.2.4: 128 bytes; magic, header's length, status, and the answer's length and dialect 3.1.1.
    let negotiated = |status: u32| {
        let mut bytes = vec![0; 4 + 128];
        bytes[3] = 128;
        bytes[4..10].copy_from_slice(&[0xfe, b'S', b'M', b'B', 64, 0]);
        bytes[12..16].copy_from_slice(&status.to_le_bytes());
        bytes[20] = 1;
        bytes[68..74].copy_from_slice(&[65, 0, 1, 0, 0x11, 3]);
        bytes
    };
    let smb = Fake::start(162, negotiated(0), negotiated(0xc000_00bb));
    let text = [
        site("exports", nfs.address, "kind = \"nfs\"\nversion = 3"),
        site("shares", smb.address, "kind = \"smb\""),
        site("mixed", nfs.address, "kind = \"ftp\""),
    ];
    let scene = Scene(FrontEnd::start(&folder("service-files"), &text.concat()));
    scene.passes("exports");
    scene.passes("shares");
    scene.fails("mixed", "no answer came in time");
    nfs.unwell.store(true, Ordering::Relaxed);
    smb.unwell.store(true, Ordering::Relaxed);
    scene.fails("exports", "the RPC accept status was 1");
    scene.fails("shares", "the NTSTATUS was 0xc00000bb");
    nfs.unwell.store(false, Ordering::Relaxed);
    scene.passes("exports");
}

/// A site whose nodes need all of these: what one of them says takes a node out, and no other brings it back.
#[test]
fn a_node_is_out_while_any_of_its_checks_fails() {
    let store = Fake::start(6, b"+PONG\r\n".to_vec(), b"-LOADING\r\n".to_vec());
    let files = Fake::start(44, nfs_reply(0), nfs_reply(1));
    let often = "interval = \"100ms\"\nfall = 2";
    let text = format!(
        "[[site]]\nname = \"shop\"\nhosts = [\"shop.example\"]\n\
         [[site.check]]\nkind = \"tcp\"\nlabel = \"store\"\nport = {}\n\
         send = \"PING\\r\\n\"\nexpect = \"+PONG\"\n{often}\n\
         [[site.check]]\nkind = \"nfs\"\nport = {}\n{often}\n\
         [[node]]\nname = \"shop-1\"\naddress = \"{}\"\nsite = \"shop\"\n",
        store.address.port(),
        files.address.port(),
        store.address,
    );
    let scene = Scene(FrontEnd::start(&folder("service-several"), &text));
    let node = |what: &str, wanted: &dyn Fn(&Value) -> bool| {
        eventually(what, || {
            let node = scene.0.api("/api/status")["sites"][0]["nodes"][0].clone();
            wanted(&node).then_some(node)
        })
    };
    let reasons = || scene.0.api("/api/why/shop-1")["reasons"].to_string();
    let fails = |node: &Value| -> Vec<bool> {
        let checks = node["checks"].as_array().unwrap().iter();
        checks.map(|it| it["failing"] == true).collect()
    };
    let passed = |node: &Value| {
        let checks = node["checks"].as_array().unwrap();
        checks.iter().all(|it| it["passed"].as_u64() > Some(1))
    };
    let well = node("both pass", &passed);
    assert_eq!(well["checks"][0]["label"], "store");
    assert_eq!(well["checks"][1]["label"], "nfs");
    assert_eq!(well["health"], "up");
    store.unwell.store(true, Ordering::Relaxed);
    let out = node("the store fails", &|node| fails(node) == [true, false]);
    assert_eq!(out["trouble"]["ejected_for"], "check");
    assert_eq!(out["trouble"]["ejections"], 1);
    let why = reasons();
    assert!(why.contains("because its check `store` fails"), "{why}");
    files.unwell.store(true, Ordering::Relaxed);
    let out = node("both fail", &|node| fails(node) == [true, true]);
    assert_eq!(out["trouble"]["ejections"], 1, "it was out already");
    let why = reasons();
    assert!(why.contains("its checks `store`, `nfs` fail"), "{why}");
    assert!(why.contains("the RPC accept status was 1"), "{why}");
    store.unwell.store(false, Ordering::Relaxed);
    let out = node("the store passes", &|node| fails(node) == [false, true]);
    assert_eq!(out["health"], "ejected");
    let metric = |check: &str| {
        let labels = format!("site=\"shop\",node=\"shop-1\",check=\"{check}\"");
        scene
            .0
            .metric(&format!("tidegate_node_check_failing{{{labels}}}"))
    };
    assert_eq!((metric("store"), metric("nfs")), (Some(0.0), Some(1.0)));
    files.unwell.store(false, Ordering::Relaxed);
    let back = node("both pass", &|node| fails(node) == [false, false]);
    assert_eq!(back["health"], "up");
}

#[test]
fn a_program_says_whether_a_node_is_well() {
    let folder = folder("service-exec");
    let says = folder.join("says");
    let say = |what: &str| {
        let new = folder.join("says.new");
        std::fs::write(&new, what).unwrap();
        std::fs::rename(new, &says).unwrap();
    };
    say("0");
    // It ends by itself soon after a test that failed.
    let script = format!(
        "[ $TIDEGATE_NODE = jobs-1 ] || exit 9; read code < {}; [ $code = hang ] && exec sleep 5; exit $code",
        says.display()
    );
    let check =
        format!("kind = \"exec\"\ntimeout = \"1s\"\ncommand = [\"/bin/sh\", \"-c\", \"{script}\"]");
    let scene = Scene(FrontEnd::start(
        &folder,
        &site("jobs", free_address(), &check),
    ));
    scene.passes("jobs");
    say("3");
    scene.fails("jobs", "the exit code was 3");
    say("hang");
    scene.fails("jobs", "no answer came in time");
    say("0");
    scene.passes("jobs");
}

/// A process that a test which fails leaves behind, unless it is ended.
struct Left(u32);

impl Left {
    fn is_running(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0));
        // A zombie where nothing waits for it.
        stat.is_ok_and(|it| !it.contains(") Z "))
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        if self.is_running() {
            support::signal(self.0, "KILL");
        }
    }
}

#[test]
fn the_program_of_a_check_does_not_outlive_a_front_end_that_is_killed() {
    let folder = folder("service-exec-killed");
    let note = folder.join("process");
    let script = format!(
        "echo $$ > {0}.new; mv {0}.new {0}; exec sleep 600",
        note.display()
    );
    let check = format!(
        "kind = \"exec\"\ntimeout = \"60s\"\ncommand = [\"/bin/sh\", \"-c\", \"{script}\"]"
    );
    let text = site("jobs", free_address(), &check);
    let mut front_end = FrontEnd::start(&folder, &text);
    let program = eventually("the program runs", || {
        let noted = std::fs::read_to_string(&note).ok()?;
        noted.trim().parse().ok().map(Left)
    });
    assert!(program.is_running());
    front_end.process.end("KILL");
    eventually("the program has ended", || {
        (!program.is_running()).then_some(())
    });
}
