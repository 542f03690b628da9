//! The one place that knows what runs the control plane: tokio-uring, which drives an io_uring of
//! its own on the thread that calls it. It is no longer developed, so nothing else names it.

use std::fs::File;
use std::io;
use std::mem;

use tokio_uring::buf::BoundedBuf;

/// Runs the control plane on this thread until it is done.
///
/// # Errors
/// If the kernel refuses the runtime's ring.
pub(super) fn block_on<F: Future>(future: F) -> io::Result<F::Output> {
    let mut builder = tokio_uring::builder();
    builder.entries(64);
    let runtime = tokio_uring::Runtime::new(&builder)?;
    let output = runtime.block_on(future);
    // Dropping it would wait for what is under way, and a disk that hangs may never answer.
    mem::forget(runtime);
    Ok(output)
}

/// Runs something beside the rest, on the same thread. It ends with the control plane.
pub(super) fn spawn(future: impl Future<Output = ()> + 'static) {
    drop(tokio_uring::spawn(future));
}

/// Does something on a thread where it may block.
pub(super) async fn spawn_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    tokio::task::spawn_blocking(work).await.expect("a panic ends the process")
}

/// A file that is appended to without this thread waiting for it.
pub(super) struct AppendFile(tokio_uring::fs::File);

impl AppendFile {
    pub(super) fn new(file: File) -> AppendFile {
        AppendFile(tokio_uring::fs::File::from_std(file))
    }

    /// Appends what stands at `from` and behind it, and gives the bytes back and how many of them
    /// were written.
    pub(super) async fn append(&self, bytes: Vec<u8>, from: usize) -> (io::Result<usize>, Vec<u8>) {
        // The file's own position: only it is right where several share a descriptor.
        let (result, rest) = self.0.write_at(bytes.slice(from..), u64::MAX).submit().await;
        (result, rest.into_inner())
    }
}
