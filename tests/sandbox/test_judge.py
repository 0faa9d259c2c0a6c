import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from didpo.sandbox import wire
from didpo.sandbox.judge import equal_output, equal_values


@pytest.mark.parametrize(
    ("got", "expected", "right"),
    [
        ("0.333333", "0.333333333333", True),
        ("1 2 \n3\n\n", "1 2\n3", True),
        ("1\r\n2\r\n", "1\n2\n", True),
        ("0.34", "0.333333333333", False),
        ("12", "1 2", False),
        ("Yes", "yes", False),
        ("007", "7", True),
        ("-0", "0", True),
        ("-5", "5", False),
        ("1e3", "1000", True),
        ("9" * 5000, "9" * 5000, True),
        ("9" * 4999 + "8", "9" * 5000, False),  # exact, although equal within 1e-6
        ("1_000", "1000", False),
        ("nan", "nan", True),
        ("", "", True),
        ("", "0", False),
        ("1000000.5", "1000001", True),
    ],
)
def test_tokens(got: str, expected: str, right: bool) -> None:
    assert equal_output(got, expected) is right


def test_exact_and_unordered() -> None:
    assert equal_output("a b\n", "a b", "exact")
    assert not equal_output("a  b\n", "a b", "exact")
    assert equal_output("b 1\na 2\n", "a 2\nb 1", "unordered")
    assert not equal_output("b\na\n", "a b", "unordered")
    assert not equal_output("a\na\nb\n", "a\nb\nb\n", "unordered")


@pytest.mark.parametrize(
    ("got", "expected", "right"),
    [
        ((1, 2), [1, 2], True),
        ([(1,), 2], [[1], 2], True),
        ([1], [1, 2], False),
        (0.1 + 0.2, 0.3, True),
        (0.30001, 0.3, False),
        (10**30 + 1, 10**30, False),
        (math.nan, math.nan, True),
        (math.inf, 1.0, False),
        (10**400, 1.5, False),
        ("1", 1, False),
        ({"a": (1,)}, {"a": [1]}, True),
        ({"a": 1, "b": 2}, {"a": 1}, False),
        ({1, 2}, {2, 1}, True),
        (None, False, False),
        ([], None, False),
        (2, 2.0, True),
    ],
)
def test_values(got: object, expected: object, right: bool) -> None:
    assert equal_values(got, expected) is right


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.complex_numbers(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text() | st.integers() | st.tuples(st.integers()), inner, max_size=4)
        | st.sets(st.integers() | st.text(), max_size=4)
        | st.frozensets(st.integers(), max_size=4)
    ),
    max_leaves=12,
)


@given(PLAIN)
def test_what_crosses_is_the_same_value_of_the_same_type(value: object) -> None:
    back = wire.decode(json.loads(json.dumps(wire.encode(value))))
    assert same(back, value)


def same(a: object, b: object) -> bool:
    """Equal, and of the same types all the way down."""
    if type(a) is not type(b) or a != b:
        return False
    if isinstance(a, dict) and isinstance(b, dict):
        return all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return all(same(x, y) for x, y in zip(a, b, strict=True))
    return True


def test_subclasses_cross_as_the_builtin_and_others_not_at_all() -> None:
    class Liar(int):
        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 0

        def __int__(self) -> int:
            return 99

    back = wire.decode(wire.encode([Liar(3)]))
    assert type(back[0]) is int
    assert back == [3]
    with pytest.raises(wire.Unsendable):
        wire.encode(object())
    with pytest.raises(wire.Unsendable):
        nested: list[object] = []
        nested.append(nested)
        wire.encode(nested)
