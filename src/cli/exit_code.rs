//! What the exit codes of the commands say. Beside these `monolock run` has its command's own.

/// An admin command was told of a lock, a holder or a waiter that is not there.
pub const NOT_THERE: u8 = 1;
/// The lock was lost, or held for as long as was permitted, while the command ran.
pub const LOST: u8 = 123;
/// The lock was not acquired in time.
pub const CONFLICT: u8 = 124;
/// The command was not run, for a reason of our own.
pub const FAILED: u8 = 125;
/// The command is there and can't be executed.
pub const NOT_EXECUTABLE: u8 = 126;
/// There is no such command.
pub const NOT_FOUND: u8 = 127;
/// This and a signal's number: who was ended by that signal.
pub const SIGNAL_BASE: u8 = 128;

/// The text of `monolock help exit-codes`.
pub const HELP: &str = "\
Exit codes of monolock run:
  the command's  it ran and exited
  128 + n        it was ended by signal n, or signal n ended the wait in the queue
  123            the lock was lost while it ran, or --max-hold was over, whatever the command
                 said (--lost-exit-code)
  124            not acquired in time: --nonblock, --wait (--conflict-exit-code)
  125            monolock itself failed: usage, a refusal by the server, or, with --no-retry, no
                 connection
  126, 127       the command can't be executed, was not found
Exit codes of monolock locks, show, release, kick and info:
  0              done
  1              there is no such lock, holder or waiter
  125            monolock itself failed: usage, no admin API on that address, a refusal by it
The server exits with 0 after a clean stop, 1 for what it can't go on without, 2 for wrong usage.
";
