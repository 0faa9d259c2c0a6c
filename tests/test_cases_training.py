"""Faults that users of similar projects met, part 3: losses, end marks and padding, pass@k (cases C17, C22, C28).

One test per expectation, named after the case. Inputs and right results are this project's own.
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from didpo import checkpoint, rundir
from didpo.batch import Row, Totals, count, make_batch, micro_batches, unpad
from didpo.config import override
from didpo.credit import grpo
from didpo.errors import UserError
from didpo.evaluate import Evaluation, evaluate_groups, pass_at_k
from didpo.losses import LossSettings, batch_loss
from didpo.model import TinySettings, tiny_model, token_logprobs
from didpo.sampling import TorchSampler
from didpo.settings import PRESETS
from didpo.tokens import Tokenizer, train_tokenizer
from didpo.trainer import run, training_rows
from didpo.types import Step, StopReason, Trajectory, TrajectoryGroup

# ---------------------------------------------------------------- C17 the token mean and micro-batches


def loss_rows(*, drop: str = "", prompts: tuple[int, int] = (1, 1)) -> list[Row]:
    """A [4] and B [1, 1, 1]: with log-probs of -1, a token's advantage is its loss."""
    losses = {"A": [4.0], "B": [1.0, 1.0, 1.0]}
    return [
        Row(
            prompt_ids=[5] * prompt,
            response_ids=[6] * len(values),
            advantages=values,
            response_mask=[False] * len(values) if name in drop else None,
        )
        for (name, values), prompt in zip(losses.items(), prompts, strict=True)
    ]


def token_mean(rows: list[Row], budget: int, pad_id: int = 0) -> tuple[float, list[list[float]]]:
    """Loss of the update and its gradient at every token's log-prob, with micro-batches of at most `budget` tokens."""
    logprobs = [torch.full((len(row.response_ids),), -1.0, requires_grad=True) for row in rows]
    total = 0.0
    for batch in micro_batches(rows, token_budget=budget, pad_id=pad_id):
        width = batch.response_ids.shape[1]
        given = [torch.nn.functional.pad(logprobs[i], (0, width - len(logprobs[i]))) for i in batch.rows]
        loss = batch_loss(torch.stack(given), batch, LossSettings(policy="reinforce")).loss
        loss.backward()
        total += float(loss.detach())
    return total, [[0.0] * len(v) if v.grad is None else v.grad.tolist() for v in logprobs]


def test_c17_1_one_micro_batch_or_two() -> None:
    """The mean is over all tokens of the update, however they are split; so is its gradient."""
    whole, split = token_mean(loss_rows(), 100), token_mean(loss_rows(), 1)
    assert whole[0] == split[0] == 1.75
    assert whole[1] == split[1] == [[-1.0], [-0.25, -0.25, -0.25]]


def test_c17_1_on_a_model() -> None:
    """Gradients of a model's weights agree between one micro-batch and several, to 1e-5."""
    tokenizer = train_tokenizer(["def f(x):\n    return x\n"] * 4, vocab_size=270)
    model = tiny_model(tokenizer, TinySettings(layers=1, width=16, heads=2, mlp_width=24), seed=0)
    rng = np.random.default_rng(0)
    shapes = [(3, 1), (5, 7), (2, 4), (9, 2), (1, 6)]
    rows = [
        Row(
            prompt_ids=rng.integers(2, 260, p).tolist(),
            response_ids=rng.integers(2, 260, t).tolist(),
            advantages=rng.normal(size=t),
        )
        for p, t in shapes
    ]
    grads = []
    for budget in (1000, 20, 1):
        model.zero_grad()
        for batch in micro_batches(rows, token_budget=budget):
            logprobs, _ = token_logprobs(model, batch, temperature=1.0, with_entropy=False)
            batch_loss(logprobs, batch, LossSettings()).loss.backward()
        grads.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    for other in grads[1:]:
        torch.testing.assert_close(other, grads[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("budget", [100, 1])
def test_c17_2_dropped_tokens_leave_the_denominator(budget: int) -> None:
    """A sequence that is left out counts neither above nor below the line."""
    assert token_mean(loss_rows(drop="B"), budget)[0] == 4.0
    assert token_mean(loss_rows(drop="A"), budget)[0] == 1.0
    assert count(loss_rows(drop="B")) == Totals(tokens=1, rows=1)


def test_c17_3_all_dropped_is_zero() -> None:
    """Nothing left: the loss is 0 and no NaN arises, with micro-batches or with one batch as it stands."""
    assert token_mean(loss_rows(drop="AB"), 100) == (0.0, [[0.0], [0.0] * 3])
    batch = make_batch(loss_rows(drop="AB"))
    logprobs = torch.full((2, 3), -1.0, requires_grad=True)
    for how in ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum"):
        loss = batch_loss(logprobs, batch, LossSettings(aggregation=how)).loss
        loss.backward()
        assert loss.item() == 0.0 and logprobs.grad is not None and not logprobs.grad.any()


def test_c17_3_the_step_is_still_counted(tmp_path: Path) -> None:
    """A run whose rollouts are all cut off and masked takes its steps, stays finite and leaves the policy alone."""
    settings = override(
        PRESETS["smoke"],
        {
            "tasks": {"heldout": 1},
            "cold_start": {"steps": 1, "trajectories": 10},
            "sampling": {"max_new_tokens": 2},
            "rl": {"truncated": "mask"},
            "evaluation": {"every": 0},
            "logging": {"tracking_every": 0},
        },
    )
    folder = rundir.prepare(tmp_path / "run", settings)
    run(settings, tmp_path / "run", quiet=True)
    rows = [row for row in folder.rows() if row["phase"] == "rl"]
    assert [(row["step"], row["stop_length_share"]) for row in rows] == [(1, 1.0), (2, 1.0)]
    assert all(math.isfinite(v) for row in rows for v in row.values() if isinstance(v, (int, float)))
    assert all(row.get("loss", 0.0) == 0.0 for row in rows)
    one, two = (checkpoint.load(found)[0]["model"] for found in checkpoint.list_checkpoints(folder.checkpoints))
    assert all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize("pad_id", [0, 5, 6])
@pytest.mark.parametrize("prompts", [(1, 1), (1, 40), (60, 3)])
def test_c17_4_padding_changes_nothing(prompts: tuple[int, int], pad_id: int) -> None:
    """However much is padded, and with which id."""
    for budget in (1, 1000):
        assert token_mean(loss_rows(prompts=prompts), budget, pad_id) == token_mean(loss_rows(), 100)


# ---------------------------------------------------------------- C22 end mark, padding, truncation

PROMPT = [9, 0, 9]
R1, R2, R3 = [5, 6, 0], [5, 6, 7], [5, 6, 8, 9, 4]  # pad id and end id 0, second end id 7; R3 was cut off


def rollout(*responses: list[int], reason: StopReason = StopReason.FINISHED, outcome: float = 0.0) -> Trajectory:
    steps = [
        Step(response="x" * len(ids), prompt_ids=PROMPT, response_ids=ids, rollout_logprobs=[-1.0] * len(ids))
        for ids in responses
    ]
    return Trajectory(steps=steps, outcome=outcome, stop_reason=reason)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """The pad id is an end id, and many ids end a response."""
    hf = train_tokenizer(["def f(x):\n    return x + 1\n"] * 4, vocab_size=270).hf
    hf.pad_token = hf.eos_token
    made = Tokenizer(hf, extra_eos=range(10, 130))
    assert made.pad_id == made.eos_ids[0]
    return made


@pytest.fixture(scope="module")
def model(tokenizer: Tokenizer) -> Any:
    return tiny_model(tokenizer, TinySettings(layers=2, width=32, heads=4, mlp_width=48), seed=1).eval()


def test_c22_1_the_end_mark_is_trained() -> None:
    """Masks come from lengths: the end mark counts although its id is the pad id."""
    batch = make_batch([Row(prompt_ids=PROMPT, response_ids=r) for r in (R1, R2, R3)], pad_id=0)
    assert batch.response_mask.int().tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]
    assert batch.totals.tokens == 11
    group = TrajectoryGroup(task_id="t", trajectories=[rollout(R1, outcome=1.0), rollout(R2), rollout(R3)])
    rows = training_rows([group], [grpo(group)], "penalise")
    assert [row.n_trained for row in rows] == [3, 3, 5]
    assert all(np.asarray(row.advantages)[-1] != 0 for row in rows)


def test_c22_2_a_pad_id_inside_the_prompt_is_read(model: Any, tokenizer: Tokenizer) -> None:
    """Only padding is hidden from the model: neither the trainer nor the sampler takes an inner pad id for it."""
    end = tokenizer.pad_id
    mates = [[20] * 9, [9, end, 9], [end], [9, 30, 9]]
    rows = [Row(prompt_ids=p, response_ids=R2) for p in mates]

    def logprobs(part: list[Row]) -> list[np.ndarray]:
        batch = make_batch(part, pad_id=tokenizer.pad_id)
        with torch.no_grad():
            return unpad(token_logprobs(model, batch, temperature=1.0, with_entropy=False)[0], batch)

    together = logprobs(rows)
    for row, values in zip(rows, together, strict=True):
        np.testing.assert_allclose(logprobs([row])[0], values, atol=1e-5)
    assert np.abs(together[1] - together[3]).max() > 1e-4
    sampler = TorchSampler(model, tokenizer)
    drawn = sampler.generate(mates, max_new_tokens=6, seeds=[1, 2, 3, 4])
    alone = [sampler.generate([p], max_new_tokens=6, seeds=[s])[0] for p, s in zip(mates, (1, 2, 3, 4), strict=True)]
    assert [s.ids for s in drawn] == [s.ids for s in alone]
    for prompt, sample in zip(mates, drawn, strict=True):
        (values,) = logprobs([Row(prompt_ids=prompt, response_ids=sample.ids)])
        np.testing.assert_allclose(values, sample.logprobs, atol=1e-4)


def test_c22_3_any_end_id_ends_a_response(model: Any, tokenizer: Tokenizer) -> None:
    """A response is finished by whichever end id comes, which stays in it; it is cut off only where none came."""
    drawn = TorchSampler(model, tokenizer).generate([[3]] * 64, max_new_tokens=3, seeds=range(64))
    ends = set(tokenizer.eos_ids)
    assert {s.finish_reason for s in drawn} == {"stop", "length"}
    for sample in drawn:
        assert not ends & set(sample.ids[:-1])
        assert (sample.ids[-1] in ends) == (sample.finish_reason == "stop")
    assert len({s.ids[-1] for s in drawn if s.finish_reason == "stop"}) > 5


def test_c22_4_cut_off_rollouts_leave_the_loss() -> None:
    """With the filter on, no token of a cut-off rollout counts above or below the line, in any of its turns."""
    group = TrajectoryGroup(
        task_id="t",
        trajectories=[rollout(R1, outcome=1.0), rollout(R2), rollout(R2, R3, reason=StopReason.LENGTH)],
    )
    credit = grpo(group)
    rows = training_rows([group], [credit], "mask")
    assert [row.n_trained for row in rows] == [3, 3, 0, 0] and count(rows) == Totals(tokens=6, rows=2)
    assert count(training_rows([group], [credit], "penalise")) == Totals(tokens=14, rows=4)
    batch = make_batch(rows)
    logprobs = torch.full(batch.response_mask.shape, -1.0, requires_grad=True)
    batch_loss(logprobs, batch, LossSettings(policy="reinforce")).loss.backward()
    assert logprobs.grad is not None and not logprobs.grad[2:].any() and logprobs.grad[:2].any()


# ---------------------------------------------------------------- C28 pass@k


def samples(*solved: int | None, reason: StopReason = StopReason.FINISHED) -> TrajectoryGroup:
    """Samples of one task: 1 solved, 0 not, None: the sandbox failed."""
    trajectories = [
        Trajectory(
            steps=[Step(response="x")],
            outcome=None if s is None else float(s),
            stop_reason=StopReason.SANDBOX_ERROR if s is None else reason,
        )
        for s in solved
    ]
    return TrajectoryGroup(task_id="t", trajectories=trajectories)


def evaluated(*groups: TrajectoryGroup, ks: tuple[int, ...]) -> Evaluation:
    named = [dataclasses.replace(group, task_id=str(i)) for i, group in enumerate(groups)]
    return evaluate_groups(named, ks=ks)


def test_c28_1_the_unbiased_estimator() -> None:
    """Five samples, two solved."""
    found = evaluated(samples(1, 0, 1, 0, 0), ks=(1, 2, 3, 5))
    assert found.pass_at_k == pytest.approx({1: 0.4, 2: 0.7, 3: 0.9, 5: 1.0})


def test_c28_2_more_tries_than_samples_is_no_number() -> None:
    """Two failed samples say nothing about five tries: left out, an error where asked for one by one."""
    assert evaluated(samples(0, 0), ks=(5,)).pass_at_k == {}
    assert evaluated(samples(), ks=(1,)).pass_at_k == {}
    with pytest.raises(ValueError, match="at least 5 samples"):
        pass_at_k(2, 0, 5)
    with pytest.raises(UserError, match="pass@k needs at least k samples"):
        override(PRESETS["smoke"], {"evaluation": {"samples": 2, "ks": [5]}})


def test_c28_3_the_mean_is_over_problems() -> None:
    """Each problem counts once, with its own number of samples."""
    assert evaluated(samples(1, 0, 0, 0), samples(0, 0, 0, 0), ks=(1, 4)).pass_at_k == {1: 0.125, 4: 0.5}
    uneven = evaluated(samples(1), samples(0, 0, 0, 0), ks=(1, 4))
    assert uneven.pass_at_k[1] == 0.5 and uneven.pass_at_k_tasks == {1: 2, 4: 1}


def test_c28_4_one_greedy_sample_each() -> None:
    """pass@1 alone can be told from one sample per problem."""
    found = evaluated(samples(1), samples(0), samples(0), samples(0), ks=(1, 10))
    assert found.pass_at_k == {1: 0.25} and found.success == 0.25
    assert list(found.summary()["pass_at_k"]) == ["1"]


def test_c28_5_problems_without_samples_are_named() -> None:
    """Samples for 2 of 164 problems: it runs, and says so."""
    found = evaluated(samples(1), samples(0), *[samples()] * 162, ks=(1,))
    assert (found.n, found.tasks, found.pass_at_k) == (2, 164, {1: 0.5})
    assert "2 tasks of 164" in found.line()


def test_c28_6_sandbox_failures_are_no_failures() -> None:
    """A sample lost to the sandbox is counted apart and enters no share."""
    found = evaluated(samples(1, None), samples(0, 0), samples(None), ks=(1, 2))
    assert found.pass_at_k == {1: 0.5, 2: 0.0} and found.pass_at_k_tasks == {1: 2, 2: 1}
    assert found.errors == {"sandbox_error": 2} and "2 rollouts failed" in found.line()
