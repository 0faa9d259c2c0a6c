"""Asks for new namespaces, mounts, roots and devices."""

import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)
for flags in (0x10000000, 0x20000, 0x40000000, 0x10000000 | 0x20000):
    if libc.unshare(flags) == 0:
        print("ESCAPED")
if libc.mount(b"none", b"/no/such/folder", b"tmpfs", 0, None) == 0 or ctypes.get_errno() == 2:
    print("ESCAPED")
for action in (lambda: os.chroot("."), lambda: os.mknod("disk", 0o60600, os.makedev(254, 0))):
    try:
        action()
        print("ESCAPED")
    except OSError:
        pass
