"""Several algorithms, the same budget: each is trained from the same cold start of each seed; one table of the results.

Finished runs in the folder are kept and stopped ones go on where they stopped, so that a comparison can be interrupted,
or widened by more seeds, at any time.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from didpo import rundir
from didpo.algorithms import get_algorithm
from didpo.progress import PlainProgress, Progress, SilentProgress
from didpo.rundir import RunDir, write_atomic, write_json
from didpo.settings import RunSettings


def compare(
    settings: RunSettings,
    algorithms: Sequence[str],
    *,
    seeds: Iterable[int],
    run_dir: str | Path,
    jobs: int = 1,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Train each algorithm with each seed, `jobs` runs at a time, and write compare.json and compare.md.

    Runs share the CPU threads of `settings` evenly, so that `jobs` changes the time and not the budget. Returns the
    table: {"rows": [one per algorithm], "runs": [one per run], "settings": ...}.
    """
    for name in algorithms:
        get_algorithm(name)  # an unknown name is refused before anything is trained
    root = Path(run_dir)
    each = dataclasses.replace(settings, threads=max(1, settings.threads // jobs))
    plan = [
        (dataclasses.replace(each, algorithm=name, seed=seed), root / f"{name}-s{seed}")
        for seed in seeds
        for name in algorithms
    ]
    progress = progress or PlainProgress()
    with progress:
        first = {run.seed: (run, folder) for run, folder in reversed(plan)}
        _work(_make_cold_start, [first[seed] for seed in sorted(first)], jobs, progress, "cold starts")
        _work(_train, plan, jobs, progress, "runs")
    result = tabulate([(run.algorithm, run.seed, folder) for run, folder in plan])
    write_json(root / "compare.json", result)
    write_atomic(root / "compare.md", table_text(result) + "\n")
    return result


def _work(
    job: Callable[[RunSettings, Path], str],
    plan: Sequence[tuple[RunSettings, Path]],
    jobs: int,
    progress: Progress,
    name: str,
) -> None:
    """Run `job` for every entry, in `jobs` processes (in this one if that is 1)."""
    progress.phase(name, len(plan))
    if jobs == 1:
        for run, folder in plan:
            progress.say(job(run, folder))
            progress.advance()
        return
    # "spawn": a forked child of a process with threads may hang
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        for text in pool.map(job, *zip(*plan, strict=True)):
            progress.say(text)
            progress.advance()


def _make_cold_start(settings: RunSettings, folder: Path) -> str:
    from didpo.coldstart import cache_folder, prepare_cold_start
    from didpo.session import make_tasks

    cache = cache_folder(settings, RunDir(folder))
    found = prepare_cold_start(settings, make_tasks(settings)[0], cache=cache, progress=SilentProgress())
    return f"cold start of seed {settings.seed}: {found}"


def _train(settings: RunSettings, folder: Path) -> str:
    from didpo.trainer import run

    there = RunDir(folder)
    rundir.prepare(folder, settings, resume=there.holds_run)
    if not there.summary.exists():
        run(settings, folder, resume=there.metrics.exists(), progress=SilentProgress())
    row = run_row(settings.algorithm, settings.seed, folder)
    return f"{folder.name}: held-out success {row['before']:.3f} -> {row['final']:.3f}, AUC {row['auc']:.3f}"


# ---------------------------------------------------------------- the table


def run_row(algorithm: str, seed: int, folder: Path) -> dict[str, Any]:
    """What one finished run achieved."""
    run_dir = RunDir(folder)
    summary = run_dir.read_summary()
    curve = [(row["step"], row["success"]) for row in run_dir.rows("eval") if row["success"] is not None]
    return {
        "algorithm": algorithm,
        "seed": seed,
        "before": summary["eval_before"]["success"],
        "final": summary["eval_after"]["success"],
        "auc": area_under_curve(curve),
        "curve": curve,
        "seconds": summary["seconds"]["rl"],
    }


def area_under_curve(points: Sequence[tuple[float, float]]) -> float:
    """Mean height of the line through (step, success) points: trapezoids, divided by the range of steps."""
    steps, values = (np.array(column, dtype=np.float64) for column in zip(*sorted(points), strict=True))
    if steps[0] == steps[-1]:
        return float(values.mean())
    area = ((values[1:] + values[:-1]) / 2 * np.diff(steps)).sum()
    return float(area / (steps[-1] - steps[0]))


def tabulate(runs: Sequence[tuple[str, int, Path]]) -> dict[str, Any]:
    """{"rows": mean and sample std per algorithm, "runs": every run}."""
    table = [run_row(*run) for run in runs]
    rows = []
    for name in dict.fromkeys(row["algorithm"] for row in table):
        own = [row for row in table if row["algorithm"] == name]
        row: dict[str, Any] = {"algorithm": name, "seeds": len(own)}
        for key in ("before", "auc", "final", "seconds"):
            values = np.array([r[key] for r in own], dtype=np.float64)
            row[key] = float(values.mean())
            row[f"{key}_std"] = float(values.std(ddof=1)) if len(values) > 1 else None
        rows.append(row)
    return {"rows": rows, "runs": table}


def table_text(result: dict[str, Any]) -> str:
    """The table in Markdown. Spread is the sample standard deviation over seeds."""
    lines = [
        "| algorithm | seeds | before | AUC of held-out success | final | RL seconds |",
        "|---|---|---|---|---|---|",
    ]
    for row in result["rows"]:
        cells = [f"{row[key]:.3f}{_spread(row[f'{key}_std'])}" for key in ("before", "auc", "final")]
        lines.append(f"| {row['algorithm']} | {row['seeds']} | {' | '.join(cells)} | {row['seconds']:.0f} |")
    return "\n".join(lines)


def _spread(std: float | None) -> str:
    return "" if std is None else f" ± {std:.3f}"
