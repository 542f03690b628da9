//! What such a process does: one thread keeps the claim, as a client's library does; the other one
//! works while it takes itself for the holder.

use std::io::{self, ErrorKind, Read, Stdout, Write};
use std::net::TcpStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use monolock_core::claim::{self, Claim, Due, Loss, Standing};
use monolock_core::time::Instant;
use monolock_core::wire::{Acquire, HEARTBEAT, encode_acquire};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use super::{Job, News, Told};
use crate::clock;
use crate::drive::describe_loss;
use crate::failure::{Failure, Verdict};
use crate::resource::{self, Author, Resource, ResourceError};

/// How long the server may take to accept a connection.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);

/// How long to stay away after a loss.
const BACKOFF: Duration = Duration::from_millis(100);

/// What the two threads share.
struct Shared {
    stdout: Mutex<Stdout>,
    /// Who the worker is, while it holds the lock as far as is known.
    author: Mutex<Option<Author>>,
    granted: Condvar,
}

/// Does a job that is told on stdin, until it is killed.
///
/// # Errors
/// If there is none, or what it needs isn't there.
pub fn run() -> Result<Verdict, Failure> {
    let mut line = String::new();
    let read = io::stdin().read_line(&mut line).map_err(|error| error.to_string());
    let job = read.and_then(|_| serde_json::from_str(&line).map_err(|error| error.to_string()));
    let job: Job = job.map_err(|error| {
        Failure::usage(format_args!("holder-process is only for gc-pause to start: {error}"))
    })?;
    die_with(job.parent).map_err(Failure::cut_short)?;
    let shared = Arc::new(Shared {
        stdout: Mutex::new(io::stdout()),
        author: Mutex::default(),
        granted: Condvar::new(),
    });
    let worked = resource::open(&job.site, vec![job.lock_name.clone()], job.rules).and_then(
        |mut resource| {
            let (write_every, keeper) = (job.write_every, Arc::clone(&shared));
            thread::spawn(move || keep_claims(&job, &keeper));
            work(&mut *resource, write_every, &shared)
        },
    );
    if let Err(error) = worked {
        shared.tell(clock::now(), News::Failed { why: error.to_string() });
    }
    Ok(Verdict::NotClean)
}

/// Whatever happens to the one that has started this process, it must not be left behind.
fn die_with(parent: u32) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // It may have been too late for that.
    let is_there = getppid().is_some_and(|pid| pid.as_raw_pid().cast_unsigned() == parent);
    if is_there { Ok(()) } else { Err(io::Error::other("its parent is gone")) }
}

impl Shared {
    fn tell(&self, at: Instant, news: News) {
        let told = Told { at: at.into(), news };
        let mut line = serde_json::to_vec(&told).expect("plain data");
        line.push(b'\n');
        let mut stdout = self.stdout.lock().unwrap_or_else(PoisonError::into_inner);
        // If nobody listens any more, this process is about to be killed.
        let _ = stdout.write_all(&line).and_then(|()| stdout.flush());
    }

    fn author(&self) -> MutexGuard<'_, Option<Author>> {
        self.author.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_for_grant(&self) -> Author {
        let mut author = self.author();
        loop {
            match *author {
                Some(author) => return author,
                None => {
                    author = self.granted.wait(author).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}

/// Writes while it takes itself for the holder.
fn work(
    resource: &mut dyn Resource,
    write_every: Duration,
    shared: &Shared,
) -> Result<(), ResourceError> {
    let mut value = 0;
    loop {
        let author = shared.wait_for_grant();
        let mut due = clock::now();
        loop {
            value += 1;
            let begun = clock::now();
            let written = resource.write(&resource::Write { row: 0, author, value })?;
            let news = News::Wrote { author, due: due.into(), begun: begun.into(), written };
            shared.tell(clock::now(), news);
            if *shared.author() != Some(author) {
                break;
            }
            // It has looked, and holds the lock. What is true when it writes is another matter, and
            // no program can look so late that nothing comes between.
            due = due.after(write_every).max(clock::now());
            thread::sleep(due.since(clock::now()));
        }
    }
}

/// Claims the lock again and again.
fn keep_claims(job: &Job, shared: &Shared) {
    loop {
        let begun = clock::now();
        if let Err(error) = keep_claim(job, shared, begun) {
            *shared.author() = None;
            let is_nobody_there = error.kind() == io::ErrorKind::ConnectionRefused;
            let why = error.to_string();
            shared.tell(clock::now(), News::NotConnected { why, is_nobody_there });
        }
        thread::sleep(BACKOFF);
    }
}

/// Claims the lock once, and keeps the claim until it is lost.
fn keep_claim(job: &Job, shared: &Shared, begun: Instant) -> io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&job.server, CONNECT_PATIENCE)?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    let mut frame = Vec::new();
    let acquire = Acquire { lease_ms: job.lease_ms, name: &job.lock_name };
    encode_acquire(acquire, &mut frame);
    let mut claim = Claim::new(job.lease_ms, clock::now());
    stream.write_all(&frame)?;
    shared.tell(claim.sent_at(), News::Asked { begun: begun.into() });
    let mut heartbeat_due = None;
    loop {
        wait_readable(&stream, claim.deadline().since(clock::now()))?;
        let before = claim.standing();
        // What has come is read first, and only then is it asked what time it is.
        let mut lost = hear(&mut claim, &mut stream, &mut heartbeat_due, shared);
        let now = clock::now();
        let due = claim.heartbeat_at();
        match claim.pass(now) {
            Some(Due::Heartbeat) => {
                heartbeat_due = Some(due);
                if stream.write_all(&[HEARTBEAT]).is_err() {
                    lost = Some(claim.end(Loss::Disconnected));
                }
                shared.tell(claim.sent_at(), News::Sent);
            }
            Some(Due::Lost(loss)) => lost = Some(loss),
            None => {}
        }
        if let Some(loss) = lost {
            *shared.author() = None;
            shared.tell(now, lost_news(&claim, before, loss));
            return Ok(());
        }
    }
}

fn lost_news(claim: &Claim, before: Standing, loss: Loss) -> News {
    News::Lost {
        end: loss.into(),
        confirmed_at: claim.confirmed_at().into(),
        gives_up_at: claim.give_up_at().into(),
        words: describe_loss(before, loss, claim.reason()),
    }
}

fn wait_readable(stream: &TcpStream, longest: Duration) -> io::Result<()> {
    let mut descriptors = [PollFd::new(stream, PollFlags::IN)];
    let longest = Timespec::try_from(longest).map_err(io::Error::other)?;
    match poll(&mut descriptors, Some(&longest)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Reads everything that has come. Returns the loss, if that is what it says.
fn hear(
    claim: &mut Claim,
    stream: &mut TcpStream,
    heartbeat_due: &mut Option<Instant>,
    shared: &Shared,
) -> Option<Loss> {
    let mut buffer = [0; 1024];
    loop {
        let len = match stream.read(&mut buffer) {
            Ok(0) => return Some(claim.end(Loss::EndOfStream)),
            Ok(len) => len,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) => return Some(claim.end(Loss::Disconnected)),
        };
        let now = clock::now();
        let mut bytes = &buffer[..len];
        while let Some(news) = claim.receive(&mut bytes, now) {
            match news {
                claim::News::Queued => shared.tell(now, News::Queued),
                claim::News::Granted(token) => {
                    shared.tell(now, News::Granted { token: token.get() });
                    *shared.author() = Some(Author::new(token, now));
                    shared.granted.notify_one();
                }
                claim::News::Standing => {
                    let sent_at = claim.confirmed_at();
                    let is_newest = sent_at == claim.sent_at();
                    let due = heartbeat_due.take_if(|_| is_newest).map(Into::into);
                    shared.tell(now, News::Confirmed { sent_at: sent_at.into(), due });
                }
                claim::News::Lost(loss) => return Some(loss),
            }
        }
    }
}
