"""Values as JSON, in and out of the sandbox. Only exact builtin types (and numeric arrays) come out of `decode`.

Runs on both sides. Nothing is ever unpickled or evaluated. JSON's own types stand for themselves; the others are
one-key objects: {"t": tuple} {"d": dict as pairs} {"s": set} {"z": frozenset} {"i": big int, hex} {"b": bytes, hex}
{"c": complex} {"a": array: [dtype, nested list]} {"x": something that only has a handle}.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

SMALL = 1 << 53
MAX_DEPTH = 400


class Unsendable(Exception):
    """A value of a type that does not cross."""


def _refuse(value: Any) -> Any:
    raise Unsendable(f"a value of type {type(value).__name__}")


def encode(value: Any, opaque: Callable[[Any], Any] = _refuse, depth: int = 0) -> Any:
    """JSON-ready form. Subclasses of builtin types are reduced to the builtin value by the builtin's own methods;
    other values go to `opaque`, which returns the handle to send or raises `Unsendable`."""
    kind = type(value)
    if value is None or kind is bool or kind is str or kind is float:
        return value
    if kind is int:
        return value if -SMALL < value < SMALL else {"i": hex(value)}
    if depth > MAX_DEPTH:
        raise Unsendable("a value nested too deeply")
    if issubclass(kind, list):
        return [encode(v, opaque, depth + 1) for v in list.__iter__(value)]
    if issubclass(kind, tuple):
        return {"t": [encode(v, opaque, depth + 1) for v in tuple.__iter__(value)]}
    if issubclass(kind, dict):
        return {"d": [[encode(k, opaque, depth + 1), encode(v, opaque, depth + 1)] for k, v in dict.items(value)]}
    if issubclass(kind, set):
        return {"s": [encode(v, opaque, depth + 1) for v in set.__iter__(value)]}
    if issubclass(kind, frozenset):
        return {"z": [encode(v, opaque, depth + 1) for v in frozenset.__iter__(value)]}
    if issubclass(kind, int):
        return encode(int.__int__(value))
    if issubclass(kind, float):
        return float.__float__(value)
    if issubclass(kind, str):
        return str.__str__(value)
    if issubclass(kind, (bytes, bytearray)):
        return {"b": bytes(value).hex()}
    if issubclass(kind, complex):
        return {"c": [value.real, value.imag]}
    numpy = sys.modules.get("numpy")
    if numpy is not None and issubclass(kind, (numpy.ndarray, numpy.generic)) and value.dtype.kind in "biufc":
        if issubclass(kind, numpy.generic):
            return encode(value.item(), opaque, depth + 1)
        return {"a": [value.dtype.str, encode(value.tolist(), opaque, depth + 1)]}
    return opaque(value)


def _array_as_list(dtype: str, items: Any) -> Any:
    return items


def decode(
    wire: Any,
    opaque: Callable[[Any], Any] = _refuse,
    array: Callable[[str, Any], Any] = _array_as_list,
) -> Any:
    """The value of a JSON form. Raises ValueError, TypeError or KeyError on a form that `encode` does not write."""
    if type(wire) is list:
        return [decode(v, opaque, array) for v in wire]
    if type(wire) is not dict:
        return wire
    ((tag, body),) = wire.items()
    if tag == "t":
        return tuple(decode(v, opaque, array) for v in body)
    if tag == "d":
        return {decode(k, opaque, array): decode(v, opaque, array) for k, v in body}
    if tag == "s":
        return {decode(v, opaque, array) for v in body}
    if tag == "z":
        return frozenset(decode(v, opaque, array) for v in body)
    if tag == "i":
        return int(body, 16)
    if tag == "b":
        return bytes.fromhex(body)
    if tag == "c":
        return complex(*body)
    if tag == "a":
        return array(str(body[0]), decode(body[1], opaque, array))
    if tag == "x":
        return opaque(body)
    raise ValueError(f"unknown tag {tag!r}")
