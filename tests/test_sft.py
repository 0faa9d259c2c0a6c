"""Supervised training: what is in the loss, that it learns, and that it repeats to the bit."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from didpo.batch import Row, make_batch
from didpo.errors import UserError
from didpo.model import TinySettings, load_model, save_model, tiny_model
from didpo.sampling import TorchSampler
from didpo.sft import (
    SFTProgress,
    SFTSettings,
    batches,
    cached_cold_start,
    cold_start_key,
    learning_rate,
    sft_loss,
    sft_row,
    train_sft,
)
from didpo.tokens import Tokenizer, train_tokenizer

PAIRS = [(f"{name}?\n", f"return {name}\n") for name in ("sum", "len", "max", "min")]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer([p + r for p, r in PAIRS] * 4, vocab_size=280)


def fresh(tokenizer: Tokenizer) -> Any:
    return tiny_model(tokenizer, TinySettings(layers=1, width=32, heads=2, mlp_width=32), seed=0)


def pair_rows(tokenizer: Tokenizer) -> list[Row]:
    return [sft_row(tokenizer, p, r) for p, r in PAIRS]


SHORT = SFTSettings(updates=150, batch_rows=4, learning_rate=1e-2, warmup=5)


def test_the_loss_is_the_mean_over_response_tokens_and_end_mark(tokenizer: Tokenizer) -> None:
    model = fresh(tokenizer)
    rows = [sft_row(tokenizer, "a\n", "bb"), sft_row(tokenizer, "abc\n", "d")]
    assert [r.response_ids[-1] for r in rows] == [tokenizer.eos_ids[0]] * 2
    assert len(sft_row(tokenizer, "a", "bb", end=False).response_ids) == 2
    total, n = 0.0, 0
    for row in rows:
        ids = torch.tensor([[*row.prompt_ids, *row.response_ids]])
        logp = model(input_ids=ids).logits[0].log_softmax(-1)
        for t, token in enumerate(row.response_ids):
            total -= float(logp[len(row.prompt_ids) - 1 + t, token].detach())
            n += 1
    assert n == 5
    assert float(sft_loss(model, make_batch(rows)).detach()) == pytest.approx(total / n, abs=1e-5)


def test_it_learns_to_answer(tokenizer: Tokenizer) -> None:
    model = fresh(tokenizer)
    seen: list[SFTProgress] = []
    losses = train_sft(model, pair_rows(tokenizer), SHORT, progress=seen.append)
    assert losses[0] == pytest.approx(math.log(tokenizer.vocab_size), abs=0.3)
    assert losses[-1] < 0.05
    assert [p.update for p in seen] == list(range(1, 151)) and seen[-1].loss == losses[-1]
    out = TorchSampler(model, tokenizer).generate(
        [tokenizer.encode(p) for p, _ in PAIRS], max_new_tokens=20, temperature=0
    )
    assert [(s.text, s.finish_reason) for s in out] == [(r, "stop") for _, r in PAIRS]


def test_same_seed_same_bits_and_micro_batches_do_not_matter(tokenizer: Tokenizer) -> None:
    rows = pair_rows(tokenizer)
    weights, runs = [], []
    for budget in (8192, 8192, 20):
        model = fresh(tokenizer)
        few = SFTSettings(updates=5, batch_rows=4, token_budget=budget)
        runs.append(train_sft(model, rows, few))
        weights.append(model.lm_head.weight.detach().clone())
    assert runs[0] == runs[1] and torch.equal(weights[0], weights[1])
    assert runs[2] == pytest.approx(runs[0], abs=1e-4)


def test_batches_pass_over_all_rows_with_similar_lengths_together() -> None:
    rows = [Row(prompt_ids=[1] * (1 + i % 7), response_ids=[i]) for i in range(24)]
    few = SFTSettings(updates=6, batch_rows=4, bucket=3)
    first = [r.response_ids[0] for batch in list(batches(rows, few)) for r in batch]
    assert sorted(first) == list(range(24))
    again = [r.response_ids[0] for batch in batches(rows, few) for r in batch]
    assert again == first
    small = list(batches(rows[:3], few))
    assert [len(b) for b in small] == [3] * 6


def test_learning_rate_warms_up_and_falls() -> None:
    s = SFTSettings(updates=100, warmup=10, learning_rate=1.0, final_fraction=0.1)
    assert learning_rate(s, 1) == pytest.approx(0.1)
    assert learning_rate(s, 10) == 1.0
    assert learning_rate(s, 55) == pytest.approx(0.55)
    assert learning_rate(s, 100) == pytest.approx(0.1)


def test_rows_without_a_response_are_left_out(tokenizer: Tokenizer) -> None:
    empty = Row(prompt_ids=[3], response_ids=[])
    masked = Row(prompt_ids=[3], response_ids=[4], response_mask=[False])
    losses = train_sft(fresh(tokenizer), [empty, masked, *pair_rows(tokenizer)], SFTSettings(updates=2, batch_rows=6))
    assert all(map(math.isfinite, losses))
    with pytest.raises(UserError, match="no row with a response"):
        train_sft(fresh(tokenizer), [empty, masked], SHORT)


def test_the_key_depends_on_settings_and_data(tokenizer: Tokenizer) -> None:
    rows = pair_rows(tokenizer)
    key = cold_start_key(SHORT, rows, model="tiny")
    assert key == cold_start_key(SHORT, pair_rows(tokenizer), model="tiny")
    masked = pair_rows(tokenizer)
    masked[0].response_mask = np.zeros(len(masked[0].response_ids), dtype=bool)
    others = [
        cold_start_key(SFTSettings(updates=151, batch_rows=4, learning_rate=1e-2, warmup=5), rows, model="tiny"),
        cold_start_key(SHORT, rows[::-1], model="tiny"),
        cold_start_key(SHORT, rows, model="large"),
        cold_start_key(SHORT, masked, model="tiny"),
    ]
    assert len({key, *others}) == 5


def test_a_cold_start_is_built_once_and_whole(tokenizer: Tokenizer, tmp_path: Path) -> None:
    builds = []

    def build(folder: Path) -> dict[str, float]:
        builds.append(folder)
        save_model(fresh(tokenizer), tokenizer, folder)
        return {"loss": 0.5}

    folder, hit = cached_cold_start(tmp_path, "abc", build)
    assert not hit and folder == tmp_path / "abc"
    again, hit = cached_cold_start(tmp_path, "abc", build)
    assert hit and again == folder and len(builds) == 1
    assert json.loads((folder / "facts.json").read_text()) == {"loss": 0.5}
    assert torch.equal(load_model(folder).lm_head.weight, fresh(tokenizer).lm_head.weight)
    assert [p.name for p in tmp_path.iterdir()] == ["abc"]


def test_a_failed_build_leaves_nothing(tmp_path: Path) -> None:
    def build(folder: Path) -> None:
        (folder / "half").write_text("x")
        raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        cached_cold_start(tmp_path, "abc", build)
    assert list(tmp_path.iterdir()) == []


def test_two_builders_at_once_agree(tmp_path: Path) -> None:
    def slow(folder: Path) -> dict[str, int]:
        cached_cold_start(tmp_path, "abc", lambda _: {"by": 2})  # the other one finishes first
        return {"by": 1}

    folder, hit = cached_cold_start(tmp_path, "abc", slow)
    assert not hit
    assert json.loads((folder / "facts.json").read_text()) == {"by": 2}
    assert [p.name for p in tmp_path.iterdir()] == ["abc"]
