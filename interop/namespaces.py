# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Networks of our own, for tests and benchmarks whose frames no other wire may see."""
import re
import socket
import subprocess

import server


def run(*command, seconds=120):
    """Status and everything that was printed."""
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, timeout=seconds, text=True)
    return ended.returncode, ended.stdout


def must_run(*command):
    status, said = run(*command)
    if status != 0:
        raise RuntimeError(f"{' '.join(command)}: {status}\n{said}")
    return said


class Namespace:
    """A network namespace, as long as a process of ours holds it."""

    def __init__(self):
        # It tells when it is there.
        self.holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo there; exec sleep 3600"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, preexec_fn=server.die_with_parent)
        if self.holder.stdout.readline() != b"there\n":
            raise RuntimeError("there is no network namespace to be had")
        self.run("ip", "link", "set", "lo", "up")

    def within(self, *command):
        return ["nsenter", f"--net=/proc/{self.holder.pid}/ns/net", *command]

    def run(self, *command):
        return must_run(*self.within(*command))

    def mac(self, interface):
        return re.search(r"link/ether (\S+)", self.run("ip", "link", "show", interface))[1]

    def close(self):
        self.holder.kill()
        self.holder.wait()
        self.holder.stdout.close()


def lacks_frames():
    """Why there are no frames between namespaces here, if so."""
    for tool in ("unshare", "nsenter", "ip"):
        if run("sh", "-c", f"command -v {tool}")[0] != 0:
            return f"there is no {tool}"
    status, said = run("unshare", "--net", "ip", "link", "add", "a0", "type", "veth", "peer",
                       "name", "a1")
    if status != 0:
        return f"no network namespace with a veth: {said.strip()}"
    try:
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0).close()
    except OSError as error:
        return f"no packet socket (CAP_NET_RAW): {error}"
    return None


def lacks_xdp():
    """Why frames do not go by AF_XDP here, if so."""
    try:
        socket.socket(AF_XDP, socket.SOCK_RAW, 0).close()
    except OSError as error:
        return f"no AF_XDP: {error}"
    return None


AF_XDP = 44
