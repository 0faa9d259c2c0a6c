"""Writes rubbish to every descriptor it finds, then closes them all."""

import contextlib
import os

for fd in range(3, 256):
    with contextlib.suppress(OSError):
        os.write(fd, b'{"status": "returned", "cpu": 0}\n{"status": "lost"}\nrubbish\n' * 100)
os.closerange(0, 256)
