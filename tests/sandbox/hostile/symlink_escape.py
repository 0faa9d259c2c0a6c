"""Leaves links to the outside where the grader reads or cleans up."""

import json
import os
import sys

given = json.loads(sys.stdin.read() or "{}")
os.symlink("/", "root")
os.symlink(given.get("file", "/etc/passwd"), "secret.txt")
os.symlink(os.path.dirname(given.get("file", "/etc/passwd")), "folder")
for path in ("root/etc/passwd", "secret.txt", "folder/expected"):
    try:
        open(path).close()
        print("ESCAPED")
    except OSError:
        pass
