//! Who may read the keyboard, and Ctrl-Z.
//!
//! The command is in a process group of its own, and a terminal belongs to one group at a time: the
//! keys that make signals go there, and members of other groups are stopped when they read. So the
//! command's group is given the terminal, as a shell would do it, and it is taken back when the
//! command stops or ends. In a pipeline other members of our own group may want to read the
//! terminal (`monolock run LOCK -- list | less`): there it is given away only when the command
//! wants it.

use std::fs::File;
use std::io::{self, IsTerminal};

use nix::sys::signal::{SigSet, Signal as NixSignal};
use rustix::process::{Pid, Signal, getpgrp, getpid, kill_process};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};

use super::child::Child;

/// The controlling terminal, if there is one.
#[derive(Debug)]
pub(crate) struct Terminal {
    device: Option<File>,
    own_group: Pid,
    is_given: bool,
    /// How it was when it was given away for the first time.
    modes: Option<Termios>,
}

impl Terminal {
    /// To be called before the command is started, on the thread that calls the rest.
    ///
    /// # Errors
    /// If signals can't be blocked.
    pub(crate) fn open() -> io::Result<Terminal> {
        // Who takes the terminal back is in the background and would be stopped for it. The mask is
        // the thread's; the command starts with an empty one.
        let mut in_background = SigSet::empty();
        in_background.add(NixSignal::SIGTTOU);
        in_background.thread_block()?;
        let device = File::options().read(true).write(true).open("/dev/tty").ok();
        Ok(Terminal { device, own_group: getpgrp(), is_given: false, modes: None })
    }

    /// The command has started.
    pub(crate) fn child_started(&mut self, child: &Child) {
        if io::stdin().is_terminal() && io::stdout().is_terminal() {
            self.give_to(child);
        }
    }

    /// The command was stopped. Stops this process too, so that the shell has its terminal back,
    /// and returns when the shell wants both to go on: true, the command is to be resumed.
    ///
    /// False without a terminal: whoever has stopped the command will resume it.
    pub(crate) fn child_stopped(&mut self, child: &Child, by: Signal) -> bool {
        if self.device.is_none() {
            return false;
        }
        let wants_terminal = by == Signal::TTIN || by == Signal::TTOU;
        // It may have wanted it before it was its turn, and have it now.
        if wants_terminal && (self.is_given || self.give_to(child)) {
            return true;
        }
        let was_given = self.is_given;
        self.take_back();
        stop_this_process();
        if was_given || wants_terminal {
            self.give_to(child);
        }
        true
    }

    /// The command has ended, or is about to.
    pub(crate) fn take_back(&mut self) {
        if let (true, Some(device)) = (self.is_given, &self.device) {
            // The terminal may have been hung up in the meantime.
            let _ = tcsetpgrp(device, self.own_group);
        }
        self.is_given = false;
    }

    /// Undoes what a command has done to the terminal that was killed before it could: one that it
    /// has left without echo and signals, as editors need it, would be of little use to anybody.
    pub(crate) fn restore(&self) {
        if let (Some(device), Some(modes)) = (&self.device, &self.modes)
            && tcgetpgrp(device).is_ok_and(|group| group == self.own_group)
        {
            // The terminal may have been hung up in the meantime.
            let _ = tcsetattr(device, OptionalActions::Drain, modes);
        }
    }

    /// Gives the terminal to the command, if it is ours to give. False if it is not.
    fn give_to(&mut self, child: &Child) -> bool {
        if let Some(device) = &self.device
            && tcgetpgrp(device).is_ok_and(|group| group == self.own_group)
        {
            if self.modes.is_none() {
                self.modes = tcgetattr(device).ok();
            }
            self.is_given = tcsetpgrp(device, child.group()).is_ok();
        }
        self.is_given
    }
}

/// Returns when the shell wants it to go on.
pub(crate) fn stop_this_process() {
    // It can't fail: every process may signal itself.
    let _ = kill_process(getpid(), Signal::STOP);
}
