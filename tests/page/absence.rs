//! A server that is gone, back, or on its way out.

use rustix::process::Signal;

use crate::browser::Browser;
use crate::harness::client::Client;
use crate::harness::http;
use crate::harness::own_port::own_address;
use crate::harness::patience::LONG_LEASE_MS;
use crate::harness::server::Launch;
use crate::launch;

#[test]
fn a_server_that_stops_is_missed_and_found_again() {
    // An address of this test's own, so that nobody takes the port meanwhile.
    let on = |port: u16| {
        let admin = format!("{}:{port}", own_address(230));
        Launch::on_loopback().args(["--admin-listen", &admin])
    };
    let mut server = on(0).start();
    let admin = server.admin_address();
    let (owner, _) = Client::owner(server.address(), "before", LONG_LEASE_MS);
    let Some(page) = Browser::open(admin) else { return };
    page.wait_for_lock("before");
    assert!(!page.is_visible("#condition"));
    owner.close();
    server.signal(Signal::TERM);
    assert!(server.wait_for_exit().success());
    page.wait_until("the page says so", |page| {
        page.text("#condition").contains("has not answered since")
    });
    assert!(page.is_visible("#condition"));

    let server = on(admin.port()).start();
    let (_owner, _) = Client::owner(server.address(), "after", LONG_LEASE_MS);
    page.wait_for_lock("after");
    assert!(!page.is_visible("#condition"));
    assert_eq!(page.texts(".opener"), ["after"]);
    page.expect_clean();
}

#[test]
fn a_maintenance_drain_is_shown() {
    let server = launch().start();
    let _staying = Client::owner(server.address(), "staying", LONG_LEASE_MS);
    let (leaving, _) = Client::owner(server.address(), "leaving", LONG_LEASE_MS);
    let _waiter = Client::waiter(server.address(), "leaving", LONG_LEASE_MS);
    let Some(page) = Browser::open(server.admin_address()) else { return };
    page.wait_for_lock("staying");
    let drain = http::request(server.admin_address(), "POST", "/api/drain?limit=10m", "");
    assert_eq!(drain.status, 200);
    page.wait_until("the page says so", |page| {
        page.text("#condition").starts_with("Maintenance: nothing is granted any more")
    });
    leaving.close();
    page.wait_until("nobody is promoted", |page| page.text("[data-label=Holder]") == "nobody");
    assert_eq!(page.texts(".opener"), ["leaving", "staying"]);
    page.expect_clean();
}
