//! Force-release and kick, with and without a yes.

use crate::browser::Browser;
use crate::harness::client::Client;
use crate::harness::http;
use crate::harness::patience::LONG_LEASE_MS;
use crate::harness::wire::code;
use crate::launch;

const ENTER: char = '\u{e007}';
const ESCAPE: char = '\u{e00c}';
const TAB: char = '\u{e004}';

#[test]
fn a_force_release_that_is_confirmed_changes_the_holder() {
    let server = launch().start();
    let (mut owner, token) = Client::owner(server.address(), "nightly/import", LONG_LEASE_MS);
    let mut waiter = Client::waiter(server.address(), "nightly/import", LONG_LEASE_MS);
    let Some(page) = Browser::open(server.admin_address()) else { return };
    page.wait_for_lock("nightly/import");

    // A no, in three ways.
    page.click("#locks .danger");
    let question = page.text("#confirm");
    assert!(question.contains(&format!("with token {token}")), "{question}");
    assert!(question.contains("The first in its queue gets it at once."), "{question}");
    page.click("#cancel");
    page.click("#locks .danger");
    page.press(&[ESCAPE]);
    page.wait_until("the question is gone", |page| !page.is_visible("#confirm"));
    page.click("#locks .danger");
    // What a hasty Enter meets is the no.
    page.press(&[ENTER]);
    page.wait_until("the question is gone", |page| !page.is_visible("#confirm"));
    owner.expect_held(token);
    assert!(!page.is_visible("#outcome"));

    // A yes, by keys alone: the focus is back where it was.
    page.press(&[ENTER]);
    page.wait_until("the question is there", |page| page.is_visible("#confirm"));
    page.press(&[TAB, ENTER]);
    owner.expect_refusal(code::CLOSED_BY_ADMINISTRATOR);
    let next = waiter.expect_acquired();
    page.wait_until("the next holder is shown", |page| {
        page.text("[data-label=Holder]") == format!("{}token {next}", waiter.local_address())
    });
    let outcome = page.text("#outcome span");
    assert_eq!(outcome, format!("nightly/import was taken from {}.", owner.local_address()));
    page.expect_clean();
}

#[test]
fn a_force_release_never_meets_another_holder_than_the_one_shown() {
    let server = launch().start();
    let (owner, shown) = Client::owner(server.address(), "lock", LONG_LEASE_MS);
    let mut next = Client::waiter(server.address(), "lock", LONG_LEASE_MS);
    let Some(page) = Browser::open(server.admin_address()) else { return };
    page.wait_for_lock("lock");
    // While somebody thinks, the lock changes hands.
    page.click("#locks .danger");
    owner.close();
    let token = next.expect_acquired();
    page.wait_until("the page shows the next one", |page| {
        page.text("#locks small") == format!("token {token}")
    });
    assert!(page.text("#confirm").contains(&format!("with token {shown}")));
    page.click("#go");
    page.wait_until("the refusal is told", |page| {
        page.text("#outcome").contains(&format!("the holder's token is {token}"))
    });
    assert!(page.text("#outcome").contains("lock was not taken from "));
    next.expect_held(token);

    // Nobody holds it any more: said as well.
    page.click("#locks .danger");
    next.close();
    page.wait_until("the lock is gone", |page| page.texts(".opener").is_empty());
    page.click("#go");
    page.wait_until("that is told", |page| {
        page.text("#outcome").contains("nobody holds this lock")
    });
    page.expect_clean();
}

#[test]
fn a_waiter_that_is_kicked_is_gone_from_the_queue() {
    let server = launch().start();
    let (mut owner, token) = Client::owner(server.address(), "lock", LONG_LEASE_MS);
    let mut first = Client::waiter(server.address(), "lock", LONG_LEASE_MS);
    let mut second = Client::waiter(server.address(), "lock", LONG_LEASE_MS);
    let Some(page) = Browser::open(server.admin_address()) else { return };
    page.wait_for_lock("lock");
    page.click(".opener");
    page.wait_until("the queue is open", |page| page.texts(".queue li").len() == 2);
    page.click(".queue li:first-child button");
    page.click("#cancel");
    first.expect_queued();
    page.click(".queue li:first-child button");
    let question = page.text("#confirm");
    assert!(question.contains(&first.local_address().to_string()), "{question}");
    page.click("#go");
    first.expect_refusal(code::CLOSED_BY_ADMINISTRATOR);
    page.wait_until("the queue is shorter", |page| {
        page.texts(".queue .name") == [second.local_address().to_string()]
    });
    assert!(page.text("#outcome").contains("was taken out of the queue for lock"));

    // One that leaves by itself while somebody thinks.
    page.click(".queue li:first-child button");
    let address = second.local_address();
    second.expect_queued();
    second.close();
    page.wait_until("nobody waits", |page| page.texts(".queue li").is_empty());
    page.click("#go");
    page.wait_until("that is told", |page| {
        page.text("#outcome").contains(&format!("nobody from {address} waits for this lock"))
    });
    owner.expect_held(token);
    page.expect_clean();
}

#[test]
fn a_name_that_no_browser_can_send_is_not_mistaken_for_another_path() {
    let server = launch().start();
    let (mut owner, token) = Client::owner(server.address(), "..", LONG_LEASE_MS);
    let Some(page) = Browser::open(server.admin_address()) else { return };
    page.wait_for_lock("..");
    page.click(".opener");
    page.wait_until("it is open", |page| page.is_visible(".below h3"));
    page.click("#locks .danger");
    assert!(page.text("#outcome").contains("curl --path-as-is"));
    owner.expect_held(token);
    // And that is true.
    let answer = http::request(server.admin_address(), "POST", "/api/locks/../release", "");
    assert_eq!(answer.status, 200);
    owner.expect_refusal(code::CLOSED_BY_ADMINISTRATOR);
    page.expect_clean();
}

#[test]
fn a_page_that_is_paused_stands_still() {
    let server = launch().start();
    let (owner, _) = Client::owner(server.address(), "lock", LONG_LEASE_MS);
    let Some(page) = Browser::open(server.admin_address()) else { return };
    page.wait_for_lock("lock");
    page.click("#pause");
    // What was under way may still come in.
    page.wait_until("it stands still", |page| {
        let asked = "return performance.getEntriesByType('resource').length";
        let before = page.run(asked);
        page.run("return new Promise((done) => setTimeout(done, 1500))");
        page.run(asked) == before
    });
    owner.close();
    let (_other, _) = Client::owner(server.address(), "other", LONG_LEASE_MS);
    assert_eq!(page.texts(".opener"), ["lock"]);
    page.click("#pause");
    page.wait_until("it goes on", |page| page.texts(".opener") == ["other"]);
    page.expect_clean();
}
