"""CPU time of credit on small groups: python benchmarks/credit_overhead.py [--step-seconds 2.5]

Prints milliseconds per batch (8 tasks x 8 scripted rollouts, best of five, caches warm) for GRPO and DiDPO and, with
the seconds of a training step, DiDPO's share of it.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")

from didpo import credit
from didpo.actions import files_after
from didpo.tasks import load_tasks
from didpo.tasks.scripted import known_outcomes, scripted_trajectory
from didpo.types import GroupCredit, Step, Task, Trajectory, TrajectoryGroup


def rollout(task: Task, rng: random.Random) -> Trajectory:
    turns = scripted_trajectory(task, rng)
    steps = [Step(response=turn.response, files_before=turn.files) for turn in turns]
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        step.files_after = following.files_before if following else files_after(step)
        step.test_outcomes = known_outcomes(task, step.files_after or {})
    return Trajectory(steps=steps, outcome=float(turns[-1].solved))


def milliseconds(function: Callable[..., GroupCredit], groups: list[TrajectoryGroup]) -> float:
    times = []
    for _ in range(5):
        begin = time.process_time()
        for group in groups:
            function(group)
        times.append(time.process_time() - begin)
    return 1000 * min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--step-seconds", type=float, default=None)
    args = parser.parse_args()
    rng = random.Random(0)
    groups = [
        TrajectoryGroup(task_id=task.task_id, trajectories=[rollout(task, rng) for _ in range(8)])
        for task in load_tasks("repair", n=8)
    ]
    grpo, didpo = milliseconds(credit.grpo, groups), milliseconds(credit.didpo, groups)
    print(f"grpo {grpo:.1f} ms, didpo {didpo:.1f} ms per batch ({didpo / grpo:.0f} times)")
    if args.step_seconds:
        print(f"didpo: {didpo / args.step_seconds / 10:.2f} % of a training step of {args.step_seconds:g} s")


if __name__ == "__main__":
    main()
