"""The tiny Llama, and log-probs of response tokens."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from didpo.batch import Row, make_batch
from didpo.errors import UserError
from didpo.model import (
    TinySettings,
    count_parameters,
    load_model,
    reference_copy,
    save_model,
    set_gradient_checkpointing,
    tiny_model,
    token_logprobs,
)
from didpo.tokens import Tokenizer, load_tokenizer, train_tokenizer

TEXTS = ["def pick(xs):\n    return sum(xs) + 1\n", "def pick(xs):\n    return len(xs) - 1\n"] * 8


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(TEXTS, vocab_size=300)


@pytest.fixture
def model(tokenizer: Tokenizer) -> Any:
    model = tiny_model(tokenizer, TinySettings(layers=2, width=32, heads=2, mlp_width=64), seed=1)
    with torch.no_grad():
        for p in model.parameters():  # sharper than at birth, so that positions matter
            if p.dim() > 1:
                p.mul_(6)
    return model.eval()


def rows(n: int = 4) -> list[Row]:
    rng = np.random.default_rng(0)
    return [
        Row(
            prompt_ids=rng.integers(2, 290, int(rng.integers(1, 9))).tolist(),
            response_ids=rng.integers(2, 290, int(rng.integers(1, 9))).tolist(),
        )
        for _ in range(n)
    ]


def plain(model: Any, row: Row, temperature: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Log-probs and entropies of one row by the model's own logits, in float64."""
    ids = torch.tensor([[*row.prompt_ids, *row.response_ids]])
    with torch.no_grad():
        logits = model(input_ids=ids, use_cache=False).logits[0].double() / temperature
    logp = logits.log_softmax(-1)[len(row.prompt_ids) - 1 : -1]
    return (
        logp[torch.arange(len(row.response_ids)), torch.tensor(row.response_ids)].numpy(),
        -(logp.exp() * logp).sum(-1).numpy(),
    )


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("chunk", [3, 4096])
def test_padded_chunked_logprobs_equal_the_models(model: Any, temperature: float, chunk: int) -> None:
    some = rows()
    batch = make_batch(some)
    with torch.no_grad():
        logprobs, entropy = token_logprobs(model, batch, temperature=temperature, chunk=chunk)
    assert entropy is not None
    for i, row in enumerate(some):
        want, want_entropy = plain(model, row, temperature)
        n = len(row.response_ids)
        np.testing.assert_allclose(logprobs[i, :n].numpy(), want, atol=5e-6)
        np.testing.assert_allclose(entropy[i, :n].numpy(), want_entropy, atol=5e-6)
        assert (logprobs[i, n:] == 0).all() and (entropy[i, n:] == 0).all()


def test_masked_places_are_not_computed(model: Any) -> None:
    row = Row(prompt_ids=[3, 4], response_ids=[5, 6, 7], response_mask=[True, False, True])
    with torch.no_grad():
        logprobs, _ = token_logprobs(model, make_batch([row]))
    want, _ = plain(model, row)
    np.testing.assert_allclose(logprobs[0].numpy(), [want[0], 0.0, want[2]], atol=5e-6)


def gradients(model: Any, chunk: int) -> list[torch.Tensor]:
    model.zero_grad()
    logprobs, entropy = token_logprobs(model, make_batch(rows()), chunk=chunk)
    (logprobs.sum() + entropy.sum()).backward()
    return [p.grad.clone() for p in model.parameters()]


def test_chunks_and_checkpointing_leave_gradients_as_they_are(model: Any) -> None:
    whole = gradients(model, 4096)
    chunked = gradients(model, 3)
    model.train()
    set_gradient_checkpointing(model, True)
    recomputed = gradients(model, 4096)
    set_gradient_checkpointing(model, False)
    for a, b, c in zip(whole, chunked, recomputed, strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(a, c, atol=1e-4, rtol=1e-4)


def test_a_uniform_model_has_known_logprobs(tokenizer: Tokenizer) -> None:
    model = tiny_model(tokenizer, TinySettings(layers=1, width=16, heads=2, mlp_width=16))
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    logprobs, entropy = token_logprobs(model, make_batch([Row(prompt_ids=[3], response_ids=[4])]))
    assert entropy is not None
    n = math.log(tokenizer.vocab_size)
    assert logprobs.item() == pytest.approx(-n, abs=1e-6)
    assert entropy.item() == pytest.approx(n, abs=1e-5)


def test_default_size_and_seed(tokenizer: Tokenizer) -> None:
    before = torch.random.get_rng_state()
    a, b, c = (tiny_model(tokenizer, seed=s) for s in (3, 3, 4))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert 300_000 < count_parameters(a) < 500_000
    assert a.lm_head.weight is a.model.embed_tokens.weight
    pairs = list(zip(a.parameters(), b.parameters(), strict=True))
    assert all(torch.equal(x, y) for x, y in pairs)
    assert not torch.equal(a.lm_head.weight, c.lm_head.weight)


def test_saved_and_loaded_it_is_the_same(model: Any, tokenizer: Tokenizer, tmp_path) -> None:
    save_model(model, tokenizer, tmp_path / "model")
    assert (tmp_path / "model" / "model.safetensors").is_file()
    again = load_model(tmp_path / "model")
    batch = make_batch(rows())
    with torch.no_grad():
        assert torch.equal(token_logprobs(model, batch)[0], token_logprobs(again, batch)[0])
    assert load_tokenizer(tmp_path / "model").eos_ids == tokenizer.eos_ids
    assert load_model(tmp_path / "model", dtype="bfloat16").dtype == torch.bfloat16


def test_reference_copy_is_frozen_and_apart(model: Any) -> None:
    reference = reference_copy(model)
    assert count_parameters(reference) == 0 and not reference.training
    before = reference.lm_head.weight.clone()
    with torch.no_grad():
        model.lm_head.weight.add_(1)
    assert torch.equal(reference.lm_head.weight, before)


def test_mistakes_get_one_line(tokenizer: Tokenizer, tmp_path) -> None:
    with pytest.raises(UserError, match="no model at"):
        load_model(tmp_path / "none")
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(UserError, match="no causal language model at"):
        load_model(tmp_path)
    (tmp_path / "config.json").write_text("{broken")
    with pytest.raises(UserError, match="no causal language model at"):
        load_model(tmp_path)
    with pytest.raises(UserError, match="multiple of"):
        tiny_model(tokenizer, TinySettings(width=30, heads=4))
