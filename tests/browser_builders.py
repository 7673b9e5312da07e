"""A headless Chromium and the web app as a process of its own, for end-to-end tests and screens of its pages."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_chromium() -> str | None:
    """The system's Chromium or Chrome."""
    return next((program for name in NAMES if (program := shutil.which(name))), None)


@contextmanager
def open_browser(chromium: str) -> Iterator[Any]:
    """A headless browser. Needs the `playwright` package, not its own browsers."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=chromium, args=options, timeout=180_000)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[str]:
    """`agent2 view` over a folder; yields its address, which ends with a slash."""
    command = [sys.executable, "-m", "agent2", "view", str(folder), "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            line = server.stdout.readline()
            assert "http://" in line, line
            yield line.split()[-1]
        finally:
            server.terminate()
