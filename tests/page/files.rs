//! What the page is made of, and how it is served.

use crate::harness::http::{self, get, request};
use crate::launch;

/// Every file of the page with its type.
const FILES: [(&str, &str); 10] = [
    ("/", "text/html; charset=utf-8"),
    ("/page.css", "text/css; charset=utf-8"),
    ("/icon.svg", "image/svg+xml"),
    ("/page.js", "text/javascript; charset=utf-8"),
    ("/actions.js", "text/javascript; charset=utf-8"),
    ("/charts.js", "text/javascript; charset=utf-8"),
    ("/list.js", "text/javascript; charset=utf-8"),
    ("/row.js", "text/javascript; charset=utf-8"),
    ("/server.js", "text/javascript; charset=utf-8"),
    ("/text.js", "text/javascript; charset=utf-8"),
];

#[test]
fn every_file_is_served_with_its_type_and_a_strict_policy() {
    let server = launch().start();
    let admin = server.admin_address();
    for (path, content_type) in FILES {
        let answer = get(admin, path);
        assert_eq!(answer.status, 200, "{path}");
        assert!(!answer.body.is_empty());
        assert_eq!(answer.header("content-type"), Some(content_type), "{path}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert_eq!(answer.header("cache-control"), Some("no-store"), "{path}");
        let policy = answer.header("content-security-policy").expect("a policy");
        let directives: Vec<&str> = policy.split("; ").collect();
        for directive in [
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "frame-ancestors 'none'",
            "base-uri 'none'",
            "form-action 'none'",
        ] {
            assert!(directives.contains(&directive), "{path}: {directive} in {policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        let head = request(admin, "HEAD", path, "");
        assert_eq!((head.status, head.body.as_str()), (200, ""), "{path}");
        assert_eq!(request(admin, "POST", path, "").status, 405, "{path}");
        let elsewhere =
            format!("GET {path} HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n");
        assert_eq!(http::raw(admin, &elsewhere).status, 421, "{path}");
    }
    assert_eq!(get(admin, "/page.html").status, 404);
}

#[test]
fn nothing_in_it_is_inline_from_elsewhere_or_made_of_strings() {
    let server = launch().start();
    for (path, _) in FILES {
        let text = get(server.admin_address(), path).body;
        for banned in ["innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval("] {
            assert!(!text.contains(banned), "{path}: {banned}");
        }
        // The one address in it is the name of a vocabulary, which nobody fetches.
        let text = text.replace("http://www.w3.org/2000/svg", "");
        for outside in ["http:", "https:", "url(", "@import", "src=\"//"] {
            assert!(!text.contains(outside), "{path}: {outside}");
        }
        if path == "/" {
            assert!(!text.contains("style=") && !text.contains("<style"), "inline style");
            assert_eq!(text.matches("<script").count(), text.matches("<script type").count());
            assert!(text.contains("src=\"page.js\"></script>"));
        }
    }
}
