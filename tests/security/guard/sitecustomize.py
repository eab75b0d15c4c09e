"""Put on PYTHONPATH by tests/security/conftest.py: in every process started so, whatever would leave this machine is refused and
written down, with the name that was looked up or the address that was called."""

import ipaddress
import os
import socket
import sys

RECORD = os.environ["INFERENCE_LAB_TEST_OUTBOUND"]
LOCAL = {"", "localhost", socket.gethostname()}
EXAMPLE = "192.0.2.1"  # app/present.py asks which way leads there, over UDP, and sends nothing


def leaves(host):
    if isinstance(host, bytes):
        host = host.decode("latin-1")
    if host is None or host in LOCAL:
        return False
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return True
    return not (address.is_loopback or address.is_unspecified)


def watch(event, args):
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        one, to = args
        where = to[0] if isinstance(to, tuple) else None  # a path: a socket of this machine
        if where == EXAMPLE and one.type == socket.SOCK_DGRAM and event == "socket.connect":
            return
    elif event in ("socket.getaddrinfo", "socket.gethostbyname"):
        where = args[0]
    else:
        return
    if leaves(where):
        with open(RECORD, "a", encoding="utf-8") as record:
            record.write(f"{event} {where}\n")
        raise OSError(f"{event} {where}: nothing may leave this machine")


sys.addaudithook(watch)
