"""Everything that takes a lock away from the work, and what it is called."""

from __future__ import annotations

import socket
import threading
import time
import unittest

import monolock
from monolock import LossKind

from . import server
from .scripted import WAITING, Peer, Scripted, acquired, error


def loss(address: str, lease: float = 2.0) -> monolock.Loss:
    """Holds a lock until it is lost, and says why."""
    told = None
    try:
        with monolock.Client(address).lock("a", lease=lease).hold() as held:
            told = held.wait_for_stop(server.PATIENCE)
    except monolock.LockLost as lost:
        assert told is not None and told.loss == lost.loss, told
        return lost.loss
    raise AssertionError("it was never lost")


def loss_after(answer: bytes) -> monolock.Loss:
    """What becomes of a holder to whom the server says this when it has sent a heartbeat."""

    def serve(peer: Peer) -> None:
        assert peer.read_acquire() == "a"
        peer.send(WAITING)
        peer.send(acquired(7))
        assert peer.read_heartbeat()
        peer.send(answer)
        if answer:
            peer.answer_all(b"")

    with Scripted(serve) as scripted:
        return loss(scripted.address, lease=1.2)


class Losing(unittest.TestCase):
    def test_every_loss_has_its_name(self) -> None:
        for answer, kind in [
            (error(0x01, b"server is shutting down"), LossKind.SERVER),
            (error(0x02, b"closed by an administrator"), LossKind.ADMINISTRATOR),
            (error(0x0F, b"later"), LossKind.SERVER),
            (error(0x13, b"unknown message type 0x99"), LossKind.PROTOCOL),
            (error(0xFF, b"no"), LossKind.PROTOCOL),
            (b"", LossKind.NETWORK),
            (b"HTTP/1.1 400 Bad Request\r\n\r\n", LossKind.PROTOCOL),
            (WAITING, LossKind.PROTOCOL),
            (acquired(8), LossKind.PROTOCOL),
            (acquired(0), LossKind.PROTOCOL),
        ]:
            with self.subTest(answer):
                self.assertEqual(loss_after(answer).kind, kind)

    def test_a_server_that_falls_silent_costs_the_lock(self) -> None:
        def serve(peer: Peer) -> None:
            peer.read_acquire()
            peer.send(acquired(7))
            peer.answer_all(b"")

        with Scripted(serve) as scripted:
            self.assertEqual(loss(scripted.address, lease=1.0).kind, LossKind.EXPIRED)

    def test_a_connection_that_breaks_costs_the_lock(self) -> None:
        def serve(peer: Peer) -> None:
            peer.read_acquire()
            peer.send(acquired(7))
            # Closed with this byte unread, the kernel says RST.
            assert peer.sock.recv(1, socket.MSG_PEEK) == b"\x02"

        with Scripted(serve) as scripted:
            broken = loss(scripted.address, lease=1.2)
        self.assertEqual(broken.kind, LossKind.NETWORK)
        self.assertIn("reset", broken.detail)

    def test_frames_are_read_and_not_packets(self) -> None:
        answered = threading.Event()

        def serve(peer: Peer) -> None:
            peer.read_acquire()
            for byte in WAITING + acquired(7):
                peer.send(bytes([byte]))
                time.sleep(0.001)
            for _ in range(8):
                assert peer.read_heartbeat()
                peer.send(acquired(7))
            answered.set()
            peer.answer_all(acquired(7))

        with Scripted(serve) as scripted:
            with monolock.Client(scripted.address).lock("a", lease=1.0).hold() as held:
                self.assertTrue(answered.wait(server.PATIENCE), "two leases later")
                self.assertEqual(held.token(), 7)

    def test_one_loss_leaves_the_other_claims_of_the_process_alone(self) -> None:
        name = self.id()
        with server.client().lock(name, lease=2.0).hold() as other:
            token = other.token()
            for _ in range(3):
                loss_after(b"\x00")
            self.assertEqual(other.token(), token)
