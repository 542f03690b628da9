//! The page for administrators, in a real browser.
//!
//! | file | topic |
//! |---|---|
//! | `files.rs` | what it is made of, and how it is served |
//! | `showing.rs` | locks and queues, search, pages, harmful names, small screens |
//! | `steering.rs` | force-release and kick, with and without a yes |
//! | `absence.rs` | a server that is gone, back, or on its way out |

mod harness;

#[path = "page/absence.rs"]
mod absence;
#[path = "page/browser.rs"]
mod browser;
#[path = "page/files.rs"]
mod files;
#[path = "page/showing.rs"]
mod showing;
#[path = "page/steering.rs"]
mod steering;

use harness::server::Launch;

/// The binary with its admin port, on a free one, and two event loops.
fn launch() -> Launch {
    Launch::on_loopback().args(["--admin-listen", "127.0.0.1:0", "--shards", "2"])
}
