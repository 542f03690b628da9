"""Many threads and coroutines on one lock."""

from __future__ import annotations

import asyncio
import threading
import time
import unittest

import monolock

from . import server


class Guarded:
    """What may be touched by one at a time, and sees it when that is not so."""

    def __init__(self) -> None:
        self.is_busy = False
        self.last_token = 0
        self.turns = 0
        self.faults = 0

    def enter(self, token: int) -> None:
        self.faults += self.is_busy or token <= self.last_token
        self.is_busy = True
        self.last_token = token

    def leave(self) -> None:
        self.turns += 1
        self.is_busy = False


class Handovers(unittest.TestCase):
    def test_threads_take_turns_without_overlap(self) -> None:
        guarded = Guarded()

        def work(held: monolock.Held) -> None:
            guarded.enter(held.token())
            # The others get the interpreter here.
            time.sleep(0)
            guarded.leave()

        def take_turns() -> None:
            lock = server.client().lock(self.id(), lease=server.LONG_LEASE)
            for _ in range(30):
                lock.run(work)

        threads = [threading.Thread(target=take_turns) for _ in range(30)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual((guarded.turns, guarded.faults), (900, 0))

    def test_coroutines_take_turns_without_overlap(self) -> None:
        guarded = Guarded()

        async def work(held: monolock.Held) -> None:
            guarded.enter(held.token())
            await asyncio.sleep(0)
            guarded.leave()

        async def take_turns() -> None:
            lock = server.client().lock(self.id(), lease=server.LONG_LEASE)
            for _ in range(30):
                await lock.run_async(work)

        async def main() -> None:
            await asyncio.gather(*(take_turns() for _ in range(30)))

        asyncio.run(main())
        self.assertEqual((guarded.turns, guarded.faults), (900, 0))

    def test_the_queue_is_first_come_first_served(self) -> None:
        order = []

        def wait_in_line(number: int) -> None:
            lock = server.client().lock(self.id(), lease=server.LONG_LEASE)
            lock.run(lambda _: order.append(number))

        threads = []
        with server.client().lock(self.id()).hold():
            for number in range(10):
                threads.append(threading.Thread(target=wait_in_line, args=(number,)))
                threads[-1].start()
                server.wait_until(
                    "it is in the queue", lambda: server.waiters(self.id()) == number + 1
                )
        for thread in threads:
            thread.join()
        self.assertEqual(order, list(range(10)))
