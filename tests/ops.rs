//! The ops endpoints: probes and metrics.
//!
//! | file | topic |
//! |---|---|
//! | `probes.rs` | when `/healthz` and `/readyz` say what |
//! | `metrics.rs` | what `/metrics` counts, and that others can read it |
//! | `hostile.rs` | clients that are silent, slow or many |
//! | `monitoring.rs` | the dashboard, the alerts and the documented queries |
//! | `prometheus.rs` | a scrape by Prometheus itself |

mod harness;

#[path = "ops/hostile.rs"]
mod hostile;
#[path = "ops/metrics.rs"]
mod metrics;
#[path = "ops/monitoring.rs"]
mod monitoring;
#[path = "ops/probes.rs"]
mod probes;
#[path = "ops/prometheus.rs"]
mod prometheus;

use harness::server::Launch;

/// The binary with its ops endpoints on a free port.
fn launch() -> Launch {
    Launch::on_loopback().args(["--ops-listen", "127.0.0.1:0"])
}
