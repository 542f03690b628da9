//! What must be when nothing happens any more.

use monolock_core::engine::Engine;

use super::{Claim, Server};
use crate::peer::Standing;

impl Server {
    /// Everything that is under way comes to its end, and deadlines that have passed are passed.
    pub(super) fn settle(&mut self) {
        for event_loop in &mut self.loops {
            event_loop.engine.expire(self.now, usize::MAX);
        }
        loop {
            self.look();
            self.answer_probes();
            self.look();
            let sent = self.finish_all_sends();
            if !sent && !self.finish_leaving(0) && !self.deliver(0) {
                return;
            }
        }
    }

    fn finish_all_sends(&mut self) -> bool {
        let Server { claims, loops, now, .. } = self;
        let mut some = false;
        for (shard, peer) in claims.iter_mut().filter_map(Claim::open) {
            if std::mem::take(&mut peer.is_sending) {
                loops[shard as usize].engine.sent(peer.id, *now);
                some = true;
            }
        }
        some
    }

    pub(super) fn check_rest(&mut self) {
        for (event_loop, places) in self.loops.iter().zip(&self.places) {
            assert!(event_loop.is_at_rest(), "something is under way from a loop at rest");
            assert_eq!(places.taken() as usize, event_loop.engine.sessions(), "places are counted");
            for (to, places) in (0..).zip(&self.places) {
                let waiting = event_loop.engine.waiting_for(to);
                assert!(waiting == 0 || places.left_for_moves() == 0, "{waiting} wait in vain");
            }
        }
        for claim in &self.claims {
            let (shard, peer) = claim.at.as_ref().expect("everybody has arrived");
            let Some(lock) = &claim.lock else { continue };
            if claim.is_spoilt || peer.is_closed || peer.at_end {
                continue;
            }
            if peer.last == Some(Standing::Refused) {
                continue;
            }
            if self.shard_map.owner(lock) == *shard {
                // A grant to who waits is one more.
                let answers = claim.asked..=claim.asked + 1;
                assert!(answers.contains(&peer.told), "{} of {} answers", peer.told, claim.asked);
            } else {
                assert_eq!(peer.told, 0, "who waits for a place is told nothing");
            }
        }
    }

    /// Everybody leaves: nothing may be left.
    pub(super) fn end(mut self) {
        while self.claims.iter().any(Claim::is_open) {
            self.end_of(0, Engine::disconnected);
            self.settle();
        }
        while !self.claims.is_empty() {
            self.forget(0);
        }
        self.settle();
        for (event_loop, places) in self.loops.iter_mut().zip(&self.places) {
            assert_eq!(event_loop.engine.sessions(), 0);
            assert_eq!(event_loop.engine.counts().connections, 0);
            assert_eq!(event_loop.engine.wake_at(self.now), None);
            assert_eq!(event_loop.ledger.locks().next(), None, "idle locks are gone");
            assert_eq!(places.taken(), 0, "a place is lost");
        }
    }
}
