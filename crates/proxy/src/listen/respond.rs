//! The service that hyper asks for answers, as a future that is small while all goes well: what
//! can be done at once is done at the call, and only the wait for the response head is kept.
//! Connections to be made, second tries and tunnels go into a future of their own.

use std::cell::Cell;
use std::convert::Infallible;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;

use crate::forward::{self, Failure, poll_head};
use crate::head;
use crate::record::reason::Reason;
use crate::refusal::options_answer;
use crate::request::{self, Admitted, Client, RequestGuard, RequestTraits, Wait};
use crate::response::{
    Delivery, ResponseBody, Tunnel, deliver, refused, routed, settle_connection,
};
use crate::upstream::Sending;
use crate::upstream::body::RequestBody;
use crate::wire::client_body::ClientBody;

/// Answers the requests of one client connection.
pub(crate) struct Service {
    pub(crate) client: Rc<Client>,
    /// The tunnel that the connection is to become, once hyper is done with it.
    pub(crate) tunnel: Cell<Option<Box<Tunnel>>>,
}

/// See the module.
pub(crate) enum Responder {
    Answered(Option<Box<Response<ResponseBody>>>),
    Waiting {
        service: Rc<Service>,
        guard: Option<RequestGuard>,
        traits: RequestTraits,
        sending: Sending,
    },
    Slow(Slow),
}

type Slow = Pin<Box<dyn Future<Output = Response<ResponseBody>>>>;

/// The service: an answer to every request.
pub(crate) fn respond(service: &Rc<Service>, mut request: Request<ClientBody>) -> Responder {
    let client = &service.client;
    if request.uri().scheme().is_some() {
        let seen = client.connection.inflow.borrow().seen();
        head::complete_path(&mut request, seen.options_without_path);
    }
    let traced = match client.connection.settings.looks_at_traces() {
        true => request::traced(client, request.headers_mut()),
        false => None,
    };
    let mut guard = RequestGuard::begin(client, &request);
    if let Some(traced) = traced {
        guard.trace(&traced, &request);
    }
    let (mut traits, wait) = match request::admit(client, &mut guard, &request) {
        Ok(Admitted::Ready(traits)) => (traits, None),
        Ok(Admitted::Waits(traits, wait)) => (traits, Some(wait)),
        Ok(Admitted::Ends) => {
            guard.complete();
            let mut response = options_answer().map(ResponseBody::from);
            settle_connection(&client.connection, &mut response);
            return Responder::answered(response);
        }
        Ok(Admitted::Answered(answer)) => {
            let is_whole = request.body().is_end_stream();
            return Responder::answered(routed(client, guard, *answer, is_whole));
        }
        Err(reason) => return Responder::answered(refused(guard, reason)),
    };
    let request = match request::prepare(client, &mut guard, &mut request, &traits.facts) {
        Ok(body) => request.map(|_| body),
        Err(reason) => return Responder::answered(refused(guard, reason)),
    };
    if guard.may_be_more() {
        forward::mirror::mirror(client, &mut guard, &request, &traits);
        let is_hedged = forward::hedge::may_be(client, &mut guard, request.method(), &traits);
        if is_hedged && wait.is_none() {
            return Responder::Slow(hedged(Rc::clone(service), guard, request, traits));
        }
    }
    if let Some(wait) = wait {
        return Responder::Slow(queued(Rc::clone(service), guard, request, traits, wait));
    }
    match forward::pooled(client, &mut guard, &mut traits) {
        Ok(Some(upstream)) => Responder::Waiting {
            sending: forward::send(client, &mut guard, upstream, request, &traits),
            service: Rc::clone(service),
            guard: Some(guard),
            traits,
        },
        Ok(None) => Responder::Slow(connecting(Rc::clone(service), guard, request, traits)),
        Err(reason) => Responder::answered(refused(guard, reason)),
    }
}

impl Responder {
    fn answered(response: Response<ResponseBody>) -> Self {
        Self::Answered(Some(Box::new(response)))
    }
}

impl Future for Responder {
    type Output = Result<Response<ResponseBody>, Infallible>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let slow = match &mut *self {
                Self::Answered(response) => match response.take() {
                    Some(response) => return Poll::Ready(Ok(*response)),
                    None => return Poll::Pending,
                },
                Self::Slow(future) => return future.as_mut().poll(context).map(Ok),
                Self::Waiting {
                    service,
                    guard,
                    traits,
                    sending,
                } => {
                    let client = &service.client;
                    let Some(in_progress) = guard else {
                        return Poll::Pending;
                    };
                    let polled = ready!(poll_head(client, in_progress, sending, traits, context));
                    let Some(guard) = guard.take() else {
                        return Poll::Pending;
                    };
                    match polled {
                        Ok(response) => match deliver(client, guard, response, traits) {
                            Delivery::Response(response) => return Poll::Ready(Ok(response)),
                            Delivery::Tunnel(agreed) => {
                                let (guard, response) = *agreed;
                                tunnelling(Rc::clone(service), guard, response)
                            }
                        },
                        Err(failure) => retrying(Rc::clone(service), guard, failure, *traits),
                    }
                }
            };
            *self = Self::Slow(slow);
        }
    }
}

#[cold]
fn connecting(
    service: Rc<Service>,
    mut guard: RequestGuard,
    request: Request<RequestBody>,
    traits: RequestTraits,
) -> Slow {
    Box::pin(async move {
        let answer = forward::try_nodes(&service.client, &mut guard, request, &traits).await;
        finish(&service, guard, answer, &traits).await
    })
}

#[cold]
fn queued(
    service: Rc<Service>,
    mut guard: RequestGuard,
    request: Request<RequestBody>,
    mut traits: RequestTraits,
    wait: Box<Wait>,
) -> Slow {
    Box::pin(async move {
        let client = &service.client;
        let answer = match request::waited(client, &mut guard, &request, wait).await {
            Ok(()) => forward::forward(client, &mut guard, request, &mut traits).await,
            Err(reason) => Err(reason),
        };
        finish(&service, guard, answer, &traits).await
    })
}

#[cold]
fn hedged(
    service: Rc<Service>,
    mut guard: RequestGuard,
    request: Request<RequestBody>,
    mut traits: RequestTraits,
) -> Slow {
    Box::pin(async move {
        let client = &service.client;
        let answer = forward::forward(client, &mut guard, request, &mut traits).await;
        finish(&service, guard, answer, &traits).await
    })
}

#[cold]
fn retrying(
    service: Rc<Service>,
    mut guard: RequestGuard,
    failure: Failure,
    traits: RequestTraits,
) -> Slow {
    Box::pin(async move {
        let client = &service.client;
        let answer = forward::retry_after_failure(client, &mut guard, failure, &traits).await;
        finish(&service, guard, answer, &traits).await
    })
}

#[cold]
fn tunnelling(service: Rc<Service>, guard: RequestGuard, response: Response<ResponseBody>) -> Slow {
    Box::pin(async move { tunnel(&service, guard, response).await })
}

async fn finish(
    service: &Service,
    guard: RequestGuard,
    answer: Result<Response<Incoming>, Reason>,
    traits: &RequestTraits,
) -> Response<ResponseBody> {
    match answer {
        Err(reason) => refused(guard, reason),
        Ok(response) => match deliver(&service.client, guard, response, traits) {
            Delivery::Response(response) => response,
            Delivery::Tunnel(agreed) => {
                let (guard, response) = *agreed;
                tunnel(service, guard, response).await
            }
        },
    }
}

async fn tunnel(
    service: &Service,
    guard: RequestGuard,
    response: Response<ResponseBody>,
) -> Response<ResponseBody> {
    match Tunnel::begin(&service.client, guard).await {
        Ok(tunnel) => {
            service.tunnel.set(Some(Box::new(tunnel)));
            response
        }
        Err((guard, reason)) => refused(guard, reason),
    }
}
