//! gRPC through the front-end, with a real client and real servers: calls of every shape, statuses and their messages, deadlines, refusals of
//! our own, and calls of one connection that go to several nodes.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]
#![expect(clippy::print_stdout, reason = "how a test says that it could not run")]

mod support;

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

use support::{FrontEnd, Process, eventually, folder, free_address};

/// Debian's Python, whose library of gRPC is Debian's as well.
const PYTHON: &str = "/usr/bin/python3";

/// A server of every shape of call: `serve.py NAME ADDRESS`.
const SERVER: &str = r#"
import signal, sys, time
from concurrent import futures
import grpc
name, address = sys.argv[1:]
def unary(request, context):
    if request == b"missing":
        context.abort(grpc.StatusCode.NOT_FOUND, "no such cart: \u00e4")
    if request == b"slow":
        time.sleep(20)
    context.set_trailing_metadata((("x-sum", str(len(request))),))
    return name.encode()
def down(request, context):
    for index in range(int(request)):
        yield b"%d" % index * 1000
def up(requests, context):
    return b"%d" % sum(len(it) for it in requests)
def both(requests, context):
    for request in requests:
        yield request.upper()
handlers = {
    "Get": grpc.unary_unary_rpc_method_handler(unary),
    "List": grpc.unary_stream_rpc_method_handler(down),
    "Put": grpc.stream_unary_rpc_method_handler(up),
    "Chat": grpc.stream_stream_rpc_method_handler(both),
}
server = grpc.server(futures.ThreadPoolExecutor(8))
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("shop.Cart", handlers),))
assert server.add_insecure_port(address)
server.start()
# What it has begun it ends.
signal.signal(signal.SIGTERM, lambda *_: server.stop(20))
server.wait_for_termination()
"#;

/// Its client, which says what came back, a line each: `ask.py ADDRESS`.
const CLIENT: &str = r#"
import sys
import grpc
channel = grpc.insecure_channel(sys.argv[1])
def call(kind, method):
    return getattr(channel, kind)("/shop.Cart/" + method)
get = call("unary_unary", "Get")
names = set()
for _ in range(20):
    answer, done = get.with_call(b"x" * 7)
    names.add(answer.decode())
    assert dict(done.trailing_metadata())["x-sum"] == "7"
print("names", " ".join(sorted(names)))
try:
    get(b"missing")
except grpc.RpcError as error:
    print(error.code().name, error.details())
try:
    get(b"slow", timeout=0.3)
except grpc.RpcError as error:
    print(error.code().name)
print("list", sum(len(it) for it in call("unary_stream", "List")(b"500")))
print("put", call("stream_unary", "Put")(b"y" * 30000 for _ in range(50)).decode())
print("chat", b" ".join(call("stream_stream", "Chat")(iter([b"a", b"b", b"c"]))).decode())
print("large", len(get(b"z" * 3000000)))
"#;

/// Says why not, where Python has no gRPC.
fn is_there() -> bool {
    let mut command = Command::new(PYTHON);
    let found = command.args(["-c", "import grpc"]).stderr(Stdio::null());
    let found = found.status().is_ok_and(|it| it.success());
    if !found {
        println!("SKIPPED: grpc is not installed for {PYTHON}");
    }
    found
}

fn start(folder: &Path, name: &str) -> (SocketAddr, Process) {
    let address = free_address();
    (address, revive(folder, name, address))
}

/// A server at this address.
fn revive(folder: &Path, name: &str, address: SocketAddr) -> Process {
    let script = folder.join("serve.py");
    std::fs::write(&script, SERVER).unwrap();
    let mut command = Command::new(PYTHON);
    command.arg(script).arg(name).arg(address.to_string());
    let process = Process::start(&mut command);
    eventually("the server listens", || TcpStream::connect(address).ok());
    process
}

fn ask(folder: &Path, address: SocketAddr) -> String {
    let script = folder.join("ask.py");
    std::fs::write(&script, CLIENT).unwrap();
    let output = Command::new(PYTHON)
        .arg(script)
        .arg(address.to_string())
        .output();
    let output = output.unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    String::from_utf8(output.stdout).unwrap()
}

fn site(nodes: &[SocketAddr], more: &str) -> String {
    let mut text = format!("[[site]]\nname = \"calls\"\nnode_protocol = \"h2\"\n{more}\n");
    for (index, node) in nodes.iter().enumerate() {
        text.push_str(&format!(
            "[[node]]\nname = \"n{index}\"\naddress = \"{node}\"\nsite = \"calls\"\n"
        ));
    }
    text
}

#[test]
fn a_real_client_calls_real_servers() {
    if !is_there() {
        return;
    }
    let folder = folder("grpc");
    let (one, _one) = start(&folder, "one");
    let (two, _two) = start(&folder, "two");
    let text = site(&[one, two], "policy = \"round_robin\"\n");
    let front_end = FrontEnd::start(&folder, &text);
    let said = ask(&folder, front_end.address);
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(
        lines,
        [
            // Each call is picked by itself, whatever connection it came by.
            "names one two",
            "NOT_FOUND no such cart: ä",
            "DEADLINE_EXCEEDED",
            // 10 numbers of one digit, 90 of two, 400 of three.
            "list 1390000",
            "put 1500000",
            "chat A B C",
            "large 3",
        ]
    );
    eventually("the call that was given up has ended", || {
        (front_end.metric("tidegate_requests_in_flight")? == 0.0).then_some(())
    });
}

#[test]
fn what_we_refuse_is_a_status_of_grpc() {
    if !is_there() {
        return;
    }
    let folder = folder("grpc-refused");
    // No node is up: none has passed its check.
    let check = "check = { kind = \"grpc\", interval = \"100ms\" }\n";
    let drained = site(&[free_address()], check);
    let front_end = FrontEnd::start(&folder, &drained);
    let script = "import sys, grpc\n\
        get = grpc.insecure_channel(sys.argv[1]).unary_unary('/shop.Cart/Get')\n\
        try: get(b'x')\n\
        except grpc.RpcError as error: print(error.code().name)\n";
    let mut command = Command::new(PYTHON);
    command.args(["-c", script, &front_end.address.to_string()]);
    let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
    assert_eq!(said, "UNAVAILABLE\n");
}

/// Calls of one client while servers are started anew: `call.py ADDRESS` calls until its input ends, and says how it went.
const CALLS: &str = r#"
import sys, threading
import grpc
channel = grpc.insecure_channel(sys.argv[1])
get = channel.unary_unary("/shop.Cart/Get")
ends, failed, done = threading.Event(), [], [0] * 8
def calls(index):
    while not ends.is_set():
        try:
            get(b"x" * 1000, timeout=30)
        except grpc.RpcError as error:
            # So this server answers calls that it has when it stops, and not begun: directly asked, too.
            if error.code() != grpc.StatusCode.CANCELLED:
                failed.append(f"{error.code().name} {error.details()}")
        done[index] += 1
threads = [threading.Thread(target=calls, args=(index,)) for index in range(8)]
for it in threads: it.start()
sys.stdin.read()
ends.set()
for it in threads: it.join()
print("enough" if sum(done) > 100 else "few", failed)
"#;

#[test]
fn a_server_that_stops_in_order_costs_no_call() {
    if !is_there() {
        return;
    }
    let folder = folder("grpc-stop");
    let (one, mut process) = start(&folder, "one");
    let (two, _two) = start(&folder, "two");
    let front_end = FrontEnd::start(&folder, &site(&[one, two], "policy = \"round_robin\"\n"));
    let script = folder.join("call.py");
    std::fs::write(&script, CALLS).unwrap();
    let mut command = Command::new(PYTHON);
    command.arg(script).arg(front_end.address.to_string());
    let mut client = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let served = || front_end.metric("tidegate_node_tries_total{site=\"calls\",node=\"n0\"}");
    for _ in 0..3 {
        let before = served().unwrap();
        eventually("it serves", || (served()? > before + 50.0).then_some(()));
        process.end("TERM");
        process = revive(&folder, "one", one);
    }
    drop(client.stdin.take());
    let output = client.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "enough []\n");
}
