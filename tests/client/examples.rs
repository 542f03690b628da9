//! The examples do what they say.

use crate::harness::client::Client;
use crate::harness::patience::LONG_LEASE_MS;
use crate::harness::server::Launch;

#[expect(dead_code, reason = "its main is the example's")]
#[path = "../../../examples/leader.rs"]
mod leader;
#[expect(dead_code, reason = "its main is the example's")]
#[path = "../../../examples/nightly_import.rs"]
mod nightly_import;

#[tokio::test]
async fn the_nightly_import_imports_and_releases() {
    let server = Launch::on_loopback().start();
    let imported = nightly_import::run(&server.address().to_string(), 2).await;
    assert_eq!(imported.expect("imported"), 2);
    Client::owner_patiently(server.address(), "nightly/import");
}

#[tokio::test]
async fn a_candidate_leads_and_releases() {
    let server = Launch::on_loopback().start();
    let (holder, _) = Client::owner(server.address(), "leader", LONG_LEASE_MS);
    holder.close();
    leader::run(&server.address().to_string(), "a", 3).await.expect("it has led");
    Client::owner_patiently(server.address(), "leader");
}
