"""Many programs in a row, hostile ones among them: nothing may be left, and no verdict may change.

    python benchmarks/sandbox_soak.py [--programs 10000] [--hostile 200] [--level namespaced]

Checks at the end: every good program passed, every wrong one was rejected, every hostile one failed; no process, mount,
descriptor, folder or System V object more than at the start; memory of this process and of the workers flat.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

from didpo.sandbox import Limits, Sandbox, Verdict, open_sandbox
from didpo.types import AssertTest, CallTest, StdioTest, Test

HOSTILE = sorted((Path(__file__).resolve().parents[1] / "tests" / "sandbox" / "hostile").glob("*.py"))
LIMITS = Limits(cpu_s=0.3, wall_s=3.0, memory_mb=128, output_bytes=1 << 20, disk_bytes=8 << 20)
GIVEN = {
    "file": "/var/lib/dpkg/status",
    "tests": __file__,
    "target": "/etc/didpo-soak",
    "port": 9,
    "abstract": "\0didpo-soak",
}


def program(number: int) -> tuple[dict[str, str], list[Test], bool]:
    """Small programs of every kind; every third is wrong."""
    wrong = number % 3 == 2
    files = {
        "p.py": f"print(int(input()) + {number + wrong})\n",
        "s.py": f"def f(x):\n    return [x] * {3 + wrong}\n",
    }
    tests: list[Test] = [
        StdioTest(name="io", path="p.py", stdin="1\n", expected=str(number + 1)),
        CallTest(name="call", path="s.py", function="f", args=(number,), expected=[number] * 3),
    ]
    if number % 10 == 0:
        tests.append(AssertTest(name="assert", path="s.py", code=f"assert f('a') == ['a'] * {3}"))
    return files, tests, not wrong


def worker_bytes(sandbox: Sandbox) -> int:
    """Resident bytes of the workers and what they started."""
    total = 0
    for worker in list(sandbox._pool._slots.queue):
        if worker is not None:
            for pid in family(worker.process.pid):
                total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return total


def family(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(p for child in children for p in family(int(child)))]


def left_overs() -> dict[str, object]:
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "mounts": Path("/proc/self/mounts").read_text(),
        "folders": sorted(p.name for p in Path(tempfile.gettempdir()).glob("didpo-*")),
        "shared memory": Path("/proc/sysvipc/shm").read_text(),
        "children": len(family(os.getpid())),
    }


def soak(sandbox: Sandbox, programs: int, hostile: int) -> dict[str, object]:
    """Run them all; the report has `faults`, which must be empty."""
    faults: list[str] = []
    given = json.dumps({**GIVEN, "pid": os.getpid(), "victim": os.getpid(), "variable": "NONE", "marker": "didpo-soak"})
    every = max(1, programs // hostile) if hostile else programs + 1
    marks: list[tuple[int, int]] = []
    for number in range(programs):
        files, tests, right = program(number)
        results = sandbox.grade(files, tests, mode="fork" if number % 7 == 0 else "batch", limits=LIMITS)
        if {r.passed for r in results.values()} != {right}:
            faults.append(f"program {number}: {results}")
        if number % every == every - 1:
            path = HOSTILE[number // every % len(HOSTILE)]
            escaped = StdioTest(name="t", path="h.py", stdin=given, expected="ESCAPED")
            result = sandbox.grade({"h.py": path.read_text()}, [escaped], limits=LIMITS)["t"]
            if result.verdict in (Verdict.PASSED, Verdict.SANDBOX_ERROR):
                faults.append(f"{path.stem}: {result}")
        if number in (programs // 4, programs - 1):
            own = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            marks.append((own, worker_bytes(sandbox)))
    (own_before, inside_before), (own_after, inside_after) = marks[0], marks[-1]
    for what, before, after in (("grader", own_before, own_after), ("workers", inside_before, inside_after)):
        if after > before + (16 << 20):
            faults.append(f"memory of the {what} grew from {before >> 20} to {after >> 20} MiB")
    memory = {"grader": [own_before >> 10, own_after >> 10], "workers": [inside_before >> 10, inside_after >> 10]}
    return {"faults": faults, "memory_kib": memory}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=10_000)
    parser.add_argument("--hostile", type=int, default=200)
    parser.add_argument("--level", default=None)
    args = parser.parse_args()
    with open_sandbox(level=args.level, workers=1) as first:
        level = first.level
    before, start = left_overs(), time.monotonic()
    with open_sandbox(level=args.level, workers=1) as sandbox:
        report = soak(sandbox, args.programs, args.hostile)
    after = left_overs()
    different = [name for name in before if before[name] != after[name]]
    seconds = round(time.monotonic() - start, 1)
    print(json.dumps({"level": level, **vars(args), "seconds": seconds, **report, "left_behind": different}))
    sys.exit(bool(report["faults"] or different))


if __name__ == "__main__":
    main()
