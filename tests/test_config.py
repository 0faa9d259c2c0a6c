"""Settings: types, sections, unknown names, and the round trip through TOML."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from didpo.config import describe, nest, override, read_toml, to_toml
from didpo.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Inner:
    rate: float = 0.1
    steps: int = 4
    flag: bool = False
    kind: Literal["a", "b"] = "a"
    names: tuple[str, ...] = ("x",)
    limit: int | None = 3

    def __post_init__(self) -> None:
        if self.steps < 0:
            raise ValueError("steps must not be negative")


@dataclass(frozen=True, kw_only=True)
class Outer:
    seed: int = 0
    inner: Inner = field(default_factory=Inner)
    extra: dict[str, Any] = field(default_factory=dict)


def test_flags_and_toml_take_the_same_way() -> None:
    flags = nest({"inner.rate": "1e-3", "inner.flag": "true", "inner.names": "p,q", "inner.limit": "none", "seed": "7"})
    toml = tomllib.loads('seed = 7\n[inner]\nrate = 1e-3\nflag = true\nnames = ["p", "q"]\nlimit = "none"\n')
    expected = Outer(seed=7, inner=Inner(rate=0.001, flag=True, names=("p", "q"), limit=None))
    assert override(Outer(), flags) == override(Outer(), toml) == expected


def test_resolved_settings_read_back_equal() -> None:
    settings = Outer(seed=3, inner=Inner(limit=None, rate=2.0, kind="b"), extra={"lam": 0.5})
    assert override(Outer(), tomllib.loads(to_toml(settings))) == settings


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"inner": {"rat": 1}}, "unknown setting 'inner.rat'; did you mean 'inner.rate'?"),
        ({"sed": 1}, "did you mean 'seed'?"),
        ({"inner": 3}, "inner is a section"),
        ({"inner": {"steps": "many"}}, "inner.steps needs a value of type int, got 'many'"),
        ({"inner": {"steps": 1.5}}, "inner.steps needs a value of type int"),
        ({"inner": {"steps": True}}, "inner.steps needs a value of type int"),
        ({"inner": {"kind": "c"}}, "inner.kind"),
        ({"inner": {"steps": -1}}, "steps must not be negative"),
        ({"extra": 1}, "extra is a table"),
    ],
)
def test_mistakes_are_one_line_naming_the_setting(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(UserError) as caught:
        override(Outer(), changes)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_section_cannot_be_a_value_too() -> None:
    with pytest.raises(UserError, match="both as a value and as a section"):
        nest({"inner": "1", "inner.rate": "2"})
    with pytest.raises(UserError, match="both as a value and as a section"):
        nest({"inner.rate": "2", "inner": "1"})


def test_files_that_are_missing_or_broken(tmp_path) -> None:
    with pytest.raises(UserError, match="cannot read the settings file"):
        read_toml(tmp_path / "none.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("seed = = 1\n")
    with pytest.raises(UserError, match="not valid TOML"):
        read_toml(broken)


def test_describe_lists_every_setting_with_its_default() -> None:
    rows = {name: (kind, default) for name, kind, default in describe(Outer())}
    assert rows["inner.kind"] == ("a|b", "a")
    assert rows["seed"] == ("int", "0")
    assert len(rows) == 8
