//! The part of the report on failures of servers: what was done to them, and what came after.

use std::fmt::{Result, Write};
use std::time::Duration;

use crate::duration;
use crate::results::{Kills, OutageResult, Results};

/// More failures than this are summed up only.
const ROWS_MAX: usize = 20;

/// Writes it, if servers were to fail.
pub(super) fn write(results: &Results, text: &mut String) -> Result {
    let Some(kills) = &results.parameters.kills else {
        return Ok(());
    };
    writeln!(text)?;
    writeln!(text, "failures: {}", conditions(kills))?;
    let outages = &results.outages;
    if outages.len() <= ROWS_MAX {
        write_rows(outages, text)?;
    }
    write_sums(outages, text)
}

/// What was done to servers, in words.
pub fn conditions(kills: &Kills) -> String {
    let mut text = String::new();
    // Writing to a String doesn't fail.
    let _ = write_conditions(kills, &mut text);
    text
}

fn write_conditions(kills: &Kills, text: &mut String) -> Result {
    let show = |ms| duration::show(Duration::from_millis(ms));
    let (every, ways) = (show(kills.every_ms), kills.ways.join(" or "));
    match &kills.standby {
        None => write!(text, "every {every} by {ways}, and a restart in place")?,
        Some(standby) => {
            let takeover_after = show(standby.takeover_after_ms);
            write!(text, "every {every} by {ways}; a standby takes over after ")?;
            let old = if standby.is_fenced { "broken first" } else { "left alone" };
            write!(text, "{takeover_after}, old connections are {old}")?;
            if kills.ways.iter().any(|way| way == "stop") {
                write!(text, "; who was stopped wakes after {}", show(standby.wake_after_ms))?;
            }
            if standby.clock_ms != 0 {
                write!(text, "; the standby's clock is {}", wrong(standby.clock_ms))?;
            }
        }
    }
    if let Some((by_ms, at_ms)) = kills.clock_step_ms {
        let way = if by_ms < 0 { "back" } else { "forward" };
        let by = show(by_ms.unsigned_abs());
        write!(text, "; clocks are set {way} by {by} at {}", show(at_ms))?;
    }
    Ok(())
}

fn wrong(ms: i64) -> String {
    let by = duration::show(Duration::from_millis(ms.unsigned_abs()));
    if ms < 0 { format!("{by} behind") } else { format!("{by} ahead") }
}

fn write_rows(outages: &[OutageResult], text: &mut String) -> Result {
    let heads = [
        "at, s",
        "by",
        "ready, ms",
        "1st grant",
        "99% back",
        "all back",
        "dials/s",
        "overlaps",
        "longest",
        "behind",
        "until, ms",
    ];
    for head in heads {
        write!(text, "{head:>10}")?;
    }
    writeln!(text)?;
    for outage in outages {
        write!(text, "{:>10.3}{:>10}", outage.at_ms / 1e3, outage.way)?;
        for ms in
            [outage.succeeded_ms, outage.first_grant_ms, outage.back_99_ms, outage.back_all_ms]
        {
            write_ms(ms, text)?;
        }
        write!(text, "{:>10}{:>10}", outage.dials_a_second_max, outage.overlaps)?;
        write_ms((outage.overlaps > 0).then_some(outage.overlap_longest_ms), text)?;
        write!(text, "{:>10}", outage.tokens_behind)?;
        write_ms(outage.tokens_behind_until_ms, text)?;
        writeln!(text)?;
    }
    Ok(())
}

fn write_ms(ms: Option<f64>, text: &mut String) -> Result {
    match ms {
        Some(ms) => write!(text, "{ms:>10.1}"),
        None => write!(text, "{:>10}", "-"),
    }
}

fn write_sums(outages: &[OutageResult], text: &mut String) -> Result {
    let count = |is: fn(&OutageResult) -> bool| outages.iter().filter(|outage| is(outage)).count();
    writeln!(
        text,
        "{} failures, the next server ready {}, first grant {}, 99% back {}",
        outages.len(),
        spread(outages, |outage| outage.succeeded_ms),
        spread(outages, |outage| outage.first_grant_ms),
        spread(outages, |outage| outage.back_99_ms),
    )?;
    let dials = outages.iter().map(|outage| outage.dials_a_second_max).max().unwrap_or(0);
    writeln!(
        text,
        "at most {dials} dials a second on the dead port; {} times the next token was of the same \
         second; {} overlaps, {} tokens behind an older one",
        count(|outage| outage.is_within_a_second),
        outages.iter().map(|outage| outage.overlaps).sum::<u64>(),
        outages.iter().map(|outage| outage.tokens_behind).sum::<u64>(),
    )?;
    for outage in outages.iter().filter(|outage| outage.tokens_behind > 0) {
        let until = outage.tokens_behind_until_ms.unwrap_or_default();
        let after = match outage.tokens_grown_since {
            0 => "none grew after that".to_owned(),
            grown => format!("the {grown} after that grew"),
        };
        writeln!(
            text,
            "after the failure at {:.3} s {} tokens were behind, the last one {until:.0} ms later; \
             {after}",
            outage.at_ms / 1e3,
            outage.tokens_behind,
        )?;
    }
    Ok(())
}

/// The median and the largest of what there is.
fn spread(outages: &[OutageResult], of: fn(&OutageResult) -> Option<f64>) -> String {
    let mut all: Vec<f64> = outages.iter().filter_map(of).collect();
    all.sort_by(f64::total_cmp);
    let Some(largest) = all.last() else {
        return "never".to_owned();
    };
    let median = all[(all.len() - 1) / 2];
    let missing = match outages.len() - all.len() {
        0 => String::new(),
        missing => format!(", {missing} times not"),
    };
    format!("after {median:.1} ms (median), {largest:.1} ms at most{missing}")
}
