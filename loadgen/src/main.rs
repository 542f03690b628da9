//! The `monolock-loadgen` program; see the library of the same name.

use std::process::ExitCode;

fn main() -> ExitCode {
    monolock_loadgen::main()
}
