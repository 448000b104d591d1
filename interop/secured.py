# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The port for HTTP where other machines reach it: by TLS, to who has a token, with certificates
that become other ones. interop/api runs it."""
import http.client
import json
import os
import secrets
import signal
import socket
import ssl
import subprocess
import time

import server

STEP_SECONDS, HEAD_SECONDS = 60, 10
STALLED, GOOD = 60, 20
# Longer than an answer takes beside those who stall, by far.
ANSWER_SECONDS_MAX = 2
NAME = "localhost"


def expect(what, is_, wanted):
    if is_ != wanted:
        raise SystemExit(f"secured: {what}: {is_!r}, wanted {wanted!r}")


def openssl(*words):
    subprocess.run(["openssl", *words], check=True, stdin=subprocess.DEVNULL,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def made(folder, name, days=30):
    """A certificate of itself, and its key; days -1: it was good until yesterday."""
    key, request, certificate = (f"{folder}/{name}.{end}" for end in ("key", "csr", "crt"))
    openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc",
            "-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{NAME},DNS:disks.example.com",
            "-keyout", key, "-out", request)
    openssl("x509", "-req", "-in", request, "-signkey", key, "-days", str(days),
            "-copy_extensions", "copyall", "-out", certificate)
    return certificate, key


def put(source, path):
    """As an administrator exchanges a file: there is always a whole one."""
    with open(source, "rb") as there, open(os.open(
            f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as new:
        new.write(there.read())
    os.replace(f"{path}.new", path)


class Port:
    """That of a daemon, for who trusts one certificate alone."""

    def __init__(self, port, certificate):
        self.port, self.trust = port, ssl.create_default_context(cafile=certificate)

    def connection(self):
        return http.client.HTTPSConnection(NAME, self.port, context=self.trust,
                                           timeout=STEP_SECONDS)

    def ask(self, path, token=None, connection=None, body=None, **headers):
        """Status and text of the answer."""
        connection = connection or self.connection()
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        if body is not None:
            headers["Content-Type"] = "application/json"
        connection.request("POST" if body else "GET", path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()

    def refused(self):
        """Why this client takes the certificate for no good one."""
        try:
            self.ask("/healthz")
        except ssl.SSLCertVerificationError as error:
            return error.verify_message
        return None


def who_may(port, read, change):
    drop = json.dumps({"request": "drop-session", "tsih": 999})
    for path in ["/metrics", "/api/v1/status", "/api/v1/events", "/api/v1/stream"]:
        for token in [None, secrets.token_hex(32), read[:-1], ""]:
            expect(f"{path} for {token}", port.ask(path, token)[0], 401)
        expect(f"{path} with a token in its address", port.ask(f"{path}?token={read}")[0], 401)
    for token in [read, change]:
        for path in ["/metrics", "/api/v1/status", "/api/v1/events?after=0"]:
            expect(path, port.ask(path, token)[0], 200)
    for path in ["/", "/page.js", "/healthz", "/readyz", "/api/v1/openapi.json"]:
        expect(path, port.ask(path)[0], 200)
    for token, wanted in [(None, 401), (secrets.token_hex(32), 401), (read, 403), (change, 409)]:
        expect("an order", port.ask("/api/v1/orders", token, body=drop)[0], wanted)
    for origin, wanted in [(f"https://{NAME}:{port.port}", 409), (f"http://{NAME}:{port.port}", 403),
                           ("https://example.com", 403), ("null", 403)]:
        status, _ = port.ask("/api/v1/orders", change, body=drop, Origin=origin)
        expect(f"an order from {origin}", status, wanted)
    for host, wanted in [("disks.example.com", 200), (f"{NAME}:1", 200), ("192.0.2.1:9260", 200),
                         ("example.com", 421), ("a.disks.example.com", 421)]:
        expect(f"as {host}", port.ask("/healthz", Host=host)[0], wanted)


def not_tls(port):
    """Who speaks something else is told so, in what he speaks, and let go."""
    plain = http.client.HTTPConnection("127.0.0.1", port.port, timeout=STEP_SECONDS)
    plain.request("GET", "/metrics")
    answer = plain.getresponse()
    expect("plain HTTP", (answer.status, b"https://" in answer.read()), (400, True))
    old = ssl.create_default_context(cafile=None)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    for version, wanted in [(ssl.TLSVersion.TLSv1_2, "TLSv1.2"), (ssl.TLSVersion.TLSv1_3, "TLSv1.3")]:
        old.minimum_version = old.maximum_version = version
        with socket.create_connection(("127.0.0.1", port.port), STEP_SECONDS) as raw:
            with old.wrap_socket(raw, server_hostname=NAME) as stream:
                expect("version", stream.version(), wanted)


def stalled(port):
    """Clients that begin and go on no further, while others are served; then they are let go."""
    begun, held = time.monotonic(), []
    for number in range(STALLED):
        held.append(socket.create_connection(("127.0.0.1", port.port), STEP_SECONDS))
        if number % 3 == 1:
            held[-1].sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
        if number % 3 == 2:
            held[-1].sendall(b"\x16")
    for _ in range(GOOD):
        before = time.monotonic()
        expect("a good one", port.ask("/healthz")[0], 200)
        took = time.monotonic() - before
        expect(f"{took:.2f} s beside those who stall", took < ANSWER_SECONDS_MAX, True)
    expect("they are held", time.monotonic() - begun < HEAD_SECONDS, True)
    for one in held:
        try:
            while one.recv(4096):
                pass
        except ConnectionResetError:
            pass
        one.close()
    took = time.monotonic() - begun
    expect(f"after {took:.1f} s they are let go", took < 2 * HEAD_SECONDS, True)


def reloaded(target, order="reload"):
    """What `lunwire reload` says, and whether it was done."""
    binary = target.command[0]
    done = subprocess.run([binary, order, "--control-socket", target.control_socket], text=True,
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=STEP_SECONDS)
    return done.returncode, done.stdout + done.stderr


def other_certificates(folder, target, port, first):
    """They come by a reload, without an end of what is there; none comes that is wrong."""
    shown, key = f"{folder}/shown.crt", f"{folder}/shown.key"
    second, expired = made(folder, "second"), made(folder, "expired", -1)
    held = port.connection()
    expect("before", port.ask("/healthz", connection=held)[0], 200)
    put(second[1], key)
    status, said = reloaded(target)
    expect(f"a key of another one: {said}",
           (status, "shown.key is not the key of the certificate in" in said), (1, True))
    put(first[1], key)
    os.chmod(key, 0o644)
    status, said = reloaded(target)
    expect(f"a key that others can read: {said}",
           (status, "shown.key" in said and "chmod 600" in said), (1, True))
    with open(shown, "w") as file:
        file.write("-----BEGIN CERTIFICATE-----\nAAAA\n")
    os.chmod(key, 0o600)
    status, said = reloaded(target)
    expect(f"half a certificate: {said}", (status, "shown.crt" in said), (1, True))
    expect("the first is shown as before", port.refused(), None)
    put(second[0], shown)
    put(second[1], key)
    expect("diff", "http-certificate" in reloaded(target, "diff")[1], True)
    expect("still", port.refused(), None)
    status, said = reloaded(target)
    expect(f"another one: {said}", (status, "http-certificate" in said), (0, True))
    new = Port(port.port, second[0])
    expect("it is shown", new.refused(), None)
    expect("the first is not", port.refused() is not None, True)
    expect("a connection goes on", port.ask("/healthz", connection=held)[0], 200)
    put(expired[0], shown)
    put(expired[1], key)
    target.process.send_signal(signal.SIGHUP)
    late, deadline = Port(port.port, expired[0]), time.monotonic() + STEP_SECONDS
    while (why := late.refused()) != "certificate has expired":
        expect(f"by a signal, at last: {why}", time.monotonic() < deadline, True)
        time.sleep(0.1)
    expect("a connection goes on", port.ask("/healthz", connection=held)[0], 200)
    status, said = reloaded(target)
    expect(f"its owner is warned: {said}", (status, "has expired" in said), (0, True))
    put(first[0], shown)
    put(first[1], key)
    return Port(port.port, first[0])


def check(folder):
    first = made(folder, "first")
    put(first[0], f"{folder}/shown.crt")
    put(first[1], f"{folder}/shown.key")
    read, change = secrets.token_hex(32), secrets.token_hex(32)
    with open(os.open(f"{folder}/secured", os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
        file.write(f"read {read}\nchange {change}\n")
    port = server.free_port()
    with open(f"{folder}/secured.toml", "w") as file:
        file.write(f'listen = ["127.0.0.1:0"]\nhttp = "0.0.0.0:{port}"\nsandbox = "auto"\n'
                   'http-certificate = "shown.crt"\nhttp-key = "shown.key"\n'
                   f'http-token-file = "secured"\n[[target]]\nname = "{server.IQN}"\n'
                   '[[target.lun]]\nstore = "memory:16M"\n')
    with server.serve_config(f"{folder}/secured.toml") as target:
        told = json.loads(target.order("status", "--json"))
        expect("status", (told["http"], told["http_tls"]), (f"0.0.0.0:{port}", True))
        port = Port(port, first[0])
        who_may(port, read, change)
        not_tls(port)
        stalled(port)
        # The one that takes over is shown what is in the files then.
        port = other_certificates(folder, target, port, first)
        target.hand_over()
        expect("who took over", port.ask("/api/v1/status", read)[0], 200)
        expect("who took over, for strangers", port.ask("/api/v1/status")[0], 401)
        log = target.log_tail()
        expect("the log has no token", read in log or change in log, False)
    print("api: by TLS from anywhere to who has a token, with certificates that change")
