//! More locks than a process should hold.

use std::fmt::Write;
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use rustix::process::Pid;

use crate::fake_api::{self, json};
use crate::harness::client::Client;
use crate::harness::patience::LONG_LEASE_MS;
use crate::harness::procfs;
use crate::{ask, fields, monolock, start};

const PAGES: u32 = 40;
const LOCKS_A_PAGE: u32 = 1_000;

/// A list is printed page by page: memory does not grow with its length.
#[test]
fn a_long_list_takes_no_more_memory_than_a_page() {
    for words in [&["locks"][..], &["locks", "--json"]] {
        let asker = Arc::new(AtomicU32::new(0));
        let sizes = Arc::new(Mutex::new(Vec::new()));
        let (pid, seen) = (Arc::clone(&asker), Arc::clone(&sizes));
        let api = fake_api::serve(move |request| {
            let after = request.split("after=").nth(1).map(|rest| &rest[..5]);
            let page = after.map_or(0, |after| after.parse::<u32>().expect("a page") + 1);
            if page > 2 {
                while pid.load(Ordering::SeqCst) == 0 {
                    std::thread::yield_now();
                }
                let pid = i32::try_from(pid.load(Ordering::SeqCst)).expect("a process");
                let bytes = procfs::resident_bytes(Pid::from_raw(pid).expect("not zero"));
                seen.lock().expect("no test failed").push(bytes);
            }
            json(200, &page_of(page))
        });
        let mut command = monolock(api.address, words);
        let child = command.stdout(Stdio::piped()).spawn().expect("the binary");
        asker.store(child.id(), Ordering::SeqCst);
        let output = child.wait_with_output().expect("a child");
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        let count = PAGES * LOCKS_A_PAGE;
        if words.contains(&"--json") {
            let list: serde_json::Value = serde_json::from_str(&text).expect("JSON");
            assert_eq!(list["locks"].as_array().map(Vec::len), Some(count as usize));
        } else {
            assert_eq!(text.lines().count(), count as usize);
        }
        let has_queues = api.requests().iter().any(|request| !request.contains("waiters=0"));
        assert_eq!(has_queues, words.contains(&"--json"), "a queue is fetched to be shown only");
        let sizes = sizes.lock().expect("no answer failed");
        let (first, most) = (sizes[0], *sizes.iter().max().expect("pages"));
        let printed = text.len() as u64;
        assert!(most - first < printed / 4, "{first} grew to {most} while printing {printed}");
    }
}

fn page_of(page: u32) -> String {
    let mut locks = String::new();
    for number in 0..LOCKS_A_PAGE {
        let separator = if number == 0 { "" } else { "," };
        let name = format!("{page:05}/{number:0200}");
        write!(locks, r#"{separator}{{"name":"{name}","holder":null,"waiters":[]}}"#)
            .expect("a string takes everything");
    }
    let next =
        if page + 1 == PAGES { String::new() } else { format!(r#","next_after":"{page:05}""#) };
    format!(r#"{{"locks":[{locks}]{next}}}"#)
}

/// More than the server gives in one page, and a queue longer than a slice of it.
#[test]
fn a_long_queue_is_counted_and_shown_in_order() {
    let server = start();
    let _holder = Client::owner(server.address(), "a", LONG_LEASE_MS);
    let waiters: Vec<Client> =
        (0..300).map(|_| Client::waiter(server.address(), "a", LONG_LEASE_MS)).collect();
    let listed = ask(server.admin_address(), &["locks"]).expect_done();
    assert_eq!(fields(&listed)[0].last(), Some(&"300"));
    let shown = ask(server.admin_address(), &["show", "a"]).expect_done();
    let rows = fields(&shown);
    for (row, waiter) in rows[1..].iter().zip(&waiters) {
        assert_eq!(row[1], waiter.local_address().to_string());
    }
    assert_eq!(rows.len(), 301);
}
