//! One line of runs as Markdown.

use monolock_loadgen::phase::Phase;
use monolock_loadgen::results::{PhaseResult, Results};

use crate::Runs;
use crate::spread::Spread;

const PERCENTILES: [f64; 4] = [50.0, 90.0, 99.0, 99.9];

pub(crate) fn print(runs: &Runs) {
    println!("\n`monolock-loadgen {}`\n", runs.words);
    for limit in runs.rounds.iter().flat_map(|results| &results.limits) {
        println!("NOT A CLEAN RESULT: {limit}\n");
    }
    print_latencies(runs);
    print_costs(runs);
}

fn print_latencies(runs: &Runs) {
    println!("| phase, ms | timed | errors | 50 % | 90 % | 99 % | 99.9 % | max |");
    println!("|---|---|---|---|---|---|---|---|");
    for phase in Phase::ALL {
        let spread = |digits: usize, value: &dyn Fn(&PhaseResult) -> Option<f64>| {
            let of = |results: &Results| results.phase(phase.name()).and_then(value);
            cell(Spread::of(runs.rounds.iter().map(of)), digits)
        };
        if runs.rounds.iter().all(|results| results.phase(phase.name()).is_none()) {
            continue;
        }
        #[expect(clippy::cast_precision_loss, reason = "counts below 2^53")]
        let (timed, errors) = (
            spread(0, &|found| Some(found.count as f64)),
            spread(0, &|found| Some(found.errors as f64)),
        );
        print!("| {} | {timed} | {errors} |", phase.name());
        for percentile in PERCENTILES {
            print!(" {} |", spread(3, &|found| found.corrected.at_percentile_ms(percentile)));
        }
        println!(" {} |", spread(3, &|found| Some(found.corrected.max_ms)));
    }
}

fn print_costs(runs: &Runs) {
    let spread = |digits: usize, value: &dyn Fn(&Results) -> Option<f64>| {
        cell(Spread::of(runs.rounds.iter().map(value)), digits)
    };
    let server = runs.rounds.iter().find_map(|results| results.server.as_ref());
    // Where most of the load is a flood that nobody counts, nothing can be told of one operation.
    let Some(server) = server.filter(|server| server.operations > 0) else {
        return;
    };
    let operation = &server.operation;
    println!("\n| | CPU, µs a {operation} | wake-ups a {operation} | resident bytes a session |");
    println!("|---|---|---|---|");
    println!(
        "| server | {} | {} | {} |",
        spread(1, &|results| results.server.as_ref()?.cpu_us_per_operation),
        spread(2, &|results| results.server.as_ref()?.wakeups_per_operation),
        spread(0, &|results| results.server.as_ref()?.resident_bytes_per_session),
    );
    println!(
        "| load generator | {} | {} | |",
        spread(1, &|results| results.own.cpu_us_per_operation),
        spread(2, &|results| results.own.wakeups_per_operation),
    );
    println!("| ratio | {} | | |", spread(2, &|results| results.own.cpu_ratio_to_server));
}

fn cell(spread: Option<Spread>, digits: usize) -> String {
    spread.map_or("-".to_owned(), |spread| format!("{spread:.digits$}"))
}
