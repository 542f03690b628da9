//! The one place that knows what runs the control plane: tokio-uring, which drives an io_uring of
//! its own on the thread that calls it. It is no longer developed, so nothing else names it.

use std::io;

/// Runs the control plane on this thread until it is done.
///
/// # Errors
/// If the kernel refuses the runtime's ring.
pub(super) fn block_on<F: Future>(future: F) -> io::Result<F::Output> {
    let mut builder = tokio_uring::builder();
    builder.entries(64);
    let runtime = tokio_uring::Runtime::new(&builder)?;
    Ok(runtime.block_on(future))
}

/// Runs something beside the rest, on the same thread. It ends with the control plane.
pub(super) fn spawn(future: impl Future<Output = ()> + 'static) {
    drop(tokio_uring::spawn(future));
}
