"""Times the credit engine on `credit_workload`: python benchmarks/credit_speed.py [--rollouts 32] [--all]

Prints CPU seconds (best of three, one thread) from responses to anchors and to token advantages, and the peak memory.
With --all also twice the rollouts, the other equalities and the worst cases.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from credit_workload import size_of, workload
from didpo import credit
from didpo.credit.anchors import find_anchors
from didpo.credit.diffs import rows_of
from didpo.types import EditSpan, Step, Trajectory, TrajectoryGroup


def best_of(n: int, function: Callable[[], Any]) -> float:
    """Least CPU seconds of `n` calls."""
    times = []
    for _ in range(n):
        begin = time.process_time()
        function()
        times.append(time.process_time() - begin)
    return min(times)


def report(name: str, seconds: float) -> None:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{name:44s} {seconds:8.3f} s   peak {peak:5.0f} MB", flush=True)


def texts_group(texts: list[str]) -> TrajectoryGroup:
    """One step per text, each a whole file."""
    steps = [
        Step(response=t, edits=[EditSpan(path="a.py", kind="overwrite", text=t, start=0, end=len(t))]) for t in texts
    ]
    return TrajectoryGroup(task_id="worst", trajectories=[Trajectory(steps=[s], outcome=0.0) for s in steps])


def worst_cases() -> dict[str, TrajectoryGroup]:
    return {
        "all rows equal (160 x 300 lines)": texts_group(["\n".join(f"x{i} = {i}" for i in range(300))] * 160),
        "all lines equal (160 x 300 lines)": texts_group(["\n".join(["x = 1"] * 300)] * 160),
        "all lines equal, 160 lengths": texts_group(["\n".join(["x = 1"] * (2 * i + 1)) for i in range(160)]),
        "no line equal (160 x 300 lines)": texts_group(
            ["\n".join(f"x{r}_{i} = 1" for i in range(300)) for r in range(160)]
        ),
        "one 20,000-line file (8 rows)": texts_group(
            ["\n".join(f"x{i} = {r if i % 50 == r else 0}" for i in range(20_000)) for r in range(8)]
        ),
        "20,000 equal lines, 8 lengths": texts_group(["\n".join(["x = 1"] * (20_000 - 999 * r)) for r in range(8)]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rollouts", type=int, default=32)
    parser.add_argument("--all", action="store_true")
    args = parser.parse_args()
    for rollouts in (args.rollouts, 2 * args.rollouts) if args.all else (args.rollouts,):
        groups = workload(rollouts=rollouts)
        print(f"6 tasks x {rollouts} rollouts: {size_of(groups)}")

        def anchors(equality: str, groups: list[TrajectoryGroup] = groups) -> None:
            for group in groups:
                find_anchors(rows_of(group), equality=equality)  # type: ignore[arg-type]

        def scored(groups: list[TrajectoryGroup] = groups, **settings: Any) -> None:
            for group in groups:
                credit.didpo(group, **settings)

        def grpo(groups: list[TrajectoryGroup] = groups) -> None:
            for group in groups:
                credit.grpo(group)

        for equality in ("exact", "renamed", "similar") if args.all else ("exact", "renamed"):
            report(f"responses to anchors, {equality}", best_of(3, lambda e=equality: anchors(e)))
        report("responses to token advantages, default", best_of(3, scored))
        report("responses to token advantages, GRPO", best_of(3, grpo))
    if args.all:
        for name, group in worst_cases().items():
            rows = rows_of(group)
            report(name, best_of(1, lambda rows=rows: find_anchors(rows)))


if __name__ == "__main__":
    main()
