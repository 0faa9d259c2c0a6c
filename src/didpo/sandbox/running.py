"""Children of one program while they run: their clocks, their output, their end. Part of the zygote."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from typing import Any

from didpo.sandbox import files, isolation

TICK = 0.02  # longest time in seconds between two looks at a running program
RESULT_BYTES = 64 << 20


def fork(limits: dict[str, Any], keep: list[int], body: Callable[[], None]) -> int:
    """A confined child that runs `body()` and exits; every descriptor but 0-2 and `keep` is closed in it."""
    memory = isolation.own_bytes()
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        isolation.close_others(keep)
        isolation.confine_child(limits, memory)
        body()
        os._exit(0)
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(70)


class Run:
    """`pids[-1]` decides: when it ends, all end. `watched` are descriptors whose size is limited; `results` holds one
    line per finished case, and each gets the time limit anew."""

    def __init__(self, limits: dict[str, Any], watched: list[int], results: int | None, control: socket.socket) -> None:
        self.limits, self.watched, self.results, self.control = limits, watched, results, control
        self.pids: list[int] = []
        self.reason = ""  # the limit that was hit: cpu, wall, program, output, disk, memory
        self.exit_code = 0
        self.cpu = 0.0
        self.looks = 0

    def wait(self, deadline: float) -> None:
        """Until the program ends, a limit is hit, or the grader has gone; then kill and reap everything."""
        pidfd = os.pidfd_open(self.pids[-1])
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        poll.register(self.control, 0)  # hang-up only
        done, cpu_mark, wall_mark = 0, 0.0, time.monotonic()
        while not self.reason:
            events = poll.poll(1000 * min(TICK, 0.002 * (1 + self.looks)))
            if any(fd == pidfd for fd, _ in events):
                break
            if events:
                isolation.kill_all(self.pids)
                isolation.reap_all()
                files.clear(isolation.State.home)
                os._exit(0)
            count = self._finished(done)
            cpu, now = self._cpu(), time.monotonic()
            if count > done:
                done, cpu_mark, wall_mark = count, cpu, now
            self.reason = self._over(cpu - cpu_mark, now - wall_mark, now > deadline)
            self.looks += 1
        os.close(pidfd)
        self._end()

    def _over(self, cpu: float, wall: float, late: bool) -> str:
        if cpu > self.limits["cpu_s"]:
            return "cpu"
        if wall > self.limits["wall_s"]:
            return "wall"
        if late:
            return "program"
        if any(os.fstat(fd).st_size > self.limits["output_bytes"] for fd in self.watched):
            return "output"
        if self.looks % 8 == 7 and isolation.used_disk() > self.limits["disk_bytes"]:
            return "disk"
        if self.limits["processes"] and isolation.used_memory() > self.limits["memory_mb"] << 20:
            return "memory"
        return ""

    def _cpu(self) -> float:
        total = 0.0
        for pid in self.pids:
            with contextlib.suppress(OSError):
                total += time.clock_gettime((~pid << 3) | 2)  # CPUCLOCK_SCHED of another process
        return total

    def _finished(self, done: int) -> int:
        if self.results is None or os.fstat(self.results).st_size == 0:
            return 0
        return max(done, files.read_fd(self.results, RESULT_BYTES).count(b"\n"))

    def _end(self) -> None:
        if self.reason:
            isolation.kill_all(self.pids)
        _, status, usage = os.wait4(self.pids[-1], 0)
        self.exit_code = os.waitstatus_to_exitcode(status)
        isolation.kill_all(self.pids[:-1])
        self.cpu = usage.ru_utime + usage.ru_stime + isolation.reap_all()
        if not self.reason and self.exit_code == -signal.SIGXCPU:
            self.reason = "cpu"

    def timeout_detail(self) -> str:
        """In plain words, which time limit was hit; empty where none was."""
        return {
            "cpu": f"over {self.limits['cpu_s']:g} s of CPU time",
            "wall": f"over {self.limits['wall_s']:g} s elapsed",
            "program": "the program's time was used up",
        }.get(self.reason, "")
