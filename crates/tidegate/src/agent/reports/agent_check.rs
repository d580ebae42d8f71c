//! Answers agent checks: a line, and the connection is closed.

use std::time::Duration;

use tidegate_core::policy::weighted_share;
use tidegate_node::report::agent_check::{QUESTION_BYTES_MAX, Question, answer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::SharedLoad;
use super::door::{Door, Seat};
use crate::config::AgentCheckReport;

/// For a question, which comes with the connection: balancers that have none send nothing, and their patience is
/// `agent-inter`. One that comes later is not looked at.
const QUESTION_WAIT: Duration = Duration::from_millis(10);
/// For the rest: HAProxy gives up after its own interval, 2 s by default.
const ANSWER_WAIT: Duration = Duration::from_secs(2);

/// Answers until the task is dropped.
pub(super) async fn serve(door: Door, report: AgentCheckReport, load: SharedLoad) {
    loop {
        let (mut stream, seat) = door.next().await;
        let load = load.clone();
        tokio::spawn(async move {
            // A balancer says nothing and waits.
            seat.begin();
            let question = question(&mut stream).await;
            let own = load.lock().own.load();
            let shares = [own.utilization, own.memory, own.files];
            let share = weighted_share(report.weights, shares);
            let line = answer(share, load.trouble().as_deref(), report.at_limit, question);
            tokio::select! {
                // What breaks off or stands still costs its own connection only: the balancer asks again.
                _said = timeout(ANSWER_WAIT, say(&mut stream, line, &seat)) => {}
                () = seat.lost() => {}
            }
        });
    }
}

/// The first line that comes at once, if one does.
async fn question(stream: &mut TcpStream) -> Question {
    let mut sent = Vec::with_capacity(QUESTION_BYTES_MAX);
    let line = async {
        while sent.len() < QUESTION_BYTES_MAX && !sent.contains(&b'\n') {
            let mut part = [0; QUESTION_BYTES_MAX];
            match stream.read(&mut part).await {
                Ok(length) if length > 0 => sent.extend_from_slice(&part[..length]),
                _ => return,
            }
        }
    };
    timeout(QUESTION_WAIT, line).await.ok();
    Question::parse(&sent)
}

/// Says it, and waits until the balancer has it: a connection that is closed with bytes unread is reset, and the answer
/// with it.
async fn say(stream: &mut TcpStream, mut line: String, seat: &Seat) -> std::io::Result<()> {
    line.push('\n');
    stream.write_all(line.as_bytes()).await?;
    stream.shutdown().await?;
    seat.end();
    let mut rest = [0; QUESTION_BYTES_MAX];
    while stream.read(&mut rest).await? > 0 {}
    Ok(())
}
