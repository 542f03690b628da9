"""The client's half of a claim, in a time that the test makes."""

from __future__ import annotations

import unittest

from monolock._backoff import Backoff
from monolock._claim import Claim, News
from monolock._clock import NEVER
from monolock._failure import Loss, LossKind, ServerError

from .scripted import WAITING, acquired, error

MS = 1_000_000


class Heartbeats(unittest.TestCase):
    def test_the_interval_is_a_quarter_of_the_lease_less_two_round_trips(self) -> None:
        for lease_ms, rtt_ms, interval_ms in [
            (10_000, 1, 2_498),
            (10_000, 1_000, 500),
            # Never shorter than 100 ms
            (10_000, 1_220, 100),
            # or a quarter of the lease, if that is shorter.
            (200, 10, 50),
            # As soon as the answer is in.
            (10_000, 1_250, 0),
        ]:
            with self.subTest(lease_ms=lease_ms, rtt_ms=rtt_ms):
                claim = Claim(lease_ms, 0)
                claim.receive(acquired(7), rtt_ms * MS)
                self.assertEqual(claim.interval, interval_ms * MS)
                # Between sends, not between answers.
                self.assertEqual(claim.heartbeat_at, interval_ms * MS)

    def test_the_round_trip_is_smoothed(self) -> None:
        claim = Claim(10_000, 0)
        claim.receive(acquired(7), 100 * MS)
        self.assertTrue(claim.take_due_heartbeat(5_000 * MS))
        claim.receive(acquired(7), 5_200 * MS)
        self.assertEqual(claim.interval, (2_500 - 2 * 120) * MS)

    def test_at_most_one_is_in_flight(self) -> None:
        claim = Claim(1_000, 0)
        self.assertEqual(claim.heartbeat_at, NEVER)
        claim.receive(acquired(7), 0)
        self.assertFalse(claim.take_due_heartbeat(249 * MS))
        self.assertTrue(claim.take_due_heartbeat(250 * MS))
        self.assertFalse(claim.take_due_heartbeat(700 * MS))
        claim.receive(acquired(7), 701 * MS)
        self.assertTrue(claim.take_due_heartbeat(701 * MS))


class GivingUp(unittest.TestCase):
    def test_counts_from_the_send_of_what_was_confirmed(self) -> None:
        claim = Claim(1_000, 0)
        self.assertEqual(claim.give_up_at, 800 * MS)
        # The answer is late: the server may have read the ACQUIRE at once.
        claim.receive(acquired(7), 700 * MS)
        self.assertEqual(claim.give_up_at, 800 * MS)
        self.assertEqual(claim.lease_ends_at, 1_000 * MS)
        self.assertTrue(claim.take_due_heartbeat(750 * MS))
        claim.receive(acquired(7), 790 * MS)
        self.assertEqual(claim.give_up_at, 1_550 * MS)

    def test_an_answer_is_owed_in_the_handshake_too(self) -> None:
        claim = Claim(1_000, 0)
        self.assertEqual(claim.deadline, 800 * MS)
        self.assertFalse(claim.take_due_heartbeat(800 * MS))
        self.assertEqual(claim.loss and claim.loss.kind, LossKind.EXPIRED)
        self.assertEqual(claim.deadline, NEVER)

    def test_a_promotion_confirms_nothing(self) -> None:
        claim = Claim(1_000, 0)
        claim.receive(WAITING, 1 * MS)
        self.assertTrue(claim.take_due_heartbeat(300 * MS))
        # It crossed with that heartbeat, perhaps.
        self.assertEqual(claim.receive(acquired(7), 400 * MS), News.GRANTED)
        self.assertEqual(claim.give_up_at, 800 * MS)
        self.assertTrue(claim.take_due_heartbeat(600 * MS), "it needn't wait for the answer")
        claim.receive(acquired(7), 650 * MS)
        self.assertEqual(claim.give_up_at, 1_100 * MS, "it was the first one's")
        claim.receive(acquired(7), 660 * MS)
        self.assertEqual(claim.give_up_at, 1_400 * MS)


class Frames(unittest.TestCase):
    def test_frames_are_read_and_not_packets(self) -> None:
        stream = WAITING + acquired(7) + acquired(7)
        for split in range(len(stream) + 1):
            claim = Claim(1_000, 0)
            news = [claim.receive(part, 0) for part in (stream[:split], stream[split:])]
            self.assertIn(News.GRANTED, news, f"split at {split}")
            self.assertEqual(claim.token, 7)

    def test_contradictions_end_the_claim(self) -> None:
        for then in [WAITING, acquired(8), acquired(0), b"\x00", b"HTTP/1.1"]:
            claim = Claim(1_000, 0)
            claim.receive(acquired(7), 0)
            news = claim.receive(then, 0)
            self.assertIsInstance(news, Loss)
            self.assertEqual(claim.loss and claim.loss.kind, LossKind.PROTOCOL, then)

    def test_the_class_of_an_error_is_its_range(self) -> None:
        for code, kind in [
            (0x00, LossKind.SERVER),
            (0x01, LossKind.SERVER),
            (0x02, LossKind.ADMINISTRATOR),
            (0x0F, LossKind.SERVER),
            (0x10, LossKind.PROTOCOL),
            (0xFF, LossKind.PROTOCOL),
        ]:
            claim = Claim(1_000, 0)
            claim.receive(error(code, b"\xff\x1b[2J"), 0)
            assert claim.loss is not None
            self.assertEqual(claim.loss.kind, kind)
            self.assertTrue(str(claim.loss).isprintable(), "nothing writes on a terminal")


class Waits(unittest.TestCase):
    def test_waits_grow_up_to_five_seconds(self) -> None:
        backoff = Backoff()
        for longest in [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]:
            wait = backoff.wait()
            self.assertTrue(longest / 2 <= wait <= longest, wait)
        backoff.answered()
        self.assertLessEqual(backoff.wait(), 0.2)

    def test_after_a_shutdown_there_is_one_attempt_at_once(self) -> None:
        backoff = Backoff()
        shutdown = Loss.of_error(ServerError(0x01, ""))
        self.assertEqual(backoff.after_loss(shutdown), 0.0)
        for _ in range(3):
            self.assertGreaterEqual(backoff.after_loss(shutdown) or 0.0, 0.1)
        backoff.answered()
        self.assertEqual(backoff.after_loss(shutdown), 0.0)

    def test_what_would_come_again_is_not_tried_again(self) -> None:
        self.assertIsNone(Backoff().after_loss(Loss.of_error(ServerError(0x18, ""))))
        self.assertIsNone(Backoff().after_loss(Loss(LossKind.PROTOCOL, "")))
