"""Workspaces on the sandbox's private disk, and data that has no name on any disk (memfd). Runs inside."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Mapping
from typing import Any

SKIPPED_FOLDERS = ("__pycache__", ".git", ".pytest_cache")


def clear(home: str) -> None:
    """Remove all that earlier programs left, folders that they made unreadable included."""
    for entry in list(os.scandir(home)):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, onerror=_unlock)
        else:
            os.unlink(entry.path)


def _unlock(function: Any, path: str, _: Any) -> None:
    try:
        os.chmod(os.path.dirname(path), 0o700)
        if os.path.isdir(path) and not os.path.islink(path):
            os.chmod(path, 0o700)
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)
    except FileNotFoundError:
        pass


def make_workspace(home: str, files: Mapping[str, str]) -> str:
    """An empty private disk with the files in a new folder, whose path is returned."""
    clear(home)
    root = os.path.join(home, "work")
    os.mkdir(root, 0o700)
    write(root, files)
    return root


def write(root: str, files: Mapping[str, str]) -> None:
    """Paths were checked by the grader: relative, without '..'."""
    for path, text in files.items():
        full = os.path.join(root, path)
        if "/" in path:
            os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "wb") as file:
            file.write(to_bytes(text))


def to_bytes(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a surrogate that stands for no byte
        return text.encode("utf-8", "surrogatepass")


def read_workspace(root: str, max_bytes: int) -> tuple[dict[str, str], list[str]]:
    """Text of all regular files (never through a link) up to `max_bytes` together; and the paths left out."""
    files: dict[str, str] = {}
    left_out: list[str] = []
    for folder, subfolders, names in os.walk(root, followlinks=False):
        subfolders[:] = sorted(n for n in subfolders if n not in SKIPPED_FOLDERS)
        for name in sorted(names):
            path = os.path.relpath(os.path.join(folder, name), root)
            data = read_regular(os.path.join(folder, name), max_bytes)
            if data is None or b"\0" in data:
                left_out.append(path)
                continue
            max_bytes -= len(data)
            files[path] = data.decode("utf-8", "surrogateescape")
    return files, left_out


def read_regular(path: str, max_bytes: int) -> bytes | None:
    """The bytes of a regular file that is no link and no larger than that; otherwise None."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(fd, "rb") as file:
        info = os.fstat(fd)
        return file.read(max_bytes) if stat.S_ISREG(info.st_mode) and info.st_size <= max_bytes else None


def memfd(data: bytes = b"") -> int:
    """A descriptor of a nameless file in memory: a program can neither fill a pipe nor wait for one."""
    fd = os.memfd_create("data", 0)
    while data:
        data = data[os.write(fd, data) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def read_fd(fd: int, limit: int) -> bytes:
    return os.pread(fd, min(limit, os.fstat(fd).st_size), 0)
