//! Requests that wait for room at a node have their turns in the order in which they came, whichever worker has them.
#![expect(clippy::unwrap_used, reason = "a test ends where something is missing")]

mod support;

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use support::server::head;
use support::{FrontEnd, eventually, folder};

const CLIENTS: usize = 12;
const CONNECTIONS: usize = 2;
/// Answers after which the test ends: each client has had several.
const ANSWERS: usize = 60;

/// A request that a server has: its number, and what lets its answer go.
struct Held {
    number: usize,
    answer: Sender<()>,
}

/// A server that holds each request until it is to answer, and passes them on in the order in which they came.
fn server() -> (SocketAddr, Receiver<Held>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, held) = channel();
    let sender = Arc::new(Mutex::new(sender));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, sender) = (stream.unwrap(), Arc::clone(&sender));
            std::thread::spawn(move || hold(stream, &sender));
        }
    });
    (address, held)
}

fn hold(mut stream: TcpStream, sender: &Mutex<Sender<Held>>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    loop {
        let head = head(&mut reader)?;
        let path = head.strip_prefix("GET /")?.split(' ').next()?;
        // Others are the front-end's own, to see whether the server lives.
        if let Ok(number) = path.parse() {
            let (answer, answered) = channel();
            sender.lock().ok()?.send(Held { number, answer }).ok()?;
            answered.recv().ok()?;
        }
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
        stream.write_all(answer).ok()?;
    }
}

struct Client(BufReader<TcpStream>);

impl Client {
    fn ask(&mut self, number: usize) {
        let request = format!("GET /{number} HTTP/1.1\r\nhost: shop.example\r\n\r\n");
        self.0.get_mut().write_all(request.as_bytes()).unwrap();
    }

    fn read_answer(&mut self) {
        let mut status = String::new();
        self.0.read_line(&mut status).unwrap();
        assert!(status.starts_with("HTTP/1.1 200 "), "{status}");
        head(&mut self.0).unwrap();
        let mut body = [0; 2];
        self.0.read_exact(&mut body).unwrap();
    }
}

#[test]
fn twelve_clients_of_two_workers_are_served_in_the_order_in_which_they_asked() {
    let (node, held) = server();
    let configuration = format!(
        "[limits]\nworkers = 2\n[[site]]\nname = \"shop\"\nhosts = [\"shop.example\"]\n\
         [site.admission]\nmode = \"maxconn\"\nconnections = {CONNECTIONS}\nslo = \"10m\"\nqueue_timeout = \"10m\"\n\
         [[node]]\nname = \"n1\"\naddress = \"{node}\"\nsite = \"shop\"\n"
    );
    let front_end = FrontEnd::start(&folder("queue-order"), &configuration);
    let mut clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            Client(BufReader::new(
                TcpStream::connect(front_end.address).unwrap(),
            ))
        })
        .collect();
    // Requests have their numbers in the order in which the front-end got them: the next comes when it has the last one.
    let mut asked = 0;
    let mut ask = |client: &mut Client| {
        client.ask(asked);
        asked += 1;
        eventually("the front-end has it", || {
            let status = front_end.api("/api/status");
            let count = |value: &serde_json::Value| value.as_u64().unwrap() as usize;
            let requests = &status["requests"];
            let in_flight = count(&requests["in_flight"]);
            // In flight from its head on, which is before it has its turn among those that wait.
            let waiting = in_flight.saturating_sub(CONNECTIONS);
            let is_here = count(&requests["completed"]) + in_flight == asked;
            (is_here && count(&status["sites"][0]["apart"]["queued"]) == waiting).then_some(())
        });
        asked - 1
    };
    let next = || held.recv_timeout(support::PATIENCE).unwrap();
    let mut client_of = Vec::new();
    let mut at_work = VecDeque::new();
    for (index, client) in clients.iter_mut().enumerate() {
        assert_eq!(ask(client), client_of.len());
        client_of.push(index);
        if index < CONNECTIONS {
            at_work.push_back(next());
        }
    }
    for answers in 0..ANSWERS {
        let oldest = at_work.pop_front().unwrap();
        assert_eq!(oldest.number, answers, "in the order in which they came");
        oldest.answer.send(()).unwrap();
        let index = client_of[oldest.number];
        clients[index].read_answer();
        at_work.push_back(next());
        assert_eq!(ask(&mut clients[index]), client_of.len());
        client_of.push(index);
    }
    let last = front_end.api("/api/status");
    assert_eq!(last["requests"]["in_flight"], CLIENTS);
    assert_eq!(last["requests"]["failed"], 0);
}
