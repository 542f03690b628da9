//! Several locks at once: all or none, and one loss is the loss of all.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use monolock_client::{
    AcquireError, Client as LockClient, HeldTogether, InvalidInput, Loss, RunError, StopReason,
    Token,
};

use crate::harness::client::Client;
use crate::harness::patience::{LONG_LEASE_MS, PATIENCE};
use crate::harness::server::{Launch, Server};
use crate::scripted;

fn start() -> (Server, LockClient) {
    let server = Launch::on_loopback().start();
    let client = LockClient::new(&server.address().to_string()).expect("an address");
    (server, client)
}

#[tokio::test]
async fn each_lock_has_its_own_token_and_all_are_released() {
    let (server, client) = start();
    let tokens = client.locks(["c", "a", "b"]).run(|held: HeldTogether| async move {
        let names: Vec<String> = held.iter().map(|held| held.name().to_owned()).collect();
        assert_eq!(names, ["a", "b", "c"]);
        assert!(held.get("d").is_none());
        let token = |name| held.get(name).expect("asked for").token().expect("held");
        [token("a"), token("b"), token("c")]
    });
    let [a, b, c] = tokens.await.expect("all of them");
    assert!(a < b && b < c, "taken in the order of their names");
    for name in ["a", "b", "c"] {
        Client::owner(server.address(), name, LONG_LEASE_MS);
    }
}

#[tokio::test]
async fn without_one_of_them_none_is_kept() {
    let (server, client) = start();
    let (_holder, _) = Client::owner(server.address(), "b", LONG_LEASE_MS);
    let taken = client.locks(["a", "b", "c"]).no_wait().run(|_| async {}).await;
    match taken {
        Err(RunError::NotAcquired(AcquireError::Taken { name })) => assert_eq!(name, "b"),
        other => panic!("{other:?}"),
    }
    Client::owner_patiently(server.address(), "a");
    Client::owner(server.address(), "c", LONG_LEASE_MS);
    let twice = client.locks(["a", "a"]).run(|_| async {}).await;
    let wrong = InvalidInput::NameTwice { name: "a".into() };
    assert_eq!(twice, Err(RunError::NotAcquired(wrong.into())));
}

/// While one is waited for, those that are held already stay alive.
#[tokio::test]
async fn what_is_held_outlives_a_long_wait_for_the_next() {
    let (server, client) = start();
    let (holder, _) = Client::owner(server.address(), "b", LONG_LEASE_MS);
    let locks = client.locks(["a", "b"]).lease(Duration::from_millis(200));
    let running = locks.run(|held| async move {
        assert!(held.iter().all(|held| held.token().is_ok()));
    });
    let closing = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        holder.close();
    };
    let (ran, ()) = tokio::join!(running, closing);
    ran.expect("both of them, in one attempt");
}

/// Those that promise the same order of the same locks never wait for each other.
#[tokio::test]
async fn two_parties_with_the_same_locks_in_another_order_both_get_them() {
    let (server, first) = start();
    let second = LockClient::new(&server.address().to_string()).expect("an address");
    let run_often = async |client: LockClient, names: [&'static str; 2]| {
        for _ in 0..50 {
            client.locks(names).run(|_| async {}).await.expect("both");
        }
    };
    tokio::time::timeout(PATIENCE, async {
        tokio::join!(run_often(first, ["a", "b"]), run_often(second, ["b", "a"]))
    })
    .await
    .expect("nobody waits for ever");
}

#[tokio::test]
async fn the_loss_of_one_cancels_all_and_the_others_are_kept_until_the_work_ends() {
    let (lose, is_lost) = mpsc::channel::<()>();
    let (close, is_closed) = mpsc::channel::<()>();
    let (is_lost, close) = (Mutex::new(is_lost), Mutex::new(close));
    let address = scripted::serve(move |mut peer| {
        let name = peer.read_acquire();
        peer.send(&scripted::acquired(if name == "a" { 7 } else { 8 }));
        if name == "b" {
            is_lost.lock().expect("one waits").recv().expect("told to");
            peer.send(&scripted::error(0x02, "force-released"));
        }
        peer.answer_all(&scripted::acquired(7));
        if name == "a" {
            close.lock().expect("one closes").send(()).expect("the test waits");
        }
    });
    let client = LockClient::new(&address.to_string()).expect("an address");
    let locks = client.locks(["a", "b"]).stop_within(PATIENCE);
    let is_closed = Arc::new(Mutex::new(is_closed));
    let in_work = Arc::clone(&is_closed);
    let ran = locks.run(|held: HeldTogether| async move {
        assert_eq!(held.get("a").expect("a").token().map(Token::get), Ok(7));
        lose.send(()).expect("the server waits");
        let reason = held.stopping().await;
        assert!(matches!(reason, StopReason::Lost(Loss::Administrator(_))), "{reason:?}");
        assert!(held.get("a").expect("a").token().is_err());
        in_work.lock().expect("free").try_recv().expect_err("the work has not ended");
    });
    match ran.await {
        Err(RunError::Lost { loss: Loss::Administrator(_), output: Some(()) }) => {}
        other => panic!("{other:?}"),
    }
    let closed = is_closed.lock().expect("free").recv_timeout(PATIENCE);
    closed.expect("released when the work had ended");
}
