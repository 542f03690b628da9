//! The admin commands: what an operator asks of a running server, and tells it.
//!
//! | module | what it holds |
//! |---|---|
//! | `options` | their command lines |
//! | `api` | the admin API as a client sees it |
//! | `views` | what it says |
//! | `output` | tables, lines for programs, JSON |
//! | `failure` | what went wrong, and the exit code of that |

mod api;
mod failure;
mod options;
mod output;
mod views;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Command;
use hyper::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use serde_json::value::RawValue;

use self::api::Api;
use self::failure::Failure;
pub(crate) use self::options::commands;
use self::options::{Options, Request};
use self::output::{Cell, Output};
use self::views::{Holder, ListedLock, Lock, Page, RawLock, Released, Waiter};

/// Locks that are fetched at a time: as many as the server picks in one go.
const PAGE: u32 = 8192;

/// Where the number of waiters is enough.
const NO_QUEUE: Option<(&str, &str)> = Some(("waiters", "0"));

/// Runs one of the commands.
pub(crate) fn run(command: Command, arguments: &[OsString]) -> ExitCode {
    match Options::parse(command, arguments, |variable| std::env::var_os(variable)) {
        Err(instead) => instead.exit(),
        Ok(options) => match carry_out(options) {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => ExitCode::from(failure.report()),
        },
    }
}

fn carry_out(options: Options) -> Result<(), Failure> {
    let api = Api::new(&options.address)?;
    let mut output = Output::new();
    match (options.request, options.is_json) {
        (Request::Locks { pattern }, false) => list(&api, pattern.as_deref(), &mut output)?,
        (Request::Locks { pattern }, true) => list_json(&api, pattern.as_deref(), &mut output)?,
        (Request::Show { lock }, false) => show(&api, &lock, &mut output)?,
        (Request::Show { lock }, true) => pass_on(&api, &path_of(&lock), &mut output)?,
        (Request::Release { lock, token }, is_json) => {
            release(&api, &lock, token, is_json, &mut output)?;
        }
        (Request::Kick { lock, waiter }, is_json) => {
            kick(&api, &lock, &waiter, is_json, &mut output)?;
        }
        (Request::Info, false) => info(&api, &mut output)?,
        (Request::Info, true) => pass_on(&api, "/api/info", &mut output)?,
    }
    output.finish()
}

fn list(api: &Api, pattern: Option<&str>, output: &mut Output) -> Result<(), Failure> {
    let titles = ["LOCK", "HOLDER", "IDENTITY", "TOKEN", "SINCE", "LEASE", "LAST HEARD", "WAITERS"];
    let mut is_empty = true;
    for_each_page(api, pattern, NO_QUEUE, |locks: Vec<ListedLock>| {
        is_empty = is_empty && locks.is_empty();
        let rows: Vec<_> = locks
            .into_iter()
            .map(|lock| {
                let waiters = Cell::Number(lock.waiters_count());
                let [address, identity, token, since, lease, heard] = cells_of(lock.holder);
                [Cell::Text(lock.name), address, identity, token, since, lease, heard, waiters]
            })
            .collect();
        output.rows(titles, &rows)
    })?;
    if is_empty && output.is_terminal() {
        super::say(match pattern {
            Some(pattern) => format!("no lock that is held matches {pattern:?}"),
            None => "no lock is held".to_owned(),
        });
    }
    Ok(())
}

fn list_json(api: &Api, pattern: Option<&str>, output: &mut Output) -> Result<(), Failure> {
    output.text(r#"{"locks":["#)?;
    let mut is_first = true;
    for_each_page(api, pattern, None, |locks: Vec<RawLock>| {
        for lock in &locks {
            output.text(if std::mem::take(&mut is_first) { "" } else { "," })?;
            output.json(lock)?;
        }
        Ok(())
    })?;
    output.text("]}\n")
}

/// Fetches one page after the other. Each is read to its end before anything is done with it: a
/// server does not wait for long for who reads slowly, as somebody with a pager does.
fn for_each_page<L: serde::de::DeserializeOwned>(
    api: &Api,
    pattern: Option<&str>,
    more: Option<(&str, &str)>,
    mut each: impl FnMut(Vec<L>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut after: Option<String> = None;
    loop {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("limit", &PAGE.to_string());
        query.extend_pairs(more);
        query.extend_pairs(pattern.map(|pattern| ("match", pattern)));
        query.extend_pairs(after.as_ref().map(|after| ("after", after)));
        let page: Page<L> = api.get(&format!("/api/locks?{}", query.finish()))?.json()?;
        each(page.locks)?;
        match page.next_after {
            None => return Ok(()),
            Some(next) if after.as_ref().is_some_and(|after| *after >= next) => {
                return Err(api.stranger("its list goes round in a circle"));
            }
            next => after = next,
        }
    }
}

fn show(api: &Api, lock: &str, output: &mut Output) -> Result<(), Failure> {
    let Lock { holder, waiters } = api.get(&path_of(lock))?.json()?;
    let titles = ["#", "ADDRESS", "IDENTITY", "TOKEN", "SINCE", "LEASE", "LAST HEARD"];
    let holder = holder.map(|holder| {
        let [address, identity, token, since, lease, heard] = cells_of(Some(holder));
        [Cell::Number(0), address, identity, token, since, lease, heard]
    });
    let waiters = waiters.into_iter().zip(1..).map(|(waiter, place)| {
        let Waiter { identity, remote_addr, queued_at, lease_ms, last_heard_ms } = waiter;
        let heard = Cell::or_nothing(last_heard_ms, |age| match lease_ms {
            Some(lease_ms) => Cell::AgeMillis(age, lease_ms),
            None => Cell::Millis(age),
        });
        [
            Cell::Number(place),
            Cell::Text(remote_addr),
            Cell::Text(identity),
            Cell::Nothing,
            Cell::Text(queued_at),
            Cell::or_nothing(lease_ms, Cell::Millis),
            heard,
        ]
    });
    let rows: Vec<_> = holder.into_iter().chain(waiters).collect();
    output.rows(titles, &rows)
}

fn release(
    api: &Api,
    lock: &str,
    token: Option<u64>,
    is_json: bool,
    output: &mut Output,
) -> Result<(), Failure> {
    let (token, seen) = match token {
        Some(token) => (token, None),
        None => {
            let holder = api.get(&path_of(lock))?.json::<Lock>()?.holder;
            let nobody = || Failure::NotThere("nobody holds this lock".to_owned());
            let holder = holder.ok_or_else(nobody)?;
            (holder.token, Some(holder))
        }
    };
    let path = format!("{}/release?token={token}", path_of(lock));
    let answer = api.request(Method::POST, &path)?;
    if is_json {
        return if answer.has_content() {
            print_json(&answer.json::<RawLock>()?, output)
        } else {
            Ok(())
        };
    }
    let holder = match answer.has_content() {
        true => Some(answer.json::<Released>()?.released),
        false => seen,
    };
    let [address, identity, ..] = cells_of(holder);
    let row = [Cell::Text(lock.to_owned()), address, identity, Cell::Number(token)];
    output.rows(["RELEASED", "HOLDER", "IDENTITY", "TOKEN"], &[row])
}

fn kick(
    api: &Api,
    lock: &str,
    waiter: &str,
    is_json: bool,
    output: &mut Output,
) -> Result<(), Failure> {
    let waiter_path = utf8_percent_encode(waiter, NON_ALPHANUMERIC);
    let path = format!("{}/waiters/{waiter_path}", path_of(lock));
    let answer = api.request(Method::DELETE, &path)?;
    if is_json {
        return if answer.has_content() {
            print_json(&answer.json::<RawLock>()?, output)
        } else {
            Ok(())
        };
    }
    let row = [Cell::Text(lock.to_owned()), Cell::Text(waiter.to_owned())];
    output.rows(["LOCK", "KICKED"], &[row])
}

fn info(api: &Api, output: &mut Output) -> Result<(), Failure> {
    let info: Value = api.get("/api/info")?.json()?;
    let mut rows = Vec::new();
    flatten(String::new(), info, &mut rows);
    output.rows(["", ""], &rows)
}

/// A row for each value, whatever a server has to say of itself.
fn flatten(name: String, value: Value, rows: &mut Vec<[Cell; 2]>) {
    let cell = match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                let name = if name.is_empty() { field } else { format!("{name}.{field}") };
                flatten(name, value, rows);
            }
            return;
        }
        Value::Number(number) if name.ends_with("_ms") && number.is_u64() => {
            Cell::or_nothing(number.as_u64(), Cell::Millis)
        }
        Value::String(text) => Cell::Text(text),
        Value::Null => Cell::Nothing,
        Value::Array(values) => {
            let texts: Vec<String> = values.iter().map(text_of).collect();
            Cell::Text(texts.join(","))
        }
        other => Cell::Text(other.to_string()),
    };
    rows.push([Cell::Text(name), cell]);
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn pass_on(api: &Api, path: &str, output: &mut Output) -> Result<(), Failure> {
    print_json(&api.get(path)?.json::<Box<RawValue>>()?, output)
}

fn print_json(json: &RawValue, output: &mut Output) -> Result<(), Failure> {
    output.json(json)?;
    output.text("\n")
}

/// Address, identity, token, since, lease, last heard.
fn cells_of(holder: Option<Holder>) -> [Cell; 6] {
    let Some(holder) = holder else {
        return [const { Cell::Nothing }; 6];
    };
    let Holder { identity, remote_addr, since, lease_ms, token, last_heard_ms } = holder;
    [
        Cell::Text(remote_addr),
        Cell::Text(identity),
        Cell::Number(token),
        Cell::Text(since),
        Cell::Millis(lease_ms),
        Cell::or_nothing(last_heard_ms, |age| Cell::AgeMillis(age, lease_ms)),
    ]
}

fn path_of(lock: &str) -> String {
    format!("/api/locks/{}", utf8_percent_encode(lock, NON_ALPHANUMERIC))
}
