"""Attacks by the files of a stranger: each kind at a door of the command line, and a control of a reader in a line.

The attacker sends a folder (a trial, a card, a log, a benchmark) and waits for somebody to look at it: it wants the
reader to hang or to die, a file of the reader's machine in what is shown, searched or shared, or the reader's terminal.
"""

import gzip
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow
import pyarrow.parquet

from red_team.frame import Attack, Outcome
from red_team.naive import in_time
from red_team.scene import Scene

LONGEST_S = 600.0
CONTROL_S = 20.0
MEMORY_GIB = 8
"""Of the reader; a naive one gets 1."""
MARKER = "marker of a private file"
PRIVATE = "private"
STORED = Path(__file__).parents[1] / "stored" / "trial"
PLAY = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]) << 30,) * 2)
os.chdir(sys.argv[2])
sys.argv = ["agent2", *sys.argv[3:]]
from agent2.cli import main
main()
"""
QUIZ = "name: quiz\nversion: '1'\nprompt: '{question}'\nanswer: answer\nscorer: exact\nfiles: {test: test.jsonl}\n"
SEARCH = QUIZ.replace("scorer: exact", "scorer: cited_answer") + (
    "documents: pages\nenvironment: {name: search}\nmax_turns: 8\n"
)
ROWS = "".join(json.dumps({"question": f"Which is key {n}?", "answer": str(n)}) + "\n" for n in range(8))
ENDLESS = "WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n) SELECT "
CONTROLS_OF_TERMINALS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x80-\x9f\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True, slots=True)
class _Played:
    """How a command of the reader ended."""

    code: int | None
    """None: it was stopped after `LONGEST_S`."""
    text: str
    """What it printed."""
    left_behind: bytes
    """What it wrote, all files together."""


def _agent2(folder: Path, *words: str) -> _Played:
    before = set(folder.rglob("*"))
    environment = {**os.environ, "HOME": str(folder), "AGENT2_HOME": str(folder / "home"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", PLAY, str(MEMORY_GIB), str(folder), *words]
    try:
        done = subprocess.run(command, capture_output=True, timeout=LONGEST_S, env=environment, check=False)
    except subprocess.TimeoutExpired:
        return _Played(None, "", b"")
    fresh = (path for path in folder.rglob("*") if path not in before and path.is_file() and not path.is_symlink())
    text = (done.stdout + done.stderr).decode("utf-8", "replace")
    return _Played(done.returncode, text, b"\n".join(path.read_bytes() for path in fresh))


def _harms(played: _Played) -> bool:
    return played.code not in (0, 1, 2) or "Traceback" in played.text or "bug in agent2" in played.text


def _leaks(played: _Played) -> bool:
    return MARKER in played.text or MARKER.encode() in played.left_behind


def _moves_the_cursor(played: _Played) -> bool:
    return CONTROLS_OF_TERMINALS.search(played.text.replace("\r\n", "\n")) is not None


def _private(root: Path) -> Path:
    """The reader's own files, beside what was sent."""
    folder = root / PRIVATE
    folder.mkdir()
    (folder / "notes.txt").write_text(f"{MARKER}\n")
    (folder / "rows.jsonl").write_text("".join(ROWS.replace("Which", MARKER)))
    (folder / "published.yaml").write_text(f"title: {MARKER}\nsource: me\nrows: [{{name: a, score: 50}}]\n")
    (folder / "prices.yaml").write_text(f"password: {MARKER}\n")
    return folder


def _attack(
    name: str,
    aim: str,
    defence: str,
    send: Callable[[Path], object],
    words: str,
    control: str,
    succeeds: Callable[[_Played], bool] = _harms,
) -> Attack:
    """One attack.

    send: writes what is sent to the folder `given`. words: the reader's command. control: a program whose argument is
    that folder; it succeeds if it hangs, breaks or prints `got it`.
    """

    def with_sent(move: Callable[[Path], Outcome]) -> Callable[[Scene | None], Outcome]:
        def play(_: Scene | None) -> Outcome:
            with TemporaryDirectory(prefix="foreign-") as place:
                root = Path(place)
                _private(root)
                (root / "given").mkdir()
                send(root / "given")
                return move(root)

        return play

    def attempt(root: Path) -> Outcome:
        played = _agent2(root, *words.split())
        ended = "was stopped" if played.code is None else f"ended with {played.code}"
        return Outcome(succeeds(played), f"agent2 {ended}: {' '.join(played.text.split())[-120:]}")

    def reads(root: Path) -> Outcome:
        ended = in_time(control, root / "given", seconds=CONTROL_S, memory_gib=1)
        return Outcome(ended == "hangs" or ended.startswith("breaks") or ended == "got it", f"a plain reader: {ended}")

    return Attack(name, aim, defence, with_sent(attempt), with_sent(reads))


def _files(texts: Mapping[str, str]) -> Callable[[Path], None]:
    def send(folder: Path) -> None:
        for name, text in texts.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)

    return send


def _with(texts: Mapping[str, str], name: str, make: Callable[[Path], object]) -> Callable[[Path], None]:
    def send(folder: Path) -> None:
        _files(texts)(folder)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).unlink(missing_ok=True)
        make(folder / name)

    return send


def _link(target: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(target)


def _holes(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def _gzip_bomb(path: Path) -> None:
    row = json.dumps({"question": "w" * (1 << 20), "answer": "1"}).encode() + b"\n"
    with gzip.open(path, "wb", compresslevel=9) as file:
        for _ in range(1200):
            file.write(row)


def _zip_bomb(path: Path) -> None:
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("header.json", "w", force_zip64=True) as member,
    ):
        member.write(b"[")
        for _ in range(1200):
            member.write(b" " * (1 << 20))


def _one_text_for_all_rows(path: Path) -> None:
    rows = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * 4000, pyarrow.int32()), ["w" * (10 << 20)])
    columns = {"question": rows, "answer": pyarrow.array([str(n) for n in range(4000)])}
    pyarrow.parquet.write_table(pyarrow.table(columns), path, compression="zstd", dictionary_pagesize_limit=1 << 30)


def _endless_metrics(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"CREATE VIEW metrics AS {ENDLESS} id, 'r' AS run_name, id AS step, '{{}}' AS metrics FROM n")


def _trial(folder: Path) -> None:
    shutil.copytree(STORED, folder, dirs_exist_ok=True)
    with closing(sqlite3.connect(folder / "grader.db")) as database:
        database.executescript((STORED / "grader.sql").read_text())
        database.execute("PRAGMA user_version = 1")


def _trial_with(change: Callable[[Path], object]) -> Callable[[Path], None]:
    def send(folder: Path) -> None:
        _trial(folder)
        change(folder)

    return send


def _endless_scores(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "grader.db")) as database:
        columns = [row[1] for row in database.execute("PRAGMA table_info(scores)")]
        database.execute("ALTER TABLE scores RENAME TO kept")
        endless = ", ".join("id AS submission" if name == "submission" else f"0 AS {name}" for name in columns)
        database.execute(f"CREATE VIEW scores AS {ENDLESS} {endless} FROM n")


def _priced(folder: Path) -> None:
    record = json.loads((folder / "trial.json").read_text())
    prices = folder.parent / PRIVATE / "prices.yaml"
    (folder / "trial.json").write_text(json.dumps(record | {"prices": str(prices)}))


def _linked_log(folder: Path) -> None:
    with suppress(FileNotFoundError):
        (folder / "agent.log").unlink()
    (folder / "agent.log").symlink_to(f"../{PRIVATE}/notes.txt")


def _counted(folder: Path) -> None:
    message = {"role": "assistant", "content": "yes"}
    usage = {"prompt_tokens": 10**30, "completion_tokens": 10**30}
    row = {"id": "a", "messages": [{"role": "user", "content": "hi"}, message], "usage": usage, "step": 10**30}
    (folder / "log.jsonl").write_text(json.dumps(row | {"loss": 1.0, "reward": 10**30}) + "\n")


OPEN = "import sys; open(f'{sys.argv[1]}/%s', 'rb').read()"
READS_IT = f"import sys; print('got it' * ({MARKER!r} in open(f'{{sys.argv[1]}}/%s').read()))"
OF_THE_FILE = f"""
import sys, yaml
from pathlib import Path
folder = Path(sys.argv[1])
named = yaml.safe_load((folder / "benchmark.yaml").read_text())
path = folder / (named.get("documents") or named["files"]["test"])
texts = [file.read_text() for file in (sorted(path.rglob("*")) if path.is_dir() else [path])]
print("got it" * ({MARKER!r} in "".join(texts)))
"""
SELECT = "import sqlite3, sys; sqlite3.connect(f'{sys.argv[1]}/%s').execute('SELECT COUNT(*) FROM %s').fetchone()"
COPIES = f"""
import json, shutil, sys
from pathlib import Path
folder = Path(sys.argv[1])
%s
print("got it" * ({MARKER!r} in (folder / "copy").read_text()))
"""
TITLE = r"\e[31mred\e]0;owned\a \u202etxt"
BOARD = f'title: "{TITLE}"\nsource: "{TITLE}"\nrows: [{{name: "n {TITLE}", score: 50}}]\n'
TEXTS_OF_OTHERS = "text of others is printed as text"
REGULAR = "regular files alone, opened without waiting"
INSIDE = "data inside the folder, links resolved, unless allowed"
UNPACKED = "what is unpacked is counted"

ZIP_BOMB: tuple[Attack, ...] = (
    _attack(
        "zip bomb in the place of a log", "a reader without memory", UNPACKED, _with({}, "log.eval", _zip_bomb),
        "cards import given/log.eval out",
        "import sys, zipfile; zipfile.ZipFile(f'{sys.argv[1]}/log.eval').read('header.json')",
    ),
)[: find_spec('inspect_ai') is not None]  # fmt: skip
"""Without inspect-ai no `.eval` file is opened, and nothing would be shown."""
FOREIGN_FILE_ATTACKS: tuple[Attack, ...] = (
    _attack(
        "pipe in the place of a trial's settings", "a reader that hangs", REGULAR,
        _with({}, "trial.json", os.mkfifo), "leaderboard given", OPEN % "trial.json",
    ),
    _attack(
        "pipe in the place of data", "a reader that hangs", REGULAR,
        _with({"benchmark.yaml": QUIZ}, "test.jsonl", os.mkfifo), "benchmarks check ./given", OPEN % "test.jsonl",
    ),
    _attack(
        "pipe in the place of a grader's record", "a reader that hangs", REGULAR,
        _trial_with(lambda folder: ((folder / "grader.db").unlink(), os.mkfifo(folder / "grader.db"))),
        "show ./given", OPEN % "grader.db",
    ),
    _attack(
        "device in the place of a card", "a reader without memory", REGULAR,
        _with({}, "card.json", _link("/dev/zero")), "cards show given/card.json", OPEN % "card.json",
    ),
    _attack(
        "holes of a tebibyte in the place of a training log", "a reader without memory", "files are read up to a limit",
        _with({}, "log.jsonl", _holes), "monitor given/log.jsonl", OPEN % "log.jsonl",
    ),
    _attack(
        "lists in lists in the place of an audit", "a reader that breaks down", "depth is a reason to refuse",
        _trial_with(lambda folder: (folder / "integrity.json").write_text('{"a":' * 300_000)), "resume ./given",
        "import json, sys; json.load(open(f'{sys.argv[1]}/integrity.json'))",
    ),
    _attack(
        "link out of a folder of published figures", "a private file on a board", "links of others are not followed",
        _with({}, "published.yaml", _link(f"../{PRIVATE}/published.yaml")), "leaderboard given",
        READS_IT % "published.yaml", _leaks,
    ),
    _attack(
        "log that is a link, when its trial is shared", "a private file in what is shared",
        "links of others are not followed", _trial_with(_linked_log), "share ./given shared",
        COPIES % "shutil.copyfile(folder / 'agent.log', folder / 'copy')", _leaks,
    ),
    _attack(
        "private file called prices, when its trial is shared", "a private file in what is shared",
        "only prices are copied for prices", _trial_with(_priced), "share ./given shared",
        COPIES % "shutil.copyfile(json.loads((folder / 'trial.json').read_text())['prices'], folder / 'copy')", _leaks,
    ),
    _attack(
        "data outside the folder", "private rows in prompts", INSIDE,
        _files({"benchmark.yaml": QUIZ.replace("test.jsonl", f"../{PRIVATE}/rows.jsonl")}),
        "benchmarks check ./given", OF_THE_FILE, _leaks,
    ),
    _attack(
        "data that are a link out of the folder", "private rows in prompts", INSIDE,
        _with({"benchmark.yaml": QUIZ}, "test.jsonl", _link(f"../{PRIVATE}/rows.jsonl")),
        "benchmarks check ./given", OF_THE_FILE, _leaks,
    ),
    _attack(
        "documents outside the folder", "private files that can be searched", INSIDE,
        _files({"benchmark.yaml": SEARCH.replace("pages", f"../{PRIVATE}"), "test.jsonl": ROWS}),
        "benchmarks check ./given", OF_THE_FILE, _leaks,
    ),
    _attack(
        "page that is a link out of the folder", "private files that can be searched", INSIDE,
        _with(
            {"benchmark.yaml": SEARCH, "test.jsonl": ROWS, "pages/a.md": "Key 1 is 1."},
            "pages/b.md", _link(f"../../{PRIVATE}/notes.txt"),
        ),
        "benchmarks check ./given", OF_THE_FILE, _leaks,
    ),
    _attack(
        "endless view in a training database", "a reader that hangs", "tables alone, and a time limit",
        _with({}, "log.db", _endless_metrics), "monitor given/log.db", SELECT % ("log.db", "metrics"),
    ),
    _attack(
        "endless view in a grader's record", "a reader that hangs", "tables alone, and a time limit",
        _trial_with(_endless_scores), "show ./given", SELECT % ("grader.db", "scores"),
    ),
    _attack(
        "counts of 10^30 in trajectories", "a reader that breaks down", "a count beyond 2^53 is not known", _counted,
        "cards import --trajectories given/log.jsonl out",
        "import json, sys; json.load(open(f'{sys.argv[1]}/log.jsonl'))['step'].to_bytes(8, 'little')",
    ),
    _attack(
        "counts of 10^30 in a training log", "a reader that breaks down", "a count beyond 2^53 is not known", _counted,
        "monitor given/log.jsonl",
        "import json, sys; json.load(open(f'{sys.argv[1]}/log.jsonl'))['step'].to_bytes(8, 'little')",
    ),
    _attack(
        "gzip bomb in the place of data", "a reader without memory", UNPACKED,
        _with({"benchmark.yaml": QUIZ.replace("test.jsonl", "test.jsonl.gz")}, "test.jsonl.gz", _gzip_bomb),
        "benchmarks check ./given", "import gzip, sys; gzip.open(f'{sys.argv[1]}/test.jsonl.gz').read()",
    ),
    *ZIP_BOMB,
    _attack(
        "one text for all rows of a table", "a reader without memory", UNPACKED,
        _with({"benchmark.yaml": QUIZ.replace("test.jsonl", "test.parquet")}, "test.parquet", _one_text_for_all_rows),
        "benchmarks check ./given",
        "import sys, pyarrow.parquet as parquet; parquet.read_table(f'{sys.argv[1]}/test.parquet').to_pylist()",
    ),
    _attack(
        "escapes in a title", "the reader's terminal", TEXTS_OF_OTHERS, _files({"published.yaml": BOARD}),
        "leaderboard given",
        "import sys, yaml; title = yaml.safe_load(open(f'{sys.argv[1]}/published.yaml'))['title']; "
        "print('got it' * ('\\x1b' in title))", _moves_the_cursor,
    ),
    _attack(
        "escapes in a question", "the reader's terminal", TEXTS_OF_OTHERS,
        _files({
            "benchmark.yaml": QUIZ.replace("test:", "dev:"),
            "test.jsonl": ROWS.replace("Which", r"\u001b[31mred\u001b]0;owned\u0007 \u202etxt"),
        }),
        "benchmarks show ./given",
        "import json, sys; row = json.loads(open(f'{sys.argv[1]}/test.jsonl').readline()); "
        "print('got it' * ('\\x1b' in row['question']))", _moves_the_cursor,
    ),
)  # fmt: skip
