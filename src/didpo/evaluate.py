"""Held-out evaluation: success with an interval, exact pass@k, turns, stop reasons; errors apart from failures.

A rollout that failed for reasons outside the policy (sandbox, sampler) is no sample: it counts neither as solved nor as
unsolved, and its number is reported.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from didpo.errors import UserError
from didpo.types import TrajectoryGroup

if TYPE_CHECKING:
    from didpo.rundir import RunDir
    from didpo.settings import RunSettings


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What an evaluation found. Shares are fractions of the valid samples; None where there is no valid sample."""

    success: float | None  # mean over tasks of the share of solved samples
    low: float | None  # 95 % interval of success
    high: float | None
    n: int  # tasks with at least one valid sample
    tasks: int  # tasks asked for
    samples: int  # valid samples
    errors: dict[str, int]  # failed rollouts by stop reason: in no other number here
    first_turn: float | None  # share of samples solved in their first turn
    step_score: float | None  # mean share of tests that the last state of the code passes
    pass_at_k: dict[int, float]  # k -> mean over the tasks with at least k valid samples
    pass_at_k_tasks: dict[int, int]  # k -> how many tasks that are
    mean_turns: float | None
    stop_reasons: dict[str, int]

    def summary(self) -> dict[str, Any]:
        """JSON values; the keys of pass@k become texts."""
        values = dict(vars(self))
        for name in ("pass_at_k", "pass_at_k_tasks"):
            values[name] = {str(k): v for k, v in values[name].items()}
        return values

    def line(self) -> str:
        """One line for a person."""
        if self.success is None:
            return f"no valid sample ({sum(self.errors.values())} failed rollouts)"
        text = f"success {self.success:.3f} [{self.low:.3f}, {self.high:.3f}] on {self.n} tasks"
        if self.n < self.tasks:
            text += f" of {self.tasks}"
        failed = sum(self.errors.values())
        return text + (f"; {failed} rollouts failed outside the policy and are left out" if failed else "")


def evaluate_groups(groups: Sequence[TrajectoryGroup], *, ks: Sequence[int] = (1,), seed: int = 0) -> Evaluation:
    """Evaluate one group of samples per task; see `evaluate_rows`."""
    return evaluate_rows(task_rows(groups), ks=ks, seed=seed)


def task_rows(groups: Sequence[TrajectoryGroup]) -> list[dict[str, Any]]:
    """One JSON row per task, for eval/<name>.jsonl. Lists hold one entry per valid sample."""
    rows = []
    for group in groups:
        valid = [t for t in group.trajectories if not t.failed]
        rows.append(
            {
                "task_id": group.task_id,
                "samples": len(valid),
                "solved": sum(solved(t.outcome) for t in valid),
                "outcomes": [solved(t.outcome) for t in valid],
                "turns": [len(t.steps) for t in valid],
                "scores": [t.steps[-1].step_score if t.steps else None for t in valid],
                "stop_reasons": [str(t.stop_reason) for t in valid],
                "errors": [str(t.stop_reason) for t in group.trajectories if t.failed],
            }
        )
    return rows


def evaluate_rows(rows: Sequence[dict[str, Any]], *, ks: Sequence[int] = (1,), seed: int = 0) -> Evaluation:
    """What the rows of `task_rows` come to.

    The interval is Wilson's where every task has at most one valid sample, else a bootstrap over tasks (seeded, 2,000
    resamples), since samples of one task are not independent.
    """
    counts = [(row["samples"], row["solved"]) for row in rows if row["samples"]]
    shares = [c / n for n, c in counts]
    low, high = None, None
    if counts and max(n for n, _ in counts) == 1:
        low, high = wilson(sum(c for _, c in counts), len(counts))
    elif counts:
        low, high = bootstrap(shares, seed=seed)
    at_k = {k: mean_pass_at_k(counts, k) for k in ks}

    def every(name: str) -> list[Any]:
        return [value for row in rows for value in row[name]]

    return Evaluation(
        success=_mean(shares),
        low=low,
        high=high,
        n=len(counts),
        tasks=len(rows),
        samples=sum(n for n, _ in counts),
        errors=dict(Counter(every("errors"))),
        first_turn=_mean([s and n == 1 for s, n in zip(every("outcomes"), every("turns"), strict=True)]),
        step_score=_mean([score for score in every("scores") if score is not None]),
        pass_at_k={k: found[0] for k, found in at_k.items() if found},
        pass_at_k_tasks={k: found[1] for k, found in at_k.items() if found},
        mean_turns=_mean(every("turns")),
        stop_reasons=dict(Counter(every("stop_reasons"))),
    )


def evaluate_run(settings: RunSettings, run_dir: RunDir) -> dict[str, Any]:
    """Evaluate the trained model of a run (the newest checkpoint, while it is not finished) on its held-out tasks.

    Raises UserError where the run has neither. Writes nothing into the run directory.
    """
    from didpo import checkpoint
    from didpo.coldstart import cache_folder
    from didpo.model import load_model
    from didpo.progress import SilentProgress
    from didpo.session import open_session

    found = checkpoint.list_checkpoints(run_dir.checkpoints)
    if not run_dir.final_model.is_dir() and not found:
        raise UserError(f"{run_dir.path} holds no trained model and no checkpoint yet; train it first")
    with open_session(settings, cache=cache_folder(settings, run_dir), progress=SilentProgress()) as session:
        if run_dir.final_model.is_dir():
            session.model = load_model(run_dir.final_model, dtype=settings.model.dtype, device=str(session.device))
        else:
            session.model.load_state_dict(checkpoint.load(found[-1])[0]["model"])
        rows = session.evaluate(session.heldout_tasks)
    return evaluate_rows(rows, ks=settings.evaluation.ks, seed=settings.seed).summary()


def solved(outcome: float | None) -> bool:
    """True where the verifier gave the full score."""
    return outcome is not None and outcome >= 1.0


def pass_at_k(n: int, c: int, k: int) -> float:
    """Chance that k samples drawn without replacement from n, of which c are right, hold a right one.

    1 - C(n-c, k) / C(n, k), the unbiased estimator of arXiv 2107.03374, in exact integers. Raises ValueError for k > n:
    n samples say nothing about more of them.
    """
    if not 1 <= k <= n or not 0 <= c <= n:
        raise ValueError(f"pass@{k} needs at least {k} samples (given: {n}, {c} right)")
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


def mean_pass_at_k(counts: Sequence[tuple[int, int]], k: int) -> tuple[float, int] | None:
    """(mean over the tasks with at least k samples, number of them) from (samples, solved) per task; None if none."""
    values = [pass_at_k(n, c, k) for n, c in counts if n >= k]
    return (sum(values) / len(values), len(values)) if values else None


def wilson(successes: int, n: int, z: float = 1.959963984540054) -> tuple[float, float]:
    """Wilson's score interval of a share (95 % by default). Stays within [0, 1], and is not empty at 0 or n."""
    share = successes / n
    scale = 1 + z * z / n
    middle = (share + z * z / (2 * n)) / scale
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / scale
    # at the ends the bound is exactly 0 or 1; rounding may not move it inside
    return (0.0 if successes == 0 else middle - half, 1.0 if successes == n else middle + half)


def bootstrap(values: Sequence[float], *, seed: int = 0, resamples: int = 2000) -> tuple[float, float]:
    """95 % percentile interval of the mean of `values` (one per task)."""
    array = np.asarray(values, dtype=np.float64)
    picks = np.random.default_rng(seed).integers(len(array), size=(resamples, len(array)))
    low, high = np.quantile(array[picks].mean(axis=1), [0.025, 0.975])
    return float(low), float(high)


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if len(values) else None
