//! The real server: an IO thread, and workers that burn CPU.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use http::{Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tidegate_emulator::server::cache::Files;
use tidegate_emulator::server::http::{Answer, accept, asked, bind, done, text, unknown};
use tidegate_emulator::server::slowdown::Slowdown;
use tidegate_remote::clock;

use super::workers::Workers;
use super::{ServeArgs, ServeError, Work};

/// The longest body of a request.
const BODY_MAX: usize = 16 << 20;

/// What a request needs.
#[derive(Debug)]
struct Server {
    workers: Workers,
    files: Mutex<Files>,
    slowdown: Slowdown,
}

/// Serves until the process is killed.
pub(super) fn run(args: &ServeArgs) -> Result<(), ServeError> {
    limit_files(args.files)?;
    let server = Arc::new(Server {
        workers: Workers::new(args.workers, args.queue),
        files: Mutex::new(Files::new(args.cache())),
        slowdown: Slowdown::default(),
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let listener = bind(args.listen).map_err(|source| ServeError::Listen {
        address: args.listen,
        source,
    })?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        accept(listener, move |request| {
            let server = Arc::clone(&server);
            async move { server.answer(request).await }
        })
        .await;
        Ok(())
    })
}

/// So many files, or as many as are allowed at all.
fn limit_files(most: Option<u64>) -> io::Result<()> {
    let most = most.or(getrlimit(Resource::Nofile).maximum);
    let limit = Rlimit {
        current: most,
        maximum: most,
    };
    setrlimit(Resource::Nofile, limit).map_err(io::Error::from)
}

impl Server {
    /// Work begins when the request has come whole.
    async fn answer(&self, request: Request<Incoming>) -> Answer {
        let (head, body) = request.into_parts();
        // A body beyond the limit, or one that breaks off, makes a bad request of it.
        if Limited::new(body, BODY_MAX).collect().await.is_err() {
            return text(StatusCode::BAD_REQUEST, "the body is not whole\n");
        }
        let request = Request::from_parts(head, ());
        if let Some(parameters) = asked(&request) {
            return self.work(parameters).await;
        }
        match request.uri().path() {
            "/health" => text(StatusCode::OK, "fine\n"),
            "/slow" => self.slowdown.set(request.uri().query().unwrap_or_default()),
            path => unknown(path),
        }
    }

    async fn work(&self, parameters: &str) -> Answer {
        let arrived = clock::now();
        let mut work = match Work::parse(parameters) {
            Ok(work) => work,
            Err(error) => return text(StatusCode::BAD_REQUEST, &format!("{error}\n")),
        };
        let found = {
            let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
            files.find(&mut work)
        };
        self.slowdown.apply(&mut work);
        match self.workers.run(work).await {
            Ok(()) => done(work.bytes, clock::now().since(arrived), found),
            Err(undone) => text(StatusCode::SERVICE_UNAVAILABLE, &format!("{undone}\n")),
        }
    }
}
