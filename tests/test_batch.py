"""Rows to micro-batches: masks from lengths, counts over the whole update."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from didpo.batch import Row, Totals, count, make_batch, micro_batches, split, unpad

lengths = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=12)


def rows_of(shape: list[tuple[int, int]]) -> list[Row]:
    return [Row(prompt_ids=list(range(1, p + 1)), response_ids=list(range(1, t + 1))) for p, t in shape]


def test_masks_come_from_lengths_when_pad_is_the_end_id() -> None:
    """Pad id = end id = 0, a second end id 7, an inner 0 in the prompt."""
    prompt = [9, 0, 9]
    batch = make_batch(
        [Row(prompt_ids=prompt, response_ids=r) for r in ([5, 6, 0], [5, 6, 7], [5, 6, 8, 9, 4])], pad_id=0
    )
    assert batch.response_mask.int().tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]
    assert batch.lengths.tolist() == [6, 6, 8]
    assert batch.input_ids.tolist()[0] == [9, 0, 9, 5, 6, 0, 0, 0]
    assert batch.totals == Totals(tokens=11, rows=3)


def test_values_stand_at_their_tokens_and_padding_is_zero() -> None:
    rows = [
        Row(prompt_ids=[1], response_ids=[2, 3], advantages=[0.5, -1], response_mask=[True, False]),
        Row(prompt_ids=[1, 1], response_ids=[4], advantages=[2.0]),
    ]
    batch = make_batch(rows)
    assert batch.advantages is not None
    assert batch.advantages.tolist() == [[0.5, -1.0], [2.0, 0.0]]
    assert batch.response_mask.tolist() == [[True, False], [True, False]]
    assert batch.valid.tolist() == [[True, True], [True, False]]
    assert batch.old_logprobs is None
    assert [v.tolist() for v in unpad(batch.advantages, batch)] == [[0.5, -1.0], [2.0]]


def test_dropped_rows_leave_every_count_and_every_batch() -> None:
    rows = rows_of([(2, 3), (2, 4)])
    rows[1].response_mask = np.zeros(4, dtype=bool)
    assert count(rows) == Totals(tokens=3, rows=1)
    parts = list(micro_batches(rows, token_budget=100))
    assert [p.rows for p in parts] == [[0]]
    assert list(micro_batches([rows[1]], token_budget=100)) == []


@given(lengths, st.integers(1, 60))
@settings(max_examples=100, deadline=None)
def test_every_row_is_in_one_micro_batch_within_the_budget(shape: list[tuple[int, int]], budget: int) -> None:
    rows = rows_of(shape)
    parts = split(rows, token_budget=budget)
    assert sorted(i for part in parts for i in part) == list(range(len(rows)))
    for part in parts:
        assert len(part) == 1 or len(part) * max(rows[i].n_tokens for i in part) <= budget
    batches = list(micro_batches(rows, token_budget=budget))
    assert [b.rows for b in batches] == parts
    assert all(b.totals == count(rows) for b in batches)
    assert sum(int(b.response_mask.sum()) for b in batches) == count(rows).tokens
    for b in batches:
        for place, i in enumerate(b.rows):
            ids = [*rows[i].prompt_ids, *rows[i].response_ids]
            assert b.input_ids[place, : len(ids)].tolist() == ids


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"advantages has shape \(2,\)"):
        Row(prompt_ids=[1], response_ids=[1, 2, 3], advantages=[0.0, 1.0])
    with pytest.raises(ValueError, match="at least one prompt token"):
        Row(prompt_ids=[], response_ids=[1])
    rows = [Row(prompt_ids=[1], response_ids=[1], advantages=[1.0]), Row(prompt_ids=[1], response_ids=[1])]
    with pytest.raises(ValueError, match="missing for others"):
        make_batch(rows)


def test_to_moves_every_tensor() -> None:
    batch = make_batch(rows_of([(1, 2)]))
    moved = batch.to("meta")
    assert isinstance(moved.input_ids, torch.Tensor) and moved.input_ids.device.type == "meta"
    assert moved.totals == batch.totals
