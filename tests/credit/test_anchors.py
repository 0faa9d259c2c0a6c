"""Anchors: the engine against the brute force, the formulas by hand, the laws, the worst cases."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from reference import ref_anchors, ref_groupability

from didpo.credit.anchors import FoundAnchor, find_anchors, groupability
from didpo.credit.diffs import Root, Row
from didpo.errors import UserError


def root_of(row: int, lines: list[str], kind: str = "overwrite", changed: list[bool] | None = None) -> Root:
    starts = np.cumsum([0] + [len(line) + 1 for line in lines[:-1]]) if lines else np.zeros(0, int)
    ranges = np.array([(s, s + len(line)) for s, line in zip(starts, lines, strict=True)], dtype=np.int64)
    gate = np.ones(len(lines), dtype=bool) if changed is None else np.array(changed, dtype=bool)
    return Root(row=row, path="a.py", kind=kind, lines=tuple(lines), ranges=ranges.reshape(-1, 2), changed=gate)


def rows_from(*roots_per_row: list[tuple[str, list[str], list[bool] | None]]) -> list[Row]:
    return [
        Row(trajectory=i, step=0, roots=tuple(root_of(i, lines, kind, changed) for kind, lines, changed in roots))
        for i, roots in enumerate(roots_per_row)
    ]


def simple(*texts: str) -> list[Row]:
    """One overwrite per row, one character per line."""
    return rows_from(*[[("overwrite", list(text), None)] for text in texts])


def random_rows(rng: random.Random) -> list[Row]:
    alphabet = "abcdefgh"[: rng.randint(1, 8)]
    pool = ["".join(rng.choices(alphabet, k=rng.randint(1, 6))) for _ in range(3)]
    rows = []
    for _ in range(rng.randint(1, 6)):
        roots = []
        for _ in range(rng.choice([0, 1, 1, 1, 2, 3])):
            text = "".join(rng.choice([*pool, rng.choice(alphabet)]) for _ in range(rng.randint(0, 4)))
            gate = [rng.random() > 0.15 for _ in text]
            roots.append((rng.choice(["add", "del", "overwrite"][: rng.randint(1, 3)]), list(text), gate))
        rows.append(roots)
    return rows_from(*rows)


def plain(anchors: list[FoundAnchor]) -> list[tuple]:
    return [(a.kind, a.lines, tuple((o.row, o.root, o.start, o.stop) for o in a.occurrences)) for a in anchors]


def check_against_reference(seed: int) -> None:
    rng = random.Random(seed)
    rows = random_rows(rng)
    options = {
        "form": rng.choice(["exp", "exp", "log", "linear"]),
        "combine": rng.choice(["product", "product", "sum"]),
        "s0": rng.choice([8.0, 2.0]),
        "g0": rng.choice([8.0, 3.0]),
        "max_anchors": rng.choice([1, 3, 64]),
    }
    engine = find_anchors(rows, **options)
    slow = ref_anchors(rows, **options)
    assert plain(engine) == [(a.kind, a.lines, a.places) for a in slow], seed
    for fast, right in zip(engine, slow, strict=True):
        assert fast.groupability == pytest.approx(right.groupability, abs=1e-12)
        assert fast.n_rows == len(fast.occurrences) and fast.length == len(fast.lines)


@pytest.mark.parametrize("block", range(10))
def test_engine_equals_brute_force(block: int) -> None:
    for seed in range(50 * block, 50 * block + 50):
        check_against_reference(seed)


# ---------------------------------------------------------------- formulas


def test_groupability_by_hand() -> None:
    assert groupability(8, 9) == pytest.approx((1 - np.exp(-1)) ** 2)  # 0.3996
    assert groupability(8, 8, form="log") == pytest.approx(1.0)
    assert groupability(2, 4, form="log") == pytest.approx(np.log(3) / np.log(9) * np.log(4) / np.log(8))  # 1/2 * 2/3
    assert groupability(4, 8, form="linear") == pytest.approx(0.5)
    assert groupability(16, 3, form="linear") == pytest.approx(2 / 7)
    assert groupability(4, 2, form="linear", combine="sum") == pytest.approx(0.5 + 1 / 7)
    for form in ("exp", "log", "linear"):
        assert groupability(5, 1, form=form) == 0.0


@pytest.mark.parametrize("form", ["exp", "log", "linear"])
def test_groupability_never_falls_and_stays_in_the_unit_square(form: str) -> None:
    length, n = np.meshgrid(np.arange(1, 60), np.arange(1, 60))
    value = groupability(length, n, form=form)
    assert (np.diff(value, axis=0) >= -1e-15).all() and (np.diff(value, axis=1) >= -1e-15).all()
    assert value.min() == 0.0 and value.max() <= 1.0


def test_unknown_form_names_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean 'linear'"):
        groupability(1, 2, form="liner")  # type: ignore[arg-type]


# ---------------------------------------------------------------- choice and cut by hand


def test_longest_shared_run_is_one_anchor() -> None:
    (anchor,) = find_anchors(simple("abcd", "xabcdy", "abcd"))
    assert anchor.lines == tuple("abcd") and anchor.n_rows == 3
    assert [(o.start, o.stop) for o in anchor.occurrences] == [(0, 4), (1, 5), (0, 4)]
    assert anchor.groupability == pytest.approx(ref_groupability(4, 3))


def test_overlap_goes_to_the_higher_groupability_and_lone_rests_are_dropped() -> None:
    # "bc" stands in four rows, "abcd" in two of them: GS(2, 4) = 0.0692 > GS(4, 2) = 0.0462.
    anchors = find_anchors(simple("abcd", "abcd", "xbcy", "zbcw"))
    assert [a.lines for a in anchors] == [("b", "c")]
    assert anchors[0].n_rows == 4


def test_one_place_per_row_the_first() -> None:
    (anchor,) = find_anchors(simple("aba", "xax"))
    assert [(o.row, o.start) for o in anchor.occurrences] == [(0, 0), (1, 1)]


def test_repeats_inside_one_row_are_no_anchor() -> None:
    assert find_anchors(simple("abab", "cdcd")) == []


def test_edit_kinds_do_not_mix_and_paths_do() -> None:
    both = rows_from([("add", ["a", "b"], None)], [("del", ["a", "b"], None)])
    assert find_anchors(both) == []
    left, right = simple("ab", "ab")
    other = Root(**{**vars(right.roots[0]), "path": "b.py"})
    assert len(find_anchors([left, Row(trajectory=1, step=0, roots=(other,))])) == 1


def test_runs_do_not_cross_unchanged_lines() -> None:
    gate = [True, False, True]
    anchors = find_anchors(rows_from(*[[("overwrite", list("abc"), gate)]] * 2))
    assert sorted(a.lines for a in anchors) == [("a",), ("c",)]


def test_unchanged_text_earns_nothing_and_is_not_counted() -> None:
    rows = rows_from(
        [("overwrite", ["a"], None)], [("overwrite", ["a"], [False])], [("overwrite", ["a"], None)]
    )  # the second row merely wrote "a" again
    (anchor,) = find_anchors(rows)
    assert [o.row for o in anchor.occurrences] == [0, 2] and anchor.n_rows == 2


def test_nothing_repeats() -> None:
    rows = rows_from(*[[("overwrite", [line], None)] for line in ("aa1 = 1", "bb2 = [2]", "cc3 = {3}")])
    assert find_anchors(rows) == [] and find_anchors([]) == []
    assert find_anchors(rows_from([], [])) == []


def test_at_most_k_anchors() -> None:
    rows = simple("a1b2c3", "a4b5c6", "a7b8c9")
    assert len(find_anchors(rows)) == 3
    assert len(find_anchors(rows, max_anchors=2)) == 2


# ---------------------------------------------------------------- laws


def test_row_order_permutes_the_result() -> None:
    for seed in range(60):
        rng = random.Random(seed)
        rows = random_rows(rng)
        order = list(range(len(rows)))
        rng.shuffle(order)
        shuffled = [rows[i] for i in order]
        back = [
            (kind, lines, tuple(sorted((order[row], *rest) for row, *rest in places)))
            for kind, lines, places in plain(find_anchors(shuffled))
        ]
        assert back == [(k, lines, tuple(sorted(p))) for k, lines, p in plain(find_anchors(rows))]


def test_no_line_belongs_to_two_anchors() -> None:
    for seed in range(60):
        taken = set()
        for anchor in find_anchors(random_rows(random.Random(seed))):
            assert anchor.n_rows >= 2 and len({o.row for o in anchor.occurrences}) == anchor.n_rows
            for o in anchor.occurrences:
                lines = {(o.row, o.root, line) for line in range(o.start, o.stop)}
                assert taken.isdisjoint(lines)
                taken |= lines


def test_hash_seed_does_not_matter() -> None:
    code = (
        "import random; from test_anchors import *; "
        "print([plain(find_anchors(random_rows(random.Random(s)))) for s in range(8)])"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(p for p in sys.path if p), "OMP_NUM_THREADS": "1"},
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1] != ""


# ---------------------------------------------------------------- worst cases: they must simply end


def test_worst_cases_end() -> None:
    big = [f"line {i}" for i in range(20_000)]
    (anchor,) = find_anchors(rows_from(*[[("overwrite", big, None)]] * 4))
    assert anchor.length == 20_000 and anchor.n_rows == 4
    same = find_anchors(rows_from(*[[("overwrite", ["x"] * 2_000, None)]] * 8))
    assert [(a.length, a.n_rows) for a in same] == [(2_000, 8)]
    uneven = find_anchors(rows_from(*[[("overwrite", ["x"] * (100 * i), None)] for i in range(1, 17)]))
    assert uneven and all(a.n_rows >= 2 for a in uneven)
    assert find_anchors(rows_from(*[[("overwrite", [f"{i} {j}" for j in range(2_000)], None)] for i in range(8)])) == []


def test_rows_that_share_prefixes_of_every_length() -> None:
    rows = rows_from(*[[("overwrite", [f"{j}" for j in range(i)], None)] for i in range(1, 200)])
    anchors = find_anchors(rows)
    assert anchors and all(a.lines == tuple(f"{j}" for j in range(len(a.lines))) for a in anchors)
