"""Settings from three places, later ones winning: a preset, a TOML file, dotted flags.

Settings are frozen dataclasses, nested by section. Every key is checked by name and type before anything is loaded; an
unknown one is refused with the nearest known name.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import tomllib
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from didpo.errors import UserError, unknown_name

T = TypeVar("T")


def read_toml(path: str | Path) -> dict[str, Any]:
    """The tables of a TOML file. Raises `UserError` where it is missing or broken."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read the settings file {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not valid TOML: {error}") from error


def nest(flags: Mapping[str, str]) -> dict[str, Any]:
    """{"rl.steps": "3"} -> {"rl": {"steps": "3"}}."""
    tree: dict[str, Any] = {}
    for dotted, value in flags.items():
        *sections, name = dotted.split(".")
        node = tree
        for section in sections:
            node = node.setdefault(section, {})
            if not isinstance(node, dict):
                raise UserError(f"--{dotted}: {section!r} is given both as a value and as a section")
        if isinstance(node.get(name), dict):
            raise UserError(f"--{dotted}: {name!r} is given both as a value and as a section")
        node[name] = value
    return tree


def override(settings: T, changes: Mapping[str, Any], where: str = "") -> T:
    """A copy of the dataclass `settings` with `changes` (nested by section) applied.

    Text values are read as the type of their field, so that flags and TOML go the same way. Raises `UserError` for an
    unknown name or a value of another type.
    """
    hints = typing.get_type_hints(type(settings))
    known = [f.name for f in dataclasses.fields(settings)]  # type: ignore[arg-type]
    new: dict[str, Any] = {}
    for name, value in changes.items():
        dotted = f"{where}{name}"
        if name not in known:
            error = unknown_name("setting", dotted, (where + k for k in known))
            raise UserError(f"{error} (see `didpo train --help-settings`)")
        current = getattr(settings, name)
        if dataclasses.is_dataclass(current):
            if not isinstance(value, Mapping):
                raise UserError(
                    f"setting {dotted} is a section; set one of its fields, such as {dotted}.{_first(current)}"
                )
            new[name] = override(current, value, f"{dotted}.")
        else:
            new[name] = _convert(value, hints[name], dotted)
    try:
        return dataclasses.replace(settings, **new)  # type: ignore[type-var]
    except ValueError as error:  # the dataclass's own check of ranges
        raise UserError(f"settings {where.rstrip('.') or 'file'}: {error}") from error


def _first(section: Any) -> str:
    return dataclasses.fields(section)[0].name


def _convert(value: Any, hint: Any, dotted: str) -> Any:
    """`value` as the type `hint`; a text is parsed, any other value must already fit."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if value is None or (isinstance(value, str) and value.lower() == "none" and types.NoneType in args):
            return None
        return _convert(value, next(a for a in args if a is not types.NoneType), dotted)
    if origin is typing.Literal:
        if value not in args:
            raise unknown_name(f"value for {dotted}:", str(value), map(str, args))
        return value
    if origin is tuple:
        items = [v for v in value.split(",") if v] if isinstance(value, str) else value
        if not isinstance(items, (list, tuple)):
            raise UserError(f"setting {dotted} needs a list, got {value!r}")
        return tuple(_convert(v, args[0], dotted) for v in items)
    if origin is dict or hint is dict:
        if not isinstance(value, Mapping):
            raise UserError(f"setting {dotted} is a table; set its keys, such as --{dotted}.name value")
        return {key: parse_plain(v) for key, v in value.items()}
    return _scalar(value, hint, dotted)


def _scalar(value: Any, hint: type, dotted: str) -> Any:
    if hint is bool and isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint in (int, float) and isinstance(value, str):
        with contextlib.suppress(ValueError):
            value = hint(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"setting {dotted} must be a finite number, got {value!r}")
    if isinstance(value, hint) and not (hint is int and isinstance(value, bool)):
        return value
    raise UserError(f"setting {dotted} needs a value of type {hint.__name__}, got {value!r}")


def parse_plain(value: Any) -> Any:
    """A text of a flag as the number or truth value it spells (for tables whose fields are checked elsewhere)."""
    if not isinstance(value, str):
        return value
    for parse in (int, float):
        try:
            return parse(value)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(value.lower(), value)


def to_dict(settings: Any) -> dict[str, Any]:
    """Nested plain values; None becomes the text "none", since TOML has no such value (`override` reads it back)."""
    tree: dict[str, Any] = {}
    for f in dataclasses.fields(settings):
        value = getattr(settings, f.name)
        if dataclasses.is_dataclass(value):
            tree[f.name] = to_dict(value)
        elif isinstance(value, tuple):
            tree[f.name] = list(value)
        else:
            tree[f.name] = "none" if value is None else value
    return tree


def to_toml(settings: Any) -> str:
    """The settings as a TOML text that reads back to the same values."""
    import tomli_w

    return tomli_w.dumps(to_dict(settings))


def describe(settings: Any, where: str = "") -> list[tuple[str, str, str]]:
    """(dotted name, type, default) of every setting, in order; for help texts."""
    hints = typing.get_type_hints(type(settings))
    rows: list[tuple[str, str, str]] = []
    for f in dataclasses.fields(settings):
        value = getattr(settings, f.name)
        if dataclasses.is_dataclass(value):
            rows += describe(value, f"{where}{f.name}.")
        else:
            rows.append((where + f.name, _type_name(hints[f.name]), str(value)))
    return rows


def _type_name(hint: Any) -> str:
    if typing.get_origin(hint) is typing.Literal:
        return "|".join(map(str, typing.get_args(hint)))
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint).replace("typing.", "")
