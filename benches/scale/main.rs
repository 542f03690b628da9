//! What many live sessions cost, up to a million on one server: memory of the process and of the
//! kernel, processor time of a heartbeat against that of the yardstick, connecting, shutting down;
//! and what others notice when something happens to many of them at once.
//!
//! `cargo bench --bench scale`, with `-- --help` for what can be set.
//!
//! The server has one processor, the clients, which are this process, another one. Neither can have
//! more descriptors than `RLIMIT_NOFILE`; the tables of their rings hold the connections, so there
//! are as many rings as it takes.

mod arguments;
mod bystanders;
#[path = "../leases/claim.rs"]
mod claim;
#[path = "../server/clients.rs"]
mod clients;
#[path = "../server/machine.rs"]
mod machine;
mod mass;
mod memory;
#[path = "../server/programs.rs"]
mod programs;
#[path = "../leases/quantiles.rs"]
mod quantiles;
#[path = "../server/side.rs"]
mod side;
#[path = "../leases/source.rs"]
mod source;
#[path = "../server/spread.rs"]
mod spread;
mod steady;
#[path = "../server/subject.rs"]
mod subject;
mod table;

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use arguments::Arguments;
use steady::Steady;
use table::Table;

fn main() -> ExitCode {
    let arguments = match Arguments::parse(std::env::args().skip(1)) {
        Ok(Some(arguments)) => arguments,
        Ok(None) => return ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            return ExitCode::from(2);
        }
    };
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let server = programs::server(arguments.server.as_deref())?;
    machine::print();
    if arguments.runs("mass") {
        mass::measure(&server, arguments.mass.get())?;
    }
    if arguments.runs("steady") {
        steady(arguments, &server)?;
    }
    Ok(())
}

fn steady(arguments: &Arguments, server: &Path) -> Result<(), Box<dyn Error>> {
    let yardstick = programs::yardstick(arguments.yardstick.as_deref())?;
    let mut table = Table::default();
    for &sessions in &arguments.sessions {
        let steady = Steady::new(server, &yardstick, sessions.get(), arguments.rate.get());
        let together = match memory::are_two_possible(sessions.get()) {
            Ok(together) => together,
            Err(missing) => {
                println!("{sessions} sessions are left out: {missing}");
                continue;
            }
        };
        for &lease_s in &arguments.leases_s {
            table.add(steady.run(lease_s.get(), together)?);
        }
        if !together {
            table.add(steady.run_yardstick()?);
        }
    }
    print!("\n{table}");
    Ok(())
}
