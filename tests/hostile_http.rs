//! Requests to the ops and admin ports as nobody would send them who means well: drawn by chance
//! from a seed, thousands of them on both ports at once. Sessions beside them notice nothing, and
//! nothing of it stays.

mod harness;

use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use harness::bystanders::Bystanders;
use harness::client::Client;
use harness::http;
use harness::patience::{LONG_LEASE_MS, PATIENCE, wait_until};
use harness::procfs;
use harness::server::Launch;
use socket2::SockRef;

/// Exchanges of each of the clients, of which there are two for each port.
const EXCHANGES: usize = 400;

/// What the server may keep of all that: buffers of its HTTP connections and of its allocator.
const KEPT_BYTES_MAX: u64 = 16 << 20;

/// Requests that are right, to be spoilt. None of them does anything to bystanders.
const REQUESTS: [(&str, &str); 16] = [
    ("GET", "/metrics"),
    ("GET", "/healthz"),
    ("HEAD", "/readyz"),
    ("GET", "/api/info"),
    ("GET", "/api/locks"),
    ("GET", "/api/locks?match=victim*&limit=3&after=victim%2F1"),
    ("GET", "/api/locks/victim%2F1"),
    ("GET", "/api/locks/%00%ff"),
    ("GET", "/api/top?by=oldest_wait&limit=7"),
    ("GET", "/api/sessions?address=127.0.0.1"),
    ("GET", "/api/drain"),
    ("DELETE", "/api/drain"),
    ("POST", "/api/locks/victim%2F2/release?token=1"),
    ("POST", "/api/locks/victim%2F3/release"),
    ("DELETE", "/api/locks/victim%2F4/waiters/10.0.0.6:41230"),
    ("PUT", "/api/locks"),
];

const HEADERS: [&str; 12] = [
    "Host: localhost\r\n",
    "Host: 127.0.0.1:80\r\n",
    "Host: evil.example\r\n",
    "Host:\r\n",
    "Origin: http://evil.example\r\n",
    "Content-Length: 0\r\n",
    "Content-Length: 18446744073709551615\r\n",
    "Content-Length: 5\r\nContent-Length: 6\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Expect: 100-continue\r\n",
    "Connection: Upgrade\r\nUpgrade: h2c\r\n",
    "Accept-Encoding: \u{7f}\r\n",
];

#[test]
fn hostile_requests_disturb_nobody_and_leave_nothing_behind() {
    let mut server = Launch::on_loopback()
        .args(["--ops-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--shards", "2"])
        .start();
    let ports = [server.ops_address(), server.admin_address()];
    let bystanders = Bystanders::beside(server.address());
    let _victims: Vec<_> = (0..20)
        .map(|number| Client::owner(server.address(), &format!("victim/{number}"), LONG_LEASE_MS))
        .collect();
    attack(ports, 1);
    let open_files = || procfs::open_files(server.pid()).len();
    let (files, bytes) = (open_files(), procfs::resident_bytes(server.pid()));
    attack(ports, 2);
    for port in ports {
        // Who has waited behind them in the kernel's queue is served.
        assert!(http::get(port, "/nothing").status == 404);
    }
    wait_until("connections are closed", || open_files() <= files);
    let now = procfs::resident_bytes(server.pid());
    assert!(now <= bytes + KEPT_BYTES_MAX, "{bytes} bytes before, {now} after");
    println!("resident: {} KiB before, {} after", bytes >> 10, now >> 10);
    let slowest = bystanders.finish();
    println!("bystanders: {slowest}");
    assert!(slowest.percentile(50) < Duration::from_millis(500), "{slowest}");
    server.expect_running();
    let said = server.stderr();
    assert!(said.iter().all(|line| !line.contains("ERROR")), "{said:#?}");
    assert!(said.iter().all(|line| !line.contains("WARN")), "{said:#?}");
}

fn attack(ports: [SocketAddr; 2], seed: u64) {
    thread::scope(|scope| {
        for (number, port) in (0..).zip([ports[0], ports[1], ports[0], ports[1]]) {
            scope.spawn(move || {
                let seed = seed * 10 + number;
                println!("seed {seed} on {port}");
                let mut random = fastrand::Rng::with_seed(seed);
                for _ in 0..EXCHANGES {
                    exchange(port, &mut random);
                }
            });
        }
    });
}

/// Sends something, and leaves in one way or another.
fn exchange(port: SocketAddr, random: &mut fastrand::Rng) {
    let bytes = hostile_bytes(random);
    let mut stream = TcpStream::connect(port).expect("somebody listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("setting the read timeout");
    stream.set_write_timeout(Some(Duration::from_millis(100))).expect("a timeout");
    // The server may have closed before all is sent, or may take no more of it.
    let _ = match random.u8(..8) {
        0 => {
            let piece = 1 + bytes.len() / 20;
            bytes.chunks(piece).try_for_each(|piece| {
                thread::sleep(Duration::from_millis(1));
                stream.write_all(piece)
            })
        }
        _ => stream.write_all(&bytes),
    };
    match random.u8(..8) {
        0 => {}
        1 => SockRef::from(&stream).set_linger(Some(Duration::ZERO)).expect("setting SO_LINGER"),
        _ => {
            // It fails if the server has reset the connection.
            let _ = stream.shutdown(Shutdown::Write);
            check_answer(&mut stream, &bytes);
        }
    }
}

/// Whatever comes back is HTTP, and no fault of the server's.
#[track_caller]
fn check_answer(stream: &mut TcpStream, request: &[u8]) {
    let mut answer = Vec::new();
    if let Err(error) = stream.read_to_end(&mut answer) {
        let kind = error.kind();
        let request = String::from_utf8_lossy(request);
        assert!(kind == ErrorKind::ConnectionReset, "{error}: no end of an answer to {request:?}");
    }
    if answer.is_empty() {
        return;
    }
    let head = String::from_utf8_lossy(&answer[..answer.len().min(15)]).into_owned();
    let status = head.strip_prefix("HTTP/1.1 ").or_else(|| head.strip_prefix("HTTP/1.0 "));
    let status = status.and_then(|rest| rest.get(..3)?.parse::<u16>().ok());
    let is_right = status.is_some_and(|status| matches!(status, 100 | 200 | 400..=431 | 505));
    assert!(is_right, "{head:?} to {:?}", String::from_utf8_lossy(request));
}

fn hostile_bytes(random: &mut fastrand::Rng) -> Vec<u8> {
    match random.u8(..10) {
        0 => (0..random.usize(..3000)).map(|_| random.u8(..)).collect(),
        1 => oversized(random).into_bytes(),
        2 => request(random).repeat(random.usize(2..60)).into_bytes(),
        3 => request(random).into_bytes(),
        _ => {
            let mut bytes = request(random).into_bytes();
            for _ in 0..random.usize(1..6) {
                spoil(&mut bytes, random);
            }
            bytes
        }
    }
}

fn request(random: &mut fastrand::Rng) -> String {
    let (method, path) = REQUESTS[random.usize(..REQUESTS.len())];
    let mut text = format!("{method} {path} HTTP/1.1\r\n");
    for _ in 0..random.usize(1..5) {
        text += HEADERS[random.usize(..HEADERS.len())];
    }
    text += "\r\n";
    if random.u8(..4) == 0 {
        text += ["5\r\nhello\r\n0\r\n\r\n", "ffffffffffffffff\r\n", "hello", "-1\r\n"]
            [random.usize(..4)];
    }
    text
}

fn oversized(random: &mut fastrand::Rng) -> String {
    let len = random.usize(10_000..400_000);
    match random.u8(..4) {
        0 => format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "x".repeat(len)),
        1 => format!("GET /api/locks?match={} HTTP/1.1\r\nHost: x\r\n\r\n", "*a".repeat(len)),
        2 => format!("GET / HTTP/1.1\r\nHost: localhost\r\nKey: {}\r\n\r\n", "v".repeat(len)),
        _ => {
            let mut text = "POST /api/locks HTTP/1.1\r\n".to_owned();
            for number in 0..len / 20 {
                write!(text, "Key-{number}: value\r\n").expect("writing to a string");
            }
            text + "\r\n"
        }
    }
}

fn spoil(bytes: &mut Vec<u8>, random: &mut fastrand::Rng) {
    if bytes.is_empty() {
        return;
    }
    let place = random.usize(..bytes.len());
    match random.u8(..5) {
        0 => bytes[place] = random.u8(..),
        1 => bytes.insert(place, b"\r\n %\0:?&=\xff"[random.usize(..10)]),
        2 => drop(bytes.remove(place)),
        3 => bytes.truncate(place),
        _ => bytes.extend_from_within(place..),
    }
}
