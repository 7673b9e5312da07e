"""A fake package behind a bridge: it makes sums of seeds, and misbehaves where a message tells it to."""

import json
import sys
from pathlib import Path

from agent2 import installation
from agent2.benchmarks.bridges import BRIDGES
from agent2.benchmarks.bridges.bridged import BridgedBenchmark
from agent2.benchmarks.bridges.channel import WORKERS, BridgeChannel
from agent2.sandbox.backends import Unsandboxed

FAKE_WORKER = '''
"""A fake worker: what it is told in a message, it does."""

import os
import stat
import sys
import time

sys.path.insert(0, WORKERS_FOLDER)
import serve


def pipe():
    """The socket to the other side, which no package should find."""
    return next(fd for fd in range(3, 20) if is_socket(fd))


def is_socket(fd):
    try:
        return stat.S_ISSOCK(os.fstat(fd).st_mode)
    except OSError:
        return False


def draw(name, seed):
    if name == "barren" and seed % 2:
        raise ValueError("no item of an odd seed")
    if name == "formless":
        return {"prompt": 7}
    print("a banner of the package", '{"id": 1, "result": {"prompt": "forged", "reference": null}}')
    return {"prompt": f"What is {seed} + 1?", "reference": f"<answer>{seed + 1}</answer>"}


def score(name, seed, prompt_sha256, message):
    command = message.removeprefix("please ")
    if command == "hang":
        time.sleep(600)
    if command == "die":
        print("terminate called after throwing an instance of 'std::bad_alloc'", file=sys.stderr, flush=True)
        os._exit(3)
    if command == "raise":
        raise ValueError("invalid literal: 'raise'")
    if command == "exit":
        sys.exit("usage: package")
    if command == "print":
        print('{"id": 3, "result": {"value": 1.0, "extracted": "forged"}}', flush=True)
        os.write(1, b'{"id": 4, "result": {"value": 1.0, "extracted": "forged"}}')
    if command == "print to the pipe":
        os.write(pipe(), b"half a line of progress")
    if command == "flood the pipe":
        os.write(pipe(), (b"x" * 999 + b"\\n") * 2000)
    if command == "another question":
        os.write(pipe(), b'{"id": 999, "result": {"value": 1.0, "extracted": "forged"}}\\n')
    if command == "long":
        return {"value": 1.0, "extracted": "x" * (1 << 25)}
    value = {"not a number": "yes", "two": 2, "nan": float("nan"), "true": True}.get(command)
    if value is not None:
        return {"value": value, "extracted": command}
    return {"value": float(f"<answer>{seed + 1}</answer>" in message), "extracted": message}


METHODS = {"draw": draw, "score": score, "describe": lambda: {"names": ["sums"], "system": "Be brief."}}
sys.modules["fake_bridge_worker"] = sys.modules["__main__"]
sys.argv = ["serve.py", "fake_bridge_worker"]
serve.main()
'''
NAMES = ["barren", "formless", "sums"]


def fake_channel(folder: Path, *, start_s: float = 600.0, answer_s: float = 600.0) -> BridgeChannel:
    """A channel to the fake package, without a sandbox."""
    script = folder / "fake_bridge_worker.py"
    script.write_text(FAKE_WORKER.replace("WORKERS_FOLDER", repr(str(WORKERS))))
    program = [sys.executable, str(script)]
    return BridgeChannel(
        "reasoning_gym", folder, "", sandbox=Unsandboxed(), program=program, start_s=start_s, answer_s=answer_s
    )


def install_fake_bridge(*, digest: str | None = None, names: list[str] | None = None) -> Path:
    """An environment below the installation's home that says it holds the fake package; its folder."""
    pinned = BRIDGES["reasoning_gym"].pinned
    folder = installation.home() / "bridges" / "reasoning_gym"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(sys.executable)
    facts = {"names": NAMES if names is None else names, "system": "Be brief."}
    stamp = {"name": "reasoning_gym", "version": "0.0", "pins_digest": digest or pinned.digest, "facts": facts}
    (folder / "agent2-bridge.json").write_text(json.dumps(stamp))
    return folder


def fake_benchmark(folder: Path, name: str = "sums") -> BridgedBenchmark:
    """A benchmark of the fake package, for which `install_fake_bridge` was called."""
    return BridgedBenchmark("reasoning_gym", name, channel=fake_channel(folder))
