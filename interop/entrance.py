# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The page where other machines reach the daemon: it asks for a token before it shows anything,
and puts it into no address. interop/page runs it."""
import json
import os
import secrets
import time

import secured
import server

WAIT_SECONDS = 20


def expect(what, is_, wanted):
    if is_ != wanted:
        raise SystemExit(f"entrance: {what}: {is_!r}, wanted {wanted!r}")


def wait_for(what, look):
    deadline = time.monotonic() + WAIT_SECONDS
    while not (found := look()):
        if time.monotonic() > deadline:
            raise SystemExit(f"entrance: {what}: {found!r}")
        time.sleep(0.2)


def check(chromium, folder, pictures):
    read, change = secrets.token_hex(32), secrets.token_hex(32)
    certificate, key = secured.made(folder, "page")
    with open(os.open(f"{folder}/may", os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
        file.write(f"read {read}\nchange {change}\n")
    port = server.free_port()
    with open(f"{folder}/entrance.toml", "w") as file:
        file.write(f'listen = ["127.0.0.1:0"]\nhttp = "0.0.0.0:{port}"\n'
                   f'http-certificate = "{certificate}"\nhttp-key = "{key}"\n'
                   f'http-token-file = "may"\n[[target]]\nname = "{server.IQN}"\n'
                   '[[target.lun]]\nstore = "memory:16M"\n')

    def seen(name):
        return chromium.run("return document.getElementById(arguments[0]).checkVisibility()", name)

    def text(name):
        return chromium.run("return document.getElementById(arguments[0]).textContent", name)

    def enter(token):
        chromium.run("""document.getElementById("entrance-token").value = arguments[0];
            document.getElementById("entrance-use").click();""", token)
        expect("the token is not there to read", chromium.run(
            "return document.getElementById('entrance-token').value"), "")

    with server.serve_config(f"{folder}/entrance.toml") as target:
        for token, may in [(read, False), (change, True)]:
            chromium.go(f"https://127.0.0.1:{port}/")
            wait_for("it asks for a token", lambda: seen("entrance"))
            expect("nothing else", [seen(name) for name in ("overview", "luns", "daemon", "pause")],
                   [False] * 4)
            expect("one can type", chromium.run("return document.activeElement.id"),
                   "entrance-token")
            for width, scheme in [(360, "light"), (360, "dark"), (1280, "light")]:
                chromium.look(width, 900, scheme)
                wide = chromium.run("return document.documentElement.scrollWidth")
                expect(f"{width} {scheme}: width", wide <= width, True)
                chromium.picture(f"{pictures}/entrance-{width}-{scheme}.png")
            enter(token[:-1] + "x")
            wait_for("a wrong one", lambda: text("entrance-said") == "There is no such token.")
            enter(token)
            wait_for("it serves", lambda: text("state") == "serving" and not seen("entrance"))
            wait_for("figures", lambda: text("all-luns") == "1" and seen("overview"))
            wait_for("who may change has buttons, who reads has none", lambda: chromium.run(
                "return document.body.classList.contains('may')") == may)
            # A page that asks again and again would have some tens by then.
            before = chromium.run("return performance.getEntriesByName(arguments[0]).length",
                                  f"https://127.0.0.1:{port}/api/v1/load")
            time.sleep(5)
            asked = chromium.run("return performance.getEntriesByType('resource').map("
                                 "(one) => one.name)")
            loads = sum(one.endswith("/load") for one in asked) - before
            expect(f"{loads} questions: a stream tells", loads <= 1, True)
            expect("no address has the token", [one for one in asked if token[:8] in one], [])
            # What is behind a link takes a token, too.
            saved = chromium.run("""
                const made = [];
                const make = URL.createObjectURL;
                URL.createObjectURL = (blob) => { made.push(blob.text()); return make(blob); };
                document.querySelectorAll("footer a[data-file]").forEach((link) => link.click());
                const wait = async () => {
                    while (made.length < 2) await new Promise((go) => { setTimeout(go, 50); });
                    return Promise.all(made);
                };
                return wait();""")
            expect("status and metrics", sorted([json.loads(one)["reply"] if one.startswith("{")
                                                 else one[:6] for one in saved]),
                   ["# HELP", "status"])
            expect("it is still there", text("state"), "serving")
            expect("nothing is kept", chromium.run(
                "return [document.cookie, localStorage.length, sessionStorage.length]"), ["", 0, 0])
        # A token that is good no more.
        with open(f"{folder}/may", "w") as file:
            file.write(f"read {read}\n")
        target.process.terminate()
        target.process.wait(WAIT_SECONDS)
        target.revive()
        wait_for("it asks again", lambda: seen("entrance") and not seen("overview"))
    print("page: from elsewhere it asks for a token, and shows it in no address")
