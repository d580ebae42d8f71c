//! The ping-pong of KLM-2005 §5.3: pairs of processes that send each other messages as fast as
//! they can. They keep the CPU and the network's soft interrupts busy and the run queue in
//! motion.
//!
//! The paper does not say between which machines; here both ends are on the loaded node and
//! the messages go over TCP on its loopback interface.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};

use rustix::process::{Signal, set_parent_process_death_signal};

use super::{AntagonistError, Role};

/// Longest message.
const BYTES_MAX: usize = 1 << 20;

/// Starts the pairs and waits for them, which do not end by themselves.
pub(super) fn start(pairs: u32, bytes: usize) -> Result<(), AntagonistError> {
    let mut children = Vec::new();
    for _ in 0..pairs {
        let (one, other) = connected().map_err(AntagonistError::io("connect a pair"))?;
        children.push(child(one, bytes, true)?);
        children.push(child(other, bytes, false)?);
    }
    for mut child in children {
        child
            .wait()
            .map_err(AntagonistError::io("wait for a process"))?;
    }
    Ok(())
}

/// Two ends of one connection.
fn connected() -> std::io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let one = TcpStream::connect(listener.local_addr()?)?;
    let (other, _) = listener.accept()?;
    one.set_nodelay(true)?;
    other.set_nodelay(true)?;
    Ok((one, other))
}

fn child(socket: TcpStream, bytes: usize, begins: bool) -> Result<Child, AntagonistError> {
    let program = std::env::current_exe().map_err(AntagonistError::io("find this program"))?;
    let role = Role::End { bytes, begins }.argument()?;
    let mut command = Command::new(program);
    command
        .args(["antagonist", &role])
        .stdin(Stdio::from(OwnedFd::from(socket)));
    command
        .spawn()
        .map_err(AntagonistError::io("start a process"))
}

/// One process: plays until its parent or its partner is gone.
pub(super) fn end(bytes: usize, begins: bool) -> Result<(), AntagonistError> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| AntagonistError::io("ask to end with the parent")(error.into()))?;
    let socket = std::io::stdin().as_fd().try_clone_to_owned();
    let socket = socket.map_err(AntagonistError::io("take the socket"))?;
    play(TcpStream::from(socket), bytes, begins).map_err(AntagonistError::io("exchange messages"))
}

fn play(mut socket: TcpStream, bytes: usize, begins: bool) -> std::io::Result<()> {
    let mut message = vec![b'x'; bytes.clamp(1, BYTES_MAX)];
    if begins {
        socket.write_all(&message)?;
    }
    loop {
        match socket.read_exact(&mut message) {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(()),
            read => read?,
        }
        socket.write_all(&message)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_go_to_and_fro_and_the_end_of_one_is_the_end_of_both() {
        let (mut one, other) = connected().unwrap();
        let player = std::thread::spawn(move || play(other, 8, false));
        let mut answer = [0; 8];
        for _ in 0..3 {
            one.write_all(b"12345678").unwrap();
            one.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"12345678");
        }
        drop(one);
        player.join().unwrap().unwrap();
    }
}
