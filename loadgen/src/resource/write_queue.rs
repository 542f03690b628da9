//! Writes, carried out one by one in the order in which they were wanted: at once, or by a thread
//! of their own, so that a database's time is not taken from the heartbeats of whoever wants them.

use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use monolock_core::time::Instant;

use super::{Resource, ResourceError, Write, Written};
use crate::checker::Who;
use crate::clock;

/// A write that somebody wants done.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    /// Whose session it is.
    pub who: Who,
    /// What is to be written.
    pub write: Write,
    /// When it should be.
    pub intended: Instant,
}

/// A write that was carried out.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// What was wanted.
    pub order: Order,
    /// When it was begun.
    pub begun: Instant,
    /// When its end was known.
    pub done: Instant,
    /// What became of it.
    pub written: Written,
}

type Answer = Result<Done, ResourceError>;

/// See the module.
#[derive(Debug)]
pub struct WriteQueue {
    carrier: Carrier,
    /// Ordered, and not yet taken as done.
    pending: usize,
}

#[derive(Debug)]
enum Carrier {
    /// Whoever orders carries out.
    Here { resource: Box<dyn Resource>, answers: VecDeque<Answer> },
    /// The thread, which ends with the queue.
    Thread { orders: Sender<Order>, answers: Receiver<Answer> },
}

impl Order {
    fn carry_out(self, resource: &mut dyn Resource) -> Answer {
        let begun = clock::now();
        let written = resource.write(&self.write)?;
        Ok(Done { order: self, begun, done: clock::now(), written })
    }
}

impl WriteQueue {
    /// To a resource that answers at once.
    pub fn here(resource: Box<dyn Resource>) -> WriteQueue {
        WriteQueue { carrier: Carrier::Here { resource, answers: VecDeque::new() }, pending: 0 }
    }

    /// To one that may take its time.
    ///
    /// # Errors
    /// If there is no thread to be had.
    pub fn on_a_thread(mut resource: Box<dyn Resource>) -> io::Result<WriteQueue> {
        let (orders, ordered) = mpsc::channel::<Order>();
        let (tell, answers) = mpsc::channel();
        thread::Builder::new().name("writer".to_owned()).spawn(move || {
            for order in ordered {
                let answer = order.carry_out(&mut *resource);
                let is_over = answer.is_err();
                if tell.send(answer).is_err() || is_over {
                    return;
                }
            }
        })?;
        Ok(WriteQueue { carrier: Carrier::Thread { orders, answers }, pending: 0 })
    }

    /// Orders a write, which comes after all that were ordered before.
    pub fn push(&mut self, order: Order) {
        self.pending += 1;
        match &mut self.carrier {
            Carrier::Here { resource, answers } => {
                answers.push_back(order.carry_out(&mut **resource));
            }
            // A thread that has failed has said so, and that is still to be read.
            Carrier::Thread { orders, .. } => drop(orders.send(order)),
        }
    }

    /// The next write that is done, if there is one.
    ///
    /// # Errors
    /// The resource's; nothing is carried out after it.
    pub fn pop(&mut self) -> Result<Option<Done>, ResourceError> {
        let answer = match &mut self.carrier {
            Carrier::Here { answers, .. } => answers.pop_front(),
            Carrier::Thread { answers, .. } => answers.try_recv().ok(),
        };
        self.pending -= usize::from(answer.is_some());
        answer.transpose()
    }

    /// Whether answers are still to come.
    pub fn is_pending(&self) -> bool {
        self.pending > 0
    }
}
