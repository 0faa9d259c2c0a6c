"""Supervised training on rows of (prompt, response): the cold start before reinforcement learning.

The loss stands on the response tokens of every row, the end mark included, and on nothing else. The same settings,
rows and model give the same weights on the same machine.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from didpo.batch import Batch, Row, count, micro_batches
from didpo.errors import UserError
from didpo.model import token_logprobs
from didpo.tokens import Tokenizer


@dataclass(frozen=True, kw_only=True)
class SFTSettings:
    updates: int = 500
    batch_rows: int = 40
    learning_rate: float = 3e-3
    warmup: int = 20  # updates of linear warm-up
    final_fraction: float = 0.1  # of the learning rate, at the end of the cosine
    weight_decay: float = 0.0
    beta2: float = 0.95
    grad_clip: float = 1.0
    bucket: int = 8  # batches whose rows are sorted by length together: less padding, a little less mixing
    token_budget: int = 8192  # padded tokens of a micro-batch
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class SFTProgress:
    update: int  # 1-based
    updates: int
    loss: float  # mean negative log-likelihood of this update's trained tokens
    learning_rate: float
    tokens: int  # real tokens processed so far
    seconds: float  # since the start


def sft_row(tokenizer: Tokenizer, prompt: str | Sequence[int], response: str, *, end: bool = True) -> Row:
    """A row from texts; `end` adds the end mark, which is trained like any other token."""
    prompt_ids = tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)
    response_ids = tokenizer.encode(response) + ([tokenizer.eos_ids[0]] if end else [])
    return Row(prompt_ids=prompt_ids, response_ids=response_ids)


def train_sft(
    model: Any,
    rows: Sequence[Row],
    settings: SFTSettings = SFTSettings(),
    *,
    progress: Callable[[SFTProgress], None] | None = None,
) -> list[float]:
    """Train `model` in place for `settings.updates` updates; the loss of each. Rows without a response are left out.

    Raises UserError where no row is left.
    """
    rows = [r for r in rows if r.n_trained]
    if not rows:
        raise UserError("there is no row with a response to train on")
    optimizer = adamw(model, lr=settings.learning_rate, weight_decay=settings.weight_decay, beta2=settings.beta2)
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    losses: list[float] = []
    tokens, start = 0, time.perf_counter()
    model.train()
    for update, picked in enumerate(batches(rows, settings), start=1):
        rate = learning_rate(settings, update)
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss = 0.0
        for batch in micro_batches(picked, token_budget=settings.token_budget):
            share = sft_loss(model, batch)
            share.backward()
            loss += float(share.detach())
        torch.nn.utils.clip_grad_norm_(parameters, settings.grad_clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss)
        tokens += sum(r.n_tokens for r in picked)
        if progress is not None:
            progress(
                SFTProgress(
                    update=update, updates=settings.updates, loss=loss, learning_rate=rate, tokens=tokens,
                    seconds=time.perf_counter() - start,
                )
            )  # fmt: skip
    model.eval()
    return losses


def sft_loss(model: Any, batch: Batch) -> torch.Tensor:
    """This batch's share of the mean negative log-likelihood over all trained tokens of the update (scalar)."""
    logprobs, _ = token_logprobs(model, batch, with_entropy=False)
    kept = torch.where(batch.response_mask, logprobs, torch.zeros((), device=logprobs.device))
    return -kept.sum() / max(1, batch.totals.tokens)


def adamw(model: Any, *, lr: float, weight_decay: float = 0.0, beta2: float = 0.95) -> torch.optim.AdamW:
    """AdamW over the trainable parameters; decay only on matrices."""
    trainable = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trainable if p.dim() >= 2], "weight_decay": weight_decay},
        {"params": [p for p in trainable if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, beta2), fused=True)


def learning_rate(settings: SFTSettings, update: int) -> float:
    """Linear warm-up, then a cosine down to `final_fraction`; `update` counts from 1."""
    if update <= settings.warmup:
        return settings.learning_rate * update / settings.warmup
    done = (update - settings.warmup) / max(1, settings.updates - settings.warmup)
    low = settings.final_fraction
    return settings.learning_rate * (low + (1 - low) * 0.5 * (1 + math.cos(math.pi * min(1.0, done))))


def batches(rows: Sequence[Row], settings: SFTSettings) -> Iterator[list[Row]]:
    """`settings.updates` batches: shuffled passes over the rows, similar lengths in one batch."""
    rng = np.random.default_rng(settings.seed)
    size = min(settings.batch_rows, len(rows))
    queue: list[list[int]] = []
    for _ in range(settings.updates):
        if not queue:
            order = rng.permutation(len(rows)).tolist()
            for start in range(0, len(order), size * settings.bucket):
                block = sorted(order[start : start + size * settings.bucket], key=lambda i: rows[i].n_tokens)
                queue += [block[i : i + size] for i in range(0, len(block) - size + 1, size)]
            queue = [queue[i] for i in rng.permutation(len(queue))]
        yield [rows[i] for i in queue.pop()]


# ---------------------------------------------------------------- cache of results


def cold_start_key(settings: Any, rows: Sequence[Row], **more: Any) -> str:
    """A hash of everything that a cold start depends on: settings (a dataclass), rows, and further plain values."""
    digest = hashlib.sha256()
    plain = {"settings": asdict(settings), "more": more, "rows": count(rows).rows, "torch": torch.__version__}
    digest.update(json.dumps(plain, sort_keys=True, default=str).encode())
    for row in rows:
        ids = np.array([len(row.prompt_ids), *row.prompt_ids, *row.response_ids], dtype="<i8")
        digest.update(ids.tobytes())
        if row.response_mask is not None:
            digest.update(np.asarray(row.response_mask, dtype=bool).tobytes())
    return digest.hexdigest()[:24]


def cached_cold_start(
    cache_dir: str | Path, key: str, build: Callable[[Path], Mapping[str, Any] | None]
) -> tuple[Path, bool]:
    """The folder of the result `key`, and whether it was there already.

    `build(folder)` writes the result (model, tokenizer) into an empty folder and may return plain facts, kept as
    facts.json. The folder appears under its final name whole or not at all, whoever else builds the same at once.
    """
    final = Path(cache_dir) / key
    if (final / "facts.json").is_file():
        return final, True
    final.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{key}-", dir=final.parent))
    try:
        facts = build(partial)
        (partial / "facts.json").write_text(json.dumps(dict(facts or {}), indent=2) + "\n")
        partial.chmod(0o755)
        try:
            os.rename(partial, final)
        except OSError:
            if not (final / "facts.json").is_file():  # not another builder's result: a real failure
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return final, False
