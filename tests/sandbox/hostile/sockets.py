"""TCP out and in, UDP, abstract and path sockets, raw sockets."""

import json
import socket
import sys

given = json.loads(sys.stdin.read())
attempts = [
    (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", given["port"])),
    (socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", given["port"])),
    (socket.AF_INET6, socket.SOCK_STREAM, ("::1", given["port"])),
    (socket.AF_UNIX, socket.SOCK_STREAM, given["abstract"]),
]
for family, kind, address in attempts:
    try:
        with socket.socket(family, kind) as sock:
            sock.settimeout(1)
            sock.connect(address)
            sock.send(b"x")
        print("ESCAPED")
    except OSError:
        pass
try:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
    print("ESCAPED")
except OSError:
    pass
