# SPDX-License-Identifier: Apache-2.0 OR MIT
"""axe-core: what keeps people from using a page, as far as a program sees it.

    axe.findings(chromium, "light")     # [] if there is nothing serious
"""
import os
import subprocess
import sys
import tempfile
import zipfile

# Debian has no package of it; this wheel has axe-core 4.12 in it, and nothing else of it is used.
WHEEL = "axe-playwright-python==0.1.8"
SHA256 = "fdd263c998388f1a8e67cad02677e612d946248bd44d163be5e8650ea31f95f8"
MEMBER = "axe_playwright_python/axe.min.js"
SERIOUS = ["serious", "critical"]
FETCH_SECONDS = 300


def source():
    """The script. It is fetched once on a machine, by pip, which looks whether it is the right one."""
    cache = os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))
    path = f"{cache}/lunwire-axe/{SHA256[:16]}.js"
    if not os.path.exists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="lunwire-axe-") as folder:
            with open(f"{folder}/wanted", "w") as file:
                file.write(f"{WHEEL} --hash=sha256:{SHA256}\n")
            python = f"{folder}/venv/bin/python"
            for words in [(sys.executable, "-m", "venv", f"{folder}/venv"),
                          (python, "-m", "pip", "--quiet", "--disable-pip-version-check", "download",
                           "--no-deps", "--require-hashes", "--only-binary", ":all:",
                           "--dest", folder, "--requirement", f"{folder}/wanted")]:
                subprocess.run(words, check=True, stdin=subprocess.DEVNULL, timeout=FETCH_SECONDS)
            wheel, = [name for name in os.listdir(folder) if name.endswith(".whl")]
            with zipfile.ZipFile(f"{folder}/{wheel}") as members:
                text = members.read(MEMBER)
            # Whole or not at all, also where two fetch it.
            with open(f"{path}.{os.getpid()}", "wb") as file:
                file.write(text)
            os.rename(file.name, path)
    with open(path, encoding="utf-8") as file:
        return file.read()


def findings(chromium):
    """What is serious or worse about the page as it is: rule, where, and why."""
    if not chromium.run("return 'axe' in window"):
        # What WebDriver runs is not asked for by the page: its policy stays as it is.
        chromium.run(source())
    told = chromium.run("""return axe.run(document, { resultTypes: ["violations"] }).then(
        ({ violations }) => violations.map(({ id, impact, nodes }) => [id, impact, nodes.map(
            ({ target, failureSummary }) => `${target}: ${failureSummary}`)]));""")
    return [one for one in told if one[1] in SERIOUS]
