"""Character ranges of a response -> sampled tokens, exactly, through the offsets recorded at sampling.

A token belongs to a range when the two share at least one character. So the byte tokens of one character all belong
where the character does, an end mark (empty range) belongs nowhere, and a token such as "\\n    x", which begins with
a line end, belongs to the line whose text it holds: ranges of lines leave the line end out. A token that holds text of
two lines belongs to both.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np

Offsets = Sequence[tuple[int, int]] | np.ndarray


def as_offsets(n_tokens: int, offsets: Offsets | None) -> np.ndarray:
    """Offsets as an int64 array [T, 2]; None means one token per character.

    Raises ValueError where their number is not `n_tokens`, or where they are not in the order of the text.
    """
    if offsets is None:
        starts = np.arange(n_tokens, dtype=np.int64)
        return np.stack([starts, starts + 1], axis=1)
    if len(offsets) != n_tokens:
        raise ValueError(f"{n_tokens} tokens but {len(offsets)} offsets")
    if isinstance(offsets, np.ndarray):
        pairs = offsets.astype(np.int64).reshape(n_tokens, 2)
    else:
        pairs = np.fromiter(chain.from_iterable(offsets), np.int64, 2 * n_tokens).reshape(n_tokens, 2)
    wrong = (pairs[:, 1] < pairs[:, 0]) | (pairs[:, 0] < 0)
    wrong[1:] |= (pairs[1:, 0] < pairs[:-1, 0]) | (pairs[1:, 1] < pairs[:-1, 1])
    if wrong.any():
        at = int(wrong.argmax())
        raise ValueError(f"token offsets are not in text order: token {at} is {tuple(pairs[at].tolist())}")
    return pairs


def token_slices(offsets: np.ndarray, ranges: np.ndarray) -> np.ndarray:
    """For each character range [n, 2] the slice [n, 2] of tokens that share a character with it.

    `offsets` is an array from `as_offsets`. A slice may hold empty tokens inside; an empty range gives an empty slice.
    """
    ranges = np.asarray(ranges, dtype=np.int64).reshape(-1, 2)
    first = np.searchsorted(offsets[:, 1], ranges[:, 0], side="right")
    stop = np.searchsorted(offsets[:, 0], ranges[:, 1], side="left")
    stop = np.where(ranges[:, 1] > ranges[:, 0], np.maximum(stop, first), first)
    return np.stack([first, stop], axis=1)


def token_mask(n_tokens: int, offsets: Offsets | None, ranges: Sequence[tuple[int, int]] | np.ndarray) -> np.ndarray:
    """bool [T]: the tokens that share at least one character with one of `ranges` (any order, overlaps allowed).

    Raises ValueError as `as_offsets` does.
    """
    pairs = as_offsets(n_tokens, offsets)
    slices = token_slices(pairs, np.asarray(ranges, dtype=np.int64).reshape(-1, 2))
    depth = np.zeros(n_tokens + 1, dtype=np.int64)
    np.add.at(depth, slices[:, 0], 1)
    np.add.at(depth, slices[:, 1], -1)
    return (np.cumsum(depth[:-1]) > 0) & (pairs[:, 1] > pairs[:, 0])
