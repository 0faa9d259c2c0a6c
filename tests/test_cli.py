"""The command line as a user meets it: answers, mistakes, and what is left on disk after a mistake."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from didpo import Step, Trajectory, TrajectoryGroup
from didpo.cli import main
from didpo.trajectories import write_groups


def didpo(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "didpo.cli", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300)


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """Two attempts at one task: the wrong and the right operator in one of two functions."""
    stub = "def add(a, b):\n    pass\n\n\ndef neg(a):\n    pass\n"

    def attempt(operator: str, score: float) -> Trajectory:
        code = f"def add(a, b):\n    return a {operator} b\n\n\ndef neg(a):\n    return -a\n"
        step = Step(
            response=f"<edit f.py>\n<code>\n{code}</code>\n</edit>",
            files_before={"f.py": stub},
            step_score=score,
            test_outcomes={"add/0": score == 1, "neg/0": True},
        )
        return Trajectory(steps=[step], outcome=float(score == 1))

    group = TrajectoryGroup(task_id="t", trajectories=[attempt("+", 1.0), attempt("-", 0.5)])
    path = tmp_path / "attempts.jsonl"
    write_groups(path, [group])
    return path


@pytest.mark.parametrize("command", ["train", "eval", "compare", "credit", "validate", "report", "doctor"])
def test_help_has_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([command, "--help"])
    assert stopped.value.code == 0
    assert f"  didpo {command}" in capsys.readouterr().out


def test_credit_of_recorded_attempts(recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, out = tmp_path / "out.html", tmp_path / "credit.jsonl"
    assert (
        main(["credit", str(recorded), "--compare", "grpo,didpo", "--html", str(page), "--out", str(out), "--json"])
        == 0
    )
    answer = json.loads(capsys.readouterr().out)
    assert answer["groups"] == 1
    assert set(answer["metrics"]) == {"grpo", "didpo"}
    assert "return a " in page.read_text(encoding="utf-8")
    assert len(out.read_text().splitlines()) == 2


def test_credit_settings_reach_the_credit_function(recorded: Path, tmp_path: Path) -> None:
    import numpy as np

    from didpo.credit.io import read_credit

    same, other = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    assert main(["credit", str(recorded), "--out", str(same), "--lam", "0"]) == 0
    assert main(["credit", str(recorded), "--out", str(other), "--algorithm", "grpo"]) == 0
    a, b = (next(iter(read_credit(path))) for path in (same, other))
    for left, right in zip(a.advantages, b.advantages, strict=True):
        np.testing.assert_array_equal(left[0], right[0])


def test_audit_against_the_truth_of_named_tests(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Truth of `return a + b`: 1 - 1/2, of `return a - b`: 0 - 1/2, of `return -a` twice: 1 - 1. The step score gives
    1 - 3/4 and 1/2 - 3/4 to both lines of a step: correlation 0.25 / sqrt(0.25 * 0.5). Two rows with two contents
    decide no test: attribution gives 0."""
    assert main(["credit", str(recorded), "--audit", "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    control = scores["control: step score, no diff"]
    assert (control["n_lines"], control["sign_accuracy"]) == (4, 1.0)
    assert control["correlation"] == pytest.approx(0.5**0.5)
    assert scores["tests (the default)"]["correlation"] == 0.0


MISTAKES = [
    (["train", "--config", "broken.toml"], "not valid TOML"),
    (["train", "--config", "absent.toml"], "cannot read the settings file absent.toml"),
    (["train", "--rl.stepz", "3"], "did you mean 'rl.steps'?"),
    (["train", "--config", "unknown.toml"], "did you mean 'algorithm'?"),
    (["train", "--algorithm", "grppo"], "did you mean 'grpo'?"),
    (["train", "--preset", "smok"], "did you mean 'smoke'?"),
    (["train", "--rl.steps"], "--rl.steps needs a value"),
    (["train", "stray"], "unexpected argument 'stray'"),
    (["train", "--model.path", "no/model/here"], "no model at no/model/here"),
    (["train", "--run-dir", "attempts.jsonl"], "attempts.jsonl is a file"),
    (["train", "--run-dir", "other"], "holds other files"),
    (["train", "--resume", "--run-dir", "none"], "none"),
    (["train", "--run-dir", "foreign", "--overwrite"], "thesis.txt"),
    (["train", "--rl.lr", "nan"], "must be a finite number"),
    (["train", "--seed", "-5", "--dry-run"], "seed is at least 0"),
    (["credit", "attempts.jsonl", "--out", "attempts.jsonl"], "is one of the files to read"),
    (["credit", "attempts.jsonl", "--out", "other"], "other: Is a directory"),
    (["credit", "attempts.jsonl", "--html", "other"], "other: Is a directory"),
    (["compare", "--algorithms", ","], "at least one name"),
    (["eval", "none"], "not a run directory"),
    (["report", "none"], "none"),
    (["credit", "none.jsonl"], "no such file: none.jsonl"),
    (["credit", "cut.jsonl"], "cut.jsonl, line 2"),
    (["credit", "attempts.jsonl", "--algorithm", "didpoo"], "did you mean 'didpo'?"),
    (["credit", "attempts.jsonl", "--lamb", "2"], "did you mean 'lam'?"),
    (["compare", "--seeds", "0"], "at least 1"),
    (["compare", "--algorithms", "grpo,nope", "--run-dir", "fresh"], "nope"),
    (["validate", "humaneval", "--data", "none"], "HumanEval"),
    (["validate", "humanevall", "--data", "."], "did you mean 'humaneval'?"),
    (["doctor", "--rl.steps", "3"], "unknown argument --rl.steps"),
]


@pytest.mark.parametrize(("arguments", "text"), MISTAKES, ids=[" ".join(m[0]) for m in MISTAKES])
def test_a_mistake_is_one_line_and_leaves_nothing(
    arguments: list[str],
    text: str,
    recorded: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.toml").write_text("seed = = 1\n")
    (tmp_path / "unknown.toml").write_text('algoritm = "grpo"\n')
    (tmp_path / "cut.jsonl").write_text(recorded.read_text() + recorded.read_text()[:50])
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("years of work")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "config.toml").write_text('preset = "smoke"\nalgorithm = "grpo"\nseed = 0\n')
    (tmp_path / "foreign" / "thesis.txt").write_text("years of work")
    before = sorted(str(p) for p in tmp_path.rglob("*"))
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("didpo: ")
    assert captured.err.count("\n") == 1
    assert text in captured.err
    assert sorted(str(p) for p in tmp_path.rglob("*")) == before


def test_dry_run_loads_nothing_and_writes_nothing(tmp_path: Path) -> None:
    code = (
        "import sys; from didpo.cli import main; code = main(['train', '--dry-run', '--json']);"
        "assert 'torch' not in sys.modules; sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    planned = json.loads(done.stdout)
    assert planned["rl"]["rollouts_per_step"] == 64
    assert 300_000 < planned["parameters"] < 700_000
    assert list(tmp_path.iterdir()) == []


def test_smoke_run_from_start_to_report(tmp_path: Path) -> None:
    done = didpo("train", "--preset", "smoke", "--run-dir", "run", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert set(summary["eval_after"]) >= {"success", "low", "high", "n"}
    run = tmp_path / "run"
    assert json.loads((run / "summary.json").read_text())["eval_after"] == summary["eval_after"]
    assert (run / "report.html").read_text(encoding="utf-8").rstrip().endswith("</html>")

    again = didpo("train", "--preset", "smoke", "--run-dir", "run", cwd=tmp_path)
    assert again.returncode == 2
    assert "--overwrite" in again.stderr

    assert didpo("eval", "run", "--json", cwd=tmp_path).returncode == 0
    assert didpo("credit", "run", "--html", "credit.html", cwd=tmp_path).returncode == 0
    assert (tmp_path / "credit.html").stat().st_size > 1000


def test_doctor_names_the_sandbox_level(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["sandbox"]["level"] in {"namespaced", "filtered", "process"}
    assert found["versions"]["didpo"]


def test_validate_runs_references_and_mutants(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = {
        "task_id": "HumanEval/0",
        "prompt": "def double(x):\n",
        "entry_point": "double",
        "canonical_solution": "    return 2 * x\n",
        "test": "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(5) == 10\n",
    }
    (tmp_path / "HumanEval.jsonl").write_text(json.dumps(row) + "\n")
    assert main(["validate", "humaneval", "--data", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["passed"], found["total"], found["rejected"], found["accepted_mutants"]) == (1, 1, [], [])
    assert found["mutants"] >= 2
