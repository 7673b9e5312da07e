"""A fake package behind a bridge: it makes sums of seeds, and misbehaves where a message tells it to."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from agent2 import installation
from agent2.benchmarks.bridges import BRIDGES
from agent2.benchmarks.bridges.bridged import BridgedBenchmark
from agent2.benchmarks.bridges.channel import ENVIRONMENT_INSIDE, WORKERS, WORKERS_INSIDE, BridgeChannel, Patience
from agent2.sandbox.backends import Unsandboxed

FAKE_WORKER = '''
"""A fake worker: what it is told in a message, it does."""

import json
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
    if command == "write empty lines":
        while True:
            os.write(pipe(), b"\\n" * 65536)
    if command == "another question":
        os.write(pipe(), b'{"id": 999, "result": {"value": 1.0, "extracted": "forged"}}\\n')
    if command == "long":
        return {"value": 1.0, "extracted": "x" * (1 << 25)}
    value = {"not a number": "yes", "two": 2, "nan": float("nan"), "true": True}.get(command)
    if value is not None:
        return {"value": value, "extracted": command}
    return {"value": float(f"<answer>{seed + 1}</answer>" in message), "extracted": message}


def open_set(name):
    if name == "broken":
        raise ValueError("the task has no test split")
    if name in ("counters", "toolless", "mute", "opened"):
        return {"compares": False, "is_chat": True, "max_tokens": 16, "max_turns": 9, "portions": {"test": 20}}
    portions = {"test": 60, "train": 12, "dev": 9 if name == "with_dev" else 0}
    is_chat = name in ("chat", "half_a_chat")
    return {"compares": name == "choice", "max_tokens": 16, "is_chat": is_chat, "portions": portions}


def items(name, portion, start):
    if name in ("counters", "toolless", "mute", "opened"):
        return episode_items(name, portion, start)
    if name == "empty_pages":
        return []
    first = {"train": 0, "test": 10, "dev": 200}[portion]  # two prompts of train are in test, too
    seeds = range(first, first + 60)
    records = [{"prompt": f"What is {seed} + 1?", "reference": f"<answer>{seed + 1}</answer>"} for seed in seeds]
    if name == "choice":
        records = [{**record, "reference": "B", "options": ["no", "yes"]} for record in records]
    if name == "chat":
        chats = [[{"role": "user", "content": record["prompt"]}] for record in records]
        records = [{**record, "messages": chat} for record, chat in zip(records, chats)]
    if name == "half_a_chat":
        records = [{**record, "messages": [{"role": "user"}]} for record in records]
    return records[start : start + 7]


def episode_items(name, portion, start):
    """Counters: add up to a number that the user names in two turns."""
    tools = [{"type": "function", "function": {"name": "add", "description": "Add.", "parameters": {}}}]
    records = []
    for seed in range(start, min(start + 7, 20)):
        call = {"name": "add", "arguments": {"n": seed + 1}}
        messages = [{"role": "system", "content": "Count."}, {"role": "user", "content": f"Reach {seed + 1}."}]
        reference = json.dumps([json.dumps(call), "Done.", json.dumps([call, call]), "Done again."])
        record = {"prompt": f"Reach {seed + 1}.", "messages": messages, "tools": tools, "reference": reference}
        records.append(record if name != "toolless" else {**record, "tools": None})
    if name == "opened":
        records = [{**record, "reference": None, "messages": record["messages"][:1], "opens": 1} for record in records]
    return records


def open_episode(name, portion, number):
    if number == 13:
        raise ValueError("no page")
    return [{"role": "system", "content": "Count."}, {"role": "user", "content": f"Now open: {number}"}]


def expect(name, portion, number):
    call = {"name": "add", "arguments": {"n": number + 1}}
    return [json.dumps(call), "Done.", json.dumps([call, call]), "Done again."]


def replay(number, moves):
    total, turns, results = 0, 0, None
    for move in moves:
        if "words" in move:
            turns, results = turns + 1, None
            continue
        results = []
        for call in move["calls"]:
            if call["name"] == "crash":
                os._exit(3)
            total += call["arguments"].get("n", 0)
            results.append(f"total {total}")
    return total, turns, results


def advance(name, portion, number, moves):
    total, turns, results = replay(number, moves)
    if name == "mute" or moves[-1].get("words") == "raise":
        raise ValueError("the world broke")
    tools = [{"type": "function", "function": {"name": "undo", "description": "", "parameters": {}}}]
    is_turn = turns == 1 and results is None
    return {
        "results": results,
        "user": f"Now reach {3 * (number + 1)}." if is_turn else None,
        "tools": tools if is_turn else None,
        "is_over": turns == 2,
    }


def score_episode(number, moves):
    if any(move.get("words") == "confuse" for move in moves):
        raise ValueError("the checker is confused")
    total, turns, _ = replay(number, moves)
    return {"value": float(turns == 2 and total == 3 * (number + 1)), "reason": f"total {total}"}


def score_placed(name, portion, number, prompt_sha256, message, likelihoods=None):
    if likelihoods is not None:
        return {"value": float(likelihoods["logprobs"][1] > likelihoods["logprobs"][0]), "extracted": message}
    first = {"train": 0, "test": 10, "dev": 200}[portion]
    return {"value": float(message == f"<answer>{first + number + 1}</answer>"), "extracted": message}


def score_either(name, seed=None, **arguments):
    if "moves" in arguments:
        return score_episode(arguments["number"], arguments["moves"])
    return score_placed(name, **arguments) if seed is None else score(name, seed, **arguments)


METHODS = {
    "describe": lambda: {"names": ["sums"], "system": "Be brief."},
    "draw": draw,
    "open_set": open_set,
    "items": items,
    "open": open_episode,
    "expect": expect,
    "advance": advance,
    "score": score_either,
}
sys.modules["fake_bridge_worker"] = sys.modules["__main__"]
sys.argv = ["serve.py", "fake_bridge_worker"]
serve.main()
'''
NAMES = ["barren", "counters", "formless", "mute", "opened", "sums", "toolless"]


def fake_channel(folder: Path, *, start_s: float = 600.0, answer_s: float = 600.0) -> BridgeChannel:
    """A channel to the fake package, without a sandbox."""
    script = folder / "fake_bridge_worker.py"
    script.write_text(FAKE_WORKER.replace("WORKERS_FOLDER", repr(str(WORKERS))))
    program = [sys.executable, str(script)]
    return BridgeChannel(
        "reasoning_gym", folder, "", sandbox=Unsandboxed(), program=program, patience=Patience(start_s, answer_s)
    )


def install_fake_bridge(
    bridge: str = "reasoning_gym", *, digest: str | None = None, names: Sequence[str] = NAMES
) -> Path:
    """An environment below the installation's home that says it holds the fake package; its folder."""
    pinned = BRIDGES[bridge].pinned
    folder = installation.home() / "bridges" / bridge
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(sys.executable)
    facts = {"names": [] if bridge == "lm-eval" else list(names), "system": "Be brief."}
    stamp = {"name": bridge, "version": "0.0", "pins_digest": digest or pinned.digest, "facts": facts}
    (folder / "agent2-bridge.json").write_text(json.dumps(stamp))
    return folder


def install_playable_bridge(bridge: str, name: str) -> None:
    """The same with a Python that plays the fake package's counters under that name, in the sandbox."""
    folder = install_fake_bridge(bridge, names=[name])
    counters = '("counters", "toolless", "mute", "opened")'
    assert counters in FAKE_WORKER
    program = FAKE_WORKER.replace("WORKERS_FOLDER", repr(WORKERS_INSIDE)).replace(counters, f'("counters", "{name}")')
    (folder / "worker.py").write_text(program)
    python = folder / "bin" / "python"
    python.unlink()
    python.write_text(f"#!/bin/sh\nexec {Path(sys.executable).resolve()} {ENVIRONMENT_INSIDE}/worker.py\n")
    python.chmod(0o755)


def fake_benchmark(folder: Path, name: str = "sums") -> BridgedBenchmark:
    """A benchmark of the fake package, for which `install_fake_bridge` was called."""
    return BridgedBenchmark("reasoning_gym", name, channel=fake_channel(folder))
