"""The scorer of task cards: the answer is applied to the task's files, and a command decides in a sandbox.

    payload: {"files": {"src/fee.py": "..."},                        # the workspace before the work
              "success_verifier": {"type": "unit_tests", "command": "npm test", "files": {...}},
              "setup": "...", "scope": ["src/*"], "process_checks": ["no_snapshot_deletion"], "minutes": 5}

An answer is a unified diff in a block of ```diff, or whole files: a line `FILE: path` (or `DELETE: path`) before a
block with the text. The files of the verifier are written last, over whatever the answer put in their place. A
command that does not end with code 0 is a 0; so is an answer that cannot be applied. A verifier of the type
`answer_script` changes no files: its command finds the answer in `answer.txt`. Process checks look at the difference
and do not change the score: each broken one is a label, and the view `process_checks_passed` is 0. Verifiers of another
type compare the answer, by the scorer of that name.

Does NOT protect a command from the program that it tests: one that ends at once with code 0 passes a runner that
imports it. `agent2 bench check` plays such programs and names the cards whose command they pass.
"""

import re
from collections.abc import Callable, Mapping
from difflib import SequenceMatcher
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType

from agent2.errors import Fault, quoted
from agent2.records import Item, JsonValue, Rollout, Score, ScorerOutput, ScoringMode, ScoringWork
from agent2.sandbox.backends import EndedBy, run_contained
from agent2.sandbox.spec import Limits
from agent2.scorers.sandboxed import SandboxRunner
from agent2.scorers.workspace_paths import laid_over, plain_path, require_inside

ANSWER_SCRIPT = "answer_script"
"""Type of a verifier whose command finds the answer, as it was given, in `ANSWER_FILE`."""
ANSWER_FILE = "answer.txt"
RUNS_COMMAND = frozenset({"unit_tests", "command", ANSWER_SCRIPT})
"""Types of verifiers that run a command."""
FORM = (
    "Answer with a unified diff in a ```diff block, or with whole files: a line 'FILE: path' before a block with the "
    "text of each file that you change, 'DELETE: path' for one that you delete."
)
LIMITS = Limits(memory_gib=2.0, processes=128, file_size_gib=0.25, disk_gib=0.5, tmp_gib=0.25)
OUTPUT_CHARS = 300
REWRITTEN = 0.5
"""Share of a file's lines from which a change is a rewrite."""
_SNAPSHOT = re.compile(r"(?:^|/)(?:__snapshots__|snapshots|golden)/|\.(?:snap|golden|ambr)$")
_TEST = re.compile(r"(?:^|/)(?:tests?|__tests__)/|(?:^|/)test_[^/]+$|[._]test\.[^/.]+$|[._]spec\.[^/.]+$")
_FILE_BLOCK = re.compile(
    r"^(?:FILE|File): *`?(?P<path>[^`\n]+?)`? *\n+(?P<marks>`{3,})[^\n]*\n(?P<text>.*?)^(?P=marks)\s*$",
    re.MULTILINE | re.DOTALL,
)
_DELETED = re.compile(r"^DELETE: *`?([^`\n]+?)`? *$", re.MULTILINE)
_DIFF = re.compile(r"^```(?:diff|patch)[^\n]*\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)

Files = Mapping[str, str]
"""Relative path -> text."""


class NotApplied(Exception):
    """An answer that changes no files, or cannot be applied."""


def apply_answer(answer: str, files: Files) -> dict[str, str]:
    """The files after an answer. Raises NotApplied with the reason."""
    after = dict(files)
    deleted = [path.strip() for path in _DELETED.findall(answer)]
    blocks = [(match["path"].strip(), match["text"]) for match in _FILE_BLOCK.finditer(answer)]
    diffs = [text for text in _DIFF.findall(answer) if not blocks]
    if not (blocks or diffs or deleted):
        raise NotApplied("the answer changes no file")
    for path in deleted:
        if after.pop(path, None) is None:
            raise NotApplied(f"{path!r} is to be deleted and does not exist")
    try:
        for path, text in blocks:
            after[plain_path(path)] = text
        for text in diffs:
            _apply_diff(text, after)
        return require_inside(after)
    except ValueError as error:
        raise NotApplied(str(error)) from error


def _apply_diff(text: str, files: dict[str, str]) -> None:
    from dulwich.patch import apply_patch_hunks, parse_unified_diff

    try:
        patches = parse_unified_diff(_with_headers(text).encode("utf-8", errors="replace"))
    except Exception as error:  # a model's text may break the library's reader; that is the answer's fault
        raise NotApplied(f"the diff cannot be read: {error}") from error
    if not patches:
        raise NotApplied("the diff changes no file")
    for patch in patches:
        source, target = _plain(patch.old_path), _plain(patch.new_path)
        if source is not None and source not in files:
            raise NotApplied(f"the diff changes {source!r}, which does not exist")
        lines = files[source].encode().splitlines(keepends=True) if source is not None else []
        try:
            changed = apply_patch_hunks(patch, lines)
        except Exception as error:  # as above
            raise NotApplied(f"the diff of {target or source!r} cannot be applied: {error}") from error
        if changed is None:
            raise NotApplied(f"the diff does not fit {target or source!r}")
        if source is not None:
            del files[source]
        if target is not None:
            files[target] = b"".join(changed).decode("utf-8", errors="replace")


def _with_headers(text: str) -> str:
    """A diff with git's line before each file, by which the library finds them; models leave it out."""
    if re.search(r"^diff --git ", text, re.MULTILINE):
        return text
    return re.sub(r"^--- (\S+)[^\n]*\n\+\+\+ (\S+)", r"diff --git a/x b/x\n\g<0>", text, flags=re.MULTILINE)


def _plain(path: bytes | None) -> str | None:
    """The path of a diff without its prefix; None: there is no such file. Raises ValueError for one outside."""
    if path is None or path == b"/dev/null":
        return None
    text = path.decode("utf-8", errors="replace")
    return plain_path(text[2:] if text[:2] in ("a/", "b/") else text)


def unrelated_rewrites(before: Files, after: Files, scope: list[str]) -> list[str]:
    """Files outside the scope of which more than half of the lines changed, or that are gone."""
    return [
        path
        for path, text in before.items()
        if not any(fnmatchcase(path, pattern) for pattern in scope)
        and (path not in after or _changed_share(text, after[path]) > REWRITTEN)
    ]


def deleted_snapshots(before: Files, after: Files, scope: list[str]) -> list[str]:
    """Snapshots of tests that are gone or empty; what a task is about does not excuse it."""
    return [path for path in before if _SNAPSHOT.search(path) and not after.get(path, "").strip()]


def deleted_tests(before: Files, after: Files, scope: list[str]) -> list[str]:
    """Test files that are gone or empty."""
    return [path for path in before if _TEST.search(path) and not after.get(path, "").strip()]


Check = Callable[[Files, Files, list[str]], list[str]]
CHECKS: Mapping[str, Check] = MappingProxyType(
    {
        "no_unrelated_file_rewrite": unrelated_rewrites,
        "no_snapshot_deletion": deleted_snapshots,
        "no_test_deletion": deleted_tests,
    }
)
"""Name of a process check -> the files that break it, from before, after and the scope."""
LABELS = {name: name.removeprefix("no_") for name in CHECKS}


def _changed_share(before: str, after: str) -> float:
    lines = before.splitlines()
    if before == after or not lines:
        return 0.0
    matched = sum(block.size for block in SequenceMatcher(None, lines, after.splitlines()).get_matching_blocks())
    return 1.0 - matched / len(lines)


class TaskCardScorer:
    """1.0 if the card's verifier accepts what the answer makes of the task's files, else 0.0."""

    name = "task_card"
    version = "1.0"
    emits = ScorerOutput(
        views=frozenset({"answer_applied", "files_changed", "process_checks_passed"}),
        labels=frozenset({"no_answer", "not_applied", "check_failed", *LABELS.values()}),
    )
    work = ScoringWork(ScoringMode.SANDBOX, concurrency=2)

    def score(self, item: Item, rollout: Rollout) -> Score:
        """No verdict: it needs a sandbox, which the scoring stage gives it."""
        return Score(None, "task_card runs commands and needs the scoring stage (evaluate, rescore)", Fault.JUDGE)

    def score_on(self, runner: SandboxRunner, item: Item, rollout: Rollout) -> Score:
        """The verdict on one answer. Raises SandboxError."""
        verifier = item.payload.get("success_verifier") or {}
        if verifier.get("type") not in RUNS_COMMAND:
            from agent2.scorers import load_scorer

            return load_scorer(str(verifier.get("type"))).score(item, rollout)
        answer = rollout.answer if rollout.answer is not None else (rollout.turns[-1].action if rollout.turns else "")
        if not answer.strip():
            return Score(0.0, "there is no answer", labels=("no_answer",))
        before: Files = item.payload.get("files") or {}
        if verifier["type"] == ANSWER_SCRIPT:
            passed, reason = _verify(runner, item.payload, {**before, ANSWER_FILE: answer})
            return Score(float(passed), reason, labels=() if passed else ("check_failed",))
        try:
            after = apply_answer(answer, before)
        except NotApplied as error:
            return Score(0.0, f"not applied: {error}", views={"answer_applied": 0.0}, labels=("not_applied",))
        return self.score_files(runner, item.payload, after)

    def score_files(self, runner: SandboxRunner, payload: Mapping[str, JsonValue], after: Files) -> Score:
        """The verdict on a workspace. payload: as of an item. Raises SandboxError."""
        before: Files = payload.get("files") or {}
        broken = {name: CHECKS[name](before, after, payload.get("scope") or []) for name in _checks(payload)}
        labels = tuple(LABELS[name] for name, paths in broken.items() if paths)
        changed = sum(before.get(path) != after.get(path) for path in {*before, *after})
        views = {"answer_applied": 1.0, "files_changed": float(changed)}
        if broken:
            views["process_checks_passed"] = float(not labels)
        passed, reason = _verify(runner, payload, after)
        notes = "".join(f"; {LABELS[name]}: {quoted(paths[0])}" for name, paths in broken.items() if paths)
        return Score(float(passed), reason + notes, views=views, labels=labels if passed else ("check_failed", *labels))


def _checks(payload: Mapping[str, JsonValue]) -> list[str]:
    return [name for name in payload.get("process_checks") or [] if name in CHECKS]


def _verify(runner: SandboxRunner, payload: Mapping[str, JsonValue], after: Files) -> tuple[bool, str]:
    """Whether the command of the card ends with code 0 in a workspace of these files, and why not."""
    verifier = payload["success_verifier"]
    setup = payload.get("setup")
    script = f"{{ {setup}\n}} 1>&2 && {{ {verifier['command']}\n}}" if setup else str(verifier["command"])
    with runner.request(("sh", "-c", script), LIMITS) as request:
        for path, text in laid_over(after, verifier.get("files") or {}).items():
            _write(request.scratch / path, text)
        end = run_contained(
            request, runner.sandbox, timeout_s=60 * float(payload.get("minutes") or 5), stop=runner.stop
        )
        log = request.log.read_text(encoding="utf-8", errors="replace") if request.log.is_file() else ""
    if end.ended_by is EndedBy.TIMEOUT:
        return False, "the verifier was still running when its time was over"
    if end.ended_by is EndedBy.ITSELF and end.code == 0 and end.broke is None:
        return True, "the verifier ended with exit code 0"
    output = " ".join((log + " " + end.stdout.decode("utf-8", errors="replace")).split())[-OUTPUT_CHARS:]
    limit = f", at its limit on {end.broke}" if end.broke else ""
    return False, f"the verifier ended with exit code {end.code}{limit}" + (f": {output}" if output else "")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    if text.startswith("#!"):
        path.chmod(0o755)
