"""Work under a lock: how it ends, and what is said of it."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
import unittest
from typing import List

import monolock
from monolock import LossKind, StopKind, StopReason

from . import server


class Blocking(unittest.TestCase):
    def setUp(self) -> None:
        self.name = self.id()
        self.client = server.client()

    def test_work_gets_a_token_and_the_lock_is_free_after_it(self) -> None:
        def work(held: monolock.Held) -> int:
            self.assertEqual((held.name, held.lease), (self.name, 10.0))
            self.assertTrue(0 < held.lease_left() <= 10.0)
            self.assertIsNone(held.stop_reason())
            self.assertIsNone(held.wait_for_stop(0.01))
            seen = server.view(self.name)
            assert seen is not None
            self.assertEqual(seen["holder"]["token"], held.token())
            return held.token()

        lock = self.client.lock(self.name)
        first = lock.run(work)
        self.assertGreater(lock.run(work), first)

    def test_on_return_the_lock_is_released(self) -> None:
        for _ in range(50):
            # The connections are closed by then, but the server may have yet to see it.
            lock = server.client().lock(self.name, wait_at_most=server.PATIENCE)
            with lock.hold():
                pass
        server.wait_until("the lock is idle", lambda: server.view(self.name) is None)

    def test_an_exception_releases_and_goes_on(self) -> None:
        def fail(_: monolock.Held) -> None:
            raise KeyError("in the work")

        with self.assertRaises(KeyError):
            self.client.lock(self.name).run(fail)
        with self.assertRaises(KeyError), self.client.lock(self.name).hold():
            raise KeyError("in the work")
        for end in [SystemExit(3), KeyboardInterrupt()]:
            with self.assertRaises(type(end)) as raised, self.client.lock(self.name).hold():
                raise end
            self.assertIs(raised.exception, end)
        server.wait_until("the lock is idle", lambda: server.view(self.name) is None)

    def test_a_handle_that_outlives_its_work_is_worthless(self) -> None:
        with self.client.lock(self.name).hold() as held:
            pass
        with self.assertRaises(monolock.LockLost) as lost:
            held.token()
        self.assertEqual(lost.exception.loss.kind, LossKind.RELEASED)
        self.assertEqual(lost.exception.names, (self.name,))

    def test_a_loss_is_reported_though_the_work_succeeded(self) -> None:
        def work(held: monolock.Held) -> str:
            server.force_release(self.name)
            reason = held.wait_for_stop(server.PATIENCE)
            assert reason is not None and reason.loss is not None
            self.assertEqual(reason.loss.kind, LossKind.ADMINISTRATOR)
            with self.assertRaises(monolock.LockLost):
                held.token()
            with self.assertRaises(monolock.LockLost):
                held.write(lambda _: self.fail("it was written"))
            return "success"

        with self.assertRaises(monolock.LockLost) as lost:
            self.client.lock(self.name).run(work)
        self.assertEqual(lost.exception.output, "success")
        self.assertEqual(lost.exception.loss.kind, LossKind.ADMINISTRATOR)
        assert lost.exception.loss.error is not None
        self.assertEqual(lost.exception.loss.error.code, 0x02)

    def test_what_the_work_says_of_a_loss_is_kept(self) -> None:
        def lose(held: monolock.Held) -> None:
            server.force_release(self.name)
            held.wait_for_stop(server.PATIENCE)

        lock = self.client.lock(self.name)
        with self.assertRaises(monolock.LockLost) as lost, lock.hold() as held:
            lose(held)
            raise KeyError("in the work")
        self.assertIsInstance(lost.exception.__cause__, KeyError)
        with self.assertRaises(monolock.LockLost) as lost, lock.hold() as held:
            lose(held)
            held.token()
        self.assertIsNone(lost.exception.__cause__, "it is the same loss")

    def test_the_time_to_hold_has_a_limit(self) -> None:
        def work(held: monolock.Held) -> int:
            reason = held.wait_for_stop(server.PATIENCE)
            self.assertEqual(reason, StopReason(StopKind.HELD_LONG_ENOUGH))
            return held.token()

        with self.assertRaises(monolock.HeldTooLong) as too_long:
            self.client.lock(self.name, hold_at_most=0.05).run(work)
        self.assertGreater(too_long.exception.output, 0)

    def test_a_blocking_call_does_not_block_an_event_loop(self) -> None:
        async def main() -> None:
            for call in (lambda: self.client.lock(self.name).run(monolock.Held.token), self.holds):
                with self.assertRaisesRegex(RuntimeError, "async"):
                    call()

        asyncio.run(main())

    def holds(self) -> None:
        with self.client.lock(self.name).hold():
            self.fail("the work was begun")

    def test_the_thread_ends_with_the_last_claim(self) -> None:
        def threads() -> List[str]:
            return [t.name for t in threading.enumerate() if t.name == "monolock-client"]

        with self.client.lock(self.name).hold():
            with server.client().lock(self.name + "b").hold():
                self.assertEqual(len(threads()), 1)
        server.wait_until("it has ended", lambda: not threads())


class Writing(unittest.TestCase):
    def test_a_stale_write_is_refused_and_ends_the_hold(self) -> None:
        db = sqlite3.connect(":memory:")
        self.addCleanup(db.close)
        db.execute("CREATE TABLE report (id INTEGER PRIMARY KEY, body TEXT, token INTEGER)")
        db.execute("INSERT INTO report VALUES (1, '', 0)")

        def write(held: monolock.Held, body: str) -> int:
            def update(token: int) -> int:
                done = db.execute(
                    "UPDATE report SET body = ?, token = ? WHERE id = 1 AND token <= ?",
                    (body, token, token),
                )
                return monolock.changed_rows(done.rowcount)

            return held.write(update)

        lock = server.client().lock(self.id())
        with self.assertRaises(monolock.LockLost) as lost, lock.hold() as held:
            self.assertEqual(write(held, "first"), 1)
            self.assertEqual(write(held, "again"), 1)
            # Somebody newer.
            db.execute("UPDATE report SET body = 'newer', token = token + 1")
            with self.assertRaises(monolock.LockLost):
                write(held, "stale")
            with self.assertRaises(monolock.LockLost):
                held.token()
        self.assertEqual(lost.exception.loss.kind, LossKind.FENCED)
        self.assertEqual(db.execute("SELECT body FROM report").fetchall(), [("newer",)])

    def test_other_failures_of_a_write_leave_the_lock_alone(self) -> None:
        with server.client().lock(self.id()).hold() as held:
            with self.assertRaises(ZeroDivisionError):
                held.write(lambda token: token // 0)
            with self.assertRaises(ValueError):
                held.write(lambda _: monolock.changed_rows(-1))
            held.token()


class Async(unittest.IsolatedAsyncioTestCase):
    def setUp(self) -> None:
        self.name = self.id()
        self.client = server.client()

    async def test_work_gets_a_token_and_its_result_comes_back(self) -> None:
        async def work(held: monolock.Held) -> int:
            async def write(token: int) -> int:
                return token

            return await held.write_async(write)

        lock = self.client.lock(self.name)
        self.assertLess(await lock.run_async(work), await lock.run_async(work))

    async def test_an_exception_releases_and_goes_on(self) -> None:
        async def fail(_: monolock.Held) -> None:
            raise KeyError("in the work")

        with self.assertRaises(KeyError):
            await self.client.lock(self.name).run_async(fail)
        server.wait_until("the lock is idle", lambda: server.view(self.name) is None)

    async def test_a_loop_that_is_blocked_keeps_its_lock(self) -> None:
        # It would complain.
        asyncio.get_running_loop().set_debug(False)

        async def work(held: monolock.Held) -> int:
            # More than two leases. Nothing of the loop runs.
            time.sleep(2.2)
            return held.token()

        self.assertTrue(await self.client.lock(self.name, lease=1.0).run_async(work))

    async def test_a_loss_ends_work_that_does_not_end_by_itself(self) -> None:
        stopped: List[StopReason] = []

        async def work(held: monolock.Held) -> None:
            server.force_release(self.name)
            stopped.append(await held.stopping())
            await asyncio.Event().wait()

        with self.assertRaises(monolock.LockLost) as lost:
            await self.client.lock(self.name, stop_within=0.05).run_async(work)
        self.assertEqual(lost.exception.loss.kind, LossKind.ADMINISTRATOR)
        self.assertEqual(stopped, [StopReason(StopKind.LOST, lost.exception.loss)])

    async def test_the_time_to_hold_has_a_limit(self) -> None:
        async def work(_: monolock.Held) -> None:
            await asyncio.Event().wait()

        with self.assertRaises(monolock.HeldTooLong):
            lock = self.client.lock(self.name, hold_at_most=0.05, stop_within=0.05)
            await lock.run_async(work)
        server.wait_until("the lock is idle", lambda: server.view(self.name) is None)

    async def test_a_caller_that_is_cancelled_holds_until_the_work_has_ended(self) -> None:
        begun = asyncio.Event()
        may_end = asyncio.Event()
        seen: List[StopReason] = []

        async def work(held: monolock.Held) -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                # What must be put in order is, and under the lock.
                await may_end.wait()
                reason = held.stop_reason()
                assert reason is not None
                seen.append(reason)
                held.token()

        calling = asyncio.create_task(self.client.lock(self.name).run_async(work))
        await begun.wait()
        calling.cancel()
        await asyncio.sleep(0.05)
        self.assertFalse(calling.done())
        self.assertIsNotNone(server.view(self.name))
        may_end.set()
        with self.assertRaises(asyncio.CancelledError):
            await calling
        self.assertEqual(seen, [StopReason(StopKind.CANCELLED)])
        server.wait_until("the lock is idle", lambda: server.view(self.name) is None)

    async def test_a_timeout_around_a_call_works(self) -> None:
        async def work(_: monolock.Held) -> None:
            await asyncio.Event().wait()

        with self.assertRaises(asyncio.TimeoutError):
            await asyncio.wait_for(self.client.lock(self.name).run_async(work), 0.1)
        server.wait_until("the lock is idle", lambda: server.view(self.name) is None)
