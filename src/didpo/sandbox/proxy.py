"""Two processes that call each other's functions: the tests in one, the candidate's code in the other.

Only exact builtin values cross; everything else crosses as a handle whose comparisons never reach the candidate. So an
object that equals everything, an exit, a printed marker or a patched builtin of the candidate changes nothing in the
process that decides.
"""

from __future__ import annotations

import builtins
import importlib
import json
import linecache
import socket
import sys
import time
import types
from collections.abc import Callable
from typing import Any

from didpo.sandbox import child, wire


class Gone(Exception):
    """The candidate's process has ended."""


class CandidateError(Exception):
    """An exception of the candidate that is no builtin one."""


class Peer:
    """One end of the connection. Requests may nest: while waiting for a reply, requests of the other end are served."""

    def __init__(self, sock: socket.socket, wrap: Callable[[Peer, int, str], Any], serve: Callable[..., Any]) -> None:
        self.stream = sock.makefile("rwb")
        self.wrap, self.serve = wrap, serve
        self.objects: dict[int, Any] = {}  # handles given to the other end

    def pack(self, value: Any) -> Any:
        return wire.encode(value, self._give)

    def _give(self, value: Any) -> Any:
        if type(value) is Remote:
            return {"x": ["yours", object.__getattribute__(value, "_handle"), ""]}
        if isinstance(value, types.ModuleType):
            return {"x": ["module", 0, value.__name__]}
        self.objects[id(value)] = value  # kept alive, so that the id stays its own
        return {"x": ["mine", id(value), type(value).__name__]}

    def _take(self, body: Any) -> Any:
        owner, handle, name = body
        if owner == "yours":
            return self.objects[handle]
        if owner == "module" and str(name).partition(".")[0] in sys.stdlib_module_names | ALIASES.keys():
            return importlib.import_module(str(name))
        return self.wrap(self, int(handle), str(name))

    def unpack(self, form: Any) -> Any:
        return wire.decode(form, self._take, _array)

    def send(self, message: dict[str, Any]) -> None:
        try:
            self.stream.write(json.dumps(message).encode() + b"\n")
            self.stream.flush()
        except (BrokenPipeError, ConnectionResetError):
            raise Gone("the program has ended") from None

    def receive(self) -> dict[str, Any] | None:
        line = self.stream.readline()
        return json.loads(line) if line else None

    def request(self, message: dict[str, Any]) -> dict[str, Any]:
        self.send(message)
        while True:
            reply = self.receive()
            if reply is None:
                raise Gone("the program has ended")
            if "verb" not in reply:
                return reply
            self.send(self.serve(self, reply))

    def do(self, verb: str, handle: int, *args: Any, **kw: Any) -> Any:
        """Have the other end act on an object of its own; raises what that raised."""
        reply = self.request({"verb": verb, "handle": handle, "args": self.pack(list(args)), "kw": self.pack(kw)})
        if "error" in reply:
            name, text = reply["error"]
            kind = getattr(builtins, name, None)
            if isinstance(kind, type) and issubclass(kind, Exception):
                raise kind(text)
            raise CandidateError(f"{name}: {text}")
        for before, after in zip(args, self.unpack(reply.get("after", [])), strict=False):
            _overwrite(before, after)
        return self.unpack(reply["value"])


def _array(dtype: str, items: Any) -> Any:
    return importlib.import_module("numpy").array(items, dtype=dtype)


def _overwrite(old: Any, new: Any) -> None:
    """Give a container that was changed in place by the other end its new contents."""
    if type(old) is not type(new) or type(old) not in (list, dict, set):
        return
    if type(old) is list:
        old[:] = new
    else:
        old.clear()
        old.update(new)


class Remote:
    """An object that lives in the other process. Equality is identity; truth is that of any plain object."""

    def __init__(self, peer: Peer, handle: int, kind: str) -> None:
        object.__setattr__(self, "_peer", peer)
        object.__setattr__(self, "_handle", handle)
        object.__setattr__(self, "_kind", kind)

    def _do(self, verb: str, *args: Any, **kw: Any) -> Any:
        return object.__getattribute__(self, "_peer").do(verb, object.__getattribute__(self, "_handle"), *args, **kw)

    def __call__(self, *args: Any, **kw: Any) -> Any:
        return self._do("call", *args, **kw)

    def __getattr__(self, name: str) -> Any:
        if name == "__name__":
            return str(self._do("getattr", name))
        if name.startswith("__"):
            raise AttributeError(name)
        return self._do("getattr", name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._do("setattr", name, value)

    def __getitem__(self, key: Any) -> Any:
        return self._do("getitem", key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._do("setitem", key, value)

    def __len__(self) -> int:
        return int(self._do("len"))

    def __contains__(self, item: Any) -> bool:
        return bool(self._do("contains", item))

    def __iter__(self) -> Any:
        return iter(self._do("list"))

    def __next__(self) -> Any:
        return self._do("next")

    def __str__(self) -> str:
        return str(self._do("str"))

    def __bool__(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return type(other) is Remote and object.__getattribute__(other, "_handle") == self._handle

    def __hash__(self) -> int:
        return hash(object.__getattribute__(self, "_handle"))

    def __repr__(self) -> str:
        return f"<an object of type {object.__getattribute__(self, '_kind')}>"


ALIASES = {"np": "numpy", "pd": "pandas", "numpy": "numpy", "pandas": "pandas"}
VERBS: dict[str, Callable[..., Any]] = {
    "call": lambda obj, *args, **kw: obj(*args, **kw),
    "getattr": getattr,
    "setattr": setattr,
    "getitem": lambda obj, key: obj[key],
    "setitem": lambda obj, key, value: obj.__setitem__(key, value),
    "len": len,
    "contains": lambda obj, item: item in obj,
    "list": list,
    "next": next,
    "str": str,
}


def _answer(peer: Peer, message: dict[str, Any], act: Callable[..., Any]) -> dict[str, Any]:
    """Carry out a request; the reply holds the value, and the arguments where they were changed in place."""
    try:
        args, kw = peer.unpack(message["args"]), peer.unpack(message["kw"])
        reply = {"value": peer.pack(act(*args, **kw))}
        after = peer.pack(args)
        return reply if after == message["args"] else {**reply, "after": after}
    except Gone:
        raise
    except BaseException as error:
        return {"error": [type(error).__name__, str(error)[:500]]}


# ------------------------------------------------------------------ the candidate's process


def serve_candidate(space: child.Workspace, sock: socket.socket) -> None:
    """Load the program afresh at each "load" and act on requests until the connection ends."""

    def serve(peer: Peer, message: dict[str, Any]) -> dict[str, Any]:
        if message["verb"] == "load":
            return _load(peer, space, message["path"])
        verb, target = VERBS[message["verb"]], peer.objects[message["handle"]]
        return _answer(peer, message, lambda *args, **kw: verb(target, *args, **kw))

    peer = Peer(sock, Remote, serve)
    while (message := peer.receive()) is not None:
        peer.send(serve(peer, message))


def _load(peer: Peer, space: child.Workspace, path: str) -> dict[str, Any]:
    peer.objects.clear()
    space.restore()
    try:
        module = space.load(path, child.module_name(path))
    except BaseException as error:
        return {"error": child.describe(error, space.workdir)}
    names = {}
    for name, value in module.__dict__.items():
        if not name.startswith("__"):
            names[name] = peer.pack(value)
    return {"names": names}


# ------------------------------------------------------------------ the tests' process


def _serve_tests(peer: Peer, message: dict[str, Any]) -> dict[str, Any]:
    """The candidate may call the functions that a test handed to it, and nothing else."""
    target = peer.objects.get(message.get("handle", 0))
    if message["verb"] != "call" or not isinstance(target, (types.FunctionType, types.BuiltinFunctionType, type)):
        return {"error": ["TypeError", "a test's object can only be called"]}
    return _answer(peer, message, target)


def run_tests(cases: list[dict[str, Any]], sock: socket.socket, results: int) -> None:
    """Run each test against a fresh load of its program; write one line per test."""
    peer = Peer(sock, Remote, _serve_tests)
    for number, case in enumerate(cases):
        before = time.process_time()
        record = _run_test(peer, case, f"<test {number}>")
        record["cpu"] = round(time.process_time() - before, 6)
        child.write_record(results, record)


def _namespace(peer: Peer, names: dict[str, Any], code: types.CodeType) -> dict[str, Any]:
    """The candidate's names for the test. Builtins and modules are the test's own, unless such a name is all of the
    candidate's that the test uses: otherwise a program could define the `abs`, `all` or `math` that judges it."""
    own = _names_used(code) & names.keys()
    judging = own & (vars(builtins).keys() | sys.stdlib_module_names | ALIASES.keys())
    if own == judging:
        judging = set()
    space: dict[str, Any] = {"__name__": "__test__"}
    for name in own - judging:
        space[name] = peer.unpack(names[name])
    for name in judging - vars(builtins).keys():
        space[name] = importlib.import_module(ALIASES.get(name, name))
    return space


def _names_used(code: types.CodeType) -> set[str]:
    nested = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return set(code.co_names).union(*(_names_used(c) for c in nested))


def _run_test(peer: Peer, case: dict[str, Any], title: str) -> dict[str, Any]:
    phase = "load"
    try:
        code = compile(case["code"], title, "exec", dont_inherit=True)
        linecache.cache[title] = (len(case["code"]), None, case["code"].splitlines(True), title)
        reply = peer.request({"verb": "load", "path": case["path"]})
        if "error" in reply:
            return {"status": "raised", "phase": "load", "detail": reply["error"]}
        phase = "test"
        exec(code, _namespace(peer, reply["names"], code))
    except BaseException as error:
        status = "failed" if isinstance(error, AssertionError) and phase == "test" else "raised"
        if isinstance(error, MemoryError):
            status = "memory"
        return {"status": status, "phase": phase, "detail": _line_of(error, title)}
    return {"status": "returned", "phase": phase}


def _line_of(error: BaseException, title: str) -> str:
    """The exception, and the line of the test that it stopped at."""
    line, tb = "", error.__traceback__
    while tb is not None:
        if tb.tb_frame.f_code.co_filename == title:
            line = linecache.getline(title, tb.tb_lineno).strip()
        tb = tb.tb_next
    text = str(error)[:300]
    return f"{type(error).__name__}{': ' if text else ''}{text}{' in: ' if line else ''}{line}"
