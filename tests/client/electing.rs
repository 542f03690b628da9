//! Terms of a leader.

use std::ops::ControlFlow::{Break, Continue};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use monolock_client::{AcquireError, Client as LockClient, Held, Loss, RunError, StopReason};

use crate::harness::server::Launch;
use crate::scripted;

#[tokio::test]
async fn a_leader_stands_again_after_a_restart_of_the_server() {
    let port = scripted::own_port();
    let mut server = Some(Launch::on(&port).start());
    let client = LockClient::new(&port.to_string()).expect("an address");
    let (terms, mut begun) = tokio::sync::mpsc::unbounded_channel();
    let leading = tokio::spawn(async move {
        let lock = client.lock("leader");
        lock.elect(|held: Held| {
            let terms = terms.clone();
            async move {
                let token = held.token().expect("held");
                terms.send(token).expect("the test counts");
                match held.stopping().await {
                    StopReason::Lost(_) => Continue(()),
                    other => panic!("{other:?}"),
                }
            }
        })
        .await
        .map(|(): ()| ())
    });
    let mut last = None;
    for _ in 0..3 {
        let token = begun.recv().await.expect("a term");
        assert!(Some(token) > last, "tokens grow over restarts");
        last = Some(token);
        // A SIGKILL, and a start at the same address.
        drop(server.take());
        server = Some(Launch::on(&port).start());
    }
    leading.abort();
}

#[tokio::test]
async fn terms_go_on_until_the_leader_breaks() {
    let server = Launch::on_loopback().start();
    let client = LockClient::new(&server.address().to_string()).expect("an address");
    let mut terms = 0;
    let lock = client.lock("leader").hold_at_most(Duration::from_millis(20));
    let last = lock.elect(|held: Held| {
        terms += 1;
        let term = terms;
        async move {
            if term == 3 {
                return Break(term);
            }
            assert_eq!(held.stopping().await, StopReason::HeldLongEnough);
            Continue(())
        }
    });
    assert_eq!(last.await, Ok(3));
}

#[test]
fn a_thread_can_stand_for_election() {
    let server = Launch::on_loopback().start();
    let client = LockClient::new(&server.address().to_string()).expect("an address");
    let mut terms = 0;
    let last = client.lock("leader").elect_blocking(|held: Held| {
        held.token().expect("held");
        terms += 1;
        if terms == 3 { Break(terms) } else { Continue(()) }
    });
    assert_eq!(last, Ok(3));
}

#[tokio::test]
async fn what_would_only_come_again_ends_the_election() {
    let dials = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&dials);
    let address = scripted::serve(move |mut peer| {
        counted.fetch_add(1, Ordering::SeqCst);
        if peer.read_acquire() == "refused" {
            peer.send(&scripted::error(0x18, "not authorized"));
        } else {
            peer.send(&scripted::acquired(7));
            peer.send(b"HTTP/1.1 400 Bad Request");
        }
        peer.answer_none();
    });
    let client = LockClient::new(&address.to_string()).expect("an address");
    let refused = client.lock("refused").elect(|_| async { Break(()) }).await;
    assert!(
        matches!(refused, Err(RunError::NotAcquired(AcquireError::Refused { .. }))),
        "{refused:?}"
    );
    let garbage = client.lock("garbage").elect(|held: Held| async move {
        held.stopping().await;
        Continue::<()>(())
    });
    let garbage = garbage.await;
    // The garbage may come with the grant, in one segment, or after it.
    assert!(
        matches!(
            garbage,
            Err(RunError::Lost { loss: Loss::Protocol(_), .. }
                | RunError::NotAcquired(AcquireError::Lost { loss: Loss::Protocol(_), .. }))
        ),
        "{garbage:?}"
    );
    assert_eq!(dials.load(Ordering::SeqCst), 2);
}
