//! Work that one machine at a time may do: `cargo run --example nightly_import -- [HOST:PORT]`.
//!
//! Start it in two terminals, and see that the second one begins when the first has ended. Then
//! kill the first, stop it with Ctrl-Z for longer than the lease, or restart the server.

use std::error::Error;
use std::time::Duration;

use monolock_client::{Client, Held, Loss};

const LEASE: Duration = Duration::from_secs(2);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7070".into());
    let imported = run(&address, 10).await?;
    println!("{imported} rows imported, and the lock is free");
    Ok(())
}

/// Imports so many rows while nobody else does.
pub(crate) async fn run(address: &str, rows: u32) -> Result<u32, Box<dyn Error>> {
    let client = Client::new(address)?;
    let lock = client.lock("nightly/import").lease(LEASE).retrying();
    // The first `?` is about the lock, the second about the work.
    Ok(lock.run(move |held: Held| import(held, rows)).await??)
}

async fn import(held: Held, rows: u32) -> Result<u32, Loss> {
    for row in 1..=rows {
        // Asked for again before each write: a machine that has slept has none.
        let token = held.token()?;
        println!("row {row}, to be written with token {token}");
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    Ok(rows)
}
