"""Memory and time that admission, audit and report take for hostile inputs of 1 MB.

    python benchmarks/hostile_inputs.py [PART OF A NAME ...]

Each input goes through the code that meets it in a trial: submissions through the contained check (`admission`) and the
same check in the measuring process, so that its memory is in the figures; files of the workspace through the audit's
readers; logs, code and processes through the recorder and the analysis behind a report. Each runs in a process of its
own; printed are its wall-clock and processor time, its peak memory and how it ended. Exit code 1 if one takes more than
`LONGEST_CPU_S` of processor time or `MOST_MIB` of memory, or breaks. The first row is what the interpreter takes.
"""

import json
import multiprocessing
import resource
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from agent2.arena.agent_files import find_metrics, read_commands
from agent2.arena.agents import TranscriptFormat, TranscriptSpec
from agent2.arena.analysis.result import analyse
from agent2.arena.grader.submission import ContainedAdmission, SnapshotLimits, admit, take_snapshot
from agent2.arena.spec import Mode
from agent2.errors import SubmissionError
from agent2.integrity.drift import drift_check
from agent2.integrity.texts import ReadLimits, TextReading, read_units
from agent2.models.checkpoint import inspect_checkpoint
from builders import make_evidence, make_metrics, make_process, make_revision, make_submission
from grading_builders import write_checkpoint

SIZE = 1_000_000
LONGEST_CPU_S = 120.0
MOST_MIB = 1024
LONGEST_S = 300.0

Play = Callable[[Path], str]
"""Meets one input; what became of it, in a few words."""


def times(text: str, size: int = SIZE) -> str:
    """A text again and again, `size` characters together."""
    return (text * (size // len(text) + 1))[:size]


# ---------------------------------------------------------------- admission


def admission(change: Callable[[Path], None]) -> Play:
    """A checkpoint, changed, through snapshot and contained check."""

    def play(root: Path) -> str:
        base = write_checkpoint(root / "base")
        workspace = root / "workspace"
        folder = write_checkpoint(workspace / "output" / "model", seed=1)
        change(folder)
        target = root / "submission" / "snapshot"
        try:
            snapshot = take_snapshot(workspace, "output/model", target, SnapshotLimits())
            info = inspect_checkpoint(base)
            ContainedAdmission()(snapshot, info, "output/model")
        except SubmissionError as error:
            with suppress(SubmissionError):
                admit(snapshot, info, "output/model")
            return f"refused: {error}"[:70]
        admit(snapshot, info, "output/model")
        return "accepted"

    return play


def config(text: str) -> Callable[[Path], None]:
    """The config of a model with one more value."""

    def change(folder: Path) -> None:
        whole = (folder / "config.json").read_text().rstrip()
        (folder / "config.json").write_text(f'{whole[:-1]}, "more": {text}}}')

    return change


def file(name: str, text: str | bytes) -> Callable[[Path], None]:
    """One file of the folder replaced."""

    def change(folder: Path) -> None:
        _write(folder / name, text)

    return change


def deep_and_wide() -> str:
    """400 kB whose places, written out, take gigabytes."""
    return '{"' + times("k", 200) + '":' + "[" + ",".join(["[]"] * 60_000) + "]}"


def nested_keys(depth: int = 900) -> str:
    """The same 900 levels down."""
    key = '{"' + times("k", 200) + '":'
    return key * depth + "[" + ",".join(["[]"] * 60_000) + "]" + "}" * depth


def header(n: int) -> bytes:
    """The head of a weight file with so many empty tensors."""
    entries = {f"t{i}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(n)}
    raw = json.dumps(entries).encode()
    return struct.pack("<Q", len(raw)) + raw


def adapter(**settings: Any) -> Callable[[Path], None]:
    """An adapter in place of the model."""

    def change(folder: Path) -> None:
        (folder / "config.json").unlink()
        (folder / "model.safetensors").unlink()
        (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", 2) + b"{}")
        (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 2, **settings}))

    return change


# ---------------------------------------------------------------- audit


def drift(change: Callable[[Path], None]) -> Play:
    """Template, tokenizer and settings of a submission, as the audit compares them."""

    def play(root: Path) -> str:
        base, folder = write_checkpoint(root / "base"), write_checkpoint(root / "model", seed=1)
        change(folder)
        check = drift_check(inspect_checkpoint(folder), inspect_checkpoint(base), "submission 1")
        return f"{len(check.findings)} findings"

    return play


def texts(name: str, text: str | bytes) -> Play:
    """A file of the workspace, as the audit reads it."""

    def play(root: Path) -> str:
        _write(root / "files" / name, text)
        reading = TextReading()
        n = sum(1 for _ in read_units(root / "files", ReadLimits(), reading))
        return f"{n} units, {sum(reading.not_read.values())} not read"

    return play


# ---------------------------------------------------------------- report


def report(make: Callable[[], dict[str, Any]]) -> Play:
    """What was recorded of a trial, as a report analyses it."""

    def play(root: Path) -> str:
        analysis = analyse(make_evidence(mode=Mode.RL_ONLY, **make()))
        return f"mode {analysis.mode.verdict.value}, route {analysis.route.label}"[:70]

    return play


def source(text: str) -> Callable[[], dict[str, Any]]:
    """1 MB of code, in five files, each run once."""

    def make() -> dict[str, Any]:
        files = {f"code/m{i}.py": text[: SIZE // 5 - 100] + f"\n#{i}" for i in range(5)}
        processes = [make_process(f"python code/m{i}.py", at=6 + i, pid=i) for i in range(5)]
        return {"revisions": [make_revision(files)], "processes": processes}

    return make


def many_modules(n: int = 560, n_processes: int = 10_000) -> dict[str, Any]:
    """Small modules that import each other, and as many processes as are recorded."""
    files = {f"code/m{i}.py": "".join(f"import m{j}\n" for j in range(0, n, 4)) for i in range(n)}
    processes = [make_process(f"python code/m{i % n}.py", at=6 + i / 1000, pid=i) for i in range(n_processes)]
    return {"revisions": [make_revision(files)], "processes": processes}


def many_submissions() -> dict[str, Any]:
    """Submissions, programs with paths of their own, and a long log."""
    paths = "".join(f"p{i}='out/d{i}/x'\n" for i in range(5_000))
    code = {"code/a.py": f"from trl import SFTTrainer\n{paths}SFTTrainer().train()\n"}
    return {
        "revisions": [make_revision(code)],
        "processes": [make_process(f"python code/a.py out/z{i}/k", at=6 + i / 1000, pid=i) for i in range(10_000)],
        "submissions": [make_submission(i, at=100 + i / 100, score=None) for i in range(1, 3_000)],
        "metrics": make_metrics("output/a/log.jsonl", [{"loss": 1.0}] * 20_000, period=0.001),
    }


def many_revisions() -> dict[str, Any]:
    """A revision for each of many small changes."""
    still = {f"code/m{i}.py": "x = 1\n" for i in range(500)}
    revisions = [make_revision({**still, "code/a.py": f"x = {i}\n"}, at=5 + i / 100) for i in range(1_000)]
    return {
        "revisions": revisions,
        "processes": [make_process("python code/a.py", at=5 + i / 100, pid=i) for i in range(1_000)],
    }


def metrics(name: str, text: str) -> Play:
    """A training log, as the recorder reads it."""

    def play(root: Path) -> str:
        _write(root / "workspace" / "output" / name, text)
        return f"{len(find_metrics(root / 'workspace'))} points"

    return play


def commands(text: str) -> Play:
    """An agent's own log of what it ran."""

    def play(root: Path) -> str:
        log = _write(root / "agent.log", text)
        spec = TranscriptSpec(format=TranscriptFormat.CLAUDE_CODE)
        return f"{len(read_commands(spec, log, root))} commands"

    return play


def _write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def _claude(command: str) -> str:
    row = {"message": {"content": [{"type": "tool_use", "name": "Bash", "id": "1", "input": {"command": command}}]}}
    return json.dumps(row) + "\n"


PRODUCTS = "x.backward()\n" + times("y=" + "*".join("a" * 90) + "\n")
TOKENIZER = '{"model": [' + times("[],", 900_000) + "[]]}"
TRACEBACK = "Traceback (most recent call last):\n"
WIDE_LINE = json.dumps({"step": 1, **{f"k{i}": i for i in range(999)}}) + "\n"
INPUTS: dict[str, Play] = {
    "an empty folder (control)": lambda root: "nothing",
    "admission: a sound model (control)": admission(lambda folder: None),
    "admission: config, wide": admission(config(deep_and_wide())),
    "admission: config, deep and wide": admission(config(nested_keys())),
    "admission: config, nested": admission(config(times("[", 500_000))),
    "admission: config, digits": admission(config(times("9", 900_000))),
    "admission: tokenizer of empty lists": admission(file("tokenizer.json", TOKENIZER)),
    "admission: 15,000 empty tensors": admission(file("model.safetensors", header(15_000))),
    "admission: template of braces": admission(file("chat_template.jinja", times("{{"))),
    "admission: adapter, regular expression": admission(adapter(target_modules=r"([a-z_.]+)+!")),
    "admission: adapter, 100,000 names": admission(adapter(target_modules=[f"m{i}" for i in range(100_000)])),
    "audit: template of braces": drift(file("chat_template.jinja", times("{{", 400_000))),
    "audit: template of loops": drift(file("chat_template.jinja", times("{% for a in b %}"))),
    "audit: template of quotes": drift(file("chat_template.jinja", times("{{'\"", 400_000))),
    "audit: file of braces": texts("a.json", times("{")),
    "audit: nested file": texts("a.json", times("[") + times("]")),
    "audit: lines of one character": texts("a.txt", times("a\n")),
    "audit: JSON lines of empty objects": texts("a.jsonl", times("{}\n")),
    "audit: code of products": texts("a.py", PRODUCTS),
    "audit: one long line": texts("a.txt", times("1 + ")),
    "report: code of products": report(source(PRODUCTS)),
    "report: code of calls": report(source(times("print(" * 90 + "1" + ")" * 90 + "\n"))),
    "report: code of assignments": report(source(times("x=1\n"))),
    "report: one f-string": report(source("f'" + times("{a}"))),
    "report: code nested": report(source(times("("))),
    "report: 560 modules, 10,000 processes": report(many_modules),
    "report: 3,000 submissions, 10,000 programs": report(many_submissions),
    "report: 1,000 revisions of 500 files": report(many_revisions),
    "report: log of the agent": report(lambda: {"agent_log_tail": times(TRACEBACK, 20_000)}),
    "recorder: log of wide lines": metrics("a.jsonl", times(WIDE_LINE)),
    "recorder: log of NaN": metrics("a.jsonl", times('{"step": 1, "loss": NaN}\n')),
    "recorder: state of empty rows": metrics("trainer_state.json", f'{{"log_history": [{times("{},", 900_000)}{{}}]}}'),
    "recorder: nested log": metrics("a.jsonl", times("[")),
    "recorder: commands of quotes": commands(_claude("bash -c " + times("'\"", 900_000))),
    "recorder: short commands": commands(times(_claude("ls"))),
}


def measure(name: str, answer: Any) -> None:
    """Play one input in this process and tell what it took."""
    with tempfile.TemporaryDirectory() as root:
        Path(root).chmod(0o755)  # contained programs run as other users
        began, cpu_before = time.monotonic(), _cpu()
        try:
            outcome = INPUTS[name](Path(root))
        except Exception as error:
            outcome = f"BROKE: {type(error).__name__}: {error}"[:70]
        seconds, cpu = time.monotonic() - began, _cpu() - cpu_before
    peak = max(resource.getrusage(whose).ru_maxrss for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    answer.send((seconds, cpu, peak / 1024, outcome))


def _cpu() -> float:
    used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def rows(patterns: list[str]) -> Iterator[tuple[str, tuple[float, float, float, str]]]:
    """Name and measurement of each input, one after the other."""
    context = multiprocessing.get_context("spawn")
    for name in INPUTS:
        if patterns and not any(word in name for word in patterns):
            continue
        parent_end, child_end = context.Pipe()
        process = context.Process(target=measure, args=(name, child_end))
        process.start()
        child_end.close()
        answer = (LONGEST_S, LONGEST_S, 0.0, "BROKE: no answer")
        if parent_end.poll(LONGEST_S):
            try:
                answer = parent_end.recv()
            except EOFError:
                answer = (0.0, 0.0, 0.0, "BROKE: the process died")
        process.kill()
        process.join()
        yield name, answer


def main() -> int:
    """Print the table."""
    print(f"{'input':46}{'s':>7}{'CPU s':>8}{'MiB':>7}  ended")
    n_bad = 0
    for name, (seconds, cpu, mib, outcome) in rows(sys.argv[1:]):
        is_bad = cpu > LONGEST_CPU_S or mib > MOST_MIB or outcome.startswith("BROKE")
        n_bad += is_bad
        print(f"{name:46}{seconds:7.1f}{cpu:8.1f}{mib:7.0f}  {outcome}{'  TOO MUCH' if is_bad else ''}", flush=True)
    print(f"{n_bad} beyond {LONGEST_CPU_S:g} s of processor time or {MOST_MIB} MiB, or broken")
    return int(n_bad > 0)


if __name__ == "__main__":
    sys.exit(main())
