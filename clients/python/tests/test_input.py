"""What is refused before anything is dialled."""

from __future__ import annotations

import asyncio
import socket
import unittest
from datetime import timedelta

import monolock
from monolock import _input


class Input(unittest.TestCase):
    def test_names_are_sorted_and_checked(self) -> None:
        self.assertEqual(_input.sorted_names(["b", "a"]), ["a", "b"])
        self.assertEqual(_input.sorted_names(["x" * 255]), ["x" * 255])
        # By their bytes, as every client does it.
        self.assertEqual(_input.sorted_names(["\U0001f512", "\uffee"]), ["\uffee", "\U0001f512"])
        for wrong, said in [
            (["a", ""], "empty"),
            ([], "no lock"),
            (["ä" * 128], "256 bytes"),
            (["a", "b", "a"], "'a' is named twice"),
            (["\ud800"], "UTF-8"),
            ("ab", "one name"),
        ]:
            with self.subTest(wrong), self.assertRaisesRegex(monolock.InvalidInput, said):
                _input.sorted_names(wrong)

    def test_leases_are_milliseconds_of_32_bits(self) -> None:
        self.assertEqual(_input.lease_ms(0.001999), 1)
        self.assertEqual(_input.lease_ms(0.001), 1)
        self.assertEqual(_input.lease_ms(timedelta(seconds=2)), 2000)
        self.assertEqual([_input.lease_ms(n / 1000) for n in range(1, 5000)], list(range(1, 5000)))
        self.assertEqual(_input.lease_ms((2**32 - 1) / 1000), 2**32 - 1)
        for wrong in [0, 0.000999, -1, float("nan"), float("inf"), 2**32 / 1000, True, "10", None]:
            with self.subTest(wrong), self.assertRaisesRegex(monolock.InvalidInput, "lease"):
                _input.lease_ms(wrong)  # type: ignore[arg-type]

    def test_addresses_have_a_host_and_a_port(self) -> None:
        self.assertEqual(_input.address("[::1]:1"), ("::1", 1))
        self.assertEqual(_input.address("localhost:65535"), ("localhost", 65535))
        self.assertEqual(_input.address("a-b.example_1.:7070"), ("a-b.example_1.", 7070))
        for wrong in [
            "",
            ":",
            ":7070",
            "localhost",
            "localhost:",
            "localhost:0",
            "localhost:65536",
            "localhost:7070\n",
            "::1:7070",
            "[x]:7070",
            "[127.0.0.1]:7070",
            "http://localhost:7070",
            "a b:7070",
            "a:b:1",
        ]:
            with self.subTest(wrong), self.assertRaisesRegex(monolock.InvalidInput, "HOST:PORT"):
                monolock.Client(wrong)

    def test_nothing_is_dialled_for_what_can_not_be(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            client = monolock.Client("127.0.0.1:{}".format(listener.getsockname()[1]))
            for lock in [
                client.lock(""),
                client.lock("é" * 128),
                client.lock("a", lease=0),
                client.lock("a", lease=timedelta.max),
                client.lock("a", wait_at_most=-1),
                client.lock("a", hold_at_most=float("nan")),
                client.lock("a", stop_within=-0.1),
            ]:
                with self.assertRaises(monolock.InvalidInput):
                    lock.run(lambda _: self.fail("the work was begun"))
                with self.assertRaises(ValueError):
                    asyncio.run(lock.run_async(lambda _: self.fail("the work was begun")))
            for names in [[], [""], ["a", "a"], "ab"]:
                with self.assertRaises(monolock.InvalidInput):
                    client.locks(names).run(lambda _: self.fail("the work was begun"))
            listener.setblocking(False)
            with self.assertRaises(BlockingIOError):
                listener.accept()
