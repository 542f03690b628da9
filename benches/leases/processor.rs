//! What a processor was busy with.

use std::error::Error;
use std::fmt;
use std::fs;
use std::time::Duration;

use crate::processors::{Side, processor_of};

/// The kernel's account of one processor so far, or of a time.
#[derive(Clone, Copy)]
pub(crate) struct Account {
    /// Interrupts included: the kernel gives their time to whom they have interrupted.
    busy: Duration,
    /// By other guests of the same host.
    stolen: Duration,
    all: Duration,
}

impl Account {
    /// That of a side's processor; of all together where they are not told apart.
    pub(crate) fn of(side: Side) -> Result<Account, Box<dyn Error>> {
        let name = processor_of(side)?.map_or("cpu".into(), |number| format!("cpu{number}"));
        let stat = fs::read_to_string("/proc/stat")?;
        let mut lines = stat.lines().map(|line| line.split_whitespace());
        let mut fields = lines
            .find_map(|mut fields| (fields.next() == Some(&name)).then_some(fields))
            .ok_or_else(|| format!("/proc/stat knows no {name}"))?;
        let ticks_a_second = rustix::param::clock_ticks_per_second();
        let mut next = || -> Result<Duration, Box<dyn Error>> {
            let ticks: u64 = fields.next().ok_or("a line of /proc/stat is short")?.parse()?;
            Ok(Duration::from_millis(ticks * 1000 / ticks_a_second))
        };
        let [user, nice, system, idle] = [next()?, next()?, next()?, next()?];
        let [waiting, hard, soft, stolen] = [next()?, next()?, next()?, next()?];
        let busy = user + nice + system + hard + soft;
        Ok(Account { busy, stolen, all: busy + stolen + idle + waiting })
    }

    /// What has come since an earlier account.
    pub(crate) fn since(self, earlier: Account) -> Account {
        Account {
            busy: self.busy - earlier.busy,
            stolen: self.stolen.saturating_sub(earlier.stolen),
            all: self.all - earlier.all,
        }
    }

    /// Its shares in words, where one process had so much time of it.
    pub(crate) fn with(self, name: &'static str, time: Duration) -> impl fmt::Display {
        fmt::from_fn(move |f| {
            let share = |time: Duration| time.as_secs_f64() / self.all.as_secs_f64() * 100.0;
            write!(
                f,
                "{name} {:.0} %, everything else {:.0} %, stolen {:.1} %",
                share(time),
                share(self.busy.saturating_sub(time)),
                share(self.stolen),
            )
        })
    }
}
