//! Who may ask, as far as HTTP can tell. A page from elsewhere, open in the browser of somebody who
//! reaches this port, can send requests here; and by changing what its own name resolves to, it can
//! even read the answers. The first shows in Origin, the second in Host.

use std::net::IpAddr;

use hyper::http::uri::Authority;
use hyper::{Request, StatusCode, header};

use super::super::http;
use super::Refusal;

/// Whether the request was made for this server, and not by a page from elsewhere. `names` are
/// those that the server may be called by, besides `localhost` and every address.
pub(super) fn check<B>(request: &Request<B>, names: &[String]) -> Result<(), Refusal> {
    let host = the_one_host(request)?;
    let authority: Authority = host
        .parse()
        .map_err(|_| Refusal::bad_request("the Host is neither a name nor an address"))?;
    if host.contains('@') {
        return Err(Refusal::bad_request("the Host has a user in it"));
    }
    if let Some(target) = request.uri().authority()
        && !target.as_str().eq_ignore_ascii_case(host)
    {
        return Err(Refusal::bad_request("the request's target and its Host are not the same"));
    }
    if !is_ours(authority.host(), names) {
        return Err(Refusal::new(
            StatusCode::MISDIRECTED_REQUEST,
            format!("this server is not called {:?}: permit it by --admin-host", authority.host()),
        ));
    }
    if http::is_read(request.method()) { Ok(()) } else { is_same_origin(request, host) }
}

fn the_one_host<B>(request: &Request<B>) -> Result<&str, Refusal> {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(host), None) => {
            host.to_str().map_err(|_| Refusal::bad_request("the Host is not plain text"))
        }
        (None, _) => Err(Refusal::bad_request("there is no Host")),
        (Some(_), Some(_)) => Err(Refusal::bad_request("there is more than one Host")),
    }
}

fn is_ours(host: &str, names: &[String]) -> bool {
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    bare.parse::<IpAddr>().is_ok()
        || host.eq_ignore_ascii_case("localhost")
        || names.iter().any(|name| host.eq_ignore_ascii_case(name))
}

/// Browsers name the page's origin in every request that could change something.
fn is_same_origin<B>(request: &Request<B>, host: &str) -> Result<(), Refusal> {
    for origin in request.headers().get_all(header::ORIGIN) {
        let origin = origin.to_str().unwrap_or_default();
        let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        if !authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host)) {
            let why = "the request comes from a page of another origin";
            return Err(Refusal::new(StatusCode::FORBIDDEN, why));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(method: &str, target: &str, headers: &[(&str, &str)]) -> u16 {
        let mut request = Request::builder().method(method).uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(()).expect("a request");
        let names = ["locks.example".to_owned()];
        check(&request, &names).map_or_else(|refusal| refusal.status.as_u16(), |()| 200)
    }

    #[test]
    fn only_a_host_that_is_this_server_is_served() {
        for host in [
            "localhost",
            "LocalHost:7071",
            "127.0.0.1",
            "10.0.0.5:80",
            "[::1]",
            "[::1]:7071",
            "locks.example",
            "Locks.Example:443",
        ] {
            assert_eq!(status("GET", "/", &[("host", host)]), 200, "{host}");
        }
        for host in ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:7071"] {
            assert_eq!(status("GET", "/", &[("host", host)]), 421, "{host}");
        }
        for host in ["", "a b", "user@localhost", "[::1", "localhost:port:port"] {
            assert_eq!(status("GET", "/", &[("host", host)]), 400, "{host:?}");
        }
        assert_eq!(status("GET", "/", &[]), 400);
        assert_eq!(status("GET", "/", &[("host", "localhost"), ("host", "localhost")]), 400);
        assert_eq!(status("GET", "http://evil.example/", &[("host", "localhost")]), 400);
        assert_eq!(status("GET", "http://localhost/", &[("host", "localhost")]), 200);
    }

    #[test]
    fn what_changes_something_comes_from_the_servers_own_page_or_from_none() {
        let host = ("host", "localhost:8080");
        for method in ["POST", "DELETE", "PUT"] {
            assert_eq!(status(method, "/", &[host]), 200);
            assert_eq!(status(method, "/", &[host, ("origin", "http://localhost:8080")]), 200);
            for origin in [
                "null",
                "",
                "http://localhost",
                "http://localhost:8081",
                "http://evil.example",
                "localhost:8080",
                "http://localhost:8080.evil.example",
            ] {
                assert_eq!(status(method, "/", &[host, ("origin", origin)]), 403, "{origin:?}");
            }
            let two = [host, ("origin", "http://localhost:8080"), ("origin", "http://evil")];
            assert_eq!(status(method, "/", &two), 403);
        }
        assert_eq!(status("GET", "/", &[host, ("origin", "http://evil.example")]), 200);
    }
}
