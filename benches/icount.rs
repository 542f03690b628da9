//! Instructions an operation, counted by valgrind: the one figure that a busy machine leaves alone.
//!
//! `cargo bench --bench icount`; needs valgrind, and says so if there is none.
//!
//! The program runs itself under callgrind, once for each operation. Only what is called from
//! [`measured`] is counted, so the crowd is made for free.

mod crowd;

use std::env;
use std::process::{Command, ExitCode};

use crowd::Crowd;

/// Enough for a heap and a hash table of some depth, and made in seconds under valgrind.
const SESSIONS: usize = 100_000;

/// How often an operation is done that needn't end a whole crowd.
const REPETITIONS: usize = 20_000;

/// Heartbeats for the length of one lease, in which every session gets to the top of the heap once.
const HEARTBEATS: usize = 4 * SESSIONS;

#[derive(Clone, Copy)]
enum Operation {
    Heartbeat,
    Claim,
    Handover,
    LeaveQueue,
    Expire,
}

impl Operation {
    const ALL: [Operation; 5] = [
        Operation::Heartbeat,
        Operation::Claim,
        Operation::Handover,
        Operation::LeaveQueue,
        Operation::Expire,
    ];

    const fn name(self) -> &'static str {
        match self {
            Operation::Heartbeat => "heartbeat and its answer",
            Operation::Claim => "connect, ACQUIRE, ACQUIRED, close",
            Operation::Handover => "holder leaves, next is granted, first comes back",
            Operation::LeaveQueue => "waiter leaves the middle of a queue",
            Operation::Expire => "lease passes, probe, close",
        }
    }

    fn crowd(self) -> Crowd {
        match self {
            Operation::Heartbeat | Operation::Claim | Operation::Expire => {
                Crowd::of_holders(SESSIONS)
            }
            Operation::Handover | Operation::LeaveQueue => Crowd::in_one_queue(SESSIONS),
        }
    }
}

/// Does an operation many times and returns how often. Callgrind knows it by its name.
#[inline(never)]
fn measured(operation: Operation, crowd: &mut Crowd) -> usize {
    match operation {
        Operation::Heartbeat => {
            crowd.heartbeats(HEARTBEATS);
            return HEARTBEATS;
        }
        Operation::Claim => crowd.claims(REPETITIONS),
        Operation::Handover => crowd.handovers(REPETITIONS),
        Operation::LeaveQueue => return crowd.drop_half(),
        Operation::Expire => return crowd.expire_all(),
    }
    REPETITIONS
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [role, number] = &arguments[..]
        && role == "counted"
    {
        let number: usize = number.parse().expect("the number of an operation");
        let operation = Operation::ALL[number];
        println!("{}", measured(operation, &mut operation.crowd()));
        return ExitCode::SUCCESS;
    }
    if !arguments.iter().any(|argument| argument == "--bench") {
        println!("icount: run it with cargo bench --bench icount");
        return ExitCode::SUCCESS;
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("SKIPPED: there is no valgrind to count instructions with");
        return ExitCode::SUCCESS;
    }
    println!("instructions of the engine, at {SESSIONS} sessions\n");
    for (number, operation) in Operation::ALL.into_iter().enumerate() {
        match count(number) {
            Ok(instructions) => println!("{:<52}{instructions:>8.1}", operation.name()),
            Err(problem) => {
                eprintln!("{}: {problem}", operation.name());
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

fn count(operation: usize) -> Result<f64, String> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg("--toggle-collect=icount::measured*")
        .arg(env::current_exe().map_err(|error| error.to_string())?)
        .args(["counted", &operation.to_string()])
        .output()
        .map_err(|error| error.to_string())?;
    let report = String::from_utf8_lossy(&output.stderr);
    let done: Option<u32> = String::from_utf8_lossy(&output.stdout).trim().parse().ok();
    let counted: Option<f64> = report
        .lines()
        .find_map(|line| line.split_once("Collected : "))
        .and_then(|(_, number)| number.trim().parse().ok());
    match (counted, done) {
        (Some(counted), Some(done)) if counted > 0.0 => Ok(counted / f64::from(done)),
        _ => Err(format!("valgrind counted nothing:\n{report}")),
    }
}
