"""Sampling responses: one protocol, a scripted sampler for tests, and a batched one for local models.

A sampler returns what it drew and nothing re-made: ids, the log-probability of each under the distribution it was drawn
from, and the characters that each id wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import torch

from didpo.decoding import Decoder, make_decoder
from didpo.tokens import Tokenizer

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One sampled response of T tokens. `text` leaves out the end mark, `ids` keeps it."""

    ids: tuple[int, ...]  # [T]
    logprobs: np.ndarray  # float32 [T], natural log, of the distribution sampled from
    offsets: tuple[tuple[int, int], ...]  # [T], character ranges of `text`
    text: str
    finish_reason: FinishReason  # "stop": an end mark or a stop string; "length": cut off


class Sampler(Protocol):
    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        max_new_tokens: int | Sequence[int],
        temperature: float = 1.0,
        top_p: float = 1.0,
        top_k: int = 0,
        seeds: Sequence[int] | None = None,
        stop: Sequence[str] = (),
    ) -> list[Sample]:
        """One response per prompt, in order. Give a prompt several times to get several responses.

        `max_new_tokens`: one number, or one per prompt. `temperature` 0 is greedy (its log-probs are then those of
        temperature 1). `seeds`: one per prompt; the response is a function of model, prompt and seed. `stop`: strings
        that end a response when it contains them; they stay in it.
        """


class ScriptedSampler:
    """Plays given texts: `reply(prompt_text, call)` returns the text of a response.

    `call` counts responses from 0. A text longer than the token limit is cut off with finish reason "length"; else an
    end mark is added. Log-probs are 0, as of a policy that could say nothing else.
    """

    def __init__(self, tokenizer: Tokenizer, reply: Callable[[str, int], str]) -> None:
        self.tokenizer = tokenizer
        self.reply = reply
        self.calls = 0

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        max_new_tokens: int | Sequence[int],
        temperature: float = 1.0,
        top_p: float = 1.0,
        top_k: int = 0,
        seeds: Sequence[int] | None = None,
        stop: Sequence[str] = (),
    ) -> list[Sample]:
        samples = []
        for prompt, limit in zip(prompts, _limits(max_new_tokens, len(prompts)), strict=True):
            text = self.reply(self.tokenizer.decode(prompt), self.calls)
            self.calls += 1
            ids = [*self.tokenizer.encode(text), self.tokenizer.eos_ids[0]]
            reason: FinishReason = "stop" if len(ids) <= limit else "length"
            samples.append(_sample(self.tokenizer, ids[:limit], np.zeros(min(limit, len(ids)), np.float32), reason))
        return samples


class TorchSampler:
    """Samples from a local causal LM: all prompts in one batch, equal prompts computed once.

    Rows that end leave the batch in blocks. A row draws its numbers from (its seed, its position) alone, so batch mates
    do not change them; they may change logits in the last bit, as floating-point sums do.
    A row that reaches the model's longest context ends with finish reason "length".
    """

    def __init__(self, model: Any, tokenizer: Tokenizer, *, max_rows: int = 256) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.max_rows = max_rows
        self.max_context = int(getattr(model.config, "max_position_embeddings", 0) or 1 << 30)

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        max_new_tokens: int | Sequence[int],
        temperature: float = 1.0,
        top_p: float = 1.0,
        top_k: int = 0,
        seeds: Sequence[int] | None = None,
        stop: Sequence[str] = (),
    ) -> list[Sample]:
        if temperature > 0 and seeds is None:
            raise ValueError("sampling needs one seed per prompt; only temperature 0 does without")
        if not all(len(prompt) for prompt in prompts):
            raise ValueError("a prompt needs at least one token")
        seeds = [0] * len(prompts) if seeds is None else seeds
        limits = [
            max(0, min(limit, self.max_context - len(prompt)))
            for prompt, limit in zip(prompts, _limits(max_new_tokens, len(prompts)), strict=True)
        ]
        draw = _Draw(temperature=temperature, top_p=top_p, top_k=top_k)
        samples = [_sample(self.tokenizer, [], np.zeros(0, np.float32), "length") for _ in prompts]
        # similar lengths side by side, so that little of a batch is padding
        order = sorted((i for i, n in enumerate(limits) if n), key=lambda i: (len(prompts[i]), i))
        was_training = self.model.training
        self.model.eval()
        with torch.inference_mode():
            for start in range(0, len(order), self.max_rows):
                rows = order[start : start + self.max_rows]
                run = _Run(
                    [prompts[i] for i in rows], [limits[i] for i in rows], [seeds[i] for i in rows], draw,
                    self.tokenizer, tuple(stop),
                )  # fmt: skip
                for i, sample in zip(rows, run.play(make_decoder(self.model)), strict=True):
                    samples[i] = sample
        self.model.train(was_training)
        return samples


def _limits(max_new_tokens: int | Sequence[int], n: int) -> list[int]:
    limits = [max_new_tokens] * n if isinstance(max_new_tokens, int) else list(max_new_tokens)
    if len(limits) != n:
        raise ValueError(f"{len(limits)} token limits for {n} prompts")
    return limits


def _sample(tokenizer: Tokenizer, ids: Sequence[int], logprobs: np.ndarray, reason: FinishReason) -> Sample:
    return Sample(
        ids=tuple(int(i) for i in ids),
        logprobs=logprobs,
        offsets=tuple(tokenizer.offsets_of(ids)),
        text=tokenizer.decode(ids),
        finish_reason=reason,
    )


# ---------------------------------------------------------------- one batch


class _Run:
    """The state of one batch: which rows are live, what each has drawn."""

    def __init__(
        self,
        prompts: Sequence[Sequence[int]],
        limits: Sequence[int],
        seeds: Sequence[int],
        draw: _Draw,
        tokenizer: Tokenizer,
        stop: tuple[str, ...],
    ) -> None:
        self.prompts, self.draw, self.tokenizer, self.stop = prompts, draw, tokenizer, stop
        self.limits = np.array(limits)
        self.steps = int(self.limits.max())
        self.uniforms = uniforms(seeds, self.steps)  # float64 [B, steps]
        self.ids = np.zeros((len(prompts), self.steps), dtype=np.int64)
        self.logprobs = np.zeros((len(prompts), self.steps), dtype=np.float32)
        self.lengths = np.zeros(len(prompts), dtype=np.int64)
        self.stopped = np.zeros(len(prompts), dtype=bool)
        # the window of tokens in which a stop string must lie: every token but a special one writes a byte
        self.window = max((len(s.encode()) for s in stop), default=0) + 4

    def play(self, decoder: Decoder) -> list[Sample]:
        distinct: dict[tuple[int, ...], int] = {}
        row_prompt = [distinct.setdefault(tuple(p), len(distinct)) for p in self.prompts]
        logits = decoder.prefill(list(distinct), row_prompt, self.steps)
        batch = np.arange(len(self.prompts))  # the rows that the decoder still carries
        live = np.ones(len(batch), dtype=bool)  # [B'], those of them that go on
        for step in range(self.steps):
            u = torch.from_numpy(self.uniforms[batch, step]).to(logits.device)
            tokens, logprobs = self.draw(logits, u)
            self._record(batch, live, step, tokens.cpu().numpy(), logprobs.cpu().numpy())
            n_live = int(live.sum())
            if n_live == 0:
                break
            if n_live <= 0.8 * len(batch):  # dropping rows copies the cache: worth it for a block, not for one
                index = torch.from_numpy(np.flatnonzero(live)).to(logits.device)
                decoder.keep(index)
                tokens, batch, live = tokens[index], batch[live], np.ones(n_live, dtype=bool)
            if step + 1 < self.steps:
                logits = decoder.step(tokens)
        return [self._finish(row) for row in range(len(self.prompts))]

    def _record(self, batch: np.ndarray, live: np.ndarray, step: int, tokens: np.ndarray, logprobs: np.ndarray) -> None:
        """Note what the live rows drew, and mark those that end here in `live`."""
        rows = batch[live]
        self.ids[rows, step] = tokens[live]
        self.logprobs[rows, step] = logprobs[live]
        self.lengths[rows] = step + 1
        ended = tokens == self.tokenizer.eos_ids[0]
        for eos in self.tokenizer.eos_ids[1:]:
            ended |= tokens == eos
        if self.stop:
            for place in np.flatnonzero(live & ~ended):
                ended[place] = self._hits_stop(batch[place], step + 1)
        self.stopped[batch[live & ended]] = True
        live &= ~ended & (step + 1 < self.limits[batch])

    def _hits_stop(self, row: int, length: int) -> bool:
        text = self.tokenizer.decode(self.ids[row, max(0, length - self.window) : length].tolist())
        return any(s in text for s in self.stop)

    def _finish(self, row: int) -> Sample:
        n = self.lengths[row]
        reason: FinishReason = "stop" if self.stopped[row] else "length"
        return _sample(self.tokenizer, self.ids[row, :n].tolist(), self.logprobs[row, :n].copy(), reason)


@dataclass(frozen=True, kw_only=True)
class _Draw:
    """Logits [B, V] and one uniform number per row -> token [B] and its log-probability [B]."""

    temperature: float
    top_p: float
    top_k: int

    def __call__(self, logits: torch.Tensor, u: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if self.temperature == 0:
            tokens = logits.argmax(-1, keepdim=True)
            return tokens[:, 0], logits.log_softmax(-1).gather(-1, tokens)[:, 0]
        if self.temperature != 1:
            logits = logits / self.temperature
        logits = keep_likely(logits, top_p=self.top_p, top_k=self.top_k)
        logprobs = logits.log_softmax(-1)
        # inverse distribution function: the first token whose cumulated mass exceeds u * total; never one without mass
        mass = logprobs.exp().cumsum(-1, dtype=torch.float64)
        tokens = torch.searchsorted(mass, u[:, None] * mass[:, -1:], right=True)
        return tokens[:, 0], logprobs.gather(-1, tokens)[:, 0]


def keep_likely(logits: torch.Tensor, *, top_p: float = 1.0, top_k: int = 0) -> torch.Tensor:
    """Set to -inf what is outside the `top_k` largest (0: no limit), then what is outside the smallest set of most
    likely tokens with at least `top_p` of the mass. Equal logits at the k-th place all stay. [B, V]"""
    if 0 < top_k < logits.shape[-1]:
        least = logits.topk(top_k, dim=-1).values[:, -1:]
        logits = logits.masked_fill(logits < least, float("-inf"))
    if top_p < 1:
        ordered, places = logits.sort(stable=True, dim=-1, descending=True)
        probs = ordered.softmax(-1)
        outside = probs.cumsum(-1) - probs >= top_p  # the mass before a token already suffices
        outside[:, 0] = False
        logits = logits.masked_fill(outside.scatter(-1, places, outside), float("-inf"))
    return logits


def uniforms(seeds: Sequence[int], n: int) -> np.ndarray:
    """Numbers in [0, 1), float64 [len(seeds), n]: number j of a row depends on its seed and j alone.

    A counter-based generator: the SplitMix64 output function (Steele, Lea and Flood, 2014) at seed-dependent offsets.
    """
    golden = np.uint64(0x9E3779B97F4A7C15)
    start = _mix(np.array([s % (1 << 64) for s in seeds], dtype=np.uint64))[:, None]
    with np.errstate(over="ignore"):
        counters = start + np.arange(1, n + 1, dtype=np.uint64)[None] * golden
    return (_mix(counters) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
