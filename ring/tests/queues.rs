//! Queues that are too small, wake-ups, timeouts, and limits at set-up.

mod loopback;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use loopback::{DEADLINE, Loopback, SMALL, Seen, bytes, read_exactly, write};
use monolock_ring::{Config, Event, Ring, SetupError};

/// Echoes three rounds on many connections.
fn echo_on_all(config: &Config, count: u32) {
    let mut net = Loopback::new(config);
    let (ids, peers) = net.streams(count);
    for round in 0..3_u8 {
        peers.iter().for_each(|peer| write(peer, &[round; 9]));
        let mut pending: HashMap<_, usize> = HashMap::new();
        let mut left = count;
        net.until(|ring, event| {
            match event {
                Seen::Received(id, part) => {
                    let got = pending.entry(*id).or_default();
                    *got += part.len();
                    if *got == 9 {
                        ring.send(*id, bytes(&[round; 9]));
                    }
                }
                Seen::Sent(_) => left -= 1,
                other => panic!("{other:?}"),
            }
            left == 0
        });
        peers.iter().for_each(|peer| assert_eq!(read_exactly(peer, 9), [round; 9]));
    }
    ids.iter().for_each(|id| net.ring.close(*id));
    let mut left = count;
    net.until(|_, event| {
        assert!(matches!(event, Seen::Closed(_)), "{event:?}");
        left -= 1;
        left == 0
    });
    assert!(net.ring.is_settled());
}

#[test]
fn more_work_than_the_submission_queue_holds() {
    let config =
        Config { slots: 500, buffers: 256, buffer_len: 64, submissions: 1, completions: 1024 };
    echo_on_all(&config, 500);
}

#[test]
fn more_completions_than_their_queue_holds() {
    let config =
        Config { slots: 500, buffers: 1024, buffer_len: 64, submissions: 2, completions: 2 };
    echo_on_all(&config, 500);
}

#[test]
fn all_too_small_at_once() {
    let config = Config { slots: 200, buffers: 1, buffer_len: 4, submissions: 1, completions: 1 };
    echo_on_all(&config, 200);
}

#[test]
fn no_wake_up_is_lost() {
    const WAKES: u32 = 20_000;
    let mut ring = Ring::new(&SMALL).expect("io_uring");
    let inbox = Arc::new(AtomicU32::new(0));
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let (inbox, waker) = (Arc::clone(&inbox), ring.waker());
            thread::spawn(move || {
                for _ in 0..WAKES {
                    inbox.fetch_add(1, Ordering::Relaxed);
                    waker.wake();
                }
            })
        })
        .collect();
    let (mut seen, mut woken) = (0, 0);
    while seen < 2 * WAKES {
        // Only a wake-up ends this wait in time.
        let start = Instant::now();
        ring.wait(Some(DEADLINE)).expect("wait");
        assert!(start.elapsed() < DEADLINE / 2, "a lost wake-up at {seen}");
        while let Some(event) = ring.next_event() {
            assert_eq!(event, Event::Woken);
            woken += 1;
            seen = inbox.load(Ordering::Relaxed);
        }
    }
    threads.into_iter().for_each(|thread| thread.join().expect("a waker's thread"));
    assert!(woken <= 2 * WAKES, "each wake-up is told at most once");
}

#[test]
fn wake_ups_coalesce_and_work_before_the_wait() {
    let mut ring = Ring::new(&SMALL).expect("io_uring");
    let waker = ring.waker();
    for _ in 0..3 {
        for _ in 0..1000 {
            waker.wake();
        }
        ring.wait(Some(DEADLINE)).expect("wait");
        assert_eq!(ring.next_event(), Some(Event::Woken));
        ring.wait(Some(Duration::ZERO)).expect("wait");
        assert_eq!(ring.next_event(), None);
        assert!(ring.is_settled());
    }
    drop(ring);
    waker.wake();
}

#[test]
fn a_wait_ends_with_its_time() {
    let mut ring = Ring::new(&SMALL).expect("io_uring");
    let limit = Duration::from_millis(20);
    let start = Instant::now();
    ring.wait(Some(limit)).expect("wait");
    assert!(start.elapsed() >= limit);
    assert_eq!(ring.next_event(), None);
}

/// `CLOCK_MONOTONIC`, in which alarms are set.
fn monotonic() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::try_from(now).expect("no time before the start")
}

/// Waits without a timeout until that moment; what comes earlier has come in vain.
fn wait_until(ring: &mut Ring, moment: Duration) {
    while monotonic() < moment {
        ring.wait(None).expect("a wait");
        assert!(ring.next_event().is_none(), "an alarm is no event");
    }
}

#[test]
fn an_alarm_ends_a_wait_and_can_be_set_again() {
    let mut ring = Ring::new(&SMALL).expect("io_uring");
    for _ in 0..3 {
        let at = monotonic() + Duration::from_millis(20);
        ring.set_alarm(at);
        wait_until(&mut ring, at);
    }
}

#[test]
fn of_two_alarms_the_earlier_one_rings() {
    const FAR: Duration = Duration::from_secs(3600);
    for is_submitted_between in [false, true] {
        let mut ring = Ring::new(&SMALL).expect("io_uring");
        ring.set_alarm(monotonic() + FAR);
        if is_submitted_between {
            ring.wait(Some(Duration::ZERO)).expect("a wait");
        }
        let at = monotonic() + Duration::from_millis(20);
        ring.set_alarm(at);
        ring.set_alarm(monotonic() + FAR);
        // In an hour, if the far one had its way.
        wait_until(&mut ring, at);
    }
}

#[test]
fn an_alarm_that_is_moved_as_it_rings_is_not_lost() {
    let mut ring = Ring::new(&SMALL).expect("io_uring");
    let start = monotonic();
    for round in 0..200 {
        let soon = monotonic() + Duration::from_micros(round);
        ring.set_alarm(soon);
        ring.wait(Some(Duration::ZERO)).expect("a wait");
        while ring.next_event().is_some() {}
        // Earlier than the first, which is just ringing.
        ring.set_alarm(start);
        ring.wait(None).expect("a wait");
        let at = monotonic() + Duration::from_millis(1);
        while ring.next_event().is_some() {}
        ring.set_alarm(at);
        wait_until(&mut ring, at);
    }
}

#[test]
fn a_wait_doesnt_sleep_on_events_that_are_left() {
    let mut net = Loopback::new(&SMALL);
    let (ids, peers) = net.streams(2);
    peers.iter().for_each(|peer| write(peer, b"x"));
    let start = Instant::now();
    for _ in 0..20 {
        net.ring.wait(Some(DEADLINE)).expect("wait");
    }
    assert!(start.elapsed() < DEADLINE);
    let mut left = ids.len();
    while let Some(event) = net.ring.next_event() {
        left -= usize::from(matches!(event, Event::Received { .. }));
    }
    assert_eq!(left, 0);
}

#[test]
fn a_file_table_beyond_the_limit_of_open_files_is_explained() {
    let config = Config { slots: 1 << 23, ..SMALL };
    match Ring::new(&config) {
        Err(error @ SetupError::FileTable { .. }) => {
            let line = error.to_string();
            assert!(line.contains("RLIMIT_NOFILE") && !line.contains('\n'), "{line}");
        }
        Err(error) => panic!("{error}"),
        // Where the limit is that high, there is nothing to explain.
        Ok(_) => {}
    }
}
