//! Getting a lock: waiting, not waiting, trying again, and what is refused before a dial.

use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use monolock_client::{
    AcquireError, Client as LockClient, Held, InvalidInput, Lock, Progress, RunError,
};
use tokio::sync::mpsc;

use crate::harness::client::Client;
use crate::harness::patience::{LONG_LEASE_MS, PATIENCE, SILENCE};
use crate::harness::server::{Launch, Server};
use crate::scripted::{self, Doorbell};

fn client_of(address: SocketAddr) -> LockClient {
    LockClient::new(&address.to_string()).expect("an address")
}

fn start() -> (Server, LockClient) {
    let server = Launch::on_loopback().start();
    let client = client_of(server.address());
    (server, client)
}

/// Why the work was not begun.
async fn failure(lock: Lock<Held>) -> AcquireError {
    match lock.run(|_| async { panic!("the work was begun") }).await {
        Err(RunError::NotAcquired(error)) => error,
        Err(other) => panic!("{other:?}"),
        Ok(()) => panic!("acquired"),
    }
}

#[tokio::test]
async fn what_can_not_be_is_refused_before_anything_is_dialled() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let client = client_of(listener.local_addr().expect("bound"));
    for (lock, wrong) in [
        (client.lock(""), InvalidInput::EmptyName),
        (client.lock("é".repeat(128)), InvalidInput::NameTooLong { len: 256 }),
        (client.lock("a").lease(Duration::ZERO), InvalidInput::ZeroLease { lease: Duration::ZERO }),
        (
            client.lock("a").lease(Duration::MAX),
            InvalidInput::LeaseTooLong { lease: Duration::MAX },
        ),
    ] {
        assert_eq!(failure(lock).await, AcquireError::Invalid(wrong));
    }
    let none = client.locks::<String>([]).run(|_| async {}).await;
    assert_eq!(none, Err(RunError::NotAcquired(InvalidInput::NoName.into())));
    assert!(LockClient::new("nowhere").is_err());
    listener.set_nonblocking(true).expect("setting non-blocking");
    assert!(listener.accept().is_err(), "somebody has dialled");
}

#[tokio::test]
async fn who_does_not_wait_leaves_no_claim_behind() {
    let (server, client) = start();
    let (holder, _) = Client::owner(server.address(), "a", LONG_LEASE_MS);
    let taken = failure(client.lock("a").no_wait().retrying()).await;
    assert_eq!(taken, AcquireError::Taken { name: "a".into() });
    // The next in the queue is the first: nobody was left there.
    let mut waiter = Client::waiter(server.address(), "a", LONG_LEASE_MS);
    holder.close();
    waiter.expect_acquired();
    client.lock("b").no_wait().run(|_| async {}).await.expect("a free lock is acquired");
}

#[tokio::test]
async fn a_limit_to_the_wait_gives_the_place_in_the_queue_up() {
    let (server, client) = start();
    let (holder, _) = Client::owner(server.address(), "a", LONG_LEASE_MS);
    let lock = client.lock("a").wait_at_most(Duration::from_millis(60));
    let timed_out = failure(lock).await;
    assert_eq!(timed_out, AcquireError::TimedOut { last_failure: None });
    let mut waiter = Client::waiter(server.address(), "a", LONG_LEASE_MS);
    holder.close();
    waiter.expect_acquired();
}

#[tokio::test]
async fn a_dropped_call_gives_the_place_in_the_queue_up() {
    let (server, client) = start();
    let (holder, _) = Client::owner(server.address(), "a", LONG_LEASE_MS);
    let (sender, mut progress) = mpsc::unbounded_channel();
    let lock = client.lock("a").report_to(sender);
    let running = lock.run(|_| async { panic!("the work was begun") });
    tokio::select! {
        _ = running => panic!("it is held by somebody else"),
        queued = progress.recv() => assert_eq!(queued, Some(Progress::Queued { name: "a".into() })),
    }
    let mut waiter = Client::waiter(server.address(), "a", LONG_LEASE_MS);
    holder.close();
    waiter.expect_acquired();
}

#[tokio::test]
async fn a_waiter_outlives_many_leases_in_the_queue() {
    let (server, client) = start();
    let (holder, _) = Client::owner(server.address(), "a", LONG_LEASE_MS);
    let lock = client.lock("a").lease(Duration::from_millis(200));
    let waiting = lock.run(|held| async move { held.token() });
    let closing = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        holder.close();
    };
    let (ran, ()) = tokio::join!(waiting, closing);
    ran.expect("granted").expect("held");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_an_error_or_waited_for() {
    let port = scripted::own_port();
    let client = client_of(port);
    let unreachable = failure(client.lock("a")).await;
    assert!(matches!(&unreachable, AcquireError::Unreachable { .. }), "{unreachable:?}");
    assert!(unreachable.to_string().contains(&port.to_string()), "{unreachable}");

    let timed_out = failure(client.lock("a").retrying().wait_at_most(SILENCE)).await;
    let AcquireError::TimedOut { last_failure: Some(last) } = timed_out else {
        panic!("{timed_out:?}")
    };
    assert!(matches!(*last, AcquireError::Unreachable { .. }), "{last:?}");

    let (sender, mut progress) = mpsc::unbounded_channel();
    let lock = client.lock("a").retrying().report_to(sender);
    let starting = async {
        // It has been refused a few times.
        for _ in 0..3 {
            let retrying = progress.recv().await;
            assert!(matches!(retrying, Some(Progress::Retrying { .. })), "{retrying:?}");
        }
        Launch::on(&port).start()
    };
    let (ran, _server) = tokio::join!(lock.run(|_| async {}), starting);
    ran.expect("acquired when the server was there");
}

#[tokio::test]
async fn a_waiter_comes_back_after_a_restart_of_the_server() {
    let port = scripted::own_port();
    let server = Launch::on(&port).start();
    let client = client_of(port);
    let (_holder, _) = Client::owner(port, "a", LONG_LEASE_MS);
    let (sender, mut progress) = mpsc::unbounded_channel();
    let lock = client.lock("a").retrying().report_to(sender);
    let restarting = async {
        assert!(matches!(progress.recv().await, Some(Progress::Queued { .. })));
        // A SIGKILL.
        drop(server);
        Launch::on(&port).start()
    };
    let (ran, _server) = tokio::join!(lock.run(|_| async {}), restarting);
    ran.expect("acquired from the next server");
}

#[tokio::test]
async fn a_refusal_is_final() {
    let server = Launch::on_loopback().args(["--max-lease", "1s"]).start();
    let lock = client_of(server.address()).lock("a").lease(Duration::from_secs(2)).retrying();
    match failure(lock).await {
        AcquireError::Refused { name, error } => {
            assert_eq!((name.as_str(), error.code.get()), ("a", 0x19));
            assert!(!error.reason.is_empty());
        }
        other => panic!("{other:?}"),
    }
}

/// Codes that nobody knows yet go by their range.
#[tokio::test]
async fn an_unknown_code_goes_by_its_range() {
    let final_one = scripted::serve(|mut peer| {
        peer.read_acquire();
        peer.send(&scripted::error(0xf7, "of the future"));
    });
    let refused = failure(client_of(final_one).lock("a").retrying()).await;
    assert!(matches!(refused, AcquireError::Refused { .. }), "{refused:?}");
    let passing = scripted::serve(|mut peer| {
        peer.read_acquire();
        peer.send(&scripted::error(0x0e, "of the future"));
    });
    let lock = client_of(passing).lock("a").retrying().wait_at_most(SILENCE);
    assert!(matches!(failure(lock).await, AcquireError::TimedOut { last_failure: Some(_) }));
}

#[tokio::test]
async fn a_server_that_keeps_shutting_down_is_not_stormed() {
    let doorbell = Doorbell::answering(scripted::error(0x01, "server shutting down"));
    let lock = client_of(doorbell.address).lock("a").retrying();
    let running = tokio::spawn(async move { lock.run(|_| async {}).await });
    let gaps = tokio::task::spawn_blocking(move || doorbell.gaps(4)).await.expect("dials");
    running.abort();
    // At once after the first time; a machine under load may be slower, but never faster.
    for (gap, least_ms) in gaps[1..].iter().zip([100, 200, 400]) {
        assert!(*gap >= Duration::from_millis(least_ms), "{gaps:?}");
    }
}

#[tokio::test]
async fn a_shutdown_with_the_port_closed_after_it_is_not_stormed() {
    let port = scripted::own_port();
    let server = Launch::on(&port).start();
    let (_holder, _) = Client::owner(port, "a", LONG_LEASE_MS);
    let (sender, mut progress) = mpsc::unbounded_channel();
    let lock = client_of(port).lock("a").retrying().report_to(sender);
    let running = tokio::spawn(async move { lock.run(|_| async {}).await });
    assert!(matches!(progress.recv().await, Some(Progress::Queued { .. })));
    server.signal(rustix::process::Signal::TERM);
    let mut waits = Vec::new();
    while waits.len() < 4 {
        match progress.recv().await {
            Some(Progress::Retrying { failure, after }) => waits.push((failure, after)),
            other => panic!("{other:?}"),
        }
    }
    running.abort();
    assert!(matches!(&waits[0].0, AcquireError::Lost { .. }), "{waits:?}");
    assert_eq!(waits[0].1, Duration::ZERO, "another server may be there");
    for ((failure, wait), least_ms) in waits[1..].iter().zip([100, 200, 400]) {
        assert!(matches!(failure, AcquireError::Unreachable { .. } | AcquireError::Lost { .. }));
        let least = Duration::from_millis(least_ms);
        assert!((least..=least * 2).contains(wait), "{waits:?}");
    }
}

#[tokio::test]
async fn a_server_that_says_nothing_is_given_up_within_the_lease() {
    let address = scripted::serve(|mut peer| {
        peer.read_acquire();
        peer.answer_none();
    });
    let begun = Instant::now();
    let lock = client_of(address).lock("a").lease(Duration::from_millis(200));
    let lost = failure(lock).await;
    assert!(matches!(lost, AcquireError::Lost { .. }), "{lost:?}");
    assert!(begun.elapsed() < PATIENCE);
}

#[tokio::test]
async fn a_port_that_refuses_for_ten_seconds_is_dialled_a_few_times() {
    let port = scripted::own_port();
    let (sender, mut progress) = mpsc::unbounded_channel();
    let lock = client_of(port).lock("a").retrying().report_to(sender);
    let running = tokio::spawn(async move { lock.run(|_| async {}).await });
    let refusing_ends = Instant::now() + Duration::from_secs(10);
    let mut waits = Vec::new();
    let counting = async {
        while let Some(Progress::Retrying { failure, after }) = progress.recv().await {
            assert!(matches!(failure, AcquireError::Unreachable { .. }), "{failure:?}");
            waits.push(after);
        }
    };
    tokio::select! {
        () = counting => panic!("it has given up"),
        () = tokio::time::sleep_until(refusing_ends.into()) => {}
    }
    // 100 ms and longer, then 200 ms, 400 ms, and so on to 2.5 s.
    assert!((4..=8).contains(&waits.len()), "{waits:?}");
    let _server = Launch::on(&port).start();
    running.await.expect("no panic").expect("acquired when the server was there");
}

/// Everybody's claim ends at one moment, and nobody listens any more.
#[tokio::test]
async fn a_crowd_that_is_sent_away_comes_back_scattered() {
    const CROWD: usize = 100;
    let port = scripted::own_port();
    let server = Launch::on(&port).start();
    let (_holder, _) = Client::owner(port, "a", LONG_LEASE_MS);
    let mut crowd = Vec::new();
    for _ in 0..CROWD {
        let (sender, mut progress) = mpsc::unbounded_channel();
        let lock = client_of(port).lock("a").retrying().report_to(sender);
        let running = tokio::spawn(async move { lock.run(|_| async {}).await });
        assert!(matches!(progress.recv().await, Some(Progress::Queued { .. })));
        crowd.push((running, progress));
    }
    server.signal(rustix::process::Signal::TERM);
    let mut first_waits = Vec::new();
    for (running, progress) in &mut crowd {
        let mut waits = Vec::new();
        while waits.len() < 3 {
            match progress.recv().await {
                Some(Progress::Retrying { after, .. }) => waits.push(after),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(waits[0], Duration::ZERO, "another server may be there");
        for (wait, least_ms) in waits[1..].iter().zip([100, 200]) {
            assert!(*wait >= Duration::from_millis(least_ms), "{waits:?}");
        }
        first_waits.push(waits[1]);
        running.abort();
    }
    first_waits.sort_unstable();
    // Of 100 drawn from 100 ms, the chance that all of them fall into half of that is 2^-92.
    let spread = first_waits[CROWD - 1] - first_waits[0];
    assert!(spread > Duration::from_millis(50), "{first_waits:?}");
    first_waits.dedup();
    assert!(first_waits.len() > CROWD / 2, "{first_waits:?}");
}
