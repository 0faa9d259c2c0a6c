"""mini-swe-agent message lists: [{role, content}], or {messages: [...], info, instance_id}.

Every answer holds one shell command in a fenced block; edits are the here-documents and `sed -i` in it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from didpo.errors import UserError
from didpo.importers.common import Found, ImportReport, groups_of, load_json, refused
from didpo.importers.shell import shell_edits
from didpo.types import Step, StopReason, Trajectory, TrajectoryGroup

BLOCK = re.compile(r"^```(?:mswea_bash_command|bash|sh)[ \t]*\n(?P<command>.*?)\n?^```[ \t]*$", re.S | re.M)
OUTPUT = re.compile(r"<returncode>(?P<code>-?\d+)</returncode>\s*<output>\n?(?P<output>.*)", re.S)
FINISH = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


def matches(value: Any) -> bool:
    messages = value.get("messages") if isinstance(value, dict) else value
    return (
        isinstance(messages, list)
        and len(messages) > 1
        and all(isinstance(m, dict) and "role" in m and "content" in m for m in messages)
    )


def load(paths: list[Path], report: ImportReport) -> list[TrajectoryGroup]:
    return groups_of(_run(path, report) for path in paths)


def _run(path: Path, report: ImportReport) -> tuple[str, Trajectory]:
    value = load_json(path)
    if not matches(value):
        raise UserError(f"{path}: not a mini-swe-agent trajectory (a list of messages with role and content)")
    record = value if isinstance(value, dict) else {"messages": value}
    messages = [{**m, "content": _text(m["content"])} for m in record["messages"]]
    steps = []
    for message, answer in zip(messages, [*messages[1:], {"role": "user", "content": ""}], strict=True):
        if message["role"] == "assistant":
            steps.append(_step(message["content"], answer["content"], report))
    name = path.name.removesuffix(".json").removesuffix(".traj")
    info = record.get("info") or {}
    finished = any(FINISH in s.response for s in steps)
    return str(record.get("instance_id") or name), Trajectory(
        steps=steps,
        stop_reason=StopReason.FINISHED if finished else StopReason.TURN_LIMIT,
        trajectory_id=name,
        meta={k: info[k] for k in ("exit_status", "submission") if info.get(k) is not None},
    )


def _text(content: Any) -> str:
    if isinstance(content, list):  # content parts of a chat interface
        return "".join(part.get("text", "") for part in content if isinstance(part, dict))
    return content or ""


def _step(response: str, observation: str, report: ImportReport) -> Step:
    blocks = list(BLOCK.finditer(response))
    found = Found()
    if len(blocks) == 1:  # the agent runs an answer only if it holds exactly one command
        found = shell_edits(response, blocks[0].start("command"), blocks[0].end("command"))
    output = OUTPUT.match(observation)
    failed = bool(output and output["code"] != "0" and refused(output["output"]))
    edits = found.report_to(report, refused=failed)
    kind = "edit" if found.ways or found.unrecognised else "finish" if FINISH in response else "run"
    return Step(
        response=response,
        observation=observation,
        edits=edits,
        action=kind if len(blocks) == 1 else "invalid",
        finish_reason="stop",
    )
