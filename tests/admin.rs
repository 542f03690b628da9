//! The admin API.
//!
//! | file | topic |
//! |---|---|
//! | `views.rs` | what it shows of the server, of locks and of sessions |
//! | `listing.rs` | lists of many locks and long queues: pages, order, streaming |
//! | `steering.rs` | force-release, kick, maintenance drain |
//! | `recipes.rs` | the commands of the manual |
//! | `refusals.rs` | requests that are not carried out |

mod harness;

#[path = "admin/listing.rs"]
mod listing;
#[path = "admin/recipes.rs"]
mod recipes;
#[path = "admin/refusals.rs"]
mod refusals;
#[path = "admin/steering.rs"]
mod steering;
#[path = "admin/views.rs"]
mod views;

use harness::http;
use harness::server::{Launch, Server};
use serde_json::Value;

/// The binary with its admin API on a free port, and two event loops.
fn launch() -> Launch {
    Launch::on_loopback().args(["--admin-listen", "127.0.0.1:0", "--shards", "2"])
}

#[track_caller]
fn get(server: &Server, path: &str) -> Value {
    let answer = http::get(server.admin_address(), path);
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/json"));
    answer.json()
}

/// The status and the error of a request that is refused.
#[track_caller]
fn refusal(answer: &http::Answer) -> (u16, String) {
    let error = answer.json()["error"].as_str().expect("an error").to_owned();
    assert!(!error.is_empty());
    (answer.status, error)
}

/// The names of the locks in a list.
fn names(list: &Value) -> Vec<&str> {
    let locks = list["locks"].as_array().expect("a list");
    locks.iter().map(|lock| lock["name"].as_str().expect("a name")).collect()
}
