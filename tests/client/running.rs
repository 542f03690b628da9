//! Work under a lock: how it ends, and what is said of it.

use std::future::pending;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use monolock_client::{
    AcquireError, Client as LockClient, Held, Loss, RunError, StopReason, Written,
};
use tokio::sync::oneshot;

use crate::harness::client::Client;
use crate::harness::patience::{LONG_LEASE_MS, PATIENCE, wait_until};
use crate::harness::server::{Launch, Server};

fn start() -> (Server, LockClient) {
    let server = Launch::on_loopback().start();
    let client = LockClient::new(&server.address().to_string()).expect("an address");
    (server, client)
}

/// That nobody holds it or waits for it.
#[track_caller]
fn expect_free(server: &Server, name: &str) {
    Client::owner(server.address(), name, LONG_LEASE_MS);
}

#[tokio::test]
async fn work_gets_a_token_and_the_lock_is_free_after_it() {
    let (server, client) = start();
    let address = server.address();
    let (first, was_queued) = client
        .lock("a")
        .run(|held: Held| async move {
            assert_eq!(held.name(), "a");
            assert!(held.lease_left() <= held.lease() && held.lease() == Duration::from_secs(10));
            let is_queued = tokio::task::spawn_blocking(move || {
                drop(Client::waiter(address, "a", LONG_LEASE_MS));
            });
            (held.token().expect("it is held"), is_queued.await.is_ok())
        })
        .await
        .expect("work under the lock");
    assert!(was_queued);
    // Its waiter may still be leaving.
    let second = client.lock("a").run(|held| async move { held.token() }).await;
    assert!(second.expect("acquired").expect("held") > first);
    wait_until("the lock is free", || {
        let mut raw = Client::connect(server.address());
        raw.acquire("a", LONG_LEASE_MS);
        matches!(raw.read_frame(), crate::harness::wire::Frame::Acquired(_))
    });
}

#[tokio::test]
async fn a_panic_releases_and_goes_on_in_the_caller() {
    let (server, client) = start();
    let running = tokio::spawn({
        let client = client.clone();
        async move { client.lock("a").run(|_| async { panic!("in the work") }).await.map(|(): ()| ()) }
    });
    let panic = running.await.expect_err("a panic").into_panic();
    assert_eq!(panic.downcast_ref(), Some(&"in the work"));
    Client::owner_patiently(server.address(), "a");

    let panicking = thread::spawn(move || {
        std::panic::catch_unwind(AssertUnwindSafe(|| {
            client.lock("b").run_blocking(|_| panic!("in the work")).map(|(): ()| ())
        }))
        .is_err()
    });
    assert!(panicking.join().expect("caught"));
    Client::owner_patiently(server.address(), "b");
}

#[tokio::test]
async fn work_that_blocks_the_runtime_keeps_its_lock() {
    let (server, client) = start();
    let lease = Duration::from_millis(300);
    let ran = client
        .lock("a")
        .lease(lease)
        .run(|held| async move {
            // The only thread of this runtime.
            thread::sleep(lease * 4);
            held.token()
        })
        .await;
    ran.expect("never lost").expect("still held");
    expect_free(&server, "a");
}

#[tokio::test]
async fn a_loss_is_reported_though_the_work_succeeded() {
    let (server, client) = start();
    let mut server = server;
    let (holds, is_held) = oneshot::channel();
    let lock = client.lock("a").stop_within(PATIENCE);
    let running = lock.run(|held: Held| async move {
        holds.send(()).expect("the test waits");
        let reason = held.stopping().await;
        assert_eq!(held.stop_reason(), Some(reason.clone()));
        let StopReason::Lost(loss) = reason else { panic!("stopped because of {reason:?}") };
        assert_eq!(held.token(), Err(loss.clone()));
        "success"
    });
    let stopping = async {
        is_held.await.expect("the work runs");
        server.signal(rustix::process::Signal::TERM);
    };
    let (ran, ()) = tokio::join!(running, stopping);
    match ran {
        Err(RunError::Lost { loss: Loss::Server(error), output: Some("success") }) => {
            assert_eq!(error.code.get(), 0x01);
        }
        other => panic!("{other:?}"),
    }
    server.wait_for_exit();
}

#[tokio::test]
async fn work_that_does_not_stop_is_dropped_after_the_grace() {
    struct SetOnDrop(Arc<AtomicBool>);
    impl Drop for SetOnDrop {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let (server, client) = start();
    let was_dropped = Arc::new(AtomicBool::new(false));
    let on_drop = SetOnDrop(Arc::clone(&was_dropped));
    let (holds, is_held) = oneshot::channel();
    let running = client.lock("a").lease(Duration::from_secs(1)).run(|_| async move {
        let _on_drop = on_drop;
        holds.send(()).expect("the test waits");
        pending::<()>().await;
    });
    let killing = async {
        is_held.await.expect("the work runs");
        drop(server);
    };
    let (ran, ()) = tokio::join!(running, killing);
    assert!(matches!(ran, Err(RunError::Lost { loss: Loss::Network(_), output: None })), "{ran:?}");
    assert!(was_dropped.load(Ordering::SeqCst));
}

#[tokio::test]
async fn a_cancelled_caller_is_a_request_to_stop_and_the_lock_is_held_until_then() {
    let (server, client) = start();
    let (holds, is_held) = oneshot::channel();
    let (tell, told) = oneshot::channel();
    let (end, ended) = oneshot::channel::<()>();
    let lock = client.lock("a");
    let running = tokio::spawn(async move {
        lock.run(|held: Held| async move {
            holds.send(()).expect("the test waits");
            tell.send(held.stopping().await).expect("the test waits");
            ended.await.expect("told to end");
            assert!(held.token().is_ok());
        })
        .await
    });
    is_held.await.expect("the work runs");
    running.abort();
    assert_eq!(told.await, Ok(StopReason::Cancelled));
    let address = server.address();
    let mut waiter =
        tokio::task::spawn_blocking(move || Client::waiter(address, "a", LONG_LEASE_MS))
            .await
            .expect("a place in the queue, as it is still held");
    end.send(()).expect("the work still runs");
    tokio::task::spawn_blocking(move || waiter.expect_acquired()).await.expect("released");
}

#[tokio::test]
async fn a_name_has_one_claim_in_a_client_at_a_time() {
    let (_server, client) = start();
    let inner = client.clone();
    let nested = client.lock("a").run(|_| async move {
        let other = inner.lock("b").run(|_| async {}).await;
        other.expect("another name is free to use");
        inner.lock("a").run(|_| async {}).await
    });
    match nested.await.expect("the outer one is held") {
        Err(RunError::NotAcquired(AcquireError::AlreadyClaimed { name })) => assert_eq!(name, "a"),
        other => panic!("{other:?}"),
    }
    // When it is over, the name is free, also for the same client.
    client.lock("a").run(|_| async {}).await.expect("not nested");
}

#[tokio::test]
async fn a_hold_that_outlives_its_work_has_no_token() {
    let (_server, client) = start();
    let held = client.lock("a").run(|held: Held| async move { held }).await.expect("held");
    assert_eq!(held.token(), Err(Loss::Released));
}

#[tokio::test]
async fn work_is_told_when_it_has_held_long_enough() {
    let (server, client) = start();
    let lock = client.lock("a").hold_at_most(Duration::from_millis(50));
    let reason = lock
        .clone()
        .stop_within(PATIENCE)
        .run(|held: Held| async move {
            let reason = held.stopping().await;
            assert!(held.token().is_ok(), "it is still held until the work has ended");
            reason
        })
        .await;
    match reason {
        Err(RunError::HeldTooLong { output: Some(StopReason::HeldLongEnough) }) => {}
        other => panic!("{other:?}"),
    }
    let dropped = lock.stop_within(Duration::ZERO).run(|_| pending::<()>()).await;
    assert!(matches!(dropped, Err(RunError::HeldTooLong { output: None })), "{dropped:?}");
    expect_free(&server, "a");
}

#[test]
fn blocking_work_runs_on_its_own_thread_and_is_told_to_stop() {
    let (server, client) = start();
    let thread = thread::current().id();
    let lock = client.lock("a").hold_at_most(Duration::from_millis(50));
    let ran = lock.run_blocking(|held| {
        assert_eq!(thread::current().id(), thread);
        assert_eq!(held.wait_for_stop(Duration::ZERO), None);
        held.wait_for_stop(PATIENCE)
    });
    match ran {
        Err(RunError::HeldTooLong { output: Some(Some(StopReason::HeldLongEnough)) }) => {}
        other => panic!("{other:?}"),
    }
    expect_free(&server, "a");
    let ran = client.lock("a").run_blocking(|held: Held| held.token());
    ran.expect("acquired again").expect("held");
}

#[tokio::test]
async fn a_refused_write_is_the_loss_of_the_lock() {
    let (_server, client) = start();
    let ran = client
        .lock("a")
        .run(|held: Held| async move {
            let token = held.token().expect("held");
            let write = |changed| async move { Ok::<_, ()>(Written::of_rows(changed)) };
            let done = held
                .write(|passed| {
                    assert_eq!(passed, token);
                    write(1)
                })
                .await;
            assert_eq!(done, Ok(1));
            assert!(held.write(|_| async { Err::<Written<()>, _>("disk full") }).await.is_err());
            assert!(held.token().is_ok(), "a failed write says nothing about the lock");
            assert!(held.write(|_| write(0)).await.is_err());
            let after = held.write_blocking(|_| -> Result<Written<()>, ()> {
                panic!("nothing is written after the loss")
            });
            assert!(after.is_err());
        })
        .await;
    assert!(matches!(ran, Err(RunError::Lost { loss: Loss::Fenced, .. })), "{ran:?}");
}

#[tokio::test]
async fn sockets_and_timers_are_not_inherited() {
    let (_server, client) = start();
    client
        .lock("a")
        .run(|_| async {
            for entry in std::fs::read_dir("/proc/self/fdinfo").expect("own descriptors") {
                let path = entry.expect("an entry").path();
                // Some are of other tests, and may be gone.
                let Ok(info) = std::fs::read_to_string(&path) else { continue };
                let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
                let flags = u32::from_str_radix(flags.expect("flags").trim(), 8).expect("octal");
                let number = path.file_name().expect("a number").to_string_lossy().into_owned();
                let is_standard = ["0", "1", "2"].contains(&&*number);
                let target = std::fs::read_link(format!("/proc/self/fd/{number}"));
                let Ok(target) = target else { continue };
                let target = target.to_string_lossy().into_owned();
                let is_ours = target.starts_with("socket:") || target.contains("[timerfd]");
                const CLOEXEC: u32 = 0o2_000_000;
                assert!(is_standard || !is_ours || flags & CLOEXEC != 0, "{number}: {target}");
            }
        })
        .await
        .expect("held");
}
