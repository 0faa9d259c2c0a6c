"""Rows of token ids -> padded tensors in micro-batches, with the counts that make the loss independent of the split.

A row is one prompt and the response sampled for it. Masks come from lengths and from what the caller masks, never from
ids: the pad id may equal the end id. Rows are padded on the right, so a causal model needs no attention mask.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


@dataclass(kw_only=True)
class Row:
    """One prompt with its response. Arrays are [T], one number per response token, end mark included.

    `response_mask` None: every response token is trained. A row whose mask is all False is dropped: it stands in
    neither numerator nor denominator of any mean. Values at masked places may be anything, NaN included.
    """

    prompt_ids: Sequence[int]  # [P], P >= 1
    response_ids: Sequence[int]  # [T]
    advantages: ArrayLike | None = None
    response_mask: ArrayLike | None = None
    old_logprobs: ArrayLike | None = None
    ref_logprobs: ArrayLike | None = None
    rollout_logprobs: ArrayLike | None = None
    returns: ArrayLike | None = None  # targets of a critic
    old_values: ArrayLike | None = None

    def __post_init__(self) -> None:
        if not len(self.prompt_ids):
            raise ValueError("a row needs at least one prompt token: the first response token is predicted from it")
        for name in ("response_mask", *FLOATS):
            value = getattr(self, name)
            if value is not None and np.shape(value) != (len(self.response_ids),):
                raise ValueError(f"{name} has shape {np.shape(value)}, the response {len(self.response_ids)} tokens")

    @property
    def n_tokens(self) -> int:
        """Tokens that a forward pass sees."""
        return len(self.prompt_ids) + len(self.response_ids)

    @property
    def n_trained(self) -> int:
        """Response tokens that the mask keeps."""
        return len(self.response_ids) if self.response_mask is None else int(np.count_nonzero(self.response_mask))


FLOATS = ("advantages", "old_logprobs", "ref_logprobs", "rollout_logprobs", "returns", "old_values")


@dataclass(frozen=True, kw_only=True)
class Totals:
    """Counts over a whole update, all micro-batches (and processes) together: the denominators of the loss."""

    tokens: int  # response tokens that are trained
    rows: int  # rows with at least one such token


@dataclass(kw_only=True)
class Batch:
    """A micro-batch of B rows, padded on the right to L tokens and to T response tokens."""

    rows: list[int]  # [B], position of each row in the list the batch was made from
    input_ids: torch.Tensor  # int64 [B, L]
    lengths: torch.Tensor  # int64 [B], real tokens of each row
    prompt_lengths: torch.Tensor  # int64 [B]
    response_ids: torch.Tensor  # int64 [B, T]
    valid: torch.Tensor  # bool [B, T], a response token stands here
    response_mask: torch.Tensor  # bool [B, T], ... and it is trained
    totals: Totals  # of the whole update
    advantages: torch.Tensor | None = None  # float32 [B, T], 0 at padding, like all below
    old_logprobs: torch.Tensor | None = None
    ref_logprobs: torch.Tensor | None = None
    rollout_logprobs: torch.Tensor | None = None
    returns: torch.Tensor | None = None
    old_values: torch.Tensor | None = None

    def to(self, device: str | torch.device) -> Batch:
        moved: dict[str, Any] = {
            f.name: v.to(device) for f in fields(self) if isinstance(v := getattr(self, f.name), torch.Tensor)
        }
        return replace(self, **moved)


def count(rows: Sequence[Row]) -> Totals:
    """The denominators of an update over `rows`."""
    trained = [r.n_trained for r in rows]
    return Totals(tokens=sum(trained), rows=sum(n > 0 for n in trained))


def make_batch(
    rows: Sequence[Row], *, pad_id: int = 0, totals: Totals | None = None, index: Sequence[int] | None = None
) -> Batch:
    """Pad `rows` into one batch. `totals` defaults to the counts of these rows alone."""
    n_rows, length = len(rows), max(r.n_tokens for r in rows)
    width = max(1, *(len(r.response_ids) for r in rows))
    ids = np.full((n_rows, length), pad_id, dtype=np.int64)
    response = np.full((n_rows, width), pad_id, dtype=np.int64)
    valid = np.zeros((n_rows, width), dtype=bool)
    mask = np.zeros((n_rows, width), dtype=bool)
    for i, row in enumerate(rows):
        p, t = len(row.prompt_ids), len(row.response_ids)
        ids[i, :p] = row.prompt_ids
        ids[i, p : p + t] = row.response_ids
        response[i, :t] = row.response_ids
        valid[i, :t] = True
        mask[i, :t] = True if row.response_mask is None else np.asarray(row.response_mask, dtype=bool)
    return Batch(
        rows=list(range(n_rows)) if index is None else list(index),
        input_ids=torch.from_numpy(ids),
        lengths=torch.tensor([r.n_tokens for r in rows]),
        prompt_lengths=torch.tensor([len(r.prompt_ids) for r in rows]),
        response_ids=torch.from_numpy(response),
        valid=torch.from_numpy(valid),
        response_mask=torch.from_numpy(mask),
        totals=totals or count(rows),
        **{name: _floats(rows, name, width) for name in FLOATS},
    )


def _floats(rows: Sequence[Row], name: str, width: int) -> torch.Tensor | None:
    values = [getattr(r, name) for r in rows]
    given = [v is not None for v in values]
    if not any(given):
        return None
    if not all(given):
        raise ValueError(f"{name} is given for some rows of a batch and missing for others")
    out = np.zeros((len(rows), width), dtype=np.float32)
    for i, value in enumerate(values):
        out[i, : len(value)] = value
    return torch.from_numpy(out)


def split(rows: Sequence[Row], *, token_budget: int) -> list[list[int]]:
    """Positions of `rows` in micro-batches of at most `token_budget` padded tokens (one row may exceed it alone).

    Rows are sorted by length (longest first, ties by position), so that little is padding.
    """
    order = sorted(range(len(rows)), key=lambda i: (-rows[i].n_tokens, i))
    batches: list[list[int]] = []
    width = 0
    for i in order:
        if batches and (len(batches[-1]) + 1) * width <= token_budget:
            batches[-1].append(i)
        else:
            batches.append([i])
            width = rows[i].n_tokens
    return batches


def micro_batches(
    rows: Sequence[Row], *, token_budget: int, pad_id: int = 0, totals: Totals | None = None
) -> Iterator[Batch]:
    """Micro-batches of one update over `rows`; each carries the totals of all of them.

    Rows without a trained token are left out, since they move nothing.
    """
    totals = totals or count(rows)
    kept = [i for i, r in enumerate(rows) if r.n_trained]
    for part in split([rows[i] for i in kept], token_budget=token_budget):
        index = [kept[j] for j in part]
        yield make_batch([rows[i] for i in index], pad_id=pad_id, totals=totals, index=index)


def unpad(values: torch.Tensor, batch: Batch) -> list[np.ndarray]:
    """[B, T] -> one float32 array [T_i] per row of the batch, in the order of `batch.rows`."""
    widths = (batch.lengths - batch.prompt_lengths).tolist()
    array = values.detach().float().cpu().numpy()
    return [array[i, :width].copy() for i, width in enumerate(widths)]
