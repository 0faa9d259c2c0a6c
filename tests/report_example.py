"""A small run directory made by hand, for the tests of the report: two groups, one of them hostile, all sections."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np

from didpo.credit.io import write_credit
from didpo.trajectories import write_groups
from didpo.types import Anchor, AnchorMember, GroupCredit, Step, StopReason, Trajectory, TrajectoryGroup

HOSTILE = (
    "</script><script>window.broken = 1</script><img src=x onerror='window.broken = 2'> \" ' & \u2028\u2029 "
    "\x1b[31mred\x1b[0m \ud800 \x00 \u202eright to left <!-- ${alert(1)} `tick`"
)
BEFORE = "def area(w, h):\n    return w + h\n\n\ndef mean(xs):\n    return sum(xs) / 2\n"
AREAS = ("    return w * h\n", "    return w * h\n", "    return w - h\n", "    return w * h\n")
MEANS = ("    return sum(xs) / len(xs)\n", "    return sum(xs)\n", "    return max(xs)\n", "    return sum(xs) / 2\n")


def response(area: str, mean: str, thought: str = "both functions are wrong") -> str:
    return (
        f"<think>{thought}</think>\n<edit main.py>\n<code>\ndef area(w, h):\n{area}\n\n"
        f"def mean(xs):\n{mean}</code>\n</edit>"
    )


def offsets(text: str) -> list[tuple[int, int]]:
    """Tokens of three characters, and an end mark."""
    return [(i, min(i + 3, len(text))) for i in range(0, len(text), 3)] + [(len(text), len(text))]


def example_group(task_id: str = "repair/area-mean", thought: str = "both functions are wrong") -> TrajectoryGroup:
    trajectories = []
    for g, (area, mean) in enumerate(zip(AREAS, MEANS, strict=True)):
        text = response(area, mean, thought)
        outcomes = {"area/0": "*" in area, "area/1": "*" in area, "mean/0": "len" in mean}
        score = sum(outcomes.values()) / 3
        solved = all(outcomes.values())
        step = Step(
            response=text,
            reward=0.15 * score + solved,
            files_before={"main.py": BEFORE},
            token_offsets=offsets(text),
            step_score=score,
            test_outcomes=outcomes,
            observation=f"{sum(outcomes.values())} of 3 tests passed",
        )
        trajectories.append(
            Trajectory(
                steps=[step],
                outcome=float(solved),
                stop_reason=StopReason.SOLVED if solved else StopReason.TURN_LIMIT,
                trajectory_id=f"t{g}",
            )
        )
    return TrajectoryGroup(task_id=task_id, trajectories=trajectories, group_id=task_id)


def example_credit(group: TrajectoryGroup, algorithm: str = "didpo", lam: float = 1.0) -> GroupCredit:
    """Episode part: outcome minus mean. Local part: own tests of each function minus their mean over the group."""
    episode = np.array([t.outcome for t in group.trajectories])
    episode = episode - episode.mean()
    e_part, d_part, anchors = [], [], []
    for g, trajectory in enumerate(group.trajectories):
        step = trajectory.steps[0]
        e_part.append([np.full(step.n_tokens, episode[g], dtype=np.float32)])
        d_part.append([np.zeros(step.n_tokens, dtype=np.float32)])
    for number, (name, bodies, good) in enumerate((("area", AREAS, "*"), ("mean", MEANS, "len"))):
        right = np.array([float(good in body) for body in bodies])
        members = []
        for g, body in enumerate(bodies):
            step = group.trajectories[g].steps[0]
            start = step.response.index(f"def {name}")
            end = step.response.index(body, start) + len(body)
            amount = lam * float(right[g] - right.mean())
            members.append(
                AnchorMember(
                    trajectory=g, step=0, path="main.py", spans=((start, end),), signal=right[g], advantage=amount
                )
            )
            for t, (a, b) in enumerate(step.token_offsets or ()):
                if a < end and b > start:
                    d_part[g][0][t] = amount
        anchors.append(
            Anchor(
                anchor_id=number,
                kind="region",
                edit_kind="overwrite",
                lines=(f"def {name}",),
                length=2.0,
                n_rows=4,
                groupability=(1 - math.exp(-2 / 8)) * (1 - math.exp(-3 / 8)),
                mean_signal=float(right.mean()),
                contrast=None if number else 0.25,
                members=tuple(members),
                label=f"function {name}",
            )
        )
    total = [[e[0] + d[0]] for e, d in zip(e_part, d_part, strict=True)]
    return GroupCredit(
        algorithm=algorithm,
        advantages=total,
        parts={"episode": e_part, "diff": d_part},
        assigned=[True] * len(total),
        anchors=anchors if lam else [],
        metrics={"coverage": 0.6},
        notes=["signal: test outcomes"],
    )


def example_run(path: Path) -> Path:
    """A run directory that has everything the report draws; returns it."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.toml").write_text(
        'algorithm = "didpo"\npreset = "embedded"\nseed = 0\n[rl]\nsteps = 40\nlr = 3e-4\n'
    )
    rng = np.random.default_rng(0)
    rows: list[dict] = [
        {"phase": "sft", "step": i, "seconds": 0.1, "loss": 3.2 * math.exp(-i / 90) + 0.4 + 0.05 * rng.random()}
        for i in range(0, 500, 10)
    ]
    for i in range(1, 41):
        s = 0.9 - 0.6 * math.exp(-i / 12)
        rows.append(
            {
                "phase": "rl", "step": i, "seconds": 1.4, "success": float(np.clip(s + 0.08 * rng.normal(), 0, 1)),
                "step_score": min(1.0, s + 0.1), "no_signal_share": 0.2 + (0.4 if 30 < i < 34 else 0.0),
                "diff_coverage": 0.55, "loss": 0.02 * rng.normal(), "entropy": 0.6 * math.exp(-i / 30),
                "ref_kl": 0.002 * i, "clip_fraction": 0.05, "reward": s,
                "turns": 3 - 2 * s, "grad_norm": 1 + rng.random(), "tokens_per_second": 2100.0,
                "stop_solved": round(64 * s), "stop_turn_limit": 62 - round(64 * s), "stop_length": 2.0,
                "stop_length_share": 0.03,
            }
        )  # fmt: skip
    rows += [{"phase": "eval", "step": i, "seconds": 2.0, "success": v, "low": v - 0.09, "high": v + 0.07, "n": 100}
             for i, v in ((10, 0.58), (20, 0.77), (30, 0.86))]  # fmt: skip
    (path / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    (path / "summary.json").write_text(json.dumps(SUMMARY))
    (path / "eval").mkdir(exist_ok=True)
    for name, limit in (("before", 12), ("after", 36)):
        tasks = [{"task_id": f"h{i}", "samples": 1, "solved": int((7 * i) % 40 < limit)} for i in range(40)]
        (path / "eval" / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in tasks))
    groups = [example_group(), example_group("repair/" + HOSTILE, HOSTILE)]
    for folder in ("trajectories", "credit", "tracking/credit"):
        (path / folder).mkdir(parents=True, exist_ok=True)
    write_groups(path / "trajectories" / "step_00040.jsonl", groups)
    write_credit(path / "credit" / "step_00040.jsonl", [example_credit(g) for g in groups])
    for step in (0, 10, 20, 30, 40):
        write_credit(path / "tracking" / "credit" / f"step_{step:05d}.jsonl", [example_credit(groups[0])])
    return path


SUMMARY = {
    "algorithm": "didpo", "seed": 0, "preset": "embedded",
    "eval_before": {"success": 0.29, "low": 0.22, "high": 0.37, "n": 150, "first_turn": 0.04, "step_score": 0.55,
                    "mean_turns": 2.7, "pass_at_k": {"1": 0.29}, "errors": {},
                    "stop_reasons": {"solved": 44, "turn_limit": 100, "length": 6}},
    "eval_after": {"success": 0.91, "low": 0.85, "high": 0.95, "n": 150, "first_turn": 0.61, "step_score": 0.97,
                   "mean_turns": 1.5, "pass_at_k": {"1": 0.91}, "errors": {},
                   "stop_reasons": {"solved": 136, "turn_limit": 14}},
    "seconds": {"tasks": 1.2, "sft": 171.4, "rl": 56.3, "eval": 21.7, "total": 250.6},
    "seconds_rl_parts": {"sample": 19.0, "grade": 5.0, "credit": 0.8, "update": 31.5},
    "sandbox": {"level": "namespaced"}, "versions": {"didpo": "0.1.0", "python": "3.11.9", "torch": "2.13.0"},
}  # fmt: skip
