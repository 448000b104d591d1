# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Debian's Chromium without a window, by WebDriver (W3C) and its own protocol for developers.

    with browser.Browser() as page:
        page.go("http://127.0.0.1:9260/")
        page.run("return document.title")
"""
import base64
import http.client
import json
import os
import subprocess
import tempfile
import time

import server

START_SECONDS, STEP_SECONDS = 30, 60
# A test runs as root, and in a container, where neither Chromium's sandbox nor /dev/shm is there.
ARGUMENTS = ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu",
             "--hide-scrollbars", "--force-device-scale-factor=1", "--disable-extensions",
             "--disable-background-networking", "--no-first-run"]


class Browser:
    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="lunwire-browser-")
        self.port, self.session = server.free_port(), None
        self.log = open(f"{self.folder.name}/log", "wb")
        environment = {**os.environ, "HOME": self.folder.name, "TMPDIR": self.folder.name}
        self.process = subprocess.Popen(
            ["chromedriver", f"--port={self.port}"], stdin=subprocess.DEVNULL, stdout=self.log,
            stderr=self.log, env=environment, start_new_session=True,
            preexec_fn=server.die_with_parent)
        options = {"args": [*ARGUMENTS, f"--user-data-dir={self.folder.name}/profile"]}
        deadline = time.monotonic() + START_SECONDS
        while self.session is None:
            try:
                made = self.ask("POST", "/session", {"capabilities": {"alwaysMatch": {
                    "browserName": "chrome", "acceptInsecureCerts": True, "goog:loggingPrefs": {"browser": "ALL"},
                    "goog:chromeOptions": options}}})
                self.session = f"/session/{made['sessionId']}"
            except ConnectionRefusedError:
                if time.monotonic() > deadline or self.process.poll() is not None:
                    raise RuntimeError(f"no chromedriver\n{self.said()}") from None
                time.sleep(0.1)

    def said(self):
        with open(self.log.name, errors="replace") as log:
            return log.read()[-3000:]

    def ask(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=STEP_SECONDS)
        text = None if body is None else json.dumps(body)
        connection.request(method, path, text, {"Content-Type": "application/json"})
        answer = json.load(connection.getresponse())["value"]
        connection.close()
        if isinstance(answer, dict) and "error" in answer:
            raise RuntimeError(f"browser: {path}: {answer['error']}: {answer['message'][:2000]}")
        return answer

    def go(self, url):
        self.ask("POST", f"{self.session}/url", {"url": url})

    def run(self, script, *arguments):
        """What the script returns; a promise is waited for."""
        return self.ask("POST", f"{self.session}/execute/sync",
                        {"script": script, "args": arguments})

    def developer(self, command, **parameters):
        return self.ask("POST", f"{self.session}/goog/cdp/execute",
                        {"cmd": command, "params": parameters})

    def look(self, width, height, scheme):
        """From now on the page is so wide, and `light` or `dark`."""
        self.developer("Emulation.setDeviceMetricsOverride", width=width, height=height,
                       deviceScaleFactor=1, mobile=width < 600)
        self.developer("Emulation.setEmulatedMedia",
                       features=[{"name": "prefers-color-scheme", "value": scheme}])

    def press(self, key, code):
        for kind in ["rawKeyDown", "keyUp"]:
            self.developer("Input.dispatchKeyEvent", type=kind, key=key, code=key,
                           windowsVirtualKeyCode=code)

    def picture(self, path):
        """All of the page, also what is below."""
        told = self.developer("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        with open(path, "wb") as file:
            file.write(base64.b64decode(told["data"]))

    def complaints(self):
        """What the browser had to complain of since it was asked last."""
        entries = self.ask("POST", f"{self.session}/se/log", {"type": "browser"})
        return [entry["message"] for entry in entries if entry["level"] != "INFO"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.ask("DELETE", self.session)
        except (OSError, RuntimeError):
            pass
        self.process.terminate()
        self.process.wait()
        self.log.close()
        self.folder.cleanup()
