//! The recipes of `docs/guide/recipes.md` against what they are for: whatever comes with an older
//! token than the largest is refused, however the two interleave.
//!
//! The recipes are in `examples/recipes`.

mod harness;

#[path = "recipes/files.rs"]
mod files;
#[path = "recipes/object_store.rs"]
mod object_store;
#[path = "recipes/postgres.rs"]
mod postgres;
#[path = "recipes/redis.rs"]
mod redis;
#[path = "recipes/service.rs"]
mod service;
#[path = "recipes/sqlite.rs"]
mod sqlite;

use std::fs;
use std::path::Path;
use std::thread;

use harness::client::Client;
use harness::patience::LONG_LEASE_MS;
use harness::server::Launch;
use monolock_client::{Token, Written};

/// What is written to.
trait Resource: Send {
    fn write(&mut self, token: Token, text: &str) -> Written<()>;
    fn content(&mut self) -> String;
}

/// Tokens of one lock, in the order of the grants.
fn tokens<const N: usize>() -> [Token; N] {
    let server = Launch::on_loopback().start();
    let mut last = None::<Client>;
    std::array::from_fn(|_| {
        let token = match last.take() {
            None => {
                let (owner, token) = Client::owner(server.address(), "report", LONG_LEASE_MS);
                last = Some(owner);
                token
            }
            Some(owner) => {
                let mut next = Client::waiter(server.address(), "report", LONG_LEASE_MS);
                owner.close();
                let token = next.expect_acquired();
                last = Some(next);
                token
            }
        };
        Token::new(token).expect("not zero")
    })
}

/// One after the other, as it is when a holder has slept.
fn check_in_turn(resource: &mut dyn Resource) {
    let [first, second, third] = tokens();
    let done = Written::Done(());
    assert_eq!(resource.write(first, "first"), done);
    assert_eq!(resource.write(first, "first, again"), done, "one token writes many times");
    assert_eq!(resource.write(second, "second"), done);
    assert_eq!(resource.write(first, "asleep"), Written::Refused);
    assert_eq!(resource.content(), "second");
    assert_eq!(resource.write(second, "second, again"), done);
    // Who takes over may write what is there already.
    assert_eq!(resource.write(third, "second, again"), done);
    assert_eq!(resource.write(second, "asleep"), Written::Refused);
    assert_eq!(resource.content(), "second, again");
}

/// All at once, as it can't be with a lock and is when it fails: the last word has the largest
/// token, and nobody who was refused is heard.
fn check_at_once<R: Resource>(open: impl Fn() -> R) {
    const WRITES: u32 = 20;
    let tokens: [Token; 4] = tokens();
    thread::scope(|scope| {
        for token in tokens {
            let mut resource = open();
            scope.spawn(move || {
                let mut is_refused = false;
                for _ in 0..WRITES {
                    match resource.write(token, &token.to_string()) {
                        Written::Done(()) => assert!(!is_refused, "refused once is for ever"),
                        Written::Refused => is_refused = true,
                    }
                }
                let largest = tokens[tokens.len() - 1];
                assert!(!is_refused || token < largest, "the largest is never refused");
            });
        }
    });
    assert_eq!(open().content(), tokens[tokens.len() - 1].to_string());
}

/// The page shows what is tested here, and nothing else.
#[test]
fn the_page_shows_the_tested_code() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("docs/guide/recipes.md")).expect("the page");
    let mut sources = String::new();
    for entry in fs::read_dir(root.join("examples/recipes")).expect("the recipes") {
        sources += &fs::read_to_string(entry.expect("an entry").path()).expect("a text");
    }
    // However it is indented, and whether or not others may see it.
    let plain = |text: &str| {
        let words: Vec<&str> =
            text.split_whitespace().filter(|word| *word != "pub(crate)").collect();
        words.join(" ")
    };
    let sources = plain(&sources);
    let mut blocks = 0;
    for block in page.split("\n```").skip(1).step_by(2) {
        let (language, code) = block.split_once('\n').expect("a line");
        if ["rust", "sql", "lua"].contains(&language) {
            // What is left out stands between dots.
            for part in code.split("// …") {
                assert!(sources.contains(&plain(part)), "it is not in the recipes: {part}");
            }
            blocks += 1;
        }
    }
    assert!(blocks > 5, "there are recipes on the page");
}
