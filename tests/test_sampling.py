"""Sampling: exact ids and log-probs, whatever the batch, the padding and the decoder."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from didpo.batch import Row, make_batch, unpad
from didpo.decoding import HFDecoder, LlamaDecoder, is_plain_llama, make_decoder
from didpo.model import TinySettings, tiny_model, token_logprobs
from didpo.sampling import Sample, ScriptedSampler, TorchSampler, keep_likely, uniforms
from didpo.tokens import Tokenizer, train_tokenizer

TEXTS = ["def pick(xs):\n    return sum(xs) + 1\n", "def pick(xs):\n    return len(xs) - 1\n"] * 8


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(TEXTS, vocab_size=300)


def sharpen(model: Any) -> Any:
    """Weights for which every position and every norm matters."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() > 1:
                p.mul_(5)
            else:
                p.add_(torch.randn(p.shape, generator=generator) * 0.2)
    return model.eval()


@pytest.fixture(scope="module")
def llama(tokenizer: Tokenizer) -> Any:
    return sharpen(tiny_model(tokenizer, TinySettings(layers=2, width=32, heads=4, mlp_width=48), seed=1))


@pytest.fixture(scope="module")
def grouped_llama(tokenizer: Tokenizer) -> Any:
    """Two query heads for each key head, and an untied head."""
    torch.manual_seed(2)
    config = LlamaConfig(
        vocab_size=tokenizer.vocab_size, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
    )  # fmt: skip
    return sharpen(LlamaForCausalLM(config))


@pytest.fixture(scope="module")
def gpt2(tokenizer: Tokenizer) -> Any:
    torch.manual_seed(3)
    config = GPT2Config(
        vocab_size=tokenizer.vocab_size, n_positions=64, n_embd=32, n_layer=2, n_head=2, bos_token_id=1, eos_token_id=1
    )
    return GPT2LMHeadModel(config).eval()


def prompts(n: int = 6, longest: int = 12) -> list[list[int]]:
    rng = np.random.default_rng(0)
    return [rng.integers(2, 290, int(rng.integers(1, longest))).tolist() for _ in range(n)]


def gap(model: Any, prompt: list[int], sample: Sample, temperature: float = 1.0) -> float:
    """Largest difference between the sampler's log-probs and the trainer's."""
    batch = make_batch([Row(prompt_ids=prompt, response_ids=sample.ids)])
    with torch.no_grad():
        logprobs, _ = token_logprobs(model, batch, temperature=temperature, with_entropy=False)
    return float(np.abs(unpad(logprobs, batch)[0] - sample.logprobs).max())


# ---------------------------------------------------------------- decoders


@pytest.mark.parametrize("kind", ["llama", "grouped_llama"])
def test_llama_decoder_has_the_models_logits(kind: str, request: pytest.FixtureRequest) -> None:
    """Step by step, with padding, shared prompts, rows leaving, and the cache growing twice."""
    model = request.getfixturevalue(kind)
    assert is_plain_llama(model)
    some = prompts(3)
    row_prompt = [0, 0, 1, 2, 2]
    texts = [list(some[i]) for i in row_prompt]
    decoder = LlamaDecoder(model)
    rng = np.random.default_rng(1)
    with torch.inference_mode():
        logits = decoder.prefill(some, row_prompt, 45)
        for step in range(45):
            for i, text in enumerate(texts):
                want = model(input_ids=torch.tensor([text]), use_cache=False).logits[0, -1]
                torch.testing.assert_close(logits[i], want, atol=1e-5, rtol=0)
            if step in (4, 20):
                texts = [t for i, t in enumerate(texts) if i != 1]
                decoder.keep(torch.tensor([i for i in range(len(texts) + 1) if i != 1]))
            tokens = rng.integers(2, 290, len(texts))
            for text, token in zip(texts, tokens.tolist(), strict=True):
                text.append(token)
            logits = decoder.step(torch.from_numpy(tokens))


def test_other_models_take_the_general_decoder(gpt2: Any, llama: Any) -> None:
    assert isinstance(make_decoder(gpt2), HFDecoder)
    assert isinstance(make_decoder(llama), LlamaDecoder)


# ---------------------------------------------------------------- samples


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_first_ratio_is_one(
    kind: str, temperature: float, tokenizer: Tokenizer, request: pytest.FixtureRequest
) -> None:
    model = request.getfixturevalue(kind)
    some = prompts()
    out = TorchSampler(model, tokenizer).generate(some, max_new_tokens=25, temperature=temperature, seeds=range(6))
    assert max(len(s.ids) for s in out) > 5
    for prompt, sample in zip(some, out, strict=True):
        assert gap(model, prompt, sample, temperature) < 5e-6


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_batch_mates_padding_and_order_do_not_matter(
    kind: str, tokenizer: Tokenizer, request: pytest.FixtureRequest
) -> None:
    sampler = TorchSampler(request.getfixturevalue(kind), tokenizer)
    some = [*prompts(), *prompts(2)]
    seeds = list(range(10, 18))
    together = sampler.generate(some, max_new_tokens=20, seeds=seeds)
    for i, prompt in enumerate(some):
        (alone,) = sampler.generate([prompt], max_new_tokens=20, seeds=[seeds[i]])
        assert alone.ids == together[i].ids
        np.testing.assert_allclose(alone.logprobs, together[i].logprobs, atol=5e-6)
    small = TorchSampler(sampler.model, tokenizer, max_rows=3).generate(some, max_new_tokens=20, seeds=seeds)
    assert [s.ids for s in small] == [s.ids for s in together]


def test_same_seed_same_bits_and_other_seed_other_text(llama: Any, tokenizer: Tokenizer) -> None:
    sampler = TorchSampler(llama, tokenizer)
    a, b, c = (sampler.generate([[5, 6]] * 8, max_new_tokens=15, seeds=range(s, s + 8)) for s in (0, 0, 100))
    assert [s.ids for s in a] == [s.ids for s in b]
    assert all(np.array_equal(x.logprobs, y.logprobs) for x, y in zip(a, b, strict=True))
    assert len({s.ids for s in a}) > 4
    assert [s.ids for s in a] != [s.ids for s in c]


def test_it_samples_the_distribution_it_reports(llama: Any, tokenizer: Tokenizer) -> None:
    """Frequencies of 4,000 first tokens against the model's probabilities, within 5 standard deviations."""
    n = 4000
    out = TorchSampler(llama, tokenizer, max_rows=n).generate([[7, 8, 9]] * n, max_new_tokens=1, seeds=range(n))
    with torch.no_grad():
        probs = llama(input_ids=torch.tensor([[7, 8, 9]])).logits[0, -1].softmax(-1).numpy()
    counts = np.bincount([s.ids[0] for s in out], minlength=len(probs))
    assert (np.abs(counts - n * probs) <= 5 * np.sqrt(n * probs * (1 - probs)) + 1).all()


def test_greedy_takes_the_likeliest(llama: Any, tokenizer: Tokenizer) -> None:
    (sample,) = TorchSampler(llama, tokenizer).generate([[5, 6, 7]], max_new_tokens=6, temperature=0)
    ids = [5, 6, 7]
    for token in sample.ids:
        with torch.no_grad():
            assert int(llama(input_ids=torch.tensor([ids])).logits[0, -1].argmax()) == token
        ids.append(token)
    assert gap(llama, [5, 6, 7], sample) < 5e-6


def test_limits_per_row_and_the_models_context(gpt2: Any, tokenizer: Tokenizer) -> None:
    some = [[5], [5, 6], [7] * 62, [8] * 64, [9]]
    out = TorchSampler(gpt2, tokenizer).generate(some, max_new_tokens=[3, 1, 30, 30, 0], seeds=range(5))
    assert [len(s.ids) for s in out] == [3, 1, 2, 0, 0]
    assert {s.finish_reason for s in out} == {"length"}
    assert all(s.logprobs.dtype == np.float32 and len(s.logprobs) == len(s.ids) == len(s.offsets) for s in out)


def always(llama: Any, token: int) -> Any:
    """A copy of the model that writes `token` from any state."""
    import copy

    model = copy.deepcopy(llama)
    model.lm_head = torch.nn.Linear(model.config.hidden_size, model.config.vocab_size, bias=False)
    model.model.norm.weight.data.zero_()
    model.model.norm.register_forward_hook(lambda _m, _i, out: out + 1)
    model.lm_head.weight.data.zero_()
    model.lm_head.weight.data[token] = 10.0
    return model.eval()


def test_every_end_id_ends_a_response_and_is_kept(llama: Any, tokenizer: Tokenizer, monkeypatch) -> None:
    monkeypatch.setattr("didpo.sampling.make_decoder", HFDecoder)  # the hook above is outside the fused weights
    monkeypatch.setattr(tokenizer, "eos_ids", (tokenizer.eos_ids[0], 70))
    (sample,) = TorchSampler(always(llama, 70), tokenizer).generate([[5]], max_new_tokens=9, seeds=[0])
    assert sample.ids == (70,) and sample.finish_reason == "stop"
    (sample,) = TorchSampler(always(llama, tokenizer.eos_ids[0]), tokenizer).generate(
        [[5]], max_new_tokens=1, seeds=[0]
    )
    assert sample.finish_reason == "stop" and sample.text == "" and sample.offsets == ((0, 0),)


def test_a_stop_string_ends_a_response_and_stays_in_it(llama: Any, tokenizer: Tokenizer) -> None:
    sampler = TorchSampler(llama, tokenizer)
    (free,) = sampler.generate([[5, 6]], max_new_tokens=30, seeds=[3])
    stop = free.text[4:7]
    (cut,) = sampler.generate([[5, 6]], max_new_tokens=30, seeds=[3], stop=["no such text", stop])
    first = free.text.index(stop)
    n = next(i for i in range(1, len(free.ids) + 1) if stop in tokenizer.decode(free.ids[:i]))
    assert cut.ids == free.ids[:n] and cut.finish_reason == "stop"
    assert cut.text[first : first + len(stop)] == stop
    np.testing.assert_allclose(cut.logprobs, free.logprobs[:n], atol=5e-6)


def test_the_model_keeps_its_mode(llama: Any, tokenizer: Tokenizer) -> None:
    llama.train()
    TorchSampler(llama, tokenizer).generate([[5]], max_new_tokens=2, seeds=[0])
    assert llama.training
    llama.eval()


def test_sampling_without_seeds_is_refused(llama: Any, tokenizer: Tokenizer) -> None:
    with pytest.raises(ValueError, match="one seed per prompt"):
        TorchSampler(llama, tokenizer).generate([[5]], max_new_tokens=2)
    with pytest.raises(ValueError, match="at least one token"):
        TorchSampler(llama, tokenizer).generate([[5], []], max_new_tokens=2, seeds=[0, 1])
    assert TorchSampler(llama, tokenizer).generate([], max_new_tokens=2, seeds=[]) == []


# ---------------------------------------------------------------- filters, random numbers, scripts


def test_top_k_and_top_p_by_hand() -> None:
    logits = torch.log(torch.tensor([[0.4, 0.3, 0.2, 0.1], [0.1, 0.2, 0.3, 0.4]]))
    finite = lambda x: torch.isfinite(x).int().tolist()  # noqa: E731
    assert finite(keep_likely(logits, top_k=2)) == [[1, 1, 0, 0], [0, 0, 1, 1]]
    assert finite(keep_likely(logits, top_p=0.65)) == [[1, 1, 0, 0], [0, 0, 1, 1]]
    assert finite(keep_likely(logits, top_p=0.75)) == [[1, 1, 1, 0], [0, 1, 1, 1]]
    assert finite(keep_likely(logits, top_p=1e-9)) == [[1, 0, 0, 0], [0, 0, 0, 1]]
    assert torch.equal(keep_likely(logits), logits)


def test_filtered_logprobs_are_of_the_filtered_distribution(llama: Any, tokenizer: Tokenizer) -> None:
    out = TorchSampler(llama, tokenizer).generate([[7, 8, 9]] * 50, max_new_tokens=1, top_k=3, seeds=range(50))
    chances = {s.ids[0]: float(np.exp(s.logprobs[0])) for s in out}
    assert len(chances) == 3
    assert sum(chances.values()) == pytest.approx(1, abs=1e-5)


def test_uniforms_depend_on_seed_and_position_alone() -> None:
    a = uniforms([1, 2, -3, 1 << 70], 50)
    assert np.array_equal(a[1:2, :20], uniforms([2], 20))
    assert ((a >= 0) & (a < 1)).all()
    many = uniforms(range(200), 200)
    assert abs(many.mean() - 0.5) < 0.01 and abs(many.var() - 1 / 12) < 0.005
    assert abs(np.corrcoef(many[:-1].ravel(), many[1:].ravel())[0, 1]) < 0.02
    assert abs(np.corrcoef(many[:, :-1].ravel(), many[:, 1:].ravel())[0, 1]) < 0.02


def test_scripted_sampler_plays_texts(tokenizer: Tokenizer) -> None:
    sampler = ScriptedSampler(tokenizer, lambda prompt, call: f"{prompt}!{call}")
    a, b = sampler.generate([tokenizer.encode("x"), tokenizer.encode("yy")], max_new_tokens=[10, 3])
    assert a.text == "x!0" and a.finish_reason == "stop" and a.ids[-1] == tokenizer.eos_ids[0]
    assert b.text == "yy!" and b.finish_reason == "length"
    assert a.offsets == ((0, 1), (1, 2), (2, 3), (3, 3))
