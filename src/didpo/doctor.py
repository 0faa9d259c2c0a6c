"""What this machine offers: interpreter, libraries, cores, memory, disk, and how well programs can be isolated."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
from typing import Any

from didpo import __version__

LIBRARIES = (
    "numpy",
    "rapidfuzz",
    "rich",
    "torch",
    "transformers",
    "tokenizers",
    "safetensors",
    "verl",
    "trl",
    "vllm",
    "ray",
)


def versions() -> dict[str, str]:
    """Installed versions of the libraries that a result may depend on; missing ones are left out."""
    found = {"didpo": __version__, "python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def diagnose() -> dict[str, Any]:
    """A JSON-ready account; `sandbox.level` is "namespaced", "filtered", "process" or "none"."""
    from didpo.sandbox import probe

    report = probe()
    return {
        "versions": versions(),
        "machine": {
            "system": f"{platform.system()} {platform.release()}",
            "cores": len(os.sched_getaffinity(0)),
            "memory_gib": round(memory_bytes() / 2**30, 1),
            "free_disk_gib": round(shutil.disk_usage(".").free / 2**30, 1),
        },
        "sandbox": {
            "level": report.level,
            "canaries": [{"name": c.name, "contained": c.contained, "detail": c.detail} for c in report.canaries],
            "hint": report.hint,
        },
        "training": "torch" in versions() and "transformers" in versions(),
    }


def doctor_text(found: dict[str, Any]) -> str:
    machine, sandbox = found["machine"], found["sandbox"]
    lines = [
        "versions: " + ", ".join(f"{name} {version}" for name, version in found["versions"].items()),
        f"machine: {machine['system']}, {machine['cores']} cores, {machine['memory_gib']} GiB memory, "
        f"{machine['free_disk_gib']} GiB free disk here",
        f"sandbox: {sandbox['level']}",
    ]
    lines += [
        f"  {'contained' if c['contained'] else 'OPEN':9}  {c['name']}: {c['detail']}" for c in sandbox["canaries"]
    ]
    if sandbox["hint"]:
        lines.append(f"  {sandbox['hint']}")
    if not found["training"]:
        lines.append("training: needs torch and transformers; install them with: pip install 'didpo[train]'")
    return "\n".join(lines)
