//! The only place where the clock is read, and timers on it.
//!
//! `CLOCK_BOOTTIME` runs on while the machine is suspended, as a lease at the server does. The
//! standard library's clock and tokio's timers stand still then.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use monolock_core::time::Instant;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

const NANOS_PER_SEC: u64 = 1_000_000_000;

/// The present.
pub(crate) fn now() -> Instant {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::Boottime);
    let (secs, nanos) = (tv_sec.cast_unsigned(), tv_nsec.cast_unsigned());
    Instant::from_nanos(secs.saturating_mul(NANOS_PER_SEC).saturating_add(nanos))
}

/// A timer that a task can wait for.
#[derive(Debug)]
pub(crate) struct Timer {
    descriptor: AsyncFd<OwnedFd>,
    armed_for: Instant,
}

impl Timer {
    /// A timer for tasks of the current runtime.
    ///
    /// # Errors
    /// If there is no descriptor to be had.
    pub(crate) fn new() -> io::Result<Timer> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let descriptor = timerfd_create(TimerfdClockId::Boottime, flags)?;
        #[expect(deprecated, reason = "unsound only for what doesn't keep its descriptor open")]
        let descriptor = AsyncFd::with_interest(descriptor, Interest::READABLE)?;
        Ok(Timer { descriptor, armed_for: Instant::NEVER })
    }

    /// Waits until this moment. May be dropped and called again.
    ///
    /// # Errors
    /// If the kernel doesn't take the timer, which leaves the caller without a sense of time.
    pub(crate) async fn at(&mut self, moment: Instant) -> io::Result<()> {
        if moment != self.armed_for {
            self.arm(moment)?;
        }
        if moment == Instant::NEVER {
            return std::future::pending().await;
        }
        loop {
            let mut ready = self.descriptor.readable().await?;
            if now() >= moment {
                return Ok(());
            }
            // Left from what it was armed for before.
            let _ = ready.try_io(|descriptor| {
                let mut expirations = [0; 8];
                rustix::io::read(descriptor.get_ref(), &mut expirations)?;
                Ok(())
            });
        }
    }

    fn arm(&mut self, moment: Instant) -> io::Result<()> {
        // Zero would disarm it; and so `NEVER`, which the kernel can't count to, does.
        let nanos = if moment == Instant::NEVER { 0 } else { moment.as_nanos().max(1) };
        let it_value = Timespec {
            tv_sec: (nanos / NANOS_PER_SEC).cast_signed(),
            tv_nsec: (nanos % NANOS_PER_SEC).cast_signed(),
        };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
        timerfd_settime(self.descriptor.get_ref(), TimerfdTimerFlags::ABSTIME, &once)?;
        self.armed_for = moment;
        Ok(())
    }
}

/// Waits for this long by the clock that leases go by, in which time counts while the machine is
/// suspended. tokio's own sleep would last longer then.
///
/// # Errors
/// If there is no descriptor to be had.
///
/// # Panics
/// If there is no tokio runtime, or one without I/O.
pub async fn sleep(duration: Duration) -> io::Result<()> {
    let until = now().after(duration);
    Timer::new()?.at(until).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_timer_comes_at_its_moment_and_not_before() {
        let mut timer = Timer::new().unwrap();
        let moment = now().after(Duration::from_millis(20));
        timer.at(moment).await.unwrap();
        assert!(now() >= moment);
    }

    #[tokio::test]
    async fn a_timer_that_went_off_can_be_armed_again() {
        let mut timer = Timer::new().unwrap();
        timer.at(Instant::from_nanos(0)).await.unwrap();
        let later = now().after(Duration::from_millis(20));
        timer.at(later).await.unwrap();
        assert!(now() >= later);
        // One that is past is there at once.
        timer.at(later).await.unwrap();
    }

    #[tokio::test]
    async fn a_wait_that_was_dropped_does_not_end_the_next_one() {
        let mut timer = Timer::new().unwrap();
        let soon = now().after(Duration::from_millis(5));
        tokio::select! {
            biased;
            _ = timer.at(soon) => panic!("too early"),
            () = std::future::ready(()) => {}
        }
        let later = now().after(Duration::from_millis(30));
        timer.at(later).await.unwrap();
        assert!(now() >= later);
    }
}
