//! A scrape by Prometheus itself, and what it makes of it.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};

use monolock::control::metrics::FAMILIES;

use crate::harness::client::Client;
use crate::harness::http::get;
use crate::harness::outside::{self, Killed};
use crate::harness::own_port;
use crate::harness::patience::{LONG_LEASE_MS, wait_until};
use crate::{launch, monitoring};

#[test]
fn prometheus_scrapes_every_metric() {
    if !outside::is_installed("prometheus", "the Debian package prometheus") {
        return;
    }
    let server = launch().start();
    let _owner = Client::owner(server.address(), "lock", LONG_LEASE_MS);
    let folder = tempfile::tempdir().expect("a folder");
    let configuration = format!(
        "global: {{scrape_interval: 200ms, scrape_timeout: 200ms, evaluation_interval: 200ms}}\n\
         rule_files: ['{}']\n\
         scrape_configs:\n- job_name: monolock\n  static_configs: [{{targets: ['{}']}}]\n",
        monitoring::alerts().display(),
        server.ops_address()
    );
    let path = folder.path().join("prometheus.yml");
    fs::write(&path, configuration).expect("writing the configuration");
    // On an address of this test's own, so that nobody else takes the port meanwhile.
    let free = TcpListener::bind((own_port::own_address(240), 0)).expect("a free port");
    let port = free.local_addr().expect("an address");
    drop(free);
    let _prometheus = Killed(
        Command::new("prometheus")
            .arg(format!("--config.file={}", path.display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg(format!("--web.listen-address={port}"))
            .arg("--log.level=error")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("starting prometheus"),
    );
    wait_until("Prometheus is there", || {
        TcpStream::connect(port).is_ok() && get(port, "/-/ready").status == 200
    });
    let query = |expression: &str| {
        let encoded: String = form_urlencoded::byte_serialize(expression.as_bytes()).collect();
        let answer = get(port, &format!("/api/v1/query?query={encoded}")).json();
        assert_eq!(answer["status"], "success", "{expression}: {answer}");
        answer["data"]["result"].as_array().cloned().expect("a list")
    };
    wait_until("Prometheus has scraped the server", || {
        let held = query("monolock_locks_held");
        held.len() == 1 && held[0]["value"][1] == "1"
    });
    assert_eq!(query("up")[0]["value"][1], "1");
    for family in FAMILIES {
        let name = family.name;
        let has_samples = !query(name).is_empty() || !query(&format!("{name}_count")).is_empty();
        assert!(has_samples, "{name}");
    }
    // A rate needs two scrapes.
    for expression in monitoring::dashboard_queries() {
        wait_until(&format!("the dashboard shows {expression}"), || !query(&expression).is_empty());
    }
    for expression in monitoring::documented_queries() {
        query(&expression);
    }
    let alerts = || get(port, "/api/v1/rules?type=alert").json()["data"]["groups"][0].take();
    wait_until("every alert has been looked at", || {
        let rules = alerts()["rules"].take();
        rules.as_array().is_some_and(|rules| rules.iter().all(|rule| rule["health"] == "ok"))
    });
    // Nothing is wrong with this server.
    for rule in alerts()["rules"].as_array().expect("a list") {
        assert_ne!(rule["state"], "firing", "{rule}");
    }
}
