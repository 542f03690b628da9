//! Everything that takes a lock away from the work, and what it is called.

use std::net::SocketAddr;
use std::time::Duration;

use monolock_client::{Client as LockClient, Held, Loss, RunError, StopReason};
use tokio::sync::oneshot;

use crate::harness::client::Client;
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
