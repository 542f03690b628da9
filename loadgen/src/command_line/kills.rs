//! The flags of scenarios in which servers fail.

use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches};

use super::{duration, one, value};
use crate::duration::show;
use crate::failure::Failure;
use crate::kill_plan::{ClockStep, KillPlan, Successor, Way};
use crate::scenario::Scenario;
use crate::server_process::says_where;
use crate::settings::{Load, Target};
use crate::staged_clock::ClockOffset;
use monolock_core::duration::parse_duration;

/// What a scenario takes beside what all do.
pub(super) fn args(scenario: Scenario) -> Vec<Arg> {
    match scenario {
        Scenario::Failover => vec![
            duration("kill-every", "from one failure to the next").default_value("5s"),
            value(
                "kill-with",
                "WAYS",
                "kill, stop, term: SIGKILL, SIGSTOP or SIGTERM; of several, \
                   separated by commas, one is drawn for each failure",
            )
            .default_value("kill")
            .value_parser(parse_ways),
            duration("takeover-after", "from a failure to the standby's taking over")
                .default_value("1s"),
            duration("wake-after", "from SIGSTOP to SIGCONT [default: half of --kill-every]"),
            Arg::new("no-fence")
                .long("no-fence")
                .action(ArgAction::SetTrue)
                .help("leave old connections to the old server, as DNS does"),
            value("standby-clock", "OFFSET", "how wrong the standby's clock is, such as -5s")
                .allow_hyphen_values(true)
                .value_parser(parse_offset),
            clock_step(),
        ],
        Scenario::Restart => vec![
            duration("kill-every", "from one failure to the next").default_value("500ms"),
            value(
                "kill-with",
                "WAYS",
                "kill, term: SIGKILL or SIGTERM; of both, separated by a \
                   comma, one is drawn for each failure",
            )
            .default_value("kill,term")
            .value_parser(parse_ways),
            clock_step(),
        ],
        _ => Vec::new(),
    }
}

fn clock_step() -> Arg {
    value("clock-step", "OFFSET@TIME", "set all servers' clocks while they run, such as -5s@10s")
        .allow_hyphen_values(true)
        .value_parser(parse_clock_step)
}

/// What is done to the servers, if the scenario does something to them.
pub(super) fn plan(
    scenario: Scenario,
    target: &Target,
    load: &Load,
    matches: &ArgMatches,
) -> Result<Option<KillPlan>, Failure> {
    if !scenario.kills_servers() {
        return Ok(None);
    }
    own_servers(scenario, target)?;
    let every = *one::<Duration>(matches, "kill-every");
    let Ways(ways) = one::<Ways>(matches, "kill-with").clone();
    let clock_step = matches.get_one::<ClockStep>("clock-step").copied();
    let successor = match scenario {
        Scenario::Failover => standby(every, &ways, matches)?,
        _ => {
            if ways.contains(&Way::Stop) {
                return Err(Failure::usage(
                    "--kill-with: a server that is stopped keeps its address, so none can be \
                     started there: restart takes kill and term",
                ));
            }
            Successor::Restart
        }
    };
    let plan = KillPlan { every, ways, successor, clock_step };
    if plan.failures(load.duration) == 0 {
        return Err(Failure::usage(format_args!(
            "--kill-every: {} must fit into --duration {} twice, to the failure and on to its end",
            show(every),
            show(load.duration)
        )));
    }
    if let Some(step) = clock_step
        && step.at >= load.duration
    {
        return Err(Failure::usage(format_args!(
            "--clock-step: {} is not within --duration {}",
            show(step.at),
            show(load.duration)
        )));
    }
    Ok(Some(plan))
}

fn own_servers(scenario: Scenario, target: &Target) -> Result<(), Failure> {
    let name = scenario.name();
    match target {
        Target::Running(_) => Err(Failure::usage(format_args!(
            "{name} needs --server PATH: it starts servers, makes them fail and starts others"
        ))),
        Target::Own { args, .. } if says_where(args) => Err(Failure::usage(format_args!(
            "--listen: {name} chooses itself where its servers listen"
        ))),
        Target::Own { .. } => Ok(()),
    }
}

fn standby(every: Duration, ways: &[Way], matches: &ArgMatches) -> Result<Successor, Failure> {
    let takeover_after = *one::<Duration>(matches, "takeover-after");
    let given = matches.get_one::<Duration>("wake-after").copied();
    let wake_after = given.unwrap_or(every / 2);
    let clock = matches.get_one::<ClockOffset>("standby-clock").copied().unwrap_or_default();
    let fences = !matches.get_flag("no-fence");
    let successor = Successor::Standby { takeover_after, wake_after, fences, clock };
    let plan = KillPlan { every, ways: ways.to_vec(), successor, clock_step: None };
    let latest = plan.replaced_after();
    if takeover_after > latest {
        return Err(Failure::usage(format_args!(
            "--takeover-after: at most {}, which is 0.8 of --kill-every and when the failed server \
             is replaced",
            show(latest)
        )));
    }
    if !ways.contains(&Way::Stop) {
        return match given {
            Some(_) => Err(Failure::usage("--wake-after: only with --kill-with stop")),
            None => Ok(successor),
        };
    }
    if wake_after < takeover_after || wake_after > latest {
        return Err(Failure::usage(format_args!(
            "--wake-after: {} must be from {}, which is --takeover-after, to {}, which is 0.8 of \
             --kill-every",
            show(wake_after),
            show(takeover_after),
            show(latest)
        )));
    }
    Ok(successor)
}

#[derive(Clone, Debug)]
struct Ways(Vec<Way>);

fn parse_ways(text: &str) -> Result<Ways, String> {
    let ways = [Way::Kill, Way::Stop, Way::Term];
    let parse = |word: &str| {
        let way = ways.into_iter().find(|way| way.name() == word.trim());
        way.ok_or_else(|| format!("{word:?} is none of kill, stop and term"))
    };
    text.split(',').map(parse).collect::<Result<_, _>>().map(Ways)
}

fn parse_offset(text: &str) -> Result<ClockOffset, String> {
    text.parse().map_err(|error| format!("{error}, with a sign if it is behind: -5s"))
}

fn parse_clock_step(text: &str) -> Result<ClockStep, String> {
    let wrong = || "write it like -5s@10s: by how much, and how long after measuring has begun";
    let (by, at) = text.split_once('@').ok_or_else(wrong)?;
    let by = by.parse().map_err(|_| wrong())?;
    let at = parse_duration(at).map_err(|_| wrong())?;
    Ok(ClockStep { by, at })
}
