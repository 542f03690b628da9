//! Everything that takes a lock away from the work, and what it is called.

use std::net::SocketAddr;
use std::time::Duration;

use monolock_client::{
    AcquireError, Client as LockClient, Held, Loss, Progress, RunError, StopReason,
};
use tokio::sync::oneshot;

use crate::harness::client::Client;
use crate::harness::http;
use crate::harness::patience::{LONG_LEASE_MS, PATIENCE};
use crate::harness::server::Launch;
use crate::scripted::{self, Direction, Wire};

/// Holds a lock until it is lost, and says why.
async fn loss(address: SocketAddr, lease: Duration) -> Loss {
    let client = LockClient::new(&address.to_string()).expect("an address");
    let lock = client.lock("a").lease(lease).stop_within(PATIENCE);
    let ran = lock.run(|held: Held| async move { held.stopping().await }).await;
    match ran {
        Err(RunError::Lost { loss, output: Some(StopReason::Lost(told)) }) => {
            assert_eq!(loss, told);
            loss
        }
        other => panic!("{other:?}"),
    }
}

/// What becomes of a holder to whom the server says this when it has sent a heartbeat.
async fn loss_after(answer: Vec<u8>) -> Loss {
    let address = scripted::serve(move |mut peer| {
        peer.read_acquire();
        peer.send(scripted::WAITING);
        peer.send(&scripted::acquired(7));
        assert!(peer.read_heartbeat());
        peer.send(&answer);
        if !answer.is_empty() {
            peer.answer_none();
        }
    });
    loss(address, Duration::from_secs(2)).await
}

#[tokio::test]
async fn every_loss_has_its_name() {
    let (shutdown, forced, client_error, closed) = tokio::join!(
        loss_after(scripted::error(0x01, "server shutting down")),
        loss_after(scripted::error(0x02, "force-released by an administrator")),
        loss_after(scripted::error(0x13, "unknown message 0x99")),
        loss_after(Vec::new()),
    );
    assert!(matches!(&shutdown, Loss::Server(error) if error.code.get() == 0x01), "{shutdown:?}");
    assert!(
        matches!(&forced, Loss::Administrator(error) if error.reason.starts_with("force")),
        "{forced:?}"
    );
    assert!(matches!(client_error, Loss::Protocol(_)), "{client_error:?}");
    assert!(matches!(closed, Loss::Network(_)), "{closed:?}");
}

#[tokio::test]
async fn a_server_that_talks_nonsense_is_left() {
    let (garbage, back_to_waiting, another_token, no_token) = tokio::join!(
        loss_after(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()),
        loss_after(scripted::WAITING.to_vec()),
        loss_after(scripted::acquired(8)),
        loss_after(scripted::acquired(0)),
    );
    for loss in [garbage, back_to_waiting, another_token, no_token] {
        assert!(matches!(loss, Loss::Protocol(_)), "{loss:?}");
    }
}

#[tokio::test]
async fn what_a_server_says_can_not_write_on_a_terminal() {
    let forced = loss_after(scripted::error(0x02, "\u{1b}[2J\u{202e}\n")).await;
    let shown = forced.to_string();
    assert!(shown.chars().all(|c| !c.is_control() && c != '\u{202e}'), "{shown:?}");
}

#[tokio::test]
async fn a_server_that_falls_silent_costs_the_lock() {
    let address = scripted::serve(|mut peer| {
        peer.read_acquire();
        peer.send(&scripted::acquired(7));
        peer.answer_none();
    });
    assert_eq!(loss(address, Duration::from_millis(300)).await, Loss::Expired);
}

/// A frame that comes byte by byte, with the answers to heartbeats in one segment behind it.
#[tokio::test]
async fn frames_are_read_and_not_packets() {
    let (sent, all_sent) = oneshot::channel();
    let sent = std::sync::Mutex::new(Some(sent));
    let address = scripted::serve(move |mut peer| {
        peer.read_acquire();
        for byte in scripted::acquired(7) {
            peer.send(&[byte]);
            std::thread::sleep(Duration::from_millis(1));
        }
        for _ in 0..8 {
            assert!(peer.read_heartbeat());
            peer.send(&scripted::acquired(7));
        }
        let sent = sent.lock().expect("once").take();
        sent.expect("once").send(()).expect("the work waits");
        peer.answer_all(&scripted::acquired(7));
    });
    let client = LockClient::new(&address.to_string()).expect("an address");
    let lock = client.lock("a").lease(Duration::from_millis(400));
    let token = lock.run(|held: Held| async move {
        all_sent.await.expect("two leases later");
        held.token().map(|token| token.get())
    });
    assert_eq!(token.await, Ok(Ok(7)));
}

/// Nothing is delivered in one direction any more, and no side sees an end: when the server gives
/// the lock to the next, the holder must know already that it has none.
#[tokio::test]
async fn a_wire_that_is_dead_in_one_direction_never_makes_two_holders() {
    for direction in [Direction::ToServer, Direction::ToClient] {
        let server = Launch::on_loopback().start();
        let wire = Wire::to(server.address());
        let client = LockClient::new(&wire.address().to_string()).expect("an address");
        let lock = client.lock("a").lease(Duration::from_millis(500)).stop_within(PATIENCE);
        let address = server.address();
        let ran = lock.run(|held: Held| async move {
            held.token().expect("held");
            wire.cut(direction);
            let waiting = tokio::task::spawn_blocking(move || {
                let mut waiter = Client::waiter(address, "a", LONG_LEASE_MS);
                // To the server heartbeats still come, if it is the answers that are lost: it is
                // the client's closing that frees the lock.
                waiter.expect_acquired();
                held.token()
            });
            waiting.await.expect("the lock changes hands")
        });
        match ran.await {
            Err(RunError::Lost { loss: Loss::Expired, output: Some(Err(Loss::Expired)) }) => {}
            other => panic!("{direction:?}: {other:?}"),
        }
    }
}

/// Answers take a while in one direction and none in the other, which no clock of the client's can
/// tell from the way in between: it must hold what it can hold.
#[tokio::test]
async fn a_wire_that_is_slow_in_one_direction_costs_no_lock() {
    for direction in [Direction::ToServer, Direction::ToClient] {
        let server = Launch::on_loopback().start();
        let wire = Wire::to(server.address());
        wire.delay(direction, Duration::from_millis(600));
        let client = LockClient::new(&wire.address().to_string()).expect("an address");
        let lease = Duration::from_secs(3);
        let lock = client.lock("a").lease(lease);
        let ran = lock.run(|held: Held| async move {
            tokio::time::sleep(lease * 2).await;
            held.token()
        });
        ran.await.expect("never lost").expect("still held");
        Client::owner_patiently(server.address(), "a");
    }
}

/// It becomes slower than a lease while the lock is held: the holder must know that it has none
/// before the server gives it to the next.
#[tokio::test]
async fn a_wire_that_becomes_slower_than_a_lease_never_makes_two_holders() {
    for direction in [Direction::ToServer, Direction::ToClient] {
        let server = Launch::on_loopback().start();
        let wire = Wire::to(server.address());
        let client = LockClient::new(&wire.address().to_string()).expect("an address");
        let lock = client.lock("a").lease(Duration::from_millis(500)).stop_within(PATIENCE);
        let address = server.address();
        let ran = lock.run(|held: Held| async move {
            held.token().expect("held");
            wire.delay(direction, Duration::from_secs(3));
            let waiting = tokio::task::spawn_blocking(move || {
                let mut waiter = Client::waiter(address, "a", LONG_LEASE_MS);
                waiter.expect_acquired();
                held.token()
            });
            waiting.await.expect("the lock changes hands")
        });
        match ran.await {
            Err(RunError::Lost { loss: Loss::Expired, output: Some(Err(Loss::Expired)) }) => {}
            other => panic!("{direction:?}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn an_administrator_takes_the_lock_from_its_work() {
    let server = Launch::on_loopback().args(["--admin-listen", "127.0.0.1:0"]).start();
    let client = LockClient::new(&server.address().to_string()).expect("an address");
    let (address, admin) = (server.address(), server.admin_address());
    let lock = client.lock("a/b").stop_within(PATIENCE);
    let ran = lock.run(|held: Held| async move {
        let token = held.token().expect("held").get();
        let taken = tokio::task::spawn_blocking(move || {
            let mut waiter = Client::waiter(address, "a/b", LONG_LEASE_MS);
            let path = format!("/api/locks/a%2Fb/release?token={token}");
            assert_eq!(http::request(admin, "POST", &path, "Content-Length: 0\r\n").status, 200);
            waiter.expect_acquired()
        });
        assert!(taken.await.expect("the next one has it") > token);
        (held.stopping().await, held.token().is_err())
    });
    match ran.await {
        Err(RunError::Lost {
            loss: Loss::Administrator(error),
            output: Some((StopReason::Lost(Loss::Administrator(_)), true)),
        }) => assert_eq!(error.code.get(), 0x02),
        other => panic!("{other:?}"),
    }
}

/// A kick ends a wait, and who tries again is at the back of the queue.
#[tokio::test]
async fn a_waiter_that_is_kicked_comes_back_behind_the_others() {
    let server = Launch::on_loopback().args(["--admin-listen", "127.0.0.1:0"]).start();
    let client = LockClient::new(&server.address().to_string()).expect("an address");
    let (holder, _) = Client::owner(server.address(), "a", LONG_LEASE_MS);
    let (sender, mut progress) = tokio::sync::mpsc::unbounded_channel();
    let lock = client.lock("a").retrying().report_to(sender);
    let running = tokio::spawn(async move { lock.run(|_| async {}).await });
    assert!(matches!(progress.recv().await, Some(Progress::Queued { .. })));
    let mut behind = Client::waiter(server.address(), "a", LONG_LEASE_MS);
    let queue = http::get(server.admin_address(), "/api/locks/a").json();
    let address = queue["waiters"][0]["remote_addr"].as_str().expect("an address").to_owned();
    let path = format!("/api/locks/a/waiters/{address}");
    assert_eq!(http::request(server.admin_address(), "DELETE", &path, "").status, 200);
    let retrying = progress.recv().await;
    let Some(Progress::Retrying { failure: AcquireError::Lost { loss, .. }, after }) = retrying
    else {
        panic!("{retrying:?}")
    };
    assert!(matches!(loss, Loss::Administrator(_)), "{loss:?}");
    assert!(after >= Duration::from_millis(100), "{after:?}");
    assert!(matches!(progress.recv().await, Some(Progress::Queued { .. })));
    holder.close();
    behind.expect_acquired();
    behind.close();
    running.await.expect("no panic").expect("acquired at last");
}
