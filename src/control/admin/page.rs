//! The page for people, which is made of a few files and drives the API from their browser.
//!
//! What it shows (names of locks, identities) is chosen by clients, so nothing in it may ever run:
//! it is shown as text only, and should a mistake in the page let some of it through, the policy
//! below has the browser refuse it. Nothing is fetched from elsewhere.

use hyper::StatusCode;
use hyper::header::{self, HeaderValue};

use super::super::http::{self, Response};

/// Neither inline scripts and styles nor markup out of strings, nothing from elsewhere, and no
/// frame of another page around it, which could have somebody click on what they don't see.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The page's files: path, type, contents.
const FILES: &[(&str, &str, &str)] = &[
    ("", "text/html; charset=utf-8", include_str!("page/index.html")),
    ("page.css", "text/css; charset=utf-8", include_str!("page/page.css")),
    ("icon.svg", "image/svg+xml", include_str!("page/icon.svg")),
    ("page.js", SCRIPT, include_str!("page/page.js")),
    ("actions.js", SCRIPT, include_str!("page/actions.js")),
    ("charts.js", SCRIPT, include_str!("page/charts.js")),
    ("list.js", SCRIPT, include_str!("page/list.js")),
    ("row.js", SCRIPT, include_str!("page/row.js")),
    ("server.js", SCRIPT, include_str!("page/server.js")),
    ("text.js", SCRIPT, include_str!("page/text.js")),
];

/// The file at this path, if there is one.
pub(super) fn file(path: &str) -> Option<Response> {
    let (_, content_type, text) = FILES.iter().find(|(name, ..)| *name == path)?;
    let mut response = http::whole(StatusCode::OK, content_type, *text);
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // With no referrer at all browsers would also hide the Origin that changes need.
        (header::REFERRER_POLICY, "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    Some(response)
}
