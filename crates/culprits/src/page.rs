//! The page of culprits: which classes of requests load which resource, and what to do about it.
//!
//! One file, made by `cargo xtask web` from the sources in `web/`, that needs nothing from elsewhere.
//! The live page asks `/api/culprits` again and again; a page with a report inside shows that one, in
//! a browser without any network. Script and style run by their hashes, which stand in the page
//! itself, and no text can become markup (trusted types), so nothing that ever gets into the page by
//! mistake runs: names of classes come from clients.

/// The live page.
pub const PAGE: &str = include_str!("page.html");
/// Stands before and after the policy in the page.
pub const POLICY: (&str, &str) = (
    "<meta http-equiv=\"Content-Security-Policy\" content=\"",
    "\"",
);
/// What a page may talk to, live and with a report inside.
pub const CONNECT: (&str, &str) = ("connect-src 'self'", "connect-src 'none'");
/// Stands before and after the report in the page; the live page has none.
pub const REPORT: (&str, &str) = (
    "<script type=\"application/json\" id=\"report\">",
    "</script>",
);

/// The policy that the page has for itself.
pub fn policy() -> Option<&'static str> {
    policy_of(PAGE)
}

/// The policy that a page of this kind has for itself.
pub fn policy_of(page: &str) -> Option<&str> {
    let (_, rest) = page.split_once(POLICY.0)?;
    rest.split_once(POLICY.1).map(|(policy, _)| policy)
}

/// The page as a file of its own: with the report inside, and without any network. A report that
/// is no JSON harms nothing: the page says that it cannot be read.
pub fn offline_page(report_json: &str) -> String {
    let place = format!("{}{}", REPORT.0, REPORT.1);
    let full = format!("{}{}{}", REPORT.0, for_script(report_json), REPORT.1);
    PAGE.replacen(CONNECT.0, CONNECT.1, 1)
        .replacen(&place, &full, 1)
}

/// JSON that can stand in a script element: what could end the element, or begin a comment in it, is
/// written as an escape. In JSON such letters stand in texts alone, where escapes mean the same.
pub fn for_script(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    for letter in json.chars() {
        match letter {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                safe.push_str(&format!("\\u{:04x}", u32::from(letter)));
            }
            other => safe.push(other),
        }
    }
    safe
}
