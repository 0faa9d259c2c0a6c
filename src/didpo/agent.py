"""What the policy reads before each turn: a compact prompt for the tiny model, or chat messages for a real one.

Every turn is a training row of its own, with the prompt as it was fed; so an agent is free to shorten what came before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from didpo.types import Files, Task

Message = dict[str, str]  # {"role": "system" | "user" | "assistant", "content": ...}


class Turn(Protocol):
    """What an agent needs to know of a past turn; `didpo.env.EnvStep` is one."""

    @property
    def response(self) -> str: ...
    @property
    def observation(self) -> str: ...
    @property
    def error(self) -> str | None: ...
    @property
    def shown(self) -> Mapping[str, bool] | None: ...


class Agent(Protocol):
    def prompt(self, task: Task, history: Sequence[Turn], files: Files) -> str:
        """The text that the policy continues. `files` is the workspace as it stands, `history` all turns so far."""
        ...


class RepairAgent:
    """Task, current file and the verdict on each function, in as few tokens as possible. It forgets earlier turns."""

    def prompt(self, task: Task, history: Sequence[Turn], files: Files) -> str:
        parts = [task.prompt if task.prompt.endswith("\n") else task.prompt + "\n"]
        for path, text in files.items():
            parts.append("---\n" if len(files) == 1 else f"--- {path}\n")
            parts.append(text if text.endswith("\n") or not text else text + "\n")
        parts.append("---\n")
        if history and history[-1].error:
            parts.append("invalid\n")
        if history and history[-1].shown:
            parts.append(verdict_line(history[-1].shown))
        return "".join(parts)


def verdict_line(shown: Mapping[str, bool]) -> str:
    """{"f1/0": True, "f1/1": False, "f2/0": True} -> "f1 bad f2 ok\\n": all tests of a function together."""
    passed: dict[str, bool] = {}
    for name, ok in shown.items():
        function = name.rpartition("/")[0] or name
        passed[function] = passed.get(function, True) and ok
    return " ".join(f"{function} {'ok' if ok else 'bad'}" for function, ok in passed.items()) + "\n"


ACTIONS = """\
You work on the files of a small project. In each turn you may think first, between <think> and </think>; then take \
exactly one action.

Change files, with one or more of these blocks:
<edit PATH>
<search>
lines that stand at exactly one place in the file
</search>
<replace>
lines to put there
</replace>
</edit>
Inside <edit PATH> you may give several <search>/<replace> pairs; or <insert line="N">new lines</insert>, which puts \
them after line N (0: at the top); or <code>the whole file</code>.
"""
RUN = """\
Run a shell command in the project's folder:
<execute_bash>command</execute_bash>
"""
FINISH = """\
When nothing is left to do:
<finish>
"""


class ChatAgent:
    """The whole conversation as chat messages. `render` turns them into the text that the model continues.

    Thoughts stay in the history, as they were sampled. The commands are described where the environment runs them.
    """

    def __init__(self, render: Callable[[list[Message]], str], *, commands: bool = True) -> None:
        self.render = render
        self.system = "\n".join([ACTIONS, RUN, FINISH] if commands else [ACTIONS, FINISH])

    def prompt(self, task: Task, history: Sequence[Turn], files: Files) -> str:
        return self.render(self.messages(task, history, files))

    def messages(self, task: Task, history: Sequence[Turn], files: Files) -> list[Message]:
        """System text, the task with its files, then every response and what came back."""
        opening = task.prompt.rstrip("\n") + "\n"
        for path, text in task.files.items():
            opening += f"\nFile {path}:\n{fenced(text)}"
        messages: list[Message] = [
            {"role": "system", "content": self.system},
            {"role": "user", "content": opening},
        ]
        for turn in history:
            messages.append({"role": "assistant", "content": turn.response})
            messages.append({"role": "user", "content": turn.observation})
        return messages


def fenced(text: str) -> str:
    """The text in a Markdown fence longer than any fence inside it."""
    longest = max((len(run) for run in re.findall("`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{text}{'' if text.endswith(chr(10)) else chr(10)}{fence}\n"
