"""What the policy reads before each turn."""

from __future__ import annotations

from didpo.actions import parse
from didpo.agent import ACTIONS, ChatAgent, RepairAgent, fenced, verdict_line
from didpo.tasks.scripted import ScriptedTurn
from didpo.types import Task

TASK = Task(task_id="t", prompt="f: sum plus 1\n", files={"solution.py": "def f(xs):\n    return 0\n"})


def turn(*, shown: dict[str, bool], error: str | None = None) -> ScriptedTurn:
    return ScriptedTurn(
        files=TASK.files,
        response="<edit ...>",
        observation="The edit was applied.\n",
        shown=shown,
        solved=False,
        error=error,
    )


def test_compact_prompt() -> None:
    agent = RepairAgent()
    assert agent.prompt(TASK, [], TASK.files) == "f: sum plus 1\n---\ndef f(xs):\n    return 0\n---\n"
    now = {"solution.py": "x = 1"}
    history = [turn(shown={"f/0": True}), turn(shown={"f/0": True, "f/1": False, "g/0": True})]
    assert agent.prompt(TASK, history, now) == "f: sum plus 1\n---\nx = 1\n---\nf bad g ok\n"
    assert agent.prompt(TASK, [turn(shown={}, error="no")], now) == "f: sum plus 1\n---\nx = 1\n---\ninvalid\n"
    two = {"a.py": "x\n", "b.py": ""}
    assert agent.prompt(TASK, [], two) == "f: sum plus 1\n--- a.py\nx\n--- b.py\n---\n"


def test_a_function_is_ok_if_all_its_tests_pass() -> None:
    assert verdict_line({"f1/0": True, "f1/1": False, "f2/0": True, "whole": True}) == "f1 bad f2 ok whole ok\n"


def test_chat_messages() -> None:
    agent = ChatAgent(lambda messages: "|".join(m["role"] for m in messages))
    history = [turn(shown={"f/0": False})]
    messages = agent.messages(TASK, history, TASK.files)
    assert [m["role"] for m in messages] == ["system", "user", "assistant", "user"]
    assert messages[1]["content"] == "f: sum plus 1\n\nFile solution.py:\n```\ndef f(xs):\n    return 0\n```\n"
    assert (messages[2]["content"], messages[3]["content"]) == ("<edit ...>", "The edit was applied.\n")
    assert agent.prompt(TASK, history, TASK.files) == "system|user|assistant|user"
    assert "<execute_bash>" in messages[0]["content"]
    silent = ChatAgent(lambda messages: "", commands=False)
    assert "<execute_bash>" not in silent.messages(TASK, [], TASK.files)[0]["content"]


def test_the_grammar_that_the_agent_is_told_can_be_read() -> None:
    example = ACTIONS[ACTIONS.index("<edit PATH>") : ACTIONS.index("</edit>") + len("</edit>")]
    (edit,) = parse(example).edits
    assert (edit.path, edit.op, edit.text.text) == ("PATH", "replace", "lines to put there\n")


def test_fences_are_longer_than_those_inside() -> None:
    assert fenced("```\n````py\nx") == "`````\n```\n````py\nx\n`````\n"
