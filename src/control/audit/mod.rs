//! The audit log's writer: a task of the control plane. Whatever its file does, only the writer
//! waits for it.

mod file;
mod line;
mod writer;

pub use self::file::Target;
pub(crate) use self::file::{AuditFile, open};
pub(super) use self::writer::{Handle, start};
