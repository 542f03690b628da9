//! Locks and queues, search, pages, names that are meant to do harm, small screens.

use crate::browser::Browser;
use crate::harness::client::Client;
use crate::harness::http;
use crate::harness::patience::LONG_LEASE_MS;
use crate::harness::server::Server;
use crate::launch;

/// Names with what the page must show for them.
const HOSTILE: [(&str, &str); 12] = [
    ("<img src=x onerror=\"ran.push(1)\">", "<img src=x onerror=\"ran.push(1)\">"),
    ("<script>ran.push(2)</script>", "<script>ran.push(2)</script>"),
    ("\"><svg onload='ran.push(3)'>", "\"><svg onload='ran.push(3)'>"),
    ("${ran.push(4)}{{ran.push(5)}}", "${ran.push(4)}{{ran.push(5)}}"),
    ("javascript:ran.push(6)", "javascript:ran.push(6)"),
    ("pay\u{202e}gnp.exe", r"pay\u{202e}gnp.exe"),
    ("\u{2066}iso\u{2069}\u{200f}late", r"\u{2066}iso\u{2069}\u{200f}late"),
    ("nul\0 esc\u{1b}[31m line\nbreak", r"nul\u{0} esc\u{1b}[31m line\u{a}break"),
    ("zero\u{200b}width\u{feff}", r"zero\u{200b}width\u{feff}"),
    (" both ends ", r"\u{20}both ends\u{20}"),
    ("no\u{a0}break\u{3164}", r"no\u{a0}break\u{3164}"),
    ("ключ/🔒/%2F/a+b?c#d", "ключ/🔒/%2F/a+b?c#d"),
];

fn own_all(server: &Server, names: &[String]) -> Vec<Client> {
    names.iter().map(|name| Client::owner(server.address(), name, LONG_LEASE_MS).0).collect()
}

#[test]
fn locks_and_their_queues_are_shown_and_followed() {
    let server = launch().start();
    let Some(page) = Browser::open(server.admin_address()) else { return };
    page.wait_until("the page says that there is none", |page| {
        page.text("#remark") == "No lock is in use."
    });
    let (owner, token) = Client::owner(server.address(), "nightly/import", LONG_LEASE_MS);
    let mut first = Client::waiter(server.address(), "nightly/import", LONG_LEASE_MS);
    let second = Client::waiter(server.address(), "nightly/import", LONG_LEASE_MS);
    page.wait_for_lock("nightly/import");
    page.wait_until("both waiters are there", |page| {
        page.text("[data-label=Waiting]").starts_with("2the first for ")
    });
    let holder = page.text("[data-label=Holder]");
    assert_eq!(holder, format!("{}token {token}", owner.local_address()));
    let heard = page.text("[data-label='Last heard']");
    assert!(heard.ends_with(" agolease 2 min"), "{heard}");
    assert_eq!(page.text(".chart:nth-child(1) strong"), "3");
    assert_eq!(page.text(".chart:nth-child(2) strong"), "1");
    assert_eq!(page.text(".chart:nth-child(3) strong"), "2");

    page.click(".opener");
    page.wait_until("the queue is open", |page| page.texts(".queue .name").len() == 2);
    let queue = [&first, &second].map(|waiter| waiter.local_address().to_string());
    assert_eq!(page.texts(".queue .name"), queue);
    assert_eq!(page.run("return document.querySelector('.opener').ariaExpanded"), "true");

    owner.close();
    let next = first.expect_acquired();
    page.wait_until("the next one holds it", |page| {
        page.text("[data-label=Holder]") == format!("{}token {next}", first.local_address())
    });
    page.wait_until("the end of the hold before is told", |page| {
        page.text(".below p").contains(&format!("token {token}"))
    });
    assert!(page.text(".below p").ends_with(": graceful."));
    assert_eq!(page.texts(".queue .name"), queue[1..]);
    drop((first, second));
    page.wait_until("nothing is left", |page| page.texts(".opener").is_empty());
    page.expect_clean();
}

#[test]
fn a_name_that_is_meant_to_do_harm_is_only_text() {
    let server = launch().start();
    let names = HOSTILE.map(|(name, _)| name.to_owned());
    let _owners = own_all(&server, &names);
    let Some(page) = Browser::open(server.admin_address()) else { return };
    page.wait_until("all are listed", |page| page.texts(".opener").len() == HOSTILE.len());
    for (name, shown) in HOSTILE {
        assert!(page.texts(".opener").contains(&shown.to_owned()), "{name:?}");
    }
    // In the list, opened, in the question and in what came of it.
    for (name, shown) in HOSTILE {
        let row = page.texts(".opener").iter().position(|text| text == shown);
        let row = row.expect("it is listed");
        page.run(&format!("document.querySelectorAll('.opener')[{row}].click()"));
        page.wait_until("its queue is open", |page| page.is_visible(".below h3"));
        page.run(&format!("document.querySelectorAll('#locks .danger')[{row}].click()"));
        assert_eq!(page.text("#confirm-text .name"), shown);
        page.click("#go");
        page.wait_until("it is released", |page| {
            page.texts("#outcome .name").first().is_some_and(|name| name == shown)
                && !page.texts(".opener").contains(&shown.into())
        });
        assert!(page.text("#outcome").contains(" was taken from "), "{name:?}");
        let unseen = page.run(
            r"const text = document.documentElement.textContent
                + [...document.querySelectorAll('[aria-label]')].map((node) => node.ariaLabel);
              const controls = '\\u0000-\\u0009\\u000b-\\u001f\\u007f-\\u009f';
              const unseen = '\\u200b-\\u200f\\u202a-\\u202e\\u2060-\\u2069\\ufeff';
              return text.match(new RegExp(`[${controls}${unseen}]`, 'u'));",
        );
        assert!(unseen.is_null(), "{unseen} is on the page");
    }
    let strangers = "main img, main script, main style, main a, svg:not(.chart > svg)";
    assert!(page.texts(strangers).is_empty());
    page.expect_clean();
}

#[test]
fn what_the_policy_forbids_is_noticed_here() {
    let server = launch().start();
    let Some(page) = Browser::open(server.admin_address()) else { return };
    page.run(
        "const style = document.createElement('style');
         style.textContent = 'body { color: red }';
         document.head.append(style);",
    );
    page.wait_until("the violation is reported", |page| {
        page.run("return violations").as_array().is_some_and(|seen| seen.len() == 1)
    });
    let written = page.run(
        "try { document.body.innerHTML = '<img src=x onerror=\"ran.push(1)\">'; }
         catch (error) { return error.name; }",
    );
    assert_eq!(written, "TypeError");
    assert_eq!(page.run("return ran.length"), 0);
}

#[test]
fn a_search_is_by_pattern_or_by_a_part_of_the_name() {
    let server = launch().start();
    let names: Vec<String> =
        (0..60).map(|number| format!("job/{number:02}")).chain(["other".into()]).collect();
    let _owners = own_all(&server, &names);
    let _waiter = Client::waiter(server.address(), "job/59", LONG_LEASE_MS);
    let Some(page) = Browser::open(server.admin_address()) else { return };
    let shows = |what: &str, expected: &[&str]| {
        page.wait_until(what, |page| page.texts(".opener") == expected);
    };
    page.wait_until("the first page is there", |page| page.texts(".opener") == names[..50]);
    page.click("#next");
    let rest: Vec<&str> = names[50..].iter().map(String::as_str).collect();
    shows("the second page is there", &rest);
    assert_eq!(page.text("#page-number"), "Page 2");
    assert!(!page.run("return document.getElementById('next').disabled").is_null());
    page.type_into("#match", "job/?5");
    shows("a pattern is followed", &["job/05", "job/15", "job/25", "job/35", "job/45", "job/55"]);
    assert!(!page.is_visible("#pages"));
    page.type_into("#match", "the");
    shows("a part is found", &["other"]);
    page.type_into("#match", "nothing*");
    page.wait_until("it is said that there is none", |page| {
        page.text("#remark") == "No lock in use matches nothing*."
            && page.texts(".opener").is_empty()
    });
    page.type_into("#match", &"é".repeat(513));
    page.wait_until("a pattern that is too long is refused", |page| {
        page.text("#remark").contains("1024 bytes at most")
    });
    page.run(
        "const order = document.getElementById('order');
         order.value = 'waiters'; order.dispatchEvent(new Event('change'));",
    );
    shows("the longest queue is there", &["job/59"]);
    page.expect_clean();
}

#[test]
fn a_long_queue_is_shown_in_steps() {
    let server = launch().start();
    let _owner = Client::owner(server.address(), "lock", LONG_LEASE_MS);
    let waiters: Vec<Client> =
        (0..150).map(|_| Client::waiter(server.address(), "lock", LONG_LEASE_MS)).collect();
    let Some(page) = Browser::open(server.admin_address()) else { return };
    page.wait_for_lock("lock");
    page.click(".opener");
    page.wait_until("a hundred are shown", |page| page.texts(".queue .name").len() == 100);
    assert_eq!(page.text(".below td > button"), "Show more of the 50 behind them");
    page.click(".below td > button");
    page.wait_until("all are shown", |page| page.texts(".queue .name").len() == 150);
    assert!(!page.is_visible(".below td > button"));
    let expected: Vec<String> =
        waiters.iter().map(|waiter| waiter.local_address().to_string()).collect();
    assert_eq!(page.texts(".queue .name"), expected);
    page.expect_clean();
}

#[test]
fn a_phone_shows_all_of_it_without_scrolling_sideways() {
    let server = launch().start();
    let long = "W".repeat(255);
    let names = [long.clone(), "a".into(), HOSTILE[0].0.into(), "é".repeat(127)];
    let _owners = own_all(&server, &names);
    let _waiter = Client::waiter(server.address(), &long, LONG_LEASE_MS);
    let Some(page) = Browser::open(server.admin_address()) else { return };
    for (width, height) in [(320, 568), (390, 844), (844, 390), (1280, 800)] {
        page.resize(width, height);
        page.wait_for_lock(&long);
        if !page.is_visible(".queue li") {
            page.run(
                "[...document.querySelectorAll('.opener')]
                    .find((opener) => opener.textContent.startsWith('WW')).click()",
            );
            page.wait_until("the queue is open", |page| page.is_visible(".queue li"));
        }
        let fits = |what: &str| {
            let sizes = page.run(
                "return [document.documentElement.scrollWidth, window.innerWidth, innerWidth]",
            );
            assert!(sizes[0].as_u64() <= Some(width.into()), "{what} at {width}: {sizes}");
            assert_eq!(sizes[1], width, "{what}");
        };
        fits("the list");
        page.run("document.querySelectorAll('#locks .danger')[0].click()");
        page.wait_until("the question is there", |page| page.is_visible("#confirm"));
        fits("the question");
        page.click("#cancel");
    }
    let answer = http::get(server.admin_address(), "/api/info").json();
    assert_eq!(answer["locks"], names.len());
    page.expect_clean();
}
