"""Inputs from the field against their right answers: `python benchmarks/field_cases.py CASES [--only F01 ...]`.

CASES is a folder of small inputs that real models, servers, harnesses and data sets produce, one subfolder a kind
(`F01_think_block/`, ...), with `fake.py MODE PORT`, an endpoint with the habits of real servers. Each is run through
the product's own doors, the command line wherever there is one. The table has what is right, what came out and whether
that is the same; an error has its last line. Exits with 1 if a case is not right.
"""

import argparse
import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent2.cards.reader import CARD_FILE, read_summary
from agent2.errors import CardError
from agent2.records import Completion, Item, Rollout, RolloutStatus, Split, StopReason, Usage
from agent2.scorers import load_scorer
from agent2.scorers.code_blocks import code_of
from agent2.scorers.judge_model import UnreadableVerdict, read_verdict

AGENT2 = [sys.executable, "-m", "agent2"]
SUITE = "llm_core_regression_mini"


@dataclass(frozen=True)
class Case:
    """What came out of one case, in the words of what is right."""

    what: str
    right: str
    """Several outcomes, each of which is right, are separated by " or "; "has TEXT": the outcome contains it."""
    ours: str

    @property
    def is_right(self) -> bool:
        """Whether ours is one of the right outcomes."""
        return any(
            right.removeprefix("has ") in self.ours if right.startswith("has ") else right == self.ours
            for right in self.right.split(" or ")
        )


def agent2(*arguments: object) -> tuple[int, str]:
    """Exit status and all output of one command."""
    done = subprocess.run([*AGENT2, *map(str, arguments)], capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, done.stdout + done.stderr


@contextlib.contextmanager
def endpoint(cases: Path, mode: str, port: int = 0) -> Iterator[str]:
    """The address of the fake endpoint in one of its modes. port: 0 for a free one."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        port = listener.getsockname()[1]
    process = subprocess.Popen([sys.executable, str(cases / "fake.py"), mode, str(port)], stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=1):
                break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/v1#m"
    finally:
        process.kill()
        process.wait()


def evaluation(cases: Path, folder: Path, address: str, out: Path, baseline_port: int = 0) -> str:
    """What `agent2 eval` makes of an endpoint: the share of right answers of its card, or how it ended."""
    with endpoint(cases, "normal", baseline_port) as baseline:
        status, text = agent2(
            "eval", folder / "plus", "--role", "nightly", "--checkpoint", address, "--baseline", baseline, "--out", out
        )
    cards = sorted((out / "cards" / "checkpoint").glob(f"*/{CARD_FILE}"))
    with contextlib.suppress(CardError, IndexError):
        return card_result(cards[0].parent)
    return f"exit {status}: {last_line(text)}"


def card_result(folder: Path) -> str:
    """Mean score, items, and missing rollouts of a card."""
    summary = read_summary(folder)
    missing = f", {summary.n_missing} missing" if summary.n_missing else ""
    return ("missing" if summary.score is None else f"{100 * summary.score.value:.4g}%") + missing


def last_line(text: str) -> str:
    """The last line of an output that says something."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:150] if lines else "no output"


def imported(out: Path, log: Path, *options: str) -> str:
    """What `agent2 cards import` makes of a log."""
    status, text = agent2("cards", "import", log, out / "card", *options)
    return card_result(out / "card") if status == 0 else f"exit {status}: {last_line(text)}"


def rescored(out: Path, log: Path, scorer: str, *options: str) -> str:
    """What `agent2 cards rescore` makes of an imported log."""
    result = imported(out, log, *options)
    if not (out / "card" / CARD_FILE).is_file():
        return result
    status, text = agent2("cards", "rescore", out / "card", "--scorer", scorer, "--out", out / "rescored")
    return card_result(out / "rescored") if status == 0 else f"exit {status}: {last_line(text)}"


def verdicts(path: Path, scorer: str, item: Callable[[list[Any]], dict[str, Any]]) -> Iterator[Case]:
    """Answers of a file of [answer, ..., right value] by a scorer."""
    for row in json.loads(path.read_text(encoding="utf-8")):
        rollout = Rollout("i", 0, 0, RolloutStatus.COMPLETED, (), (), row[0], {}, Usage())
        value = load_scorer(scorer).score(Item("i", Split.DEV, "?", **item(row)), rollout).value
        right = float(str(row[-1]).split(" ")[0])
        yield Case(f"{row[0]!r:.60}", f"{right:g}", "missing" if value is None else f"{value:g}")


def judge_verdicts(path: Path) -> Iterator[Case]:
    """Verdicts of judges [answer, right verdict]."""
    for answer, right in json.loads(path.read_text(encoding="utf-8")):
        try:
            verdict = str(read_verdict(Completion(answer, (), None, StopReason.END))["verdict"])
        except UnreadableVerdict as error:
            verdict = f"none: {error}"
        yield Case(f"{answer!r:.60}", str(right), verdict)


def programs(path: Path) -> Iterator[Case]:
    """Answers to "write add(a, b)": whether the program that is read defines it."""
    for answer in json.loads(path.read_text(encoding="utf-8")):
        yield Case(f"{answer[-40:]!r}", "add", "add" if "def add(" in code_of(answer) else repr(code_of(answer)))


def monitored(path: Path, out: Path) -> str:
    """Exit status, dangers and last step of `agent2 monitor`."""
    status, text = agent2("monitor", path, "--suite", SUITE, "--json", "--out", out / "monitor")
    if "{" not in text:
        return f"exit {status}: {last_line(text)}"
    report = json.loads(text[text.index("{") : text.rindex("}") + 1])
    dangers = [finding["detector"] for finding in report.get("findings", []) if finding.get("severity") == "danger"]
    return f"exit {status}, dangers {dangers}, {report.get('last_step', report.get('n_steps'))}"


def of_endpoints(cases: Path, folder: Path, out: Path) -> Iterator[Case]:
    """Evaluations of endpoints."""
    asked = folder if (folder / "plus").is_dir() else next(cases.glob("F01_*"))

    def evaluated(mode: str, ports: tuple[int, int] = (0, 0), name: str = "") -> str:
        with endpoint(cases, mode, ports[0]) as address:
            return evaluation(cases, asked, address, out / (name or mode), ports[1])

    match folder.name[:3]:
        case "F01":
            for mode in ("think", "prefilled", "reasonfield"):
                yield Case(mode, "100%", evaluated(mode))
        case "F03":
            yield Case("half a character", "100%", evaluated("surrogate"))
        case "F16":
            with socket.socket() as first, socket.socket() as second:
                for listener in (first, second):
                    listener.bind(("127.0.0.1", 0))
                ports = first.getsockname()[1], second.getsockname()[1]
            yield Case("refused from the fourth request on", "has missing or has exit", evaluated("gone", ports, "ev"))
            yield Case("the same command again", "100%", evaluated("normal", ports, "ev"))
        case "F17":
            yield Case("content in parts", "100%", evaluated("parts"))
        case "F18":
            yield Case("top_p refused", "100%", evaluated("notopp"))
            yield Case("temperature refused", "has temperature", evaluated("notemp"))
        case "F20":
            yield Case("null with 40 tokens", "has missing or has exit", evaluated("nullstop"))


def of_logs(folder: Path, out: Path) -> Iterator[Case]:
    """Logs of trainings and of other harnesses."""
    log = next(folder.glob("*.json*"))
    match folder.name[:3]:
        case "F07" | "F08" | "F09":
            for path in sorted(path for path in folder.iterdir() if path.name != "expected.txt"):
                yield Case(path.name, "has exit 0, dangers []", monitored(path, out))
        case "F11":
            yield Case("a trial that the provider ended", "100%, 1 missing", imported(out, log))
        case "F12":
            yield Case("doubled rows", "50% or has exit 2", imported(out, log))
        case "F13":
            yield Case("lists", "87.5%", imported(out, log, "--metric", "inst_level_strict_acc"))
        case "F15":
            yield Case("targets of the log", "100%", rescored(out, log, "exact"))
        case "F25":
            rights = [f"{100 * value:.4g}%" for value in (6 / 7, 5 / 7)] + [f"{100 * 5 / 6:.4g}%, 1 missing"]
            yield Case("arguments", " or ".join(rights), rescored(out, log, "trajectory_match", "--trajectories"))


def of_answers(folder: Path) -> Iterator[Case]:
    """Answers for scorers and judges."""
    answers = folder / "answers.json"
    options = {"options": ["red", "blue", "green", "Apples"]}
    match folder.name[:3]:
        case "F05":
            yield from programs(answers)
        case "F21":
            yield from verdicts(answers, "choice", lambda row: {"reference": row[2], "payload": options})
        case "F23":
            yield from verdicts(answers, "relaxed_numeric", lambda row: {"reference": row[1]})
        case "F26":
            yield from judge_verdicts(answers)
        case "F32":
            yield from verdicts(answers, "token_f1", lambda row: {"reference": row[1]})


def of_data(folder: Path) -> Iterator[Case]:
    """Data sets of users."""
    match folder.name[:3]:
        case "F29":
            status, text = agent2("decontaminate", folder / "train.jsonl", "--against", folder / "items.jsonl")
            lines = sorted({int(line) for line in re.findall(r"train\.jsonl:(\d+)", text)})
            yield Case("rows listed", "has 4, 5", f"exit {status}: {lines or last_line(text)}")
        case "F30":
            for part, right in (("optnumint", "has refused or has option_by or has 'B'"), ("nanans", "has missing")):
                status, text = agent2("benchmarks", "show", folder / part)
                yield Case(part, right, f"exit {status}: {' '.join(text.split())[-250:]}")
        case "F31":
            _, text = agent2("benchmarks", "check", folder / "plus")
            yield Case("plain numbers", "has #### {answer} or has is sound", " ".join(text.split())[-600:])


def run_cases(cases: Path, folder: Path, out: Path) -> Iterator[Case]:
    """The cases of one folder."""
    yield from of_endpoints(cases, folder, out)
    yield from of_logs(folder, out) if any(folder.glob("*.json*")) else ()
    yield from of_answers(folder)
    yield from of_data(folder)


def main() -> int:
    """Print the table; 1 if a case is not right."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", type=Path, help="folder of cases")
    parser.add_argument("--only", nargs="+", help="these folders alone, by the beginning of their names (F01)")
    arguments = parser.parse_args()
    folders = sorted(path for path in arguments.cases.resolve().glob("F*_*") if path.is_dir())
    if not folders:
        parser.error(f"{arguments.cases}: has no folders F01_..., F03_...")
    n_cases = n_wrong = 0
    for folder in folders:
        name = folder.name.partition("_")[0]
        if arguments.only and name not in arguments.only:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            os.environ["AGENT2_HOME"] = str(Path(scratch) / "home")
            for case in run_cases(arguments.cases.resolve(), folder, Path(scratch)):
                n_cases += 1
                n_wrong += not case.is_right
                mark = "" if case.is_right else "  WRONG"
                print(f"{name}  {case.what:62} right: {case.right:28} ours: {case.ours}{mark}", flush=True)
    print(f"\n{n_cases - n_wrong} of {n_cases} cases of {len(folders)} folders are right")
    return 1 if n_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
