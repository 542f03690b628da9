"""The bytes of the protocol, as `clients/conformance/vectors.json` has them."""

from __future__ import annotations

import json
import unittest
from pathlib import Path
from typing import Any, Dict, List, Optional

from monolock import _wire
from monolock._claim import Claim
from monolock._failure import LossKind, ServerError

VECTORS: Dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "conformance" / "vectors.json").read_text()
)


def read(data: bytearray) -> List[_wire.Frame]:
    """All whole frames at the front, which are taken away."""
    frames = []
    while decoded := _wire.decode(data):
        frames.append(decoded[0])
        del data[: decoded[1]]
    return frames


def expected(vector: Dict[str, Any]) -> _wire.Frame:
    if vector["frame"] == "WAITING":
        return _wire.Waiting()
    if vector["frame"] == "ACQUIRED":
        return _wire.Acquired(int(vector["token"]))
    return _wire.Ended(vector["code"], bytes.fromhex(vector["reason_bytes"]))


class Wire(unittest.TestCase):
    def test_acquire_is_written_byte_for_byte(self) -> None:
        for vector in VECTORS["acquire"]:
            with self.subTest(vector["title"]):
                written = _wire.encode_acquire(vector["lease_ms"], vector["name"].encode())
                self.assertEqual(written.hex(), vector["bytes"])
        self.assertEqual(_wire.HEARTBEAT.hex(), VECTORS["heartbeat"])

    def test_frames_are_read_whole_and_not_before_their_last_byte(self) -> None:
        for vector in VECTORS["server_frames"]:
            data = bytes.fromhex(vector["bytes"])
            with self.subTest(vector["title"]):
                for split in range(len(data)):
                    self.assertIsNone(_wire.decode(data[:split]))
                self.assertEqual(_wire.decode(data + b"\x11"), (expected(vector), len(data)))

    def test_the_class_of_an_error_is_its_range(self) -> None:
        errors = [vector for vector in VECTORS["server_frames"] if vector["frame"] == "ERROR"]
        for vector in errors:
            error = ServerError.of_wire(vector["code"], bytes.fromhex(vector["reason_bytes"]))
            stops = vector["then"] == "report and stop"
            self.assertEqual(error.is_client_error, stops, vector["title"])
        self.assertGreater(len(errors), 15)

    def test_streams_are_read_whatever_their_pieces(self) -> None:
        for vector in VECTORS["streams"]:
            with self.subTest(vector["title"]):
                data = bytearray()
                frames: List[_wire.Frame] = []
                for piece in vector["pieces"]:
                    data += bytes.fromhex(piece)
                    frames += read(data)
                self.assertEqual(frames, [expected(frame) for frame in vector["frames"]])
                self.assertFalse(data)

    def test_what_is_wrong_is_refused_at_its_first_wrong_byte(self) -> None:
        for vector in VECTORS["malformed"]:
            with self.subTest(vector["title"]):
                claim = Claim(1_000, 0)
                lost_at: Optional[int] = None
                for place, byte in enumerate(bytes.fromhex(vector["bytes"])):
                    claim.receive(bytes([byte]), 0)
                    if claim.loss is not None and lost_at is None:
                        lost_at = place
                self.assertEqual(lost_at, vector["wrong_at"])
                self.assertEqual(claim.loss and claim.loss.kind, LossKind.PROTOCOL)
