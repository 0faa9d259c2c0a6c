"""Whole runs on the smoke preset, with the real model, edits and sandbox; resume and kill."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from didpo import checkpoint, rundir
from didpo.algorithms import ALGORITHMS
from didpo.coldstart import cache_folder
from didpo.config import nest, override
from didpo.credit.io import read_credit, to_json
from didpo.errors import UserError
from didpo.evaluate import evaluate_run
from didpo.progress import SilentProgress
from didpo.rollout import Seconds
from didpo.rundir import RunDir
from didpo.session import Session, open_session
from didpo.settings import PRESETS, RunSettings
from didpo.trainer import Trainer, collect, run, training_rows, update
from didpo.trajectories import read_groups
from didpo.types import GroupCredit, Step, StopReason, Trajectory, TrajectoryGroup

TIMES = ("seconds", "tokens_per_second")


@pytest.fixture(scope="session")
def cold_starts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cold-starts")


@pytest.fixture
def smoke(cold_starts: Path) -> RunSettings:
    return override(PRESETS["smoke"], {"sandbox": {"require": "process"}, "cold_start": {"cache": str(cold_starts)}})


@pytest.fixture
def session(smoke: RunSettings, tmp_path: Path) -> Iterator[Session]:
    cache = cache_folder(smoke, RunDir(tmp_path / "run"))
    with open_session(smoke, cache=cache, progress=SilentProgress()) as opened:
        yield opened


def start(settings: RunSettings, folder: Path, **options: Any) -> dict[str, Any]:
    rundir.prepare(folder, settings, resume=options.get("resume", False))
    return run(settings, folder, progress=SilentProgress(), **options)


def timeless(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Metrics of training and evaluation without what depends on the clock."""
    return [
        {name: value for name, value in row.items() if not name.startswith(TIMES)}
        for row in rows
        if row["phase"] in ("rl", "eval")
    ]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_trains_from_tasks_to_summary(name: str, smoke: RunSettings, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    summary = start(override(smoke, {"algorithm": name}), folder)
    run_dir = RunDir(folder)
    assert json.loads(run_dir.summary.read_text()) == summary
    assert summary["algorithm"] == name and summary["sandbox"]["level"]
    for when in ("eval_before", "eval_after"):
        assert 0 <= summary[when]["low"] <= summary[when]["success"] <= summary[when]["high"] <= 1
        assert summary[when]["n"] == 4 and summary[when]["errors"] == {}
    rows = run_dir.rows("rl")
    assert [row["step"] for row in rows] == [1, 2]
    for row in rows:
        assert row["failed_rollouts"] == 0 and row["tokens"] > 0
        assert row["logprob_gap"] < 1e-4 and np.isfinite(row["loss"])
        assert set(summary["seconds_rl_parts"]) <= {key.removeprefix("seconds_") for key in row}
        assert ("diff_coverage" in row) == name.startswith("didpo")
    groups = list(read_groups(run_dir.step_file("trajectories", 2)))
    credits = list(read_credit(run_dir.step_file("credit", 2)))
    assert len(groups) == len(credits) == int(rows[1]["groups"])
    for group, credit in zip(groups, credits, strict=True):
        for trajectory, arrays in zip(group.trajectories, credit.advantages, strict=True):
            assert [len(a) for a in arrays] == [s.n_tokens for s in trajectory.steps]
    assert run_dir.step_file("tracking", 2).is_file() and run_dir.step_file("tracking/credit", 2).is_file()
    assert (run_dir.final_model / "config.json").is_file()


def test_a_resumed_run_equals_one_that_was_never_stopped(smoke: RunSettings, tmp_path: Path) -> None:
    settings = override(smoke, {"rl": {"steps": 4, "warmup": 3}})
    start(settings, tmp_path / "whole")
    start(override(settings, {"rl": {"steps": 2}}), tmp_path / "parts")
    stopped = RunDir(tmp_path / "parts")
    for path in (stopped.summary, stopped.eval_file("after")):
        path.unlink()
    rundir.write_atomic(stopped.config, RunDir(tmp_path / "whole").config.read_text())
    with open(stopped.metrics, "a") as file:
        file.write('{"phase": "rl", "step": 3, "succ')  # the kill came while a line was written
    start(settings, tmp_path / "parts", resume=True)
    whole = RunDir(tmp_path / "whole")
    one, other = timeless(whole.rows()), timeless(stopped.rows())
    # the shorter run had no evaluation on the way at its last step
    assert [row for row in one if (row["phase"], row["step"]) != ("eval", 2)] == other
    assert_same_weights(whole, stopped)
    assert whole.step_file("trajectories", 4).read_bytes() == stopped.step_file("trajectories", 4).read_bytes()
    for one_credit, other_credit in zip(
        *(read_credit(r.step_file("tracking/credit", 4)) for r in (whole, stopped)), strict=True
    ):
        assert untimed(one_credit) == untimed(other_credit)


def untimed(credit: GroupCredit) -> dict[str, Any]:
    credit.metrics.pop("seconds", None)
    return to_json(credit)


def assert_same_weights(one: RunDir, other: RunDir) -> None:
    states = [checkpoint.load(checkpoint.list_checkpoints(r.checkpoints)[-1])[0] for r in (one, other)]
    for name, tensor in states[0]["model"].items():
        assert torch.equal(tensor, states[1]["model"][name]), name
    for index, moments in states[0]["optimiser"]["state"].items():
        assert torch.equal(moments["exp_avg_sq"], states[1]["optimiser"]["state"][index]["exp_avg_sq"])


RUNNER = """
import sys
from didpo.config import override, read_toml
from didpo.progress import SilentProgress
from didpo.settings import RunSettings
from didpo.trainer import run
run(override(RunSettings(), read_toml(sys.argv[1] + "/config.toml")), sys.argv[1], progress=SilentProgress())
"""


def test_a_killed_run_resumes_to_the_same_end(smoke: RunSettings, tmp_path: Path) -> None:
    settings = override(smoke, {"rl": {"steps": 3}})
    start(settings, tmp_path / "whole")
    killed = rundir.prepare(tmp_path / "killed", settings)
    process = subprocess.Popen([sys.executable, "-c", RUNNER, str(killed.path)], env={**os.environ})
    try:
        deadline = time.monotonic() + 120
        while not killed.rows("rl") if killed.metrics.exists() else True:
            assert process.poll() is None and time.monotonic() < deadline, "the run ended before it could be killed"
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not killed.summary.exists()
    start(settings, killed.path, resume=True)
    whole = RunDir(tmp_path / "whole")
    assert timeless(whole.rows()) == timeless(killed.rows())
    assert_same_weights(whole, killed)
    summary = json.loads(killed.summary.read_text())
    assert start(settings, killed.path, resume=True) == summary  # a finished run is returned as it is


def test_evaluating_a_run_again_gives_what_the_summary_says(smoke: RunSettings, tmp_path: Path) -> None:
    summary = start(smoke, tmp_path / "run")
    again = evaluate_run(smoke, RunDir(tmp_path / "run"))
    assert again == summary["eval_after"]
    with pytest.raises(UserError, match="no trained model"):
        evaluate_run(smoke, RunDir(tmp_path / "nothing"))


# ---------------------------------------------------------------- pieces of the loop


def trainer_of(session: Session, folder: Path, **rl: Any) -> Trainer:
    settings = override(session.settings, {"rl": rl})
    return Trainer(dataclasses.replace(session, settings=settings), RunDir(folder), SilentProgress())


def test_an_epoch_draws_every_task_once_in_a_new_order(session: Session, tmp_path: Path) -> None:
    trainer = trainer_of(session, tmp_path)
    first, second = ([t.task_id for t in trainer.next_tasks(40)] for _ in range(2))
    assert sorted(first) == sorted(second) == sorted(t.task_id for t in session.train_tasks)
    assert first != second
    other = trainer_of(session, tmp_path)
    pieces = [t.task_id for n in (7, 20, 13, 40) for t in other.next_tasks(n)]
    assert pieces == first + second


def test_an_update_does_not_depend_on_its_micro_batches(session: Session, tmp_path: Path) -> None:
    weights = {name: tensor.clone() for name, tensor in session.model.state_dict().items()}
    groups = session.sample(session.train_tasks[:2], 4, seed=3)
    credits = session.algorithm.credit(groups, 48)
    found = []
    for tokens in (100_000, 150, 1):
        session.model.load_state_dict(weights)
        trainer = trainer_of(session, tmp_path, micro_tokens=tokens, minibatches=1)
        metrics = update(trainer, groups, credits, 1)
        gradient = torch.cat([s["exp_avg"].flatten() for s in trainer.optimiser.state.values()])
        found.append((metrics["loss"], gradient))
    for loss, gradient in found[1:]:
        assert loss == pytest.approx(found[0][0], abs=1e-5)
        assert torch.allclose(gradient, found[0][1], atol=1e-5)


def test_the_first_ratio_is_one_and_the_reference_is_where_training_began(session: Session, tmp_path: Path) -> None:
    session.loss = dataclasses.replace(session.loss, kl_coef=0.1)
    trainer = trainer_of(session, tmp_path, minibatches=1)
    groups = session.sample(session.train_tasks[:2], 4, seed=3)
    metrics = update(trainer, groups, session.algorithm.credit(groups, 48), 1)
    assert metrics["ratio_gap_max"] < 1e-4 and metrics["ref_kl"] == pytest.approx(0.0, abs=1e-6)
    again = update(trainer, groups, session.algorithm.credit(groups, 48), 2)
    assert again["ref_kl"] > 0


def test_a_batch_without_signal_moves_nothing(session: Session, tmp_path: Path) -> None:
    before = {name: tensor.clone() for name, tensor in session.model.state_dict().items()}
    trainer = trainer_of(session, tmp_path, truncated="mask")
    groups = session.sample(session.train_tasks[:1], 2, seed=3)
    for trajectory in groups[0].trajectories:
        trajectory.stop_reason = StopReason.LENGTH
    metrics = update(trainer, groups, session.algorithm.credit(groups, 48), 1)
    assert metrics["rows"] > 0 and metrics["loss"] == 0.0 and "grad_norm" not in metrics
    for name, tensor in session.model.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_equal_returns_move_nothing_not_even_by_momentum(session: Session, tmp_path: Path) -> None:
    trainer = trainer_of(session, tmp_path)
    groups = session.sample(session.train_tasks[:2], 4, seed=3)
    credits = session.algorithm.credit(groups, 48)
    update(trainer, groups, credits, 1)
    before = {name: tensor.clone() for name, tensor in session.model.state_dict().items()}
    for credit in credits:
        credit.advantages = [[np.zeros_like(a) for a in row] for row in credit.advantages]
    update(trainer, groups, credits, 2)
    for name, tensor in session.model.state_dict().items():
        assert torch.equal(tensor, before[name])


def rollout(reason: StopReason, *lengths: int) -> Trajectory:
    steps = [
        Step(response="x" * n, reward=0.0, prompt_ids=[1], response_ids=[2] * n, rollout_logprobs=[-1.0] * n)
        for n in lengths
    ]
    return Trajectory(steps=steps, outcome=0.0, stop_reason=reason)


def test_rows_are_turns_of_rollouts_with_credit() -> None:
    group = TrajectoryGroup(
        task_id="a",
        trajectories=[
            rollout(StopReason.TURN_LIMIT, 2, 3),
            rollout(StopReason.SANDBOX_ERROR, 4),
            rollout(StopReason.LENGTH, 1, 5),
        ],
    )
    arrays = [[np.full(s.n_tokens, g, dtype=np.float32) for s in t.steps] for g, t in enumerate(group.trajectories)]
    credit = GroupCredit(algorithm="x", advantages=arrays, parts={}, assigned=[True, False, True])
    kept = training_rows([group], [credit], "penalise")
    assert [(len(row.response_ids), row.n_trained) for row in kept] == [(2, 2), (3, 3), (1, 1), (5, 5)]
    masked = training_rows([group], [credit], "mask")
    assert [(len(row.response_ids), row.n_trained) for row in masked] == [(2, 2), (3, 3), (1, 0), (5, 0)]


def test_dropped_groups_are_drawn_again_but_not_for_ever(session: Session, tmp_path: Path) -> None:
    session.algorithm = dataclasses.replace(
        session.algorithm, algorithm=dataclasses.replace(session.algorithm.algorithm, group_filter=lambda group: False)
    )
    trainer = trainer_of(session, tmp_path, max_resamples=2)
    groups, dropped = collect(trainer, 1, Seconds())
    assert dropped == 6 and trainer.drawn == 6 and len(groups) == 2  # the step still counts
    odd = dataclasses.replace(
        session.algorithm.algorithm, group_filter=lambda group: group.task_id == session.train_tasks[0].task_id
    )
    session.algorithm = dataclasses.replace(session.algorithm, algorithm=odd)
    trainer = trainer_of(session, tmp_path, max_resamples=30)
    trainer.session.train_tasks = session.train_tasks[:3]
    groups, dropped = collect(trainer, 1, Seconds())
    assert {g.task_id for g in groups} == {session.train_tasks[0].task_id} and len(groups) == 2
    assert dropped == trainer.drawn - 2


class NoSandbox:
    """Every call fails, as with a sandbox whose machine is full."""

    def grade_many(self, requests: Any, **options: Any) -> Any:
        raise OSError("no space left")


def test_a_dead_sandbox_stops_the_run_with_one_line(session: Session) -> None:
    alive, session.sandbox = session.sandbox, NoSandbox()
    with pytest.raises(UserError, match=r"all 4 rollouts failed .* no space left; see .didpo doctor"):
        session.sample(session.train_tasks[:1], 4, seed=0)
    session.sandbox = alive


def test_a_wrong_setting_is_refused_before_anything_is_made(smoke: RunSettings, tmp_path: Path) -> None:
    for changes, words in (
        ({"algorithm": "grpoo"}, "did you mean 'grpo'"),
        ({"credit": {"lamda": 1}}, "did you mean"),
        ({"tasks": {"options": {"function": 2}}}, "did you mean 'functions'"),
        ({"model": {"path": str(tmp_path / "none")}, "cold_start": {"steps": 0}}, "no model at|no tokenizer at"),
    ):
        logged: list[dict[str, Any]] = []
        options = {"cache": tmp_path / "cold", "progress": SilentProgress(), "log": logged.append}
        with pytest.raises(UserError, match=words), open_session(override(smoke, changes), **options):
            pass
        assert [row["phase"] for row in logged] in ([], ["tasks"])
        assert not (tmp_path / "cold").exists(), "nothing is trained first"


def test_flags_reach_the_settings() -> None:
    settings = override(PRESETS["smoke"], nest({"rl.lr": "0.5", "credit.lam": "2", "tasks.options.functions": "4"}))
    assert settings.rl.lr == 0.5 and settings.credit == {"lam": 2} and settings.tasks.options == {"functions": 4}
