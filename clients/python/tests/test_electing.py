"""Terms of a leader."""

from __future__ import annotations

import asyncio
import queue
import threading
import unittest
from typing import List, Optional

import monolock
from monolock import LossKind, Resign, StopKind

from . import server


class Electing(unittest.TestCase):
    def test_terms_go_on_until_the_leader_resigns(self) -> None:
        tokens: List[int] = []

        def lead(held: monolock.Held) -> Optional[Resign[str]]:
            tokens.append(held.token())
            if len(tokens) == 3:
                return Resign("enough")
            reason = held.wait_for_stop(server.PATIENCE)
            assert reason is not None
            self.assertEqual(reason.kind, StopKind.HELD_LONG_ENOUGH)
            return None

        # In the last term there is time enough.
        lock = server.client().lock(self.id(), hold_at_most=1.0)
        self.assertEqual(lock.elect(lead), "enough")
        self.assertEqual(tokens, sorted(set(tokens)))

    def test_a_leader_stands_again_after_a_loss(self) -> None:
        terms: List[int] = []

        def lead(held: monolock.Held) -> Optional[Resign[int]]:
            terms.append(held.token())
            if len(terms) == 3:
                return Resign(held.token())
            server.force_release(self.id())
            held.wait_for_stop(server.PATIENCE)
            if len(terms) == 1:
                return None
            # The other way to leave a term that is lost.
            held.token()
            self.fail("it is lost")

        self.assertEqual(server.client().lock(self.id()).elect(lead), terms[-1])
        self.assertEqual(len(terms), 3)

    def test_another_exception_ends_it(self) -> None:
        def lead(_: monolock.Held) -> Optional[Resign[int]]:
            raise KeyError("in the work")

        with self.assertRaises(KeyError):
            server.client().lock(self.id()).elect(lead)

    def test_who_resigns_after_a_loss_is_told(self) -> None:
        def lead(held: monolock.Held) -> Resign[str]:
            server.force_release(self.id())
            held.wait_for_stop(server.PATIENCE)
            return Resign("value")

        with self.assertRaises(monolock.LockLost) as lost:
            server.client().lock(self.id()).elect(lead)
        self.assertEqual(lost.exception.output, "value")

    def test_a_coroutine_leads_on_after_restarts_of_the_server(self) -> None:
        tokens: queue.SimpleQueue[int] = queue.SimpleQueue()
        losses: List[LossKind] = []

        async def lead(held: monolock.Held) -> Optional[Resign[None]]:
            tokens.put(held.token())
            reason = await held.stopping()
            if reason.kind is StopKind.CANCELLED:
                return Resign(None)
            assert reason.loss is not None
            losses.append(reason.loss.kind)
            return None

        def run() -> None:
            loop = asyncio.new_event_loop()
            lock = monolock.Client(address).lock("leader", wait_at_most=server.PATIENCE)
            leading = loop.create_task(lock.elect_async(lead))
            runs.put((loop, leading))
            with self.assertRaises(asyncio.CancelledError):
                loop.run_until_complete(leading)
            loop.close()

        runs: queue.SimpleQueue[
            "tuple[asyncio.AbstractEventLoop, asyncio.Task[None]]"
        ] = queue.SimpleQueue()
        with server.Server() as first:
            address = first.address
            thread = threading.Thread(target=run)
            thread.start()
            seen = [tokens.get(timeout=server.PATIENCE)]
            first.kill()
        with server.Server(address) as second:
            seen.append(tokens.get(timeout=server.PATIENCE))
            second.shut_down()
        with server.Server(address):
            seen.append(tokens.get(timeout=server.PATIENCE))
            loop, leading = runs.get(timeout=server.PATIENCE)
            loop.call_soon_threadsafe(leading.cancel)
            thread.join(server.PATIENCE)
            self.assertFalse(thread.is_alive())
        self.assertEqual(seen, sorted(set(seen)), "tokens grow over restarts")
        self.assertEqual(losses, [LossKind.NETWORK, LossKind.SERVER])
