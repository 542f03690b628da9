"""Getting a lock: waiting, not waiting, trying again."""

from __future__ import annotations

import asyncio
import queue
import socket
import threading
import time
import unittest

import monolock

from . import server
from .scripted import WAITING, Peer, Scripted, error


class Waiting(unittest.IsolatedAsyncioTestCase):
    def setUp(self) -> None:
        self.name = self.id()
        self.client = server.client()

    async def test_who_does_not_wait_leaves_no_claim_behind(self) -> None:
        with_other = server.client().lock(self.name, wait=False)

        async def work(_: monolock.Held) -> None:
            with self.assertRaises(monolock.Taken) as taken:
                await with_other.run_async(self.not_begun)
            self.assertEqual(taken.exception.name, self.name)
            server.wait_until("the queue is empty", lambda: server.waiters(self.name) == 0)

        await self.client.lock(self.name).run_async(work)
        # Now it is free, and no wait is needed.
        self.assertTrue(await with_other.run_async(token_of))

    async def test_a_wait_has_a_limit(self) -> None:
        async def work(_: monolock.Held) -> None:
            lock = server.client().lock(self.name, wait_at_most=0.05)
            with self.assertRaises(monolock.TimedOut) as timed_out:
                await lock.run_async(self.not_begun)
            self.assertIsNone(timed_out.exception.last_failure)
            server.wait_until("the queue is empty", lambda: server.waiters(self.name) == 0)

        await self.client.lock(self.name).run_async(work)

    async def test_a_wait_that_is_cancelled_leaves_no_claim_behind(self) -> None:
        async def work(_: monolock.Held) -> None:
            waiter = server.client()
            waiting = asyncio.create_task(waiter.lock(self.name).run_async(self.not_begun))
            while server.waiters(self.name) == 0:
                await asyncio.sleep(0.002)
            waiting.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await waiting
            server.wait_until("the queue is empty", lambda: server.waiters(self.name) == 0)
            # The name is free for this client again.
            with self.assertRaises(monolock.Taken):
                await waiter.lock(self.name, wait=False).run_async(self.not_begun)

        await self.client.lock(self.name).run_async(work)

    async def test_the_queue_is_reported(self) -> None:
        progress: queue.SimpleQueue[monolock.Progress] = queue.SimpleQueue()

        async def work(_: monolock.Held) -> "asyncio.Task[int]":
            lock = server.client().lock(self.name, progress=progress)
            waiting = asyncio.create_task(lock.run_async(token_of))
            while progress.empty():
                await asyncio.sleep(0.002)
            self.assertEqual(progress.get(), monolock.Queued(self.name))
            return waiting

        await (await self.client.lock(self.name).run_async(work))

    async def test_in_one_client_a_name_is_claimed_once(self) -> None:
        async def work(_: monolock.Held) -> None:
            for again in [
                self.client.lock(self.name).run_async(self.not_begun),
                self.client.locks(["a", self.name]).run_async(self.not_begun),
            ]:
                with self.assertRaises(monolock.AlreadyClaimed) as error:
                    await again
                self.assertEqual(error.exception.name, self.name)

        for _ in range(2):
            await self.client.lock(self.name).run_async(work)

    async def not_begun(self, _: object) -> None:
        self.fail("the work was begun")


class Failing(unittest.TestCase):
    def test_a_port_that_refuses_is_an_error_at_once(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            address = "127.0.0.1:{}".format(listener.getsockname()[1])
        with self.assertRaises(monolock.Unreachable) as error:
            monolock.Client(address).lock("a").run(self.not_begun)
        self.assertIn(address, str(error.exception))

    def test_a_name_is_looked_up(self) -> None:
        port = server.ADDRESS.rsplit(":", 1)[1]
        client = monolock.Client(f"localhost:{port}")
        self.assertTrue(client.lock(self.id()).run(monolock.Held.token))
        # No name at all, and one that can't be encoded.
        for host in ["host.invalid", "x" * 64 + ".invalid"]:
            nowhere = monolock.Client(f"{host}:7070").lock("a", wait_at_most=server.PATIENCE)
            with self.assertRaises(monolock.Unreachable):
                nowhere.run(self.not_begun)

    def test_a_refusal_is_not_tried_again(self) -> None:
        def refuse(peer: Peer) -> None:
            peer.read_acquire()
            peer.send(error(0x18, b"not authorized for this lock"))
            peer.answer_all(b"")

        with Scripted(refuse) as scripted:
            with self.assertRaises(monolock.Refused) as refused:
                monolock.Client(scripted.address).lock("a", retry=True).run(self.not_begun)
            self.assertEqual(refused.exception.error.code, 0x18)
            self.assertEqual(len(scripted.dials), 1)

    def test_garbage_is_not_tried_again(self) -> None:
        def answer(peer: Peer) -> None:
            peer.read_acquire()
            peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            peer.answer_all(b"")

        with Scripted(answer) as scripted:
            with self.assertRaises(monolock.ClaimLost) as lost:
                monolock.Client(scripted.address).lock("a", retry=True).run(self.not_begun)
            self.assertEqual(lost.exception.loss.kind, monolock.LossKind.PROTOCOL)
            self.assertEqual(len(scripted.dials), 1)

    def test_without_a_wish_nothing_is_tried_again(self) -> None:
        def leave(peer: Peer) -> None:
            peer.read_acquire()
            peer.send(WAITING + error(0x01, b"server is shutting down"))

        with Scripted(leave) as scripted:
            with self.assertRaises(monolock.ClaimLost) as lost:
                monolock.Client(scripted.address).lock("a").run(self.not_begun)
            self.assertEqual(lost.exception.loss.kind, monolock.LossKind.SERVER)
            self.assertEqual(len(scripted.dials), 1)

    def test_a_server_that_says_nothing_is_left_before_the_lease_ends(self) -> None:
        def say_nothing(peer: Peer) -> None:
            peer.read_acquire()
            peer.answer_all(b"")

        with Scripted(say_nothing) as scripted:
            with self.assertRaises(monolock.ClaimLost) as lost:
                monolock.Client(scripted.address).lock("a", lease=0.3).run(self.not_begun)
            self.assertEqual(lost.exception.loss.kind, monolock.LossKind.EXPIRED)

    def not_begun(self, _: object) -> None:
        self.fail("the work was begun")


class TryingAgain(unittest.TestCase):
    def test_a_server_that_is_still_down_is_met_with_patience(self) -> None:
        """It says that it shuts down, and its port is closed for a while."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            host, port = listener.getsockname()
            progress: queue.SimpleQueue[monolock.Progress] = queue.SimpleQueue()
            client = monolock.Client(f"{host}:{port}")
            lock = client.lock("a", retry=True, progress=progress)
            outcome: queue.SimpleQueue[int] = queue.SimpleQueue()
            threading.Thread(target=lambda: outcome.put(lock.run(monolock.Held.token))).start()
            sock, _ = listener.accept()
        with sock:
            peer = Peer(sock)
            peer.read_acquire()
            peer.send(error(0x01, b"server is shutting down"))
            self.assertFalse(peer.read_heartbeat())
        afters = [self.retry(progress) for _ in range(4)]
        self.assertEqual(afters[0], 0.0, "another server may be there")
        for after, longest in zip(afters[1:], [0.2, 0.4, 0.8]):
            self.assertTrue(longest / 2 <= after <= longest, afters)
        with server.Server(f"{host}:{port}"):
            self.assertTrue(outcome.get(timeout=server.PATIENCE))

    def test_shutdowns_in_a_row_are_no_storm(self) -> None:
        def leave(peer: Peer) -> None:
            peer.read_acquire()
            peer.send(error(0x01, b"server is shutting down"))

        with Scripted(leave) as scripted:
            lock = monolock.Client(scripted.address).lock("a", retry=True, wait_at_most=1.0)
            begun = time.monotonic()
            with self.assertRaises(monolock.TimedOut) as timed_out:
                lock.run(lambda _: self.fail("the work was begun"))
            self.assertIsInstance(timed_out.exception.last_failure, monolock.ClaimLost)
            # One at once, then after 0.1 to 0.2 s, 0.2 to 0.4 s and 0.4 to 0.8 s more.
            self.assertTrue(2 <= len(scripted.dials) <= 5, scripted.dials)
            gaps = [later - dial for dial, later in zip(scripted.dials, scripted.dials[1:])]
            self.assertTrue(all(gap >= 0.09 for gap in gaps[1:]), gaps)
            self.assertGreaterEqual(time.monotonic() - begun, 1.0)

    def test_a_place_in_the_queue_is_asked_for_again_after_a_restart(self) -> None:
        with server.Server() as first:
            progress: queue.SimpleQueue[monolock.Progress] = queue.SimpleQueue()
            holder = monolock.Client(first.address)
            waiter = monolock.Client(first.address).lock("a", retry=True, progress=progress)
            outcome: queue.SimpleQueue[int] = queue.SimpleQueue()
            with self.assertRaises(monolock.LockLost) as lost, holder.lock("a").hold() as held:
                threading.Thread(
                    target=lambda: outcome.put(waiter.run(monolock.Held.token))
                ).start()
                queued = progress.get(timeout=server.PATIENCE)
                self.assertEqual(queued, monolock.Queued("a"))
                token = held.token()
                first.shut_down()
                with server.Server(first.address):
                    self.assertGreater(outcome.get(timeout=server.PATIENCE), token)
            self.assertEqual(lost.exception.loss.kind, monolock.LossKind.SERVER)

    def retry(self, progress: "queue.SimpleQueue[monolock.Progress]") -> float:
        step = progress.get(timeout=server.PATIENCE)
        assert isinstance(step, monolock.Retrying), step
        return step.after


async def token_of(held: monolock.Held) -> int:
    return held.token()
