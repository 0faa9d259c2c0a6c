"""Credit to JSON and back, bit for bit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from didpo.credit.io import decode_array, dumps, encode_array, from_json, loads, read_credit, to_json, write_credit
from didpo.errors import UserError
from didpo.types import Anchor, AnchorMember, GroupCredit


def example() -> GroupCredit:
    values = [[np.array([0.1, 0.1, -0.0, 3], dtype=np.float32)], [np.zeros(0, dtype=np.float32)], []]
    member = AnchorMember(trajectory=0, step=1, path="a.py", spans=((1, 4), (6, 9)), signal=0.1, advantage=1 / 3)
    anchor = Anchor(
        anchor_id=3,
        kind="block",
        edit_kind="add",
        lines=("é = 1", "\u2028"),
        length=2.0,
        n_rows=1,
        groupability=0.25,
        mean_signal=0.1,
        contrast=None,
        members=(member,),
        label="f",
    )
    return GroupCredit(
        algorithm="didpo",
        advantages=values,
        parts={"episode": values, "diff": [[np.zeros(4, dtype=np.float32)], [np.zeros(0, dtype=np.float32)], []]},
        assigned=[True, False, True],
        anchors=[anchor],
        metrics={"rows": 2.0},
        notes=["a note"],
    )


def test_round_trip(tmp_path: Path) -> None:
    credit = example()
    back = loads(dumps(credit))
    assert dumps(back) == dumps(credit) and "\n" not in dumps(credit)
    assert back.anchors == credit.anchors and back.assigned == credit.assigned
    assert back.metrics == credit.metrics and back.notes == credit.notes
    for a, b in zip(back.advantages, credit.advantages, strict=True):
        assert [x.tobytes() for x in a] == [x.tobytes() for x in b]
        assert all(x.dtype == np.float32 for x in a)
    write_credit(tmp_path / "c" / "credit.jsonl", [credit, credit])
    assert [dumps(c) for c in read_credit(tmp_path / "c" / "credit.jsonl")] == [dumps(credit)] * 2


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False)))
def test_arrays_come_back_bit_for_bit(values: list[float]) -> None:
    array = np.array(values, dtype=np.float32)
    assert decode_array(json.loads(json.dumps(encode_array(array)))).tobytes() == array.tobytes()


def test_damage_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="version 99"):
        from_json({"version": 99})
    data = to_json(example())
    del data["notes"]
    with pytest.raises(UserError, match="lacks notes"):
        from_json(data)
    path = tmp_path / "x.jsonl"
    path.write_text(dumps(example()) + "\n{oops\n")
    with pytest.raises(UserError, match="line 2"):
        list(read_credit(path))
    with pytest.raises(UserError, match="no credit file"):
        list(read_credit(tmp_path / "none"))
    credit = example()
    credit.advantages[0][0][0] = np.nan
    with pytest.raises(UserError, match="finite"):
        dumps(credit)
