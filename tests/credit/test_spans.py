"""Character ranges to tokens: by hand, against the brute force, and the mistakes that are refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import ref_token_mask

from didpo.credit.spans import as_offsets, token_mask, token_slices


def mask(offsets: list[tuple[int, int]] | None, *ranges: tuple[int, int], n: int | None = None) -> list[int]:
    return token_mask(len(offsets or []) if n is None else n, offsets, ranges).astype(int).tolist()


def test_one_token_per_character_without_offsets() -> None:
    assert mask(None, (1, 3), n=5) == [0, 1, 1, 0, 0]


def test_token_that_begins_with_the_line_end_belongs_to_the_next_line() -> None:
    # "x = 1\n    y = 2": tokens "x = 1", "\n    y", " = 2"
    offsets = [(0, 5), (5, 11), (11, 15)]
    assert mask(offsets, (0, 5)) == [1, 0, 0]
    assert mask(offsets, (6, 15)) == [0, 1, 1]


def test_token_with_text_of_two_lines_belongs_to_both() -> None:
    offsets = [(0, 3), (3, 8), (8, 10)]  # "abcde\nfghi": "abc", "de\nfg", "hi"
    assert mask(offsets, (0, 5)) == [1, 1, 0]
    assert mask(offsets, (6, 10)) == [0, 1, 1]


def test_byte_tokens_of_one_character_go_together() -> None:
    offsets = [(0, 1), (1, 2), (1, 2), (1, 2), (2, 3)]  # "a", three bytes of one sign, "b"
    assert mask(offsets, (1, 2)) == [0, 1, 1, 1, 0]
    assert mask(offsets, (0, 1)) == [1, 0, 0, 0, 0]


def test_end_mark_and_empty_ranges_never_count() -> None:
    assert mask([(0, 2), (2, 2)], (0, 2), (2, 9)) == [1, 0]
    assert mask([(0, 2), (2, 2), (2, 4)], (0, 4)) == [1, 0, 1]
    assert mask([(0, 2), (2, 4)], (1, 1)) == [0, 0]
    assert mask([]) == [] and mask([(0, 1)]) == [0]


@pytest.mark.parametrize(
    ("n", "offsets", "text"),
    [
        (3, [(0, 1), (1, 2)], "3 tokens but 2 offsets"),
        (2, [(3, 4), (0, 1)], "not in text order: token 1"),
        (2, [(0, 4), (1, 2)], "not in text order: token 1"),
        (1, [(2, 1)], "not in text order: token 0"),
        (1, [(-1, 1)], "not in text order: token 0"),
    ],
)
def test_wrong_offsets_are_refused(n: int, offsets: list[tuple[int, int]], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        token_mask(n, offsets, [(0, 1)])


pieces = st.lists(st.integers(0, 4), min_size=1, max_size=12)
some_ranges = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 6)), max_size=6)


@given(pieces, some_ranges)
@settings(max_examples=200, deadline=None)
def test_equals_brute_force(sizes: list[int], spans: list[tuple[int, int]]) -> None:
    ends = np.cumsum(sizes).tolist()
    offsets = [(end - size, end) for size, end in zip(sizes, ends, strict=True)]
    ranges = [(start, start + size) for start, size in spans]
    assert token_mask(len(offsets), offsets, ranges).tolist() == ref_token_mask(offsets, ranges)
    table = as_offsets(len(offsets), offsets)
    for (first, stop), span in zip(token_slices(table, np.array(ranges).reshape(-1, 2)).tolist(), ranges, strict=True):
        counted = np.flatnonzero(ref_token_mask(offsets, [span])).tolist()
        assert counted == [t for t in range(first, stop) if sizes[t]]
