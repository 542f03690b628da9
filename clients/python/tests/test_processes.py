"""Clients that are stopped for longer than their lease, that are killed, and that fork."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import unittest
from pathlib import Path
from typing import Optional

import monolock

from . import server

LEASE = 2.0


class Holder:
    """A process that holds a lock: see ``holder.py``."""

    def __init__(self, test: unittest.TestCase, lease: float = LEASE) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.holder", server.ADDRESS, test.id(), str(lease)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        test.addCleanup(self.end)
        self.token = self.line()
        assert self.token.startswith("token "), self.token

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "it has ended"
        return line.strip()

    def ask(self, line: str) -> str:
        self.tell(line)
        return self.line()

    def stop(self) -> None:
        """With SIGSTOP; on return none of its threads runs."""
        self.process.send_signal(signal.SIGSTOP)
        server.wait_until("it is stopped", self.is_stopped)

    def is_stopped(self) -> bool:
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        return all("\nState:\tT" in (task / "status").read_text() for task in tasks)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        """And all that it has started."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # None of them is left.
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


class Processes(unittest.TestCase):
    def test_a_client_that_slept_through_its_lease_knows_it_before_its_next_write(self) -> None:
        holder = Holder(self)
        holder.stop()
        # What it is to be asked is there when it wakes up: its very first step wants a token.
        holder.tell("token")
        self.wait_for_the_lock()
        holder.go_on()
        # By its clock, or as the server has closed the connection.
        said = holder.line()
        self.assertIn(said, ["lost expired", "lost network"])
        self.assertEqual(holder.ask("token"), said, "for ever")

    def test_a_client_that_was_stopped_for_less_than_its_lease_goes_on(self) -> None:
        holder = Holder(self, lease=5.0)
        for _ in range(2):
            holder.stop()
            time.sleep(0.5)
            holder.go_on()
            self.assertEqual(holder.ask("token"), holder.token)

    def test_the_lock_of_a_killed_client_is_free_at_once(self) -> None:
        holder = Holder(self, lease=server.LONG_LEASE)
        holder.kill()
        self.wait_for_the_lock()

    def test_a_client_that_ends_its_program_has_released(self) -> None:
        holder = Holder(self, lease=server.LONG_LEASE)
        assert holder.process.stdin is not None
        holder.process.stdin.close()
        self.assertEqual(holder.process.wait(server.PATIENCE), 0)
        self.wait_for_the_lock()

    def test_a_fork_holds_nothing_and_keeps_nothing_alive(self) -> None:
        holder = Holder(self)
        holder.tell("fork")
        said = sorted(holder.line() for _ in range(4))
        self.assertEqual([line.split()[0] for line in said], ["child", "in", "other", "taken"])
        self.assertEqual(said[1], "in the child lost forked")
        # The child has not disturbed the parent, for more than a lease,
        time.sleep(1.2 * LEASE)
        self.assertEqual(holder.ask("token"), holder.token)
        # and is no hindrance when the parent dies.
        holder.kill()
        self.wait_for_the_lock()

    def test_a_program_that_was_started_keeps_nothing_alive(self) -> None:
        holder = Holder(self, lease=server.LONG_LEASE)
        self.assertTrue(holder.ask("exec").startswith("child "))
        holder.kill()
        self.wait_for_the_lock()

    def test_ctrl_c_ends_a_wait_in_the_queue(self) -> None:
        with server.client().lock(self.id()).hold():
            waiter = subprocess.Popen(
                [sys.executable, "-m", "tests.holder", server.ADDRESS, self.id(), "60"],
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            server.wait_until("it is in the queue", lambda: server.waiters(self.id()) == 1)
            waiter.send_signal(signal.SIGINT)
            _, said = waiter.communicate(timeout=server.PATIENCE)
            self.assertIn("KeyboardInterrupt", said)
            self.assertEqual(server.waiters(self.id()), 0)

    def test_a_fork_among_busy_threads_works(self) -> None:
        """Whatever lock some other thread holds at that moment, the child can work."""
        stop = threading.Event()
        threads = [
            threading.Thread(target=self.take_turns, args=(f"{self.id()}/{number}", stop))
            for number in range(4)
        ]
        for thread in threads:
            thread.start()
        try:
            for number in range(20):
                child = os.fork()
                if child == 0:
                    self.take_one_turn_and_exit(f"{self.id()}/child")
                status = self.wait_for_child(child)
                self.assertEqual(status, 0, f"child {number}")
        finally:
            stop.set()
            for thread in threads:
                thread.join()

    def take_turns(self, name: str, stop: threading.Event) -> None:
        lock = server.client().lock(name)
        while not stop.is_set():
            lock.run(monolock.Held.token)

    def take_one_turn_and_exit(self, name: str) -> None:
        status = 1
        try:
            server.client().lock(name, wait_at_most=server.PATIENCE).run(monolock.Held.token)
            status = 0
        finally:
            os._exit(status)

    def wait_for_child(self, child: int) -> Optional[int]:
        ended = []

        def has_ended() -> bool:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                ended.append(status)
            return bool(pid)

        server.wait_until("the child has ended", has_ended)
        return ended[0]

    def wait_for_the_lock(self) -> None:
        lock = server.client().lock(self.id(), wait_at_most=server.PATIENCE)
        lock.run(lambda _: None)
