//! Many clients on one lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use monolock_client::{Client as LockClient, Held};

use crate::harness::server::Launch;

const CLIENTS: u64 = 100;
const TURNS: u64 = 50;

#[derive(Default)]
struct Guarded {
    holders: AtomicU64,
    last_token: AtomicU64,
    turns: AtomicU64,
}

impl Guarded {
    async fn work(&self, held: &Held) {
        assert_eq!(self.holders.fetch_add(1, Ordering::SeqCst), 0, "somebody else works");
        let token = held.token().expect("held").get();
        assert!(self.last_token.swap(token, Ordering::SeqCst) < token, "tokens grow");
        tokio::task::yield_now().await;
        self.turns.fetch_add(1, Ordering::SeqCst);
        assert_eq!(self.holders.fetch_sub(1, Ordering::SeqCst), 1, "somebody else works");
    }
}

#[tokio::test]
async fn a_hundred_clients_take_turns_without_overlap() {
    let server = Launch::on_loopback().start();
    let guarded = Arc::new(Guarded::default());
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let client = LockClient::new(&server.address().to_string()).expect("an address");
            let guarded = Arc::clone(&guarded);
            tokio::spawn(async move {
                // Longer than a busy machine keeps anybody waiting.
                let lock = client.lock("a").lease(Duration::from_secs(60));
                for _ in 0..TURNS {
                    let guarded = Arc::clone(&guarded);
                    let turn =
                        lock.clone().run(|held: Held| async move { guarded.work(&held).await });
                    turn.await.expect("held from beginning to end");
                }
            })
        })
        .collect();
    for client in clients {
        client.await.expect("a client without a complaint");
    }
    assert_eq!(guarded.turns.load(Ordering::SeqCst), CLIENTS * TURNS);
}
