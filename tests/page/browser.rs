//! Chromium without a screen, steered by its driver over `WebDriver`: JSON over HTTP.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::http;
use crate::harness::outside::{self, Killed};

/// A browser takes its time to start on a machine that is busy. A test that passes never waits for
/// so long.
const PATIENCE: Duration = Duration::from_secs(90);

/// How often its driver is started until one stays.
const DRIVER_STARTS_MAX: u32 = 5;

/// Runs in every page before its own scripts, and notes what the page's policy has forbidden.
const WATCH: &str = "window.ran = []; window.violations = [];
    document.addEventListener('securitypolicyviolation', (event) =>
        violations.push(`${event.effectiveDirective} ${event.blockedURI}`));";

/// A browser, closed when dropped.
pub(crate) struct Browser {
    driver: SocketAddr,
    session: String,
    _process: Killed,
    _profile: tempfile::TempDir,
    _turn: MutexGuard<'static, ()>,
}

/// Starts chromedriver. None if it ends at once: it takes a free port of IPv4 and then the same one
/// of IPv6, which somebody else may have.
fn start_driver() -> Option<(Killed, u16)> {
    let mut process = Killed(
        Command::new("chromedriver")
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("starting chromedriver"),
    );
    let stdout = BufReader::new(process.0.stdout.take().expect("a pipe"));
    let port = stdout.lines().map_while(Result::ok).find_map(|line| {
        let (_, port) = line.split_once("was started successfully on port ")?;
        port.trim_end_matches('.').parse().ok()
    });
    port.map(|port| (process, port))
}

impl Browser {
    /// Opens the page of the server whose admin port this is. `None` if there is no browser.
    pub(crate) fn open(admin: SocketAddr) -> Option<Browser> {
        // One at a time: several would be slow all together.
        static TURN: Mutex<()> = Mutex::new(());
        if !outside::is_installed("chromium", "the Debian package chromium")
            || !outside::is_installed("chromedriver", "the Debian package chromium-driver")
        {
            return None;
        }
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let profile = tempfile::tempdir().expect("a folder");
        let started = (0..DRIVER_STARTS_MAX).find_map(|_| start_driver());
        let (process, port) = started.expect("chromedriver says on which port it is");
        let wanted = capabilities(profile.path());
        let mut browser = Browser {
            driver: (Ipv4Addr::LOCALHOST, port).into(),
            session: String::new(),
            _process: process,
            _profile: profile,
            _turn: turn,
        };
        let answer = browser.send("/session", &wanted);
        browser.session = answer["sessionId"].as_str().expect("a session").to_owned();
        browser.devtools("Page.addScriptToEvaluateOnNewDocument", &json!({ "source": WATCH }));
        browser.post("/url", &json!({ "url": format!("http://{admin}/") }));
        Some(browser)
    }

    #[track_caller]
    fn send(&self, path: &str, body: &Value) -> Value {
        let answer = http::raw_patiently(self.driver, &self.request("POST", path, body), PATIENCE);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        answer.json()["value"].take()
    }

    fn request(&self, method: &str, path: &str, body: &Value) -> String {
        let (host, body) = (self.driver, body.to_string());
        let len = body.len();
        format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\
             Content-Length: {len}\r\n\r\n{body}"
        )
    }

    #[track_caller]
    fn post(&self, path: &str, body: &Value) -> Value {
        self.send(&format!("/session/{}{path}", self.session), body)
    }

    #[track_caller]
    fn devtools(&self, command: &str, parameters: &Value) -> Value {
        self.post("/goog/cdp/execute", &json!({ "cmd": command, "params": parameters }))
    }

    /// Runs the body of a function in the page, and gives what it returns.
    #[track_caller]
    pub(crate) fn run(&self, script: &str) -> Value {
        self.post("/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// The text of the first element that this selects, as it is in the document.
    #[track_caller]
    pub(crate) fn text(&self, selector: &str) -> String {
        let selector = Value::from(selector);
        let text = self.run(&format!("return document.querySelector({selector}).textContent"));
        text.as_str().expect("text").to_owned()
    }

    /// The texts of all elements that this selects.
    #[track_caller]
    pub(crate) fn texts(&self, selector: &str) -> Vec<String> {
        let selector = Value::from(selector);
        let texts = self.run(&format!(
            "return [...document.querySelectorAll({selector})].map((node) => node.textContent)"
        ));
        serde_json::from_value(texts).expect("texts")
    }

    /// Whether this selects something that is shown.
    #[track_caller]
    pub(crate) fn is_visible(&self, selector: &str) -> bool {
        let selector = Value::from(selector);
        let script =
            format!("return document.querySelector({selector})?.checkVisibility() ?? false");
        self.run(&script) == true
    }

    /// Clicks where a person would, on the first element that this selects.
    #[track_caller]
    pub(crate) fn click(&self, selector: &str) {
        let element = self.element(selector);
        self.post(&format!("/element/{element}/click"), &json!({}));
    }

    /// Types into the first element that this selects.
    #[track_caller]
    pub(crate) fn type_into(&self, selector: &str, text: &str) {
        let element = self.element(selector);
        self.post(&format!("/element/{element}/clear"), &json!({}));
        self.post(&format!("/element/{element}/value"), &json!({ "text": text }));
    }

    /// Presses keys, with the focus where it is.
    #[track_caller]
    pub(crate) fn press(&self, keys: &[char]) {
        let strokes: Vec<Value> = keys
            .iter()
            .flat_map(|key| ["keyDown", "keyUp"].map(|kind| json!({ "type": kind, "value": key })))
            .collect();
        let keyboard = json!({ "type": "key", "id": "keyboard", "actions": strokes });
        self.post("/actions", &json!({ "actions": [keyboard] }));
    }

    #[track_caller]
    fn element(&self, selector: &str) -> String {
        let found = self.post("/element", &json!({ "using": "css selector", "value": selector }));
        let id = found.as_object().and_then(|found| found.values().next());
        id.and_then(Value::as_str).expect("an element").to_owned()
    }

    /// Gives the page a screen of this size.
    #[track_caller]
    pub(crate) fn resize(&self, width: u32, height: u32) {
        let screen = json!({
            "width": width, "height": height, "deviceScaleFactor": 2, "mobile": true,
        });
        self.devtools("Emulation.setDeviceMetricsOverride", &screen);
    }

    /// Waits until the condition holds.
    #[track_caller]
    pub(crate) fn wait_until(&self, what: &str, mut condition: impl FnMut(&Browser) -> bool) {
        let start = Instant::now();
        while !condition(self) {
            if start.elapsed() > PATIENCE {
                panic!("waited in vain until {what}; the page: {}", self.text("body"));
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until a lock with this name is in the list.
    #[track_caller]
    pub(crate) fn wait_for_lock(&self, name: &str) {
        let what = format!("{name:?} is in the list");
        self.wait_until(&what, |page| page.texts(".opener").iter().any(|text| text == name));
    }

    fn quit(&self) -> std::io::Result<()> {
        let path = format!("/session/{}", self.session);
        let mut stream = TcpStream::connect(self.driver)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(self.request("DELETE", &path, &json!({})).as_bytes())?;
        // The answer comes when it has ended.
        stream.read_exact(&mut [0])
    }

    /// Fails if anything ran that must not, if anything was forbidden by the page's policy, or if
    /// one of the page's own scripts has failed.
    #[track_caller]
    pub(crate) fn expect_clean(&self) {
        assert_eq!(self.run("return [violations, ran]"), json!([[], []]));
        let log = self.post("/se/log", &json!({ "type": "browser" }));
        let faults: Vec<&Value> = log
            .as_array()
            .expect("a list")
            .iter()
            // Refusals and a server that is gone are there as well, and are what a test wants.
            .filter(|entry| entry["source"] != "network")
            .collect();
        assert!(faults.is_empty(), "{faults:#?}");
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Ends the browser, which its driver would leave behind; on the way out of a failed test
        // there is nothing to be done if it can't.
        let _ = self.quit();
    }
}

/// The browser as it is wanted: without a screen, on its own, and with an empty profile.
fn capabilities(profile: &std::path::Path) -> Value {
    let profile = format!("--user-data-dir={}", profile.display());
    let arguments = [
        "--headless",
        // Its sandbox does not work for root, and what it is shown here is this repository's.
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        // Containers have little of /dev/shm.
        "--disable-dev-shm-usage",
        "--window-size=1280,900",
        &profile,
    ];
    let options = json!({ "args": arguments });
    let always = json!({
        "browserName": "chrome",
        "goog:chromeOptions": options,
        "goog:loggingPrefs": { "browser": "ALL" },
    });
    json!({ "capabilities": { "alwaysMatch": always } })
}
