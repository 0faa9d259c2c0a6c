"""What matches beyond equal lines: functions up to local names, similar lines and blocks; and the suffix search."""

from __future__ import annotations

import random

import numpy as np
import pytest
from rapidfuzz.distance import Indel
from reference import ref_similar
from test_anchors import plain, random_rows, rows_from

from didpo.credit.anchors import FoundAnchor, find_anchors
from didpo.credit.suffixes import repeats


def code_rows(*texts: str) -> list:
    return rows_from(*[[("overwrite", text.rstrip("\n").split("\n"), None)] for text in texts])


A = "def f(xs):\n    total = 0\n    for x in xs:\n        total += x\n    return total\n"
B = "def f(xs):\n    acc=0\n    for item in xs:\n        acc += item\n    return (acc)\n"


def test_renamed_joins_functions_equal_up_to_local_names_and_layout() -> None:
    (anchor,) = find_anchors(code_rows(A, B), equality="renamed")
    assert [(o.row, o.start, o.stop) for o in anchor.occurrences] == [(0, 0, 5), (1, 0, 5)]
    assert anchor.length == 5
    assert max(a.length for a in find_anchors(code_rows(A, B))) < 5


def test_renamed_never_joins_other_comparisons() -> None:
    texts = [
        A.replace("total += x", f"total += x {op} 1").replace("total", name)
        for op, name in (("<", "total"), ("<=", "count"))
    ]
    assert all(a.length < 5 for a in find_anchors(code_rows(*texts), equality="renamed"))


def test_renamed_is_exact_where_code_does_not_parse() -> None:
    rows = code_rows("def f(:\n    x = 1\n    y\n", "def f(:\n    x = 1\n    z\n")
    assert plain(find_anchors(rows, equality="renamed")) == plain(find_anchors(rows))


def test_renamed_equals_exact_without_functions() -> None:
    for seed in range(40):
        rows = random_rows(random.Random(seed))
        assert plain(find_anchors(rows, equality="renamed")) == plain(find_anchors(rows))


def test_similar_joins_blocks_that_differ_in_a_line() -> None:
    rows = code_rows(A, A.replace("total = 0", "total = 1"))
    (anchor,) = find_anchors(rows, equality="similar")
    assert anchor.length == 5 and anchor.n_rows == 2
    assert len(find_anchors(rows)) == 2 or max(a.length for a in find_anchors(rows)) < 5


def texts_of(anchor: FoundAnchor, rows: list) -> list[str]:
    return ["\n".join(rows[o.row].roots[o.root].lines[o.start : o.stop]) for o in anchor.occurrences]


def test_no_chain_beyond_eta_to_the_representative() -> None:
    lines = ["abcdefghij", "abcdefghXX", "abcdefXXXX", "abcdXXXXXX", "abXXXXXXXX"]  # neighbours are 0.8 alike
    rows = rows_from(*[[("add", [line], None)] for line in lines])
    for anchor in find_anchors(rows, equality="similar"):
        for text in texts_of(anchor, rows):
            assert Indel.normalized_similarity(text, "\n".join(anchor.lines)) >= 0.8 - 1e-6


def test_members_are_like_the_representative_and_rows_count_once() -> None:
    words = ["value = value + 1", "value = value + 2", "values = values + 1", "return value", "return values", "x"]
    for seed in range(30):
        rng = random.Random(seed)
        rows = rows_from(*[[("add", rng.choices(words, k=rng.randint(1, 6)), None)] for _ in range(5)])
        for anchor in find_anchors(rows, equality="similar"):
            assert len({o.row for o in anchor.occurrences}) == anchor.n_rows >= 2
            for text in texts_of(anchor, rows):
                assert Indel.normalized_similarity(text, "\n".join(anchor.lines)) >= 0.8 - 1e-6


def test_lines_exactly_eta_alike_join() -> None:
    rows = rows_from([("add", ["abcde"], None)], [("add", ["abcdf"], None)])  # 2 * 4 / 10
    (anchor,) = find_anchors(rows, equality="similar", eta=0.8)
    assert anchor.n_rows == 2
    assert find_anchors(rows, equality="similar", eta=0.81) == []


def similar_rows(rng: random.Random) -> list:
    words = ["abcde", "abcdf", "abcdef", "abxde", "  abcde", "xyz", "xyzw", "  xyw", "q"][: rng.randint(2, 9)]
    rows = []
    for _ in range(rng.randint(2, 5)):
        roots = []
        for _ in range(rng.choice([0, 1, 1, 1, 2])):
            lines = rng.choices(words, k=rng.randint(0, 5))
            kind = rng.choice(["add", "del", "overwrite"][: rng.randint(1, 3)])
            roots.append((kind, lines, [rng.random() > 0.1 for _ in lines]))
        rows.append(roots)
    return rows_from(*rows)


@pytest.mark.parametrize("block", range(6))
def test_similar_equals_brute_force(block: int) -> None:
    for seed in range(50 * block, 50 * block + 50):
        rng = random.Random(seed)
        rows = similar_rows(rng)
        eta, most = rng.choice([0.8, 0.8, 0.6, 0.9]), rng.choice([1, 3, 64])
        engine = find_anchors(rows, equality="similar", eta=eta, max_anchors=most)
        slow = ref_similar(rows, eta, most)
        assert plain(engine) == [(a.kind, a.lines, a.places) for a in slow], seed
        for fast, right in zip(engine, slow, strict=True):
            assert fast.groupability == pytest.approx(right.groupability, abs=1e-12)


def test_embeddings_can_join_what_letters_do_not() -> None:
    rows = rows_from([("add", ["alpha"], None)], [("add", ["omega"], None)])
    assert find_anchors(rows, equality="similar") == []

    def embed(texts: list[str]) -> np.ndarray:
        return np.ones((len(texts), 3))

    (anchor,) = find_anchors(rows, equality="similar", embed=embed, embed_weight=1.0)
    assert anchor.n_rows == 2


def test_similar_does_not_depend_on_row_order() -> None:
    words = ["value = value + 1", "value = value + 2", "return value", "return values", "x"]
    rng = random.Random(1)
    texts = [rng.choices(words, k=5) for _ in range(6)]
    order = [3, 1, 5, 0, 2, 4]
    plainly = plain(find_anchors(rows_from(*[[("add", t, None)] for t in texts]), equality="similar"))
    shuffled = plain(find_anchors(rows_from(*[[("add", texts[i], None)] for i in order]), equality="similar"))
    back = [(k, lines, tuple(sorted((order[r], *rest) for r, *rest in places))) for k, lines, places in shuffled]
    assert back == [(k, lines, tuple(sorted(p))) for k, lines, p in plainly]


def test_classes_by_hand() -> None:
    # rows "abab|" and "ab|": the one class is "ab", with the first place of each row
    found = repeats(np.array([0, 1, 0, 1, 2, 0, 1, 3]), np.array([0, 0, 0, 0, 0, 1, 1, 1]))
    assert found.length.tolist() == [2] and found.n_rows.tolist() == [2]
    assert found.places(0).tolist() == [0, 5]
