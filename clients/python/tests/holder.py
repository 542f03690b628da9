"""The other process: holds a lock, and does what the lines on its stdin ask for.

``token`` says whether it still has one; ``fork`` makes a child, has it say what it has, and leaves
it running without a word more; ``exec`` starts a program that stays.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import monolock


def say(text: str) -> None:
    # One write, as a child says things at the same time.
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def token(held: monolock.Held) -> str:
    try:
        return f"token {held.token()}"
    except monolock.LockLost as lost:
        return f"lost {lost.loss.kind.value}"


def fork(client: monolock.Client, held: monolock.Held) -> None:
    child = os.fork()
    if child:
        say(f"child {child}")
        return
    say(f"in the child {token(held)}")
    # It can have locks of its own, of the same name too.
    try:
        client.lock(held.name, wait=False).run(lambda _: None)
    except monolock.Taken:
        say("taken")
    other = client.lock(held.name + "/child").run(monolock.Held.token)
    say(f"other {other}")
    signal.pause()


def main(address: str, name: str, lease: float) -> None:
    client = monolock.Client(address)
    try:
        with client.lock(name, lease=lease).hold() as held:
            say(token(held))
            for line in sys.stdin:
                if line.strip() == "fork":
                    fork(client, held)
                elif line.strip() == "exec":
                    # Without Python's own closing of everything: what stays open must not be ours.
                    child = subprocess.Popen(["sleep", "1000"], close_fds=False)
                    say(f"child {child.pid}")
                else:
                    say(token(held))
    except monolock.LockLost as lost:
        say(f"ended {lost.loss.kind.value}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
