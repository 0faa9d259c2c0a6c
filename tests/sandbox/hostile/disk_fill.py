"""Fills the disk with many files, each below the limit of one."""

import os

for number in range(10**6):
    with open(f"f{number}", "wb") as file:
        file.write(b"x" * (1 << 20))
os._exit(0)
