//! How a connection gets from one loop to another, and what each loop does in a turn.

use monolock_core::effect::Effect;
use monolock_core::session::{PeerAddress, SessionId};
use monolock_core::shard_map::ShardNumber;

use super::event_loop::Message;
use super::{Claim, Server};
use crate::peer::Peer;

impl Server {
    /// The oldest message of somebody to somebody arrives.
    pub(super) fn deliver(&mut self, whose: u8) -> bool {
        let some: Vec<usize> =
            (0..self.mail.len()).filter(|&pair| !self.mail[pair].is_empty()).collect();
        let Some(place) = usize::from(whose).checked_rem(some.len()) else { return false };
        let pair = some[place];
        let message = self.mail[pair].pop_front().expect("it is not empty");
        let to = u32::try_from(pair).expect("few") % self.shard_map.shards();
        let (event_loop, places) = (&mut self.loops[to as usize], &self.places[to as usize]);
        match message {
            Message::Connection { peer } => {
                self.arrive(peer, to);
            }
            Message::Adopt { departure, from } => {
                let id = self.arrive(departure.peer, to);
                self.loops[from as usize].has_sent(self.now);
                self.loops[to as usize].engine.adopt(id, &departure, self.now);
            }
            Message::PlacesWanted { from, count } => event_loop.note_wanted(from, count, places),
            Message::PlaceKept { at } => event_loop.use_place(at, self.now),
            Message::PlaceReturned { from, still_wanted } => {
                event_loop.note_returned(from, still_wanted, places);
            }
            Message::ShutDown => event_loop.shut_down(),
        }
        true
    }

    fn arrive(&mut self, address: PeerAddress, at: ShardNumber) -> SessionId {
        let id = self.loops[at as usize].connect(address, self.now);
        let claim = self.claims.iter_mut().find(|claim| claim.address == address);
        let claim = claim.expect("nobody who is under way is forgotten");
        assert!(claim.at.is_none(), "it is in two loops");
        claim.at = Some((at, Peer::new(id, address)));
        id
    }

    /// A socket is out of its ring; nothing of it is under way there any more.
    pub(super) fn finish_leaving(&mut self, who: u8) -> bool {
        let Some((claim, shard, id)) = self.leaver(who) else { return false };
        let (_, peer) = claim.at.take().expect("who leaves is there");
        assert!(peer.told == 0 && !peer.is_sending, "it was told something before it has moved");
        assert!(!std::mem::replace(&mut claim.has_moved, true), "a connection moves once");
        let event_loop = &mut self.loops[shard as usize];
        event_loop.leaving.retain(|&leaving| leaving != id);
        event_loop.depart(id);
        true
    }

    /// There is no descriptor for it.
    pub(super) fn fail_to_leave(&mut self, who: u8) {
        let Some((claim, shard, id)) = self.leaver(who) else { return };
        let (_, peer) = claim.at.as_mut().expect("who leaves is there");
        peer.at_end = true;
        let event_loop = &mut self.loops[shard as usize];
        event_loop.leaving.retain(|&leaving| leaving != id);
        event_loop.engine.disconnected(id, self.now);
    }

    /// One that leaves, and of whom no read is under way.
    fn leaver(&mut self, who: u8) -> Option<(&mut Claim, ShardNumber, SessionId)> {
        let Server { claims, loops, .. } = self;
        let mut leavers = Vec::new();
        for claim in claims.iter_mut() {
            if let Some((shard, peer)) = claim.open()
                && !peer.is_probed
                && loops[shard as usize].leaving.contains(&peer.id)
            {
                let id = peer.id;
                leavers.push((claim, shard, id));
            }
        }
        let place = usize::from(who).checked_rem(leavers.len())?;
        Some(leavers.swap_remove(place))
    }

    /// Every loop's half of a turn: carries out what its engine asks for.
    pub(super) fn look(&mut self) {
        for number in 0..self.loops.len() {
            let Server { loops, claims, places, now, .. } = self;
            let event_loop = &mut loops[number];
            event_loop.tell_of_shutdown(*now);
            while let Some(effect) = event_loop.engine.poll_effect() {
                let (Effect::Transmit(id)
                | Effect::Probe(id)
                | Effect::ShutdownWrite(id)
                | Effect::Close(id)) = effect
                else {
                    event_loop.carry_out(effect, *now, places);
                    continue;
                };
                let mut here = claims.iter_mut().filter_map(|claim| claim.at.as_mut());
                let (_, peer) = here
                    .find(|(shard, peer)| *shard == event_loop.number && peer.id == id)
                    .expect("nothing is asked of who is not here");
                peer.carry_out(effect, &mut event_loop.engine);
            }
            event_loop.publish(&places[number]);
            for token in event_loop.ledger.check(&mut event_loop.engine) {
                assert!(self.tokens.insert(token), "{token} is granted twice");
            }
            for name in event_loop.ledger.locks() {
                assert_eq!(self.shard_map.owner(name), event_loop.number, "{name}");
            }
            assert!(places[number].taken() <= places[number].max(), "more than there are");
            for letter in std::mem::take(&mut event_loop.outbox) {
                self.post(letter);
            }
        }
    }
}
