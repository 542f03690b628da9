"""Several locks at once: all or none."""

from __future__ import annotations

import asyncio
import queue
import threading
import unittest
from typing import List

import monolock
from monolock import LossKind

from . import server
from .scripted import WAITING, Peer, Scripted, acquired, error


class Together(unittest.TestCase):
    def setUp(self) -> None:
        self.names = [f"{self.id()}/{letter}" for letter in "abc"]

    def test_each_has_its_token(self) -> None:
        def work(held: monolock.HeldTogether) -> List[int]:
            self.assertEqual([lock.name for lock in held], self.names)
            self.assertEqual(len(held), 3)
            self.assertIsNone(held.stop_reason())
            self.assertIsNone(held.wait_for_stop(0.001))
            for lock in held:
                seen = server.view(lock.name)
                assert seen is not None
                self.assertEqual(seen["holder"]["token"], lock.token())
            return [held[name].token() for name in self.names]

        # They are taken in the order of their names, whatever the order here.
        tokens = server.client().locks(reversed(self.names)).run(work)
        self.assertEqual(tokens, sorted(set(tokens)))
        server.wait_until("all are idle", self.all_idle)

    def test_opposite_orders_do_not_wait_for_each_other(self) -> None:
        def take_turns(names: List[str]) -> None:
            lock = server.client().locks(names, wait_at_most=server.PATIENCE)
            for _ in range(30):
                lock.run(lambda held: [one.token() for one in held])
            done.put(names)

        done: queue.SimpleQueue[List[str]] = queue.SimpleQueue()
        for names in [self.names, self.names[::-1], [self.names[1], self.names[0]]]:
            threading.Thread(target=take_turns, args=(names,)).start()
        for _ in range(3):
            done.get(timeout=server.PATIENCE)

    def test_without_the_last_there_is_none(self) -> None:
        with server.client().lock(self.names[2]).hold():
            with self.assertRaises(monolock.Taken) as taken:
                server.client().locks(self.names, wait=False).run(lambda _: self.fail("begun"))
            self.assertEqual(taken.exception.name, self.names[2])
            server.wait_until("the others are idle", lambda: not any(
                server.view(name) for name in self.names[:2]
            ))

    def test_the_loss_of_one_is_the_loss_of_all(self) -> None:
        async def work(held: monolock.HeldTogether) -> None:
            server.force_release(self.names[1])
            reason = await held.stopping()
            assert reason.loss is not None
            self.assertEqual(reason.loss.kind, LossKind.ADMINISTRATOR)
            for lock in held:
                with self.assertRaises(monolock.LockLost):
                    lock.token()

        with self.assertRaises(monolock.LockLost) as lost:
            asyncio.run(server.client().locks(self.names).run_async(work))
        self.assertEqual(lost.exception.names, tuple(self.names))
        server.wait_until("all are idle", self.all_idle)

    def test_one_that_is_lost_while_the_next_is_waited_for_ends_the_attempt(self) -> None:
        second_waits = threading.Event()

        def serve(peer: Peer) -> None:
            if peer.read_acquire() == "a":
                peer.send(acquired(7))
                self.assertTrue(second_waits.wait(server.PATIENCE))
                peer.send(error(0x02, b"force-released"))
            else:
                peer.send(WAITING)
                second_waits.set()
            peer.answer_all(WAITING)

        with Scripted(serve) as scripted:
            with self.assertRaises(monolock.ClaimLost) as lost:
                client = monolock.Client(scripted.address)
                client.locks(["a", "b"]).run(lambda _: self.fail("the work was begun"))
            self.assertEqual(lost.exception.loss.kind, LossKind.ADMINISTRATOR)

    def test_those_that_are_held_stay_alive_while_the_next_is_waited_for(self) -> None:
        waiting = threading.Event()
        progress: queue.SimpleQueue[monolock.Progress] = queue.SimpleQueue()
        with server.client().lock(self.names[1]).hold():
            lock = server.client().locks(self.names[:2], lease=1.0, progress=progress)
            outcome: queue.SimpleQueue[int] = queue.SimpleQueue()
            threading.Thread(
                target=lambda: outcome.put(lock.run(lambda held: held[self.names[0]].token()))
            ).start()
            self.assertEqual(
                progress.get(timeout=server.PATIENCE), monolock.Queued(self.names[1])
            )
            seen = server.view(self.names[0])
            assert seen is not None
            self.assertFalse(waiting.wait(2.2), "more than two leases")
        self.assertEqual(outcome.get(timeout=server.PATIENCE), seen["holder"]["token"])

    def all_idle(self) -> bool:
        return not any(server.view(name) for name in self.names)
