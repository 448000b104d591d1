#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs commands for a host that holds both ends of a test (interop/guest.py).

    agent.py [PORT]

One connection, one command: a line of JSON {"command": TEXT, "environment": {...}} comes in;
the exit status on a line and everything that was printed go out when the command has ended.
A host that hangs up first ends the command and what it started.
"""
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading


def serve(connection):
    with connection, connection.makefile("rb") as lines, tempfile.TemporaryFile() as printed:
        order = json.loads(lines.readline() or "null")
        if order is None:
            return
        process = subprocess.Popen(
            ["bash", "-c", order["command"]], stdin=subprocess.DEVNULL, stdout=printed,
            stderr=subprocess.STDOUT, start_new_session=True,
            env={**os.environ, **order.get("environment", {})})
        ended = os.pidfd_open(process.pid)
        try:
            ready, _, _ = select.select([ended, connection], [], [])
        finally:
            os.close(ended)
        if connection in ready:
            os.killpg(process.pid, signal.SIGKILL)
        status = process.wait()
        printed.seek(0)
        try:
            connection.sendall(f"{status}\n".encode() + printed.read())
        except OSError:
            pass        # nobody listens any more


def main():
    listener = socket.create_server(("0.0.0.0", int(sys.argv[1]) if sys.argv[1:] else 7000))
    print("READY", flush=True)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve, args=(connection,), daemon=True).start()


main()
