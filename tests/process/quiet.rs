//! What must come about by the server itself, when nobody else says anything.

use std::thread;
use std::time::Duration;

use crate::harness::client::{Client, Options};
use crate::harness::patience::LONG_LEASE_MS;
use crate::harness::server::Launch;
use crate::harness::wire::HEARTBEAT;

#[test]
fn a_holder_that_closed_its_half_and_reads_nothing_loses_the_lock_in_time() {
    let server = Launch::on_loopback().args(["--io-timeout", "500ms"]).start();
    // Few are answered at once, many fill every buffer; between the two a write is stuck and
    // nothing is left to be read.
    for heartbeats in [8, 12, 16, 24, 32, 40].map(|thousands: usize| thousands << 10) {
        let name = format!("lock {heartbeats}");
        let options = Options { receive_buffer_bytes: Some(1 << 10), ..Options::default() };
        let mut holder = Client::connect_with(server.address(), options);
        holder.acquire(&name, LONG_LEASE_MS);
        holder.expect_acquired();
        let mut waiter = Client::waiter(server.address(), &name, LONG_LEASE_MS);
        for portion in vec![HEARTBEAT; heartbeats].chunks(4 << 10) {
            holder.send(portion);
            // A portion at a time is read, however fast the machine.
            thread::sleep(Duration::from_millis(5));
        }
        holder.half_close();
        waiter.expect_acquired();
    }
}
