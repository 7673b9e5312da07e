"""A scripted LLM server in a process of its own, and the driver and price files that lead to it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import yaml

KEY_VARIABLE = "SCRIPTED_LLM_KEY"
KEY = "provider-key-5f1d9c0b7e"
"""What the server insists on; the agent must never see it."""
RATES = {"input": 2.0, "output": 10.0, "cached_input": 0.5}
"""Made-up dollars for a million tokens."""


@dataclass(frozen=True)
class Upstream:
    url: str
    log: Path
    driver: Path
    prices: Path

    def served(self) -> list[dict]:
        return [msgspec.json.decode(line) for line in self.log.read_bytes().splitlines()] if self.log.exists() else []


@contextmanager
def scripted_upstream(folder: Path, script: str, port: int = 0) -> Iterator[Upstream]:
    """script: name of a packaged one, or a file. port: 0 is a free one.

    The key must be in the environment of who starts a gateway.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "upstream.jsonl"
    command = [sys.executable, "-m", "agent2.llm.scripted_server", "--script", script, "--log", str(log)]
    command += ["--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, KEY_VARIABLE: KEY})
    try:
        url = process.stdout.readline().strip()
        assert url.startswith("http://"), "the scripted LLM did not start"
        yield Upstream(url, log, write_driver(folder / "driver.yaml", url), write_prices(folder / "prices.yaml"))
    finally:
        process.terminate()
        process.wait(120)


def write_driver(path: Path, url: str) -> Path:
    endpoints = {"openai-chat": f"{url}/v1", "openai-responses": f"{url}/v1", "anthropic": url, "gemini": url}
    record = {"name": "scripted", "model": "scripted-1", "provider": "script", "endpoints": endpoints}
    path.write_text(yaml.safe_dump(record | {"api_key_env": KEY_VARIABLE}))
    return path


def write_prices(path: Path) -> Path:
    models = {"scripted-1": {**RATES, "source": "made up for a test"}}
    path.write_text(yaml.safe_dump({"date": "2026-11-21", "models": models}))
    return path


def dollars_of(usages: list[dict]) -> float:
    """What answers with this usage cost, worked out from the made-up rates alone."""
    plain = sum(usage["input"] - usage["cached_input"] for usage in usages)
    cached, output = (sum(usage[key] for usage in usages) for key in ("cached_input", "output"))
    return (plain * RATES["input"] + cached * RATES["cached_input"] + output * RATES["output"]) / 1e6
