"""What a person sees while a run goes on: phases, success, tokens per second, time left, and alarms in plain words.

On a terminal a live bar; elsewhere one line per phase and a few on the way; or nothing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Literal, Protocol

Kind = Literal["auto", "rich", "plain", "silent"]


class Progress(Protocol):
    """Where a run reports to. Used as a context manager around the whole run."""

    def __enter__(self) -> Progress: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def phase(self, name: str, total: int, done: int = 0) -> None:
        """A new phase of `total` units begins, `done` of them behind us (a resumed run)."""

    def advance(self, n: int = 1, **numbers: float) -> None:
        """`n` more units are done; `numbers` are shown beside the bar (success, tokens_per_second, loss, ...)."""

    def say(self, text: str) -> None:
        """A line that stays."""

    def alarm(self, text: str) -> None:
        """A line that stays and asks for attention. The same text is shown once."""


def open_progress(kind: Kind = "auto") -> Progress:
    """ "auto" is a live bar on a terminal and plain lines elsewhere."""
    if kind == "auto":
        kind = "rich" if sys.stderr.isatty() else "plain"
    return {"rich": RichProgress, "plain": PlainProgress, "silent": SilentProgress}[kind]()


def alarms(row: Mapping[str, Any]) -> list[str]:
    """What a metrics row gives reason to warn of, in plain words, one line each."""
    found = []

    def share(name: str) -> float:
        return float(row.get(name) or 0.0)

    if share("no_signal_share") >= 0.5:
        found.append(
            f"{share('no_signal_share'):.0%} of the groups gave no signal (all their rollouts scored alike): "
            "the tasks are too hard or too easy for the policy"
        )
    if row.get("diff_coverage") is not None and share("diff_coverage") < 0.05:
        found.append("under 5% of the trained tokens got credit from diffs: training is close to plain group credit")
    if share("grade_mismatch") > 0:
        found.append(
            "a program's tests came out differently when each ran in a process of its own: "
            "programs of this policy keep state between tests"
        )
    if share("sandbox_timeout_share") >= 0.05:
        found.append(
            f"{share('sandbox_timeout_share'):.0%} of the graded steps ran into the sandbox's time limit: "
            "raise sandbox.cpu_s if right programs need longer"
        )
    if share("failed_rollouts") > 0:
        found.append(
            f"{share('failed_rollouts'):.0f} rollouts failed for reasons outside the policy and were left out: "
            "see the errors in trajectories/ and `didpo doctor`"
        )
    if share("stop_length_share") >= 0.2:
        found.append(f"{share('stop_length_share'):.0%} of the rollouts were cut off: raise sampling.max_new_tokens")
    if share("logprob_gap") > 0.1:
        found.append("sampler and trainer disagree about the log-probabilities (mean gap over 0.1)")
    return found


class SilentProgress:
    """Shows nothing."""

    def __enter__(self) -> SilentProgress:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def phase(self, name: str, total: int, done: int = 0) -> None:
        pass

    def advance(self, n: int = 1, **numbers: float) -> None:
        pass

    def say(self, text: str) -> None:
        pass

    def alarm(self, text: str) -> None:
        pass


class PlainProgress(SilentProgress):
    """Lines on the standard error stream: at the start of a phase, about every tenth of it, and at its end."""

    def __init__(self) -> None:
        self.name, self.total, self.start, self.done, self.shown = "", 0, 0, 0, 0
        self.began = self.phase_began = self.shown_at = time.monotonic()
        self.alarmed: set[str] = set()

    def _print(self, text: str) -> None:
        print(f"[{time.monotonic() - self.began:6.1f}s] {text}", file=sys.stderr, flush=True)

    def phase(self, name: str, total: int, done: int = 0) -> None:
        self.name, self.total, self.start, self.done, self.shown = name, total, done, done, done
        self.phase_began = time.monotonic()
        self._print(f"{name} ({total - done} to do)" if total else name)

    def advance(self, n: int = 1, **numbers: float) -> None:
        self.done += n
        now = time.monotonic()
        tenth = self.done - self.shown >= max(1, self.total // 10) and now - self.shown_at >= 2
        if self.done >= self.total or tenth:
            self.shown, self.shown_at = self.done, now
            self._print(f"{self.name} {self.done}/{self.total}  {_numbers(numbers)}{self._left()}")

    def _left(self) -> str:
        """Time left in the phase, from its pace so far."""
        todo, done = self.total - self.done, self.done - self.start
        if todo <= 0 or done <= 0:
            return ""
        return f"  about {(time.monotonic() - self.phase_began) / done * todo:.0f} s left"

    def say(self, text: str) -> None:
        self._print(text)

    def alarm(self, text: str) -> None:
        if text not in self.alarmed:
            self.alarmed.add(text)
            self._print(f"ATTENTION: {text}")


class RichProgress(SilentProgress):
    """A live bar per phase with the time left; alarms stay above it."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Bars

        self.bars = Bars(
            TextColumn("[bold]{task.description:<28}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[numbers]}"),
            console=Console(stderr=True),
        )
        self.current: Any = None
        self.alarmed: set[str] = set()

    def __enter__(self) -> RichProgress:
        self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bars.stop()

    def phase(self, name: str, total: int, done: int = 0) -> None:
        self.current = self.bars.add_task(name, total=total or None, completed=done, numbers="")

    def advance(self, n: int = 1, **numbers: float) -> None:
        assert self.current is not None, "a phase comes first"
        self.bars.update(self.current, advance=n, numbers=_numbers(numbers))

    def say(self, text: str) -> None:
        self.bars.console.print(text, highlight=False, markup=False)

    def alarm(self, text: str) -> None:
        if text not in self.alarmed:
            self.alarmed.add(text)
            self.bars.console.print(f"ATTENTION: {text}", style="yellow", highlight=False, markup=False)


def _numbers(numbers: Mapping[str, float]) -> str:
    return "  ".join(f"{name.replace('_', ' ')} {_short(value)}" for name, value in numbers.items())


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
