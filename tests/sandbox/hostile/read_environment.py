"""Reads the environment of its parents and the command lines of others."""

import json
import os
import sys

given = json.loads(sys.stdin.read())
for pid in (1, os.getppid(), given["pid"]):
    for name in ("environ", "cmdline", "mem", "maps", "fd/0", "root/etc/passwd", "cwd/x"):
        try:
            with open(f"/proc/{pid}/{name}", "rb") as file:
                if file.read(1):
                    print("ESCAPED")
        except OSError:
            pass
if given["variable"] in os.environ:
    print("ESCAPED")
