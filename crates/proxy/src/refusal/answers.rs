//! How each site answers what it refuses: status, `retry-after`, what is shown of the limit, body.
//!
//! | reason | status |
//! |---|---|
//! | a limit of the site's own | 503, or 429 if the site says so |
//! | a throttle | 429 |
//! | overload, no node, any other lack of room | 503 |
//! | all else | as [`Reason`] says |
//!
//! Clients that were refused together must not come again together: `retry-after` is another number
//! of seconds in each answer. The numbers are made ready at the start, as is all of the answer
//! to a connection that is not even read; what is left to do is to draw one.
//!
//! `RateLimit-Policy` and `RateLimit` are those of draft-ietf-httpapi-ratelimit-headers-11: a limit on
//! concurrent requests that has nothing left, until the time that `retry-after` names.

use std::cell::RefCell;
use std::ops::RangeInclusive;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use tidegate_core::prng::Prng;
use tidegate_core::topology::SiteId;

use super::grpc::{self, Form};
use super::ready;
use crate::config::site::{AnswerConfig, CustomBody, LimitStatus, Quota, SiteConfig};
use crate::record::reason::Reason;

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
/// Different numbers of seconds that are given: a longer range is covered evenly by so many.
const WAITS_MAX: usize = 16;
const UNREAD: [Reason; 2] = Reason::UNREAD;

/// See the module. Of one worker.
pub(crate) struct Answers {
    sites: Box<[SiteAnswers]>,
    /// Where no site is known.
    usual: SiteAnswers,
    /// As in [`UNREAD`], each in several variants.
    unread: [Box<[Bytes]>; UNREAD.len()],
    prng: RefCell<Prng>,
}

/// Of one site.
struct SiteAnswers {
    limit_status: StatusCode,
    policy: Option<HeaderValue>,
    body: Option<CustomBody>,
    waits: Box<[Wait]>,
}

/// One number of seconds to wait, as header values.
struct Wait {
    retry_after: HeaderValue,
    pushback: HeaderValue,
    rate_limit: Option<HeaderValue>,
}

impl Answers {
    pub(crate) fn new(sites: &[SiteConfig], seed: u64) -> Self {
        let usual = match sites {
            // An unread request can only be this site's.
            [only] => only.answers.clone(),
            several => AnswerConfig {
                retry_after: widest(several),
                ..AnswerConfig::default()
            },
        };
        let usual = SiteAnswers::new(&usual);
        let sites = sites.iter().map(|site| SiteAnswers::new(&site.answers));
        Self {
            sites: sites.collect(),
            unread: UNREAD.map(|reason| {
                let waits = usual.waits.iter();
                let answer = |wait| ready::closing(usual.answer(reason, Form::Http, wait));
                waits.map(answer).collect()
            }),
            usual,
            prng: RefCell::new(Prng::new(seed)),
        }
    }

    /// The answer to a request.
    pub(crate) fn answer(
        &self,
        reason: Reason,
        site: Option<SiteId>,
        form: Form,
    ) -> Response<Bytes> {
        let site = site.and_then(|site| self.sites.get(site.index()));
        let site = site.unwrap_or(&self.usual);
        site.answer(reason, form, self.draw(&site.waits))
    }

    /// The whole answer to a connection that is not read.
    pub(crate) fn unread(&self, reason: Reason) -> &Bytes {
        let place = UNREAD.iter().position(|it| *it == reason);
        self.draw(&self.unread[place.unwrap_or_default()])
    }

    fn draw<'a, T>(&self, variants: &'a [T]) -> &'a T {
        &variants[self.prng.borrow_mut().below(variants.len())]
    }
}

impl SiteAnswers {
    fn new(config: &AnswerConfig) -> Self {
        let quota = config.quota.as_ref();
        let wait = |seconds: u32| Wait {
            retry_after: HeaderValue::from(seconds),
            pushback: HeaderValue::from(u64::from(seconds) * 1000),
            rate_limit: quota.and_then(|quota| nothing_left(quota, seconds)),
        };
        Self {
            limit_status: match config.limit_status {
                LimitStatus::ServiceUnavailable => StatusCode::SERVICE_UNAVAILABLE,
                LimitStatus::TooManyRequests => StatusCode::TOO_MANY_REQUESTS,
            },
            policy: quota.and_then(policy),
            body: config.body.clone(),
            waits: seconds(&config.retry_after).map(wait).collect(),
        }
    }

    fn answer(&self, reason: Reason, form: Form, wait: &Wait) -> Response<Bytes> {
        let grpc = match form {
            Form::Http => None,
            Form::Grpc(content_type) => grpc::answer(reason, content_type),
        };
        let mut response = match grpc {
            Some(mut response) => {
                let headers = response.headers_mut();
                headers.insert(grpc::PUSHBACK, wait.pushback.clone());
                headers.insert(ready::REASON, HeaderValue::from_static(reason.label()));
                response
            }
            None => self.http(reason),
        };
        if lacks_room(reason) {
            let headers = response.headers_mut();
            headers.insert(RETRY_AFTER, wait.retry_after.clone());
        }
        if reason == Reason::Overload
            && let (Some(policy), Some(rate_limit)) = (&self.policy, &wait.rate_limit)
        {
            let headers = response.headers_mut();
            headers.insert(RATE_LIMIT_POLICY, policy.clone());
            headers.insert(RATE_LIMIT, rate_limit.clone());
        }
        response
    }

    fn http(&self, reason: Reason) -> Response<Bytes> {
        let mut response = ready::answer(reason);
        if reason == Reason::Overload {
            *response.status_mut() = self.limit_status;
        }
        if let Some(body) = &self.body
            && is_admissions(reason)
        {
            let content_type = HeaderValue::from_static(body.content_type);
            response.headers_mut().insert(CONTENT_TYPE, content_type);
            *response.body_mut() = body.bytes.clone();
        }
        response
    }
}

/// Whether it may be better in a while.
fn lacks_room(reason: Reason) -> bool {
    let statuses = [
        StatusCode::SERVICE_UNAVAILABLE,
        StatusCode::TOO_MANY_REQUESTS,
    ];
    statuses.contains(&reason.status())
}

/// Whether it is admission that refuses.
fn is_admissions(reason: Reason) -> bool {
    [Reason::Overload, Reason::QueueFull, Reason::QueueTimeout].contains(&reason)
}

/// From the least to the greatest that any of the sites tells.
fn widest(sites: &[SiteConfig]) -> RangeInclusive<u32> {
    let ranges = || sites.iter().map(|site| &site.answers.retry_after);
    let usual = AnswerConfig::default().retry_after;
    let least = ranges().map(|range| *range.start()).min();
    let most = ranges().map(|range| *range.end()).max();
    least.unwrap_or(*usual.start())..=most.unwrap_or(*usual.end())
}

/// The whole seconds of a range, or as many evenly spread over it as there may be.
fn seconds(range: &RangeInclusive<u32>) -> impl Iterator<Item = u32> + use<> {
    let (first, span) = (*range.start(), range.end().saturating_sub(*range.start()));
    let steps = u64::from(span).min(WAITS_MAX as u64 - 1);
    (0..=steps).map(move |step| first + (u64::from(span) * step / steps.max(1)) as u32)
}

fn policy(quota: &Quota) -> Option<HeaderValue> {
    let Quota { name, requests } = quota;
    HeaderValue::try_from(format!(
        "\"{name}\";q={requests};qu=\"concurrent-requests\""
    ))
    .ok()
}

fn nothing_left(quota: &Quota, seconds: u32) -> Option<HeaderValue> {
    HeaderValue::try_from(format!("\"{}\";r=0;t={seconds}", quota.name)).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn site(answers: AnswerConfig) -> SiteConfig {
        SiteConfig {
            answers,
            ..SiteConfig::default()
        }
    }

    fn limited() -> AnswerConfig {
        AnswerConfig {
            limit_status: LimitStatus::TooManyRequests,
            retry_after: 5..=5,
            quota: Some(Quota {
                name: "shop".into(),
                requests: 400,
            }),
            body: Some(CustomBody {
                content_type: "application/json",
                bytes: Bytes::from_static(b"{}"),
            }),
        }
    }

    fn head(response: &Response<Bytes>, name: &str) -> Option<String> {
        let value = response.headers().get(name)?;
        Some(value.to_str().unwrap().to_owned())
    }

    fn told(answers: &Answers, reason: Reason) -> BTreeSet<String> {
        let answer = |_| answers.answer(reason, Some(SiteId(0)), Form::Http);
        let all = (0..1000).map(answer);
        all.filter_map(|answer| head(&answer, "retry-after"))
            .collect()
    }

    #[test]
    fn clients_are_told_different_times_within_the_range() {
        let of = |retry_after| {
            let site = site(AnswerConfig {
                retry_after,
                ..AnswerConfig::default()
            });
            told(&Answers::new(&[site], 1), Reason::QueueFull)
        };
        let texts = |numbers: &[u32]| numbers.iter().map(u32::to_string).collect();
        assert_eq!(of(1..=3), texts(&[1, 2, 3]));
        assert_eq!(of(7..=7), texts(&[7]));
        let many = of(10..=3600);
        assert_eq!(many.len(), WAITS_MAX);
        assert!(many.contains("10") && many.contains("3600"));
        assert_eq!(seconds(&(0..=u32::MAX)).last(), Some(u32::MAX));
    }

    #[test]
    fn only_whom_a_lack_of_room_refused_is_told_to_come_again() {
        let answers = Answers::new(&[site(AnswerConfig::default())], 1);
        for reason in Reason::ALL {
            let again = !told(&answers, *reason).is_empty();
            let lacks_room = [429, 503].contains(&reason.status_code());
            assert_eq!(again, lacks_room, "{reason:?}");
        }
    }

    #[test]
    fn a_limit_of_ones_own_has_its_status_its_numbers_and_its_body() {
        let answers = Answers::new(&[site(limited())], 1);
        let of = |reason| answers.answer(reason, Some(SiteId(0)), Form::Http);
        let overload = of(Reason::Overload);
        assert_eq!(overload.status(), 429);
        assert_eq!(head(&overload, "retry-after").unwrap(), "5");
        let policy = head(&overload, "ratelimit-policy").unwrap();
        assert_eq!(policy, "\"shop\";q=400;qu=\"concurrent-requests\"");
        assert_eq!(head(&overload, "ratelimit").unwrap(), "\"shop\";r=0;t=5");
        assert_eq!(head(&overload, "content-type").unwrap(), "application/json");
        let full = of(Reason::QueueFull);
        assert_eq!(
            (full.status().as_u16(), head(&full, "ratelimit")),
            (503, None)
        );
        assert_eq!(head(&full, "content-type").unwrap(), "application/json");
        let no_node = of(Reason::NoNode);
        assert!(head(&no_node, "content-type").unwrap().starts_with("text/"));
    }

    #[test]
    fn grpc_clients_read_it_in_the_head() {
        let answers = Answers::new(&[site(limited())], 1);
        let form = Form::Grpc("application/grpc-web");
        let of = |reason| answers.answer(reason, Some(SiteId(0)), form);
        for (reason, status) in [
            (Reason::Overload, "8"),
            (Reason::QueueFull, "8"),
            (Reason::QueueTimeout, "8"),
            (Reason::Throttled, "8"),
            (Reason::NoNode, "14"),
            (Reason::Drained, "14"),
        ] {
            let answer = of(reason);
            assert_eq!(answer.status(), 200);
            assert!(answer.body().is_empty());
            assert_eq!(head(&answer, "grpc-status").unwrap(), status);
            assert_eq!(head(&answer, "grpc-message").unwrap(), reason.what());
            assert_eq!(head(&answer, "grpc-retry-pushback-ms").unwrap(), "5000");
            assert_eq!(head(&answer, "x-tidegate-reason").unwrap(), reason.label());
        }
        let failed = of(Reason::ConnectFailed);
        assert_eq!(
            (failed.status().as_u16(), head(&failed, "grpc-status")),
            (502, None)
        );
    }

    #[test]
    fn an_unread_connection_gets_the_answer_of_the_only_site() {
        let answers = Answers::new(&[site(limited())], 1);
        let text = |reason| String::from_utf8_lossy(answers.unread(reason)).into_owned();
        let overload = text(Reason::Overload);
        assert!(
            overload.starts_with("HTTP/1.1 429 Too Many Requests\r\n"),
            "{overload}"
        );
        assert!(overload.contains("\r\nretry-after: 5\r\n"), "{overload}");
        assert!(overload.ends_with("\r\n\r\n{}"), "{overload}");
        let full = text(Reason::TooManyConnections);
        assert!(
            full.starts_with("HTTP/1.1 503 ") && !full.contains("ratelimit"),
            "{full}"
        );
    }

    #[test]
    fn of_several_sites_none_speaks_for_an_unread_connection() {
        let far = AnswerConfig {
            retry_after: 20..=30,
            ..AnswerConfig::default()
        };
        let answers = Answers::new(&[site(limited()), site(far)], 1);
        let all = (0..1000).map(|_| answers.unread(Reason::Overload).clone());
        let all: BTreeSet<_> = all.collect();
        assert_eq!(all.len(), WAITS_MAX);
        for answer in all {
            let answer = String::from_utf8_lossy(&answer).into_owned();
            assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
            assert!(answer.ends_with(Reason::Overload.what()), "{answer}");
        }
    }
}
