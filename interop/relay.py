# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A way to a portal that can be cut, or stand still: what is in it then comes out later."""
import socket
import threading


class Relay:
    """Listens on a port of its own, and carries on to `port`."""

    def __init__(self, port):
        self.port, self.flows, self.streams = port, threading.Event(), []
        self.flows.set()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url_port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            near, _ = self.listener.accept()
            self.flows.wait()
            try:
                far = socket.create_connection(("127.0.0.1", self.port))
            except OSError:
                near.close()
                continue
            self.streams += [near, far]
            for source, sink in ((near, far), (far, near)):
                source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self.forward, args=(source, sink), daemon=True).start()

    def forward(self, source, sink):
        try:
            while data := source.recv(1 << 16):
                self.flows.wait()
                sink.sendall(data)
        except OSError:
            pass
        self.flows.wait()
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut(self):
        streams, self.streams = self.streams, []
        for stream in streams:
            try:
                stream.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
