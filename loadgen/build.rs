//! Compiles the library that stages a server's clock, so that the program can carry it along.

use std::env;
use std::path::Path;
use std::process::exit;

const SOURCE: &str = "src/staged_clock.c";

fn main() {
    println!("cargo:rerun-if-changed={SOURCE}");
    let library =
        Path::new(&env::var_os("OUT_DIR").expect("cargo sets it")).join("staged_clock.so");
    let mut compile = cc::Build::new().opt_level(2).get_compiler().to_command();
    compile.args(["-shared", "-fPIC", "-o"]);
    let status = compile.arg(library).arg(SOURCE).status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => fail(&format!("the C compiler ended with {status}")),
        Err(error) => fail(&format!("cannot run a C compiler: {error}")),
    }
}

fn fail(what: &str) {
    eprintln!("{SOURCE}: {what}");
    exit(1);
}
