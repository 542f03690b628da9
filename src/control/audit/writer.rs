//! Writes what the queue has, line by line and in order, however often it must be tried.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tracing::{error, info, warn};

use super::super::runtime::{self, AppendFile};
use super::file::{self, AuditFile, Target};
use super::line;
use crate::audit::{Entry, Ledger, Queue};
use crate::clock;

/// Entries that are written in one go.
const ENTRIES_AT_ONCE: usize = 512;

/// How long to wait before something that has failed is tried again.
const RETRY_AFTER: Duration = Duration::from_millis(250);

/// How long the end waits for the log without saying so.
const FINISH_IN_SILENCE: Duration = Duration::from_millis(200);

/// What the rest of the control plane has of the writer.
#[derive(Debug)]
pub(in super::super) struct Handle {
    reopen: mpsc::UnboundedSender<oneshot::Sender<bool>>,
    ledger: Ledger,
    ended: oneshot::Receiver<()>,
}

impl Handle {
    /// Has the file opened again, as after it was rotated away. The answer is whether it could be;
    /// it comes when the write that is under way has come to its end.
    pub(in super::super) fn reopen(&self) -> oneshot::Receiver<bool> {
        let (answer, answered) = oneshot::channel();
        // Without a writer there is nothing to open.
        let _ = self.reopen.send(answer);
        answered
    }

    /// Waits until all is written, no longer than `limit`. Says what may be lost before it waits:
    /// whoever stops the server may not have the patience.
    ///
    /// # Errors
    /// How many lines were lost.
    pub(in super::super) async fn finish(self, limit: Duration) -> Result<(), u64> {
        let Handle { ledger, mut ended, .. } = self;
        let mut finished = timeout(FINISH_IN_SILENCE.min(limit), &mut ended).await;
        if finished.is_err() {
            let events = ledger.waiting();
            warn!(
                "waiting for the audit log, {limit:?} at most: {events} events are not written, \
                 and lost if that can't be done"
            );
            finished = timeout(limit.saturating_sub(FINISH_IN_SILENCE), ended).await;
        }
        match finished {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(ledger.waiting()),
        }
    }
}

/// Starts to write what comes out of the queue.
pub(in super::super) fn start(
    target: Target,
    file: Option<AuditFile>,
    queue: Queue,
    ledger: &Ledger,
) -> Handle {
    let (reopen, reopen_requests) = mpsc::unbounded_channel();
    let (end, ended) = oneshot::channel();
    let mut writer = Writer {
        target,
        queue,
        reopen_requests,
        file: None,
        lines: Vec::new(),
        written: 0,
        reader: None,
        ledger: ledger.clone(),
        has_failed: false,
    };
    writer.take_up(file);
    runtime::spawn(async move {
        writer.run().await;
        // Whoever does not wait any more has counted what is lost.
        let _ = end.send(());
    });
    Handle { reopen, ledger: ledger.clone(), ended }
}

struct Writer {
    target: Target,
    queue: Queue,
    reopen_requests: mpsc::UnboundedReceiver<oneshot::Sender<bool>>,
    file: Option<AppendFile>,
    /// Lines that are not written yet; the first one may be in part.
    lines: Vec<u8>,
    /// How much of the first line is written.
    written: usize,
    /// To see whether that is still there.
    reader: Option<Arc<File>>,
    ledger: Ledger,
    has_failed: bool,
}

impl Writer {
    /// Until all event loops are gone and everything is written.
    async fn run(&mut self) {
        let mut entries = Vec::new();
        loop {
            tokio::select! {
                biased;
                Some(answer) = self.reopen_requests.recv() => {
                    let has_succeeded = self.reopen().await;
                    // Who asked may be gone.
                    let _ = answer.send(has_succeeded);
                    continue;
                }
                () = self.queue.take(&mut entries, ENTRIES_AT_ONCE) => {}
            }
            entries.extend(self.queue.gaps());
            if entries.is_empty() {
                // Nobody is left who could tell of anything.
                return;
            }
            let now = clock::now().unix;
            entries.drain(..).for_each(|entry: Entry| line::write(&entry, now, &mut self.lines));
            self.write_all().await;
        }
    }

    async fn write_all(&mut self) {
        while !self.lines.is_empty() {
            if let Err(error) = self.write().await {
                self.note_failure(&error);
                self.wait_to_retry().await;
            }
        }
        if std::mem::take(&mut self.has_failed) {
            info!("the audit log is written again");
        }
    }

    /// Writes as much as is taken at once.
    async fn write(&mut self) -> io::Result<()> {
        self.look_after_cut_line().await;
        let Some(file) = &self.file else {
            self.open().await?;
            return Ok(());
        };
        let lines = std::mem::take(&mut self.lines);
        let (result, lines) = file.append(lines, self.written).await;
        self.lines = lines;
        match result {
            Ok(0) => Err(io::ErrorKind::WriteZero.into()),
            Ok(len) => {
                self.written += len;
                let whole = self.lines[..self.written].iter().rposition(|&byte| byte == b'\n');
                if let Some(end) = whole {
                    let lines = self.lines.drain(..=end).filter(|&byte| byte == b'\n').count();
                    self.ledger.note_written(lines as u64);
                    self.written -= end + 1;
                }
                Ok(())
            }
            Err(error) => {
                if error.raw_os_error() == Some(Errno::PIPE.raw_os_error())
                    && self.target != Target::Stdout
                {
                    // The reader of a pipe has left; the next one gets whole lines.
                    self.file = None;
                    self.written = 0;
                }
                Err(error)
            }
        }
    }

    /// If what was written of a line is gone with a truncation, it is written again as a whole.
    async fn look_after_cut_line(&mut self) {
        let Some(reader) = self.reader.clone() else { return };
        if self.written == 0 {
            return;
        }
        let begun = self.lines[..self.written].to_vec();
        // Whoever only reads may have to wait for a disk as well.
        let lost = runtime::spawn_blocking(move || {
            let is_there = file::last_bytes(&reader, begun.len()).is_some_and(|last| last == begun);
            (!is_there).then(|| file::ends_within_line(&reader))
        });
        if let Some(ends_within_line) = lost.await {
            self.written = 0;
            self.close_fragment(ends_within_line);
        }
    }

    /// What stands at the end of the file is not ours to complete.
    fn close_fragment(&mut self, is_there: bool) {
        if is_there {
            self.lines.insert(0, b'\n');
            self.ledger.note_queued();
        }
    }

    fn note_failure(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.has_failed, true) {
            warn!("the audit log can't be written, events wait: {error}");
        }
    }

    /// A while, or until the file is to be opened again.
    async fn wait_to_retry(&mut self) {
        tokio::select! {
            () = tokio::time::sleep(RETRY_AFTER) => {}
            Some(answer) = self.reopen_requests.recv() => {
                let has_succeeded = self.reopen().await;
                let _ = answer.send(has_succeeded);
            }
        }
    }

    async fn open(&mut self) -> io::Result<()> {
        let target = self.target.clone();
        // A file system may hang already when a file is opened.
        let opened = runtime::spawn_blocking(move || file::open(&target)).await?;
        if opened.is_none() {
            return Err(io::Error::other("nobody reads from the pipe"));
        }
        self.take_up(opened);
        Ok(())
    }

    async fn reopen(&mut self) -> bool {
        if self.written > 0 && self.write().await.is_err() {
            // The rest of the line does not fit: it is written to the new file as a whole.
            self.written = 0;
        }
        match self.open().await {
            Ok(()) => {
                info!("the audit log is opened again");
                true
            }
            Err(error) => {
                let target = &self.target;
                error!("can't open {target} again, and the audit log goes on as before: {error}");
                false
            }
        }
    }

    fn take_up(&mut self, opened: Option<AuditFile>) {
        let Some(AuditFile { file, reader, ends_within_line }) = opened else { return };
        self.file = Some(AppendFile::new(file));
        self.reader = reader.map(Arc::new);
        self.written = 0;
        // A crash has left it, or we have just now.
        self.close_fragment(ends_within_line);
    }
}
