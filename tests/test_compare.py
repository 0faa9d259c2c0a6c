"""Comparisons: the table by hand, and a real one on the smoke preset, interrupted and widened."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from didpo.compare import area_under_curve, compare, table_text, tabulate
from didpo.config import override
from didpo.errors import UserError
from didpo.progress import SilentProgress
from didpo.rundir import RunDir, write_json
from didpo.settings import PRESETS


def finished_run(folder: Path, curve: list[tuple[int, float]], seconds: float) -> Path:
    """A run directory as far as a comparison reads it."""
    folder.mkdir(parents=True)
    run_dir = RunDir(folder)
    for step, success in curve:
        run_dir.log({"phase": "eval", "step": step, "success": success})
    summary = {
        "eval_before": {"success": curve[0][1]},
        "eval_after": {"success": curve[-1][1]},
        "seconds": {"rl": seconds},
    }
    write_json(run_dir.summary, summary)
    return folder


def test_area_under_a_curve_by_hand() -> None:
    assert area_under_curve([(0, 0.0), (10, 1.0)]) == 0.5
    assert area_under_curve([(10, 1.0), (0, 0.0), (30, 1.0)]) == pytest.approx((5 + 20) / 30)  # order is no matter
    assert area_under_curve([(5, 0.25), (5, 0.75)]) == 0.5


def test_the_table_by_hand(tmp_path: Path) -> None:
    runs = [
        ("grpo", 0, finished_run(tmp_path / "a", [(0, 0.1), (10, 0.3)], 10.0)),
        ("grpo", 1, finished_run(tmp_path / "b", [(0, 0.3), (10, 0.5)], 20.0)),
        ("didpo", 0, finished_run(tmp_path / "c", [(0, 0.1), (5, 0.9), (10, 0.9)], 12.0)),
    ]
    result = tabulate(runs)
    grpo, didpo = result["rows"]
    assert (grpo["seeds"], grpo["before"], grpo["final"], grpo["auc"]) == (2, 0.2, 0.4, pytest.approx(0.3))
    assert grpo["final_std"] == pytest.approx(0.02**0.5) and grpo["seconds"] == 15.0
    assert didpo["auc"] == pytest.approx(0.7) and didpo["auc_std"] is None
    assert [row["seed"] for row in result["runs"]] == [0, 1, 0]
    lines = table_text(result).splitlines()
    assert lines[2] == "| grpo | 2 | 0.200 ± 0.141 | 0.300 ± 0.141 | 0.400 ± 0.141 | 15 |"
    assert lines[3] == "| didpo | 1 | 0.100 | 0.700 | 0.900 | 12 |"


def test_a_comparison_is_resumed_and_widened(tmp_path: Path) -> None:
    changes = {
        "sandbox": {"require": "process"},
        "cold_start": {"cache": str(tmp_path / "cold")},
        "rl": {"steps": 1},
        "logging": {"tracking_every": 0},
    }
    settings = override(PRESETS["smoke"], changes)
    folder = tmp_path / "all"
    first = compare(settings, ["grpo"], seeds=[0], run_dir=folder, progress=SilentProgress())
    stamp = (folder / "grpo-s0" / "summary.json").stat().st_mtime_ns
    result = compare(settings, ["grpo", "didpo"], seeds=[0], run_dir=folder, jobs=2, progress=SilentProgress())
    assert (folder / "grpo-s0" / "summary.json").stat().st_mtime_ns == stamp, "finished runs are kept"
    assert result["runs"][0] == first["runs"][0]
    assert result["rows"][0]["before"] == result["rows"][1]["before"], "one cold start per seed for all algorithms"
    assert len(list((tmp_path / "cold").iterdir())) == 1
    assert json.loads((folder / "compare.json").read_text())["rows"][1]["algorithm"] == "didpo"
    assert (folder / "compare.md").read_text().count("\n") == 4
    with pytest.raises(UserError, match="other settings"):
        compare(override(settings, {"rl": {"lr": 1.0}}), ["grpo"], seeds=[0], run_dir=folder, progress=SilentProgress())


def test_an_unknown_algorithm_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'grpo'"):
        compare(PRESETS["smoke"], ["grpoo"], seeds=[0], run_dir=tmp_path / "x", progress=SilentProgress())
    assert not (tmp_path / "x").exists()
