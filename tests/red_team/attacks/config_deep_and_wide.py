"""Submit half a megabyte of config whose places, written out as paths, take gigabytes."""

import json
import time
from pathlib import Path

import psutil

from red_team.frame import Outcome
from red_team.naive import in_time
from red_team.scene import Scene

AIM = "a grader without memory"
DEFENCE = "folders are checked by a limited child, which keeps places as links and not as texts"

KEY, DEPTH, WIDTH = "k" * 200, 900, 60_000


def attempt(scene: Scene) -> Outcome:
    _make(scene)
    harness = psutil.Process()
    before, started = harness.memory_info().rss, time.monotonic()
    status, answer = scene.submit("output/deep", wait=False)
    grown = (harness.memory_info().rss - before) >> 20
    seconds = time.monotonic() - started
    is_busy = seconds > 200 or grown > 200
    return Outcome(
        is_busy, f"{status} after {seconds:.1f} s, {grown} MiB more in the harness {answer.get('error') or ''}"
    )


def control(scene: Scene) -> Outcome:
    """A search that writes out the path of each place."""
    folder = _make(scene)
    program = (
        "import json, sys\n"
        "pending, kept = [('', json.load(open(sys.argv[1] + '/config.json')))], []\n"
        "while pending:\n"
        "    at, value = pending.pop()\n"
        "    inner = enumerate(value) if isinstance(value, list) else []\n"
        "    inner = value.items() if isinstance(value, dict) else inner\n"
        "    pending.extend((f'{at}.{name}', part) for name, part in inner)\n"
    )
    outcome = in_time(program, folder, seconds=60, memory_gib=2)
    size = (folder / "config.json").stat().st_size
    return Outcome(outcome.startswith("breaks") or outcome == "hangs", f"{size} bytes: it {outcome or 'ended'}")


def _make(scene: Scene) -> Path:
    folder = scene.copy_of_base("deep")
    whole = json.loads((folder / "config.json").read_text())
    deep = f'{{"{KEY}":' * DEPTH + "[" + ",".join(["[]"] * WIDTH) + "]" + "}" * DEPTH
    (folder / "config.json").write_text(json.dumps(whole)[:-1] + f', "deep": {deep}}}')
    return folder
