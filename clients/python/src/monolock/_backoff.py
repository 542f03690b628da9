"""How long to stay away after an attempt that came to nothing.

Clients of one server lose their claims at one moment. So each waits for a time of its own before it
dials again, and longer every time that it is in vain: a server that is starting is not met by all
of them at once, and one that is gone is not dialled for nothing.
"""

from __future__ import annotations

import random
from typing import Optional

from ._failure import Loss, LossKind
from ._wire import SHUTTING_DOWN

WAIT_MIN_SECONDS = 0.1
WAIT_MAX_SECONDS = 5.0

#: Doublings after which the longest wait is reached.
_DOUBLINGS_MAX = 5


class Backoff:
    """One client's attempts to get a claim."""

    def __init__(self) -> None:
        self.answered()

    def answered(self) -> None:
        """A claim has had its first answer, WAITING or ACQUIRED: the server is there."""
        self._waits = 0
        self._has_hurried = False

    def after_loss(self, loss: Loss) -> Optional[float]:
        """How many seconds to stay away after this loss; None if it would only come again.

        Not at all after the server's shutdown, for another server may be there. But when that is
        the answer to coming back, the other server isn't there yet.
        """
        if loss.kind in (LossKind.PROTOCOL, LossKind.RELEASED, LossKind.FORKED):
            return None
        is_shutdown = loss.error is not None and loss.error.code == SHUTTING_DOWN
        if is_shutdown and not self._has_hurried:
            self._has_hurried = True
            return 0.0
        return self.wait()

    def wait(self) -> float:
        """Between the half and the whole of a time that doubles from 200 ms up to 5 s."""
        doublings = 1 + min(self._waits, _DOUBLINGS_MAX)
        longest: float = min(WAIT_MIN_SECONDS * 2**doublings, WAIT_MAX_SECONDS)
        self._waits += 1
        return random.uniform(longest / 2, longest)
