"""How fast `agent2 view` is over 20 trials, 200 evaluations and a card with a million rollouts.

    python benchmarks/web.py [--rollouts 1000000] [--readers 64] [--seconds 60] [--folder DIR] [--out web.json]

One trial and one evaluation are played (scripted players, a suite of 240 items), the others are copies; the rollouts of
the large card are made up (`benchmarks/cards.py`). The server is a process of its own. A page is timed from the request
to its last byte, when it is asked for the first time; the readers then ask for pages of every kind over one connection
each, with a second between two pages, while server and readers share the machine.

The first evaluation is asked for twice, of two servers: at once after the first page, as a program does it, and
`--pause` seconds after it, as a person does it who reads the list. The server prepares the newest evaluation
meanwhile, and that is the one that is opened; "evaluation, further ones" are not prepared.

Goals: start under 2 s, first page under 0.5 s, evaluation under 0.5 s, at once too, rollout under 0.2 s, a filter over
the million under 1 s, the server's peak under 700 MB, no error. Exit code 1 if one is missed.
"""

import argparse
import asyncio
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import aiohttp
import httpx
import psutil

import cards as large_card
from trial_builders import write_task
from web_builders import write_evaluation

N_TRIALS, N_EVALUATIONS = 20, 200
THINK_S = 1.0
GOALS = {
    "start": 2.0, "home": 0.5, "evaluation": 0.5, "evaluation, at once": 0.5,
    "rollout of the large card": 0.2, "filter: failed": 1.0, "filter: label or search": 1.0,
}  # fmt: skip
MEMORY_GOAL_MB = 700.0


@dataclass(frozen=True)
class Timed:
    """One measurement."""

    what: str
    seconds: float
    """Wall clock."""
    cpu_s: float
    """Processor time of the server meanwhile: what is left of the seconds on a busy machine."""
    note: str = ""


def make_results(folder: Path, n_rollouts: int) -> None:
    """The folder that is looked at; parts that are there already are left alone."""
    root = folder / "results"
    if not (root / "large" / "card" / "card.json").exists():
        print(f"making a card with {n_rollouts:,} rollouts", flush=True)
        shutil.rmtree(root / "large", ignore_errors=True)
        (root / "large").mkdir(parents=True)
        large_card.write(root / "large", n_rollouts)
        large_card.close(root / "large", n_rollouts)
    if not (root / "evaluations").exists():
        print(f"playing an evaluation, copying it {N_EVALUATIONS - 1} times", flush=True)
        first = write_evaluation(folder / "players", folder / "evaluation")
        for number in range(N_EVALUATIONS):
            shutil.copytree(first, root / "evaluations" / f"evaluation-{number:03}")
    if not (root / "trials").exists():
        print(f"playing a trial, copying it {N_TRIALS - 1} times", flush=True)
        from agent2.cli.run import play_new_trial  # loads torch

        os.environ["AGENT2_HOME"] = str(folder / "home")
        (folder / "task").mkdir(exist_ok=True)
        first = play_new_trial(str(write_task(folder / "task")), "base-copy", 0, folder / "played")
        for number in range(N_TRIALS):
            shutil.copytree(first, root / "trials" / f"trial-{number:02}", symlinks=True)


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, int, float]]:
    """The server over a folder: its address, its process and how long it took until it answers."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "agent2", "view", str(folder), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address = server.stdout.readline().split()[-1]
            yield address, server.pid, time.perf_counter() - started
        finally:
            server.terminate()


def exported(folder: Path) -> Timed:
    """One evaluation as files, by the command."""
    with tempfile.TemporaryDirectory() as out:
        started, before = time.perf_counter(), os.times()
        command = [sys.executable, "-m", "agent2", "view", str(folder), "--export", f"{out}/site"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        seconds, after = time.perf_counter() - started, os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    match = re.search(r"([\d,]+) pages", done.stdout + done.stderr)
    n = int(match[1].replace(",", "")) if match else 0
    note = f"{n} pages, {n / seconds:.0f} a second, {n / cpu:.0f} a CPU second; Python's start is in it"
    return Timed("export of an evaluation", seconds, cpu, note)


def peak_mb(pid: int) -> float:
    """Most memory that a process had resident so far."""
    match = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(match[1]) / 1024 if match else float("nan")


def cpu_s(server: psutil.Process) -> float:
    """Processor time that the server has taken so far."""
    times = server.cpu_times()
    return times.user + times.system


def ids_of(client: httpx.Client) -> dict[str, list[str]]:
    """Kind -> addresses of the results of that kind, the first page of the list."""
    ids = {}
    for kind in ("trial", "evaluation", "card"):
        text = client.get(f"/?kind={kind}").text
        ids[kind] = list(dict.fromkeys(re.findall(rf'href="(/{kind}/[^"]+)"', text)))
    return ids


def evaluation_at_once(folder: Path) -> Timed:
    """The first evaluation of a server that was started a moment ago, right after its first page."""
    with served(folder) as (address, pid, _), httpx.Client(base_url=address, timeout=120) as client:
        server = psutil.Process(pid)
        newest = ids_of(client)["evaluation"][0]
        started, cpu_begun = time.perf_counter(), cpu_s(server)
        client.get(newest).raise_for_status()
        seconds = time.perf_counter() - started
        note = "as a program asks"
        return Timed("evaluation, at once", seconds, cpu_s(server) - cpu_begun, note)


def measure(
    client: httpx.Client, server: psutil.Process, n_rollouts: int, pause_s: float
) -> tuple[list[Timed], list[str]]:
    """First views of every kind of page, and the addresses that readers ask for."""
    rows: list[Timed] = []

    def timed(label: str, addresses: list[str], describe: Callable[[str], str] = lambda text: "") -> str:
        """The slowest of some pages."""
        taken, cpu, text = [], [], ""
        for address in addresses:
            started, cpu_begun = time.perf_counter(), cpu_s(server)
            answer = client.get(address)
            taken.append(time.perf_counter() - started)
            cpu.append(cpu_s(server) - cpu_begun)
            if answer.status_code != 200:
                raise RuntimeError(f"{address}: {answer.status_code} {answer.text[:300]}")
            text = answer.text
        several = f"slowest of {len(taken)}, median {statistics.median(taken):.3f} s" if len(taken) > 1 else ""
        rows.append(Timed(label, max(taken), max(cpu), " ".join(filter(None, (several, describe(text))))))
        return text

    def count(text: str) -> str:
        match = re.search(r"([\d,]+) rollouts?", text[text.index('role="status"') :])
        return f"{match[1]} found" if match else ""

    timed("home", ["/"])
    ids = ids_of(client)
    time.sleep(pause_s)
    timed("evaluation", ids["evaluation"][:1], lambda text: f"{pause_s:g} s after the first page")
    timed("evaluation, further ones", ids["evaluation"][1:6])
    timed("trial", ids["trial"][:1])
    timed("trial, further ones", ids["trial"][1:6])
    (card,) = [address for address in ids["card"] if "card" in address]
    timed("large card", [card], count)
    lines = random.Random(0).sample(range(n_rollouts), 10)
    rollouts = [f"{card.replace('/card/', '/rollout/')}/{line}" for line in lines]
    timed("rollout of the large card", rollouts)
    timed("filter: failed", [f"{card}?show=failed"], count)
    filters = [f"{card}?q=99", f"{card}?q=Step+by+step&show=passed", f"{card}?show=failed&sort=tokens&order=desc"]
    timed("filter: label or search", filters, count)
    timed("a page far down", [f"{card}?page={n_rollouts // 100}"], count)
    timed("search in every turn", [f"{card}?q=12345&in=turns"], count)
    timed("search on every card", ["/search?q=99"], count)
    timed("search in every turn of every card", ["/search?q=12345&in=turns"], count)
    evaluation = client.get(ids["evaluation"][0]).text
    evaluation_cards = re.findall(r'href="(/card/[^"]+)"', evaluation)
    pair = re.findall(r'href="(/compare/[^"]+)"', evaluation)[0].replace("&amp;", "&")
    timed("two cards, item by item", [pair], count)
    addresses = [
        "/",
        "/?kind=evaluation",
        *ids["evaluation"][:10],
        *ids["trial"][:10],
        *rollouts,
        *evaluation_cards[:4],
    ]
    return rows, [*addresses, card, f"{card}?show=failed", f"{card}?page=777"]


async def read_all(address: str, pages: list[str], n_readers: int, seconds: float) -> tuple[list[float], list[str]]:
    """Seconds of every page that the readers got, and what went wrong."""
    taken: list[float] = []
    errors: list[str] = []
    end = time.perf_counter() + seconds

    async def reader(number: int) -> None:
        rng = random.Random(number)
        async with aiohttp.ClientSession(address) as session:
            await asyncio.sleep(rng.random() * THINK_S)
            while time.perf_counter() < end:
                page = rng.choice(pages)
                started = time.perf_counter()
                try:
                    async with session.get(page, timeout=aiohttp.ClientTimeout(total=60)) as answer:
                        await answer.read()
                        if answer.status != 200:
                            errors.append(f"{page}: {answer.status}")
                except (aiohttp.ClientError, TimeoutError) as error:
                    errors.append(f"{page}: {type(error).__name__} {error}")
                taken.append(time.perf_counter() - started)
                await asyncio.sleep(THINK_S)

    await asyncio.gather(*(reader(number) for number in range(n_readers)))
    return taken, errors


def run(
    folder: Path, n_rollouts: int, n_readers: int, seconds: float, pause_s: float
) -> tuple[list[Timed], float, list[str]]:
    """Everything: timings, peak memory in MB and errors."""
    make_results(folder, n_rollouts)
    at_once = evaluation_at_once(folder / "results")
    with served(folder / "results") as (address, pid, start_s), httpx.Client(base_url=address, timeout=120) as client:
        server = psutil.Process(pid)
        start = Timed("start", start_s, cpu_s(server), "until it answers")
        rows, pages = measure(client, server, n_rollouts, pause_s)
        rows[:0] = [start, at_once]
        started = cpu_s(server)
        alone_mb = peak_mb(pid)
        taken, errors = asyncio.run(read_all(address, pages, n_readers, seconds))
        cuts = statistics.quantiles(taken, n=100)
        note = f"{len(taken)} pages in {seconds:g} s, {len(errors)} errors"
        cpu = (cpu_s(server) - started) / len(taken)
        rows.append(Timed(f"{n_readers} readers, median", cuts[49], cpu, f"{note}; CPU s: mean of a page"))
        rows.append(Timed(f"{n_readers} readers, p99", cuts[98], cpu, f"longest {max(taken):.2f} s"))
        mb = peak_mb(pid)
    rows.append(exported(folder / "results" / "evaluations" / "evaluation-000"))
    print(f"{'page, first view':<28}{'seconds':>9}{'CPU s':>8}  note")
    for row in rows:
        print(f"{row.what:<28}{row.seconds:>9.3f}{row.cpu_s:>8.2f}  {row.note}")
    print(f"{'peak memory':<28}{alone_mb:>9.0f} MB before the readers, {mb:.0f} MB after")
    return rows, mb, errors


def main() -> int:
    """Measure, print, say which goals were missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rollouts", type=int, default=1_000_000, help="on the large card")
    parser.add_argument("--readers", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60.0, help="that the readers read")
    parser.add_argument("--pause", type=float, default=3.0, help="seconds that a person reads the first page")
    parser.add_argument("--folder", type=Path, help="where to write, and what is used again; default: temporary")
    parser.add_argument("--out", type=Path, help="also write the numbers here, as JSON")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder if arguments.folder is not None else Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        rows, mb, errors = run(folder, arguments.rollouts, arguments.readers, arguments.seconds, arguments.pause)
    if arguments.out is not None:
        arguments.out.write_text(json.dumps({"timed": [asdict(row) for row in rows], "peak_mb": mb, "errors": errors}))
    missed = [f"{row.what} took {row.seconds:.2f} s, goal {GOALS[row.what]:g} s" for row in rows
              if row.seconds > GOALS.get(row.what, float("inf"))]  # fmt: skip
    missed += [f"the server took {mb:.0f} MB, goal {MEMORY_GOAL_MB:g} MB"] if mb > MEMORY_GOAL_MB else []
    missed += [f"{len(errors)} errors, such as {errors[0]}"] if errors else []
    for sentence in missed:
        print(f"missed: {sentence}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
