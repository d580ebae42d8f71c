//! The service that hyper asks for answers, as a future that is small while all goes well: what
//! can be done at once is done at the call, and only the wait for the response head is kept.
//! Connections to be made, second tries and tunnels go into a future of their own.

use std::convert::Infallible;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use hyper::body::Incoming;
use pin_project_lite::pin_project;

use crate::body::{RequestBody, ResponseBody};
use crate::deliver::{Delivery, deliver, refused, settle_connection};
use crate::exchange::Live;
use crate::forward::{self, Outgoing, Passage, Wait, poll_head};
use crate::head;
use crate::reason::Reason;
use crate::refuse;
use crate::retry::Failure;
use crate::session::Session;
use crate::tunnel::Tunnel;
use crate::upstream::Sent;

pin_project! {
    /// See the module.
    #[project = ResponderProjection]
    enum Responder<F> {
        Answered { response: Option<Response<ResponseBody>> },
        Waiting {
            session: Rc<Session>,
            live: Option<Live>,
            passage: Passage,
            #[pin]
            sending: F,
        },
        Slow { future: Slow },
    }
}

type Slow = Pin<Box<dyn Future<Output = Response<ResponseBody>>>>;

/// The service: an answer to every request.
pub(crate) fn respond(
    session: &Rc<Session>,
    mut request: Request<Incoming>,
) -> impl Future<Output = Result<Response<ResponseBody>, Infallible>> + use<> {
    if request.uri().scheme().is_some() {
        let seen = session.inflow.borrow().seen();
        head::complete_path(&mut request, seen.options_without_path);
    }
    session.inflow.borrow_mut().expect(request.body(), false);
    let mut live = Live::begin(session, &request);
    match forward::outgoing(session, &mut live, request) {
        Ok(Outgoing::Pooled(request, upstream, passage)) => Responder::Waiting {
            sending: forward::send(session, upstream, request, &passage),
            session: Rc::clone(session),
            live: Some(live),
            passage,
        },
        Ok(Outgoing::Unconnected(request, passage)) => Responder::Slow {
            future: connecting(Rc::clone(session), live, request, passage),
        },
        Ok(Outgoing::Waits(request, passage, wait)) => Responder::Slow {
            future: queued(Rc::clone(session), live, request, passage, wait),
        },
        Ok(Outgoing::Ends) => {
            live.complete();
            let mut response = refuse::options_answer();
            settle_connection(session, &mut response);
            Responder::Answered {
                response: Some(response),
            }
        }
        Err(reason) => Responder::Answered {
            response: Some(refused(live, reason)),
        },
    }
}

impl<F: Future<Output = Sent>> Future for Responder<F> {
    type Output = Result<Response<ResponseBody>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let slow = match self.as_mut().project() {
                ResponderProjection::Answered { response } => match response.take() {
                    Some(response) => return Poll::Ready(Ok(response)),
                    None => return Poll::Pending,
                },
                ResponderProjection::Slow { future } => {
                    return future.as_mut().poll(context).map(Ok);
                }
                ResponderProjection::Waiting {
                    session,
                    live,
                    passage,
                    sending,
                } => {
                    let Some(request) = live else {
                        return Poll::Pending;
                    };
                    let polled = ready!(poll_head(session, request, sending, passage, context));
                    let Some(live) = live.take() else {
                        return Poll::Pending;
                    };
                    match polled {
                        Ok(response) => match deliver(session, live, response, passage) {
                            Delivery::Response(response) => return Poll::Ready(Ok(response)),
                            Delivery::Tunnel(live, response) => {
                                tunnelling(Rc::clone(session), live, response)
                            }
                        },
                        Err(failure) => retrying(Rc::clone(session), live, failure, *passage),
                    }
                }
            };
            self.set(Self::Slow { future: slow });
        }
    }
}

#[cold]
fn connecting(
    session: Rc<Session>,
    mut live: Live,
    request: Request<RequestBody>,
    passage: Passage,
) -> Slow {
    Box::pin(async move {
        let answer = forward::go_on(&session, &mut live, request, &passage).await;
        finish(&session, live, answer, &passage).await
    })
}

#[cold]
fn queued(
    session: Rc<Session>,
    mut live: Live,
    request: Request<RequestBody>,
    mut passage: Passage,
    wait: Wait,
) -> Slow {
    Box::pin(async move {
        let answer = forward::go_on_waiting(&session, &mut live, request, &mut passage, wait).await;
        finish(&session, live, answer, &passage).await
    })
}

#[cold]
fn retrying(session: Rc<Session>, mut live: Live, failure: Failure, passage: Passage) -> Slow {
    Box::pin(async move {
        let answer = forward::go_on_after(&session, &mut live, failure, &passage).await;
        finish(&session, live, answer, &passage).await
    })
}

#[cold]
fn tunnelling(session: Rc<Session>, live: Live, response: Response<ResponseBody>) -> Slow {
    Box::pin(async move { tunnel(&session, live, response).await })
}

async fn finish(
    session: &Rc<Session>,
    live: Live,
    answer: Result<Response<Incoming>, Reason>,
    passage: &Passage,
) -> Response<ResponseBody> {
    match answer {
        Err(reason) => refused(live, reason),
        Ok(response) => match deliver(session, live, response, passage) {
            Delivery::Response(response) => response,
            Delivery::Tunnel(live, response) => tunnel(session, live, response).await,
        },
    }
}

async fn tunnel(
    session: &Rc<Session>,
    live: Live,
    response: Response<ResponseBody>,
) -> Response<ResponseBody> {
    match Tunnel::begin(session, live).await {
        Ok(()) => response,
        Err((live, reason)) => refused(live, reason),
    }
}
