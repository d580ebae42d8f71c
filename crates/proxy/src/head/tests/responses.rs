//! What becomes of a response's head.

use http::Response;

use super::*;

#[test]
fn response_heads_lose_what_ends_here() {
    type Case<'a> = (
        u16,
        &'a [(&'a str, &'a str)],
        Result<&'a [(&'a str, &'a str)], Reason>,
    );
    let cases: &[Case<'_>] = &[
        (
            200,
            &[("connection", "close, x-a"), ("x-a", "1"), ("x-b", "2")],
            Ok(&[("x-b", "2")]),
        ),
        (
            200,
            &[("keep-alive", "timeout=5"), ("etag", "x")],
            Ok(&[("etag", "x")]),
        ),
        (
            200,
            &[("transfer-encoding", "chunked"), ("content-length", "5")],
            Ok(&[]),
        ),
        (
            200,
            &[("transfer-encoding", "gzip, chunked")],
            Err(Reason::BadResponse),
        ),
        (
            200,
            &[("transfer-encoding", "gzip")],
            Err(Reason::BadResponse),
        ),
        (200, &[("connection", "a b")], Err(Reason::BadResponse)),
        (
            200,
            &[("content-length", "5"), ("content-length", "5")],
            Ok(&[("content-length", "5")]),
        ),
        (200, &[("upgrade", "h2c")], Ok(&[])),
        (
            426,
            &[("upgrade", "websocket")],
            Ok(&[("connection", "upgrade"), ("upgrade", "websocket")]),
        ),
        (
            101,
            &[("connection", "Upgrade"), ("upgrade", "websocket")],
            Ok(&[("connection", "upgrade"), ("upgrade", "websocket")]),
        ),
    ];
    for (status, fields, expected) in cases {
        let mut response = Response::new(());
        append_all(response.headers_mut(), fields);
        let status = StatusCode::from_u16(*status).unwrap();
        let done = prepare_response(response.headers_mut(), status, Version::HTTP_11, None);
        let seen = done.map(|_| sorted(response.headers()));
        assert_eq!(seen, expected.map(pairs), "{fields:?}");
    }
}

#[test]
fn a_response_has_one_length_however_often_it_is_said() {
    for (said, length) in [
        (&["5"][..], Some("5")),
        (&["5, 5"], Some("5")),
        (&["5", "5,5 "], Some("5")),
        (&["5, 6"], None),
        (&["5", "6"], None),
        (&["5,"], None),
        (&[",", ""], None),
        (&["+5"], None),
        (&["x, x"], None),
        (&["5, x"], None),
        (&["05"], Some("5")),
        (&["000"], Some("0")),
        (&["00000000000000000000000000000005"], Some("5")),
        (&["0"], Some("0")),
        (&["9223372036854775807"], Some("9223372036854775807")),
        (&["9223372036854775808"], None),
        (&["18446744073709551616"], None),
        (&[""], None),
    ] {
        let mut headers = HeaderMap::new();
        for value in said {
            headers.append(CONTENT_LENGTH, value.parse().unwrap());
        }
        let done = prepare_response(&mut headers, StatusCode::OK, Version::HTTP_11, None);
        let kept: Vec<_> = headers.get_all(CONTENT_LENGTH).iter().collect();
        match length {
            Some(length) => assert!(done.is_ok() && kept == [length], "{said:?}: {kept:?}"),
            None => assert!(matches!(done, Err(Reason::BadResponse)), "{said:?}"),
        }
    }
}

#[test]
fn names_of_trailers_go_to_clients_that_take_them_of_answers_that_can_have_them() {
    for (te_trailers, chunked, kept) in [
        (true, true, true),
        (true, false, false),
        (false, true, false),
    ] {
        let mut headers = HeaderMap::new();
        append_all(&mut headers, &[SUM]);
        let request = HeadInfo {
            te_trailers,
            ..HeadInfo::default()
        };
        let response = HeadInfo {
            trailer: true,
            chunked,
            ..HeadInfo::default()
        };
        drop_trailer_names(&mut headers, request, response);
        assert_eq!(
            headers.contains_key(TRAILER),
            kept,
            "{te_trailers} {chunked}"
        );
    }
}
