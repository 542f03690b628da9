//! A leader among equals: `cargo run --example leader -- NAME [HOST:PORT]`.
//!
//! Start it several times with different names. One of them leads; when it is killed, the next in
//! the queue does, and when the server is restarted, they stand for election again.

use std::error::Error;
use std::ops::ControlFlow;
use std::time::Duration;

use monolock_client::{Client, Held};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().ok_or("usage: leader NAME [HOST:PORT]")?;
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:7070".into());
    run(&address, &name, u32::MAX).await
}

/// Leads again and again, until it has led for so many steps in one term.
pub(crate) async fn run(address: &str, name: &str, steps: u32) -> Result<(), Box<dyn Error>> {
    let client = Client::new(address)?;
    let candidate = client.lock("leader").lease(Duration::from_secs(2));
    let led = candidate.elect(|held: Held| lead(held, name.to_owned(), steps)).await?;
    println!("{name} has led for {led} steps");
    Ok(())
}

/// One term.
async fn lead(held: Held, name: String, steps: u32) -> ControlFlow<u32> {
    println!("{name} leads");
    for _ in 0..steps {
        tokio::select! {
            reason = held.stopping() => {
                println!("{name} leads no more: {reason:?}");
                return ControlFlow::Continue(());
            }
            // What a leader does would stand here.
            () = tokio::time::sleep(Duration::from_millis(10)) => {}
        }
    }
    ControlFlow::Break(steps)
}
