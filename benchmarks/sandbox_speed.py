"""How fast the sandbox grades, as ratios to a fresh interpreter per case, interleaved on the same machine.

    python benchmarks/sandbox_speed.py [--rounds 5] [--level namespaced]

A round runs every variant once, in turn, so that the load of the machine falls on all alike. Two tables: the best round
of each variant (what the code costs) and the median (what it costs on this machine, as busy as it is).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from didpo.sandbox import Sandbox, open_sandbox
from didpo.types import StdioTest

PROGRAMS = {
    "trivial": "print(sum(map(int, input().split())))\n",
    "stdlib": (
        "import bisect, collections, functools, heapq, itertools, json, math, re, sys\n"
        "print(sum(map(int, sys.stdin.readline().split())))\n"
    ),
    "numpy": "import numpy as np\nprint(int(np.array(input().split(), dtype=int).sum()))\n",
}
CASES = 10


def tests(count: int) -> list[StdioTest]:
    pairs = [(f"{i} {i + 1}\n", f"{2 * i + 1}\n") for i in range(count)]
    return [StdioTest(name=stdin, path="p.py", stdin=stdin, expected=expected) for stdin, expected in pairs]


def fresh(source: str, count: int) -> None:
    """What most graders do: write the file, start an interpreter per case."""
    environment = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "p.py").write_text(source)
        for test in tests(count):
            command = [sys.executable, "p.py"]
            run = subprocess.run(
                command, input=test.stdin, capture_output=True, text=True, cwd=folder, env=environment, timeout=60
            )
            assert run.stdout == test.expected, run


def graded(sandbox: Sandbox, source: str, count: int, mode: str) -> None:
    results = sandbox.grade({"p.py": source}, tests(count), mode=mode)  # type: ignore[arg-type]
    assert all(result.passed for result in results.values()), results


def measure(sandbox: Sandbox, rounds: int) -> dict[str, dict[str, dict[str, float]]]:
    """Milliseconds per case: program -> variant -> {"best", "median"} over the rounds."""
    table: dict[str, dict[str, dict[str, float]]] = {}
    for name, source in PROGRAMS.items():
        variants: dict[str, tuple[Callable[[], None], int]] = {
            "fresh": (lambda s=source: fresh(s, CASES), CASES),
            "fork, 1 case": (lambda s=source: graded(sandbox, s, 1, "fork"), 1),
            "fork, 10 cases": (lambda s=source: graded(sandbox, s, CASES, "fork"), CASES),
            "batch, 10 cases": (lambda s=source: graded(sandbox, s, CASES, "batch"), CASES),
            "batch, 40 cases": (lambda s=source: graded(sandbox, s, 40, "batch"), 40),
        }
        times: dict[str, list[float]] = {variant: [] for variant in variants}
        graded(sandbox, source, 1, "fork")  # warm
        for _ in range(rounds):
            for variant, (action, count) in variants.items():
                start = time.perf_counter()
                action()
                times[variant].append(1000 * (time.perf_counter() - start) / count)
        table[name] = {v: {"best": min(t), "median": statistics.median(t)} for v, t in times.items()}
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--level", default=None)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with open_sandbox(level=args.level, workers=1) as sandbox:
        table = measure(sandbox, args.rounds)
        level = sandbox.level
    if args.json:
        print(json.dumps({"level": level, "ms_per_case": table}))
        return
    for which in ("best", "median"):
        print(f"level {level}, {which} of {args.rounds}: ms per case (ratio to a fresh interpreter per case)")
        for variant in table["trivial"]:
            pairs = [(table[p]["fresh"][which], table[p][variant][which]) for p in PROGRAMS]
            print(f"{variant:16}", *(f"{ms:8.2f} ({fresh_ms / ms:6.1f}x)" for fresh_ms, ms in pairs))


if __name__ == "__main__":
    main()
