"""The scorer `patch_tests`: a patch to a repository, by the tests that it has to fix and those that it must not break.

An item's payload has `repository` (a folder of clones has one of that name), `base_commit`, `test_patch`,
`fail_to_pass` and `pass_to_pass`, as SWE-bench publishes them. The patch is the last fenced block of an answer in the
language diff or patch, else the answer from its first line `diff --git` or `--- ` on. In a sandbox without network the
commit is laid out, the patch applied (`git apply`, else `patch`), files that the test patch changes are put back, the
test patch is applied, and pytest runs the files of the named tests. Resolved is a patch with which all of them pass.

Told apart: no patch (`empty_patch`), one that doesn't apply (`patch_not_applied`), one that changes tests or what
configures them (`edits_tests`, judged like any other, since the published tests replace its own), tests that were not
fixed (`not_fixed`), tests that broke (`broke_tests`), no end in time (`tests_timeout`).

Does NOT install what a repository needs: tests run in the Python that runs agent2, where the published harness builds
an image for each issue. Nor does it keep patched code from lying about its tests, since both run in one process.
"""

import importlib.util
import os
import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from agent2.errors import ConfigError, Fault
from agent2.records import Item, Rollout, Score, ScorerOutput, ScoringMode, ScoringWork
from agent2.sandbox.backends import EndedBy, run_contained
from agent2.sandbox.spec import Limits
from agent2.scorers.code_blocks import code_blocks
from agent2.scorers.sandboxed import SandboxRunner

LIMITS = Limits(memory_gib=4.0, processes=128, file_size_gib=1.0, disk_gib=4.0, tmp_gib=1.0, log_mib=1.0)
OWN = ".agent2-patches"
"""Folder in which the patches arrive in the sandbox; gone before one is applied."""
NOT_APPLIED, TESTS_NOT_APPLIED, NO_PLACE = 90, 91, 92
"""Exit codes of the sandbox: of the patch, of the tests on the commit, of the tests once the patch was applied."""
GIT_S = 120.0
OUTPUT_BYTES = 8 << 20
_BEGIN = re.compile(r"^(?:diff --git |--- )", re.MULTILINE)
_CHANGED = re.compile(r"^(?:\+\+\+ b/|--- a/|rename to |rename from )([^\t\n]+)", re.MULTILINE)
_OUTCOME = re.compile(r"^(PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS) (\S+?)(?: - .*)?$", re.MULTILINE)
_TEST_FILES = re.compile(r"(?:^|/)(?:tests?/|testing/|test_[^/]*\.py$|[^/]*_test\.py$|conftest\.py$)")
_TEST_SETTINGS = frozenset({"pytest.ini", "tox.ini", "setup.cfg", "pyproject.toml", ".coveragerc"})


class PatchTestsScorer:
    """1.0 if all named tests pass with the patch."""

    name = "patch_tests"
    version = "1.0"
    emits = ScorerOutput(
        views=frozenset({"patch_applied", "fail_to_pass", "pass_to_pass", "edits_tests"}),
        labels=frozenset(
            {"empty_patch", "patch_not_applied", "edits_tests", "not_fixed", "broke_tests", "tests_timeout"}
        ),
    )
    work = ScoringWork(ScoringMode.SANDBOX, batch_size=1, concurrency=1)
    expects = "a patch in a block that begins with ```diff"

    def __init__(self, repositories: str | Path = "repos", timeout_s: float = 600.0) -> None:
        """repositories: folder of clones, `OWNER__NAME` each. timeout_s: for the tests of one patch."""
        self._repositories = Path(repositories).expanduser()
        if not timeout_s > 0:
            raise ConfigError(f"scorer patch_tests: timeout_s is {timeout_s!r}; give a number above 0")
        self._timeout_s = timeout_s

    def score(self, item: Item, rollout: Rollout) -> Score:
        """No verdict: it needs a sandbox, which the scoring stage gives it."""
        return Score(None, "patch_tests runs tests and needs the scoring stage (evaluate, rescore)", Fault.JUDGE)

    def score_on(self, runner: SandboxRunner, item: Item, rollout: Rollout) -> Score:
        """The verdict on one patch; missing where its item cannot be used. Raises SandboxError."""
        patch = patch_of(rollout.answer or "")
        if not patch.strip():
            return Score(0.0, "no patch", views={"patch_applied": 0.0}, labels=("empty_patch",))
        repository = self._repositories / str(item.payload.get("repository"))
        if problem := self._problem(repository):
            return Score(None, problem, Fault.INFRASTRUCTURE)
        edited = sorted(path for path in _CHANGED.findall(patch) if _is_of_tests(path))
        test_patch, commit = str(item.payload["test_patch"]), str(item.payload["base_commit"])
        named = {key: [str(name) for name in item.payload[key]] for key in ("fail_to_pass", "pass_to_pass")}
        files = sorted({name.partition("::")[0] for names in named.values() for name in names})
        with runner.request(("sh", "-c", _script(files, _CHANGED.findall(test_patch))), LIMITS) as request:
            request.scratch.mkdir(parents=True, exist_ok=True)
            if problem := _check_out(repository, commit, request.scratch):
                return Score(None, f"item {item.id}: {problem}", Fault.JUDGE)
            _lay_patches(request.scratch, patch, test_patch)
            end = run_contained(request, runner.sandbox, timeout_s=self._timeout_s, stop=runner.stop)
        if end.ended_by is EndedBy.STOP:
            return Score(None, "the scoring was stopped", Fault.INFRASTRUCTURE)
        labels = ("edits_tests",) if edited else ()
        views: dict[str, float | None] = {"patch_applied": 1.0, "edits_tests": float(bool(edited))}
        if end.code == TESTS_NOT_APPLIED:
            return Score(None, f"item {item.id}: its test patch does not apply; restore the file", Fault.JUDGE)
        if end.code == NO_PLACE:
            reason = "the patch leaves no place for the tests"
            return Score(0.0, reason, views=views, labels=("not_fixed", "edits_tests"))
        if end.code == NOT_APPLIED:
            views["patch_applied"] = 0.0
            return Score(0.0, "the patch does not apply", views=views, labels=("patch_not_applied", *labels))
        if end.ended_by is EndedBy.TIMEOUT:
            reason = f"the tests took longer than {self._timeout_s:g} s"
            return Score(0.0, reason, views=views, labels=("tests_timeout", *labels))
        outcomes = {name: outcome for outcome, name in _OUTCOME.findall(end.stdout.decode("utf-8", "replace"))}
        return _verdict(named, outcomes, views, labels)

    @staticmethod
    def _problem(repository: Path) -> str:
        """Why no patch can be judged; empty: nothing."""
        if importlib.util.find_spec("pytest") is None:
            return "pytest is not installed beside agent2; install it with: pip install pytest"
        if not repository.is_dir():
            return f"{repository}: there is no clone of the repository; make one with git clone"
        return ""


def patch_of(answer: str) -> str:
    """The patch in an answer, with a line break at its end; empty: there is none."""
    blocks, _ = code_blocks(answer)
    patches = [block.code for block in blocks if block.language in ("diff", "patch")]
    begin = _BEGIN.search(answer)
    text = patches[-1] if patches else answer[begin.start() :] if begin is not None else ""
    return text if not text or text.endswith("\n") else f"{text}\n"


def _is_of_tests(path: str) -> bool:
    return _TEST_FILES.search(path) is not None or PurePosixPath(path).name in _TEST_SETTINGS


def _script(test_files: Sequence[str], changed_by_tests: Sequence[str]) -> str:
    """What the sandbox runs, in the folder with the commit."""
    restore, saved = [], []
    for path in dict.fromkeys(changed_by_tests):
        saved_copy, target = f'"$own"/base/{shlex.quote(path)}', shlex.quote(path)
        folder = f'"$own"/base/{shlex.quote(str(PurePosixPath(path).parent))}'
        saved.append(f"if [ -e {target} ]; then mkdir -p {folder} && cp {target} {saved_copy}; fi")
        above = shlex.quote(str(PurePosixPath(path).parent))
        restore.append(f"rm -rf {target}; if [ -e {saved_copy} ]; then mkdir -p {above}; cp {saved_copy} {target}; fi")
    files = " ".join(map(shlex.quote, test_files))
    return "\n".join(
        [
            # Out of the tree: a patch may name any file in it, also the one with the tests.
            f'own=$(mktemp -d) && mv {OWN}/* "$own"/ && rmdir {OWN} || exit {TESTS_NOT_APPLIED}',
            *saved,
            f'git apply --check "$own"/test.patch >/dev/null 2>&1 || exit {TESTS_NOT_APPLIED}',
            'git apply "$own"/model.patch >/dev/null 2>&1 || patch --batch --forward --fuzz=5 -p1 -i '
            f'"$own"/model.patch >/dev/null 2>&1 || exit {NOT_APPLIED}',
            *restore,
            f'git apply "$own"/test.patch >/dev/null 2>&1 || exit {NO_PLACE}',
            'rm -rf "$own"',
            f"exec python -m pytest -rA --tb=no -q -p no:cacheprovider -- {files}",
        ]
    )


def _check_out(repository: Path, commit: str, folder: Path) -> str:
    """Lay a commit out in a folder; returns what went wrong, empty: nothing. The clone stays as it is."""
    if not re.fullmatch(r"[0-9a-f]{7,64}", commit):
        return f"base_commit {commit!r} is no commit; restore the file"
    git_folder = repository / ".git" if (repository / ".git").exists() else repository
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith("GIT_")},
        "GIT_INDEX_FILE": str(folder.parent / "index"),
        "GIT_CONFIG_COUNT": "2",
        **{"GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"},
        **{"GIT_CONFIG_KEY_1": "core.hooksPath", "GIT_CONFIG_VALUE_1": os.devnull},
    }
    base = ["git", "--git-dir", str(git_folder.resolve()), "--work-tree", str(folder)]
    try:
        for arguments in (["read-tree", commit], ["checkout-index", "--all", "--force"]):
            subprocess.run(
                [*base, *arguments], env=environment, cwd=folder, check=True, capture_output=True, timeout=GIT_S
            )
    except FileNotFoundError:
        return "the program git is missing; install it"
    except subprocess.SubprocessError as error:
        output = getattr(error, "stderr", None) or b""
        reason = " ".join(output.decode("utf-8", "replace").split())[:200] or str(error)
        return f"commit {commit[:12]} cannot be laid out from {repository} ({reason}); fetch it into the clone"
    return ""


def _lay_patches(folder: Path, patch: str, test_patch: str) -> None:
    (folder / OWN).mkdir()
    (folder / OWN / "model.patch").write_text(patch, "utf-8", "surrogatepass")
    (folder / OWN / "test.patch").write_text(test_patch, "utf-8")


def _verdict(
    named: Mapping[str, Sequence[str]],
    outcomes: Mapping[str, str],
    views: Mapping[str, float | None],
    labels: tuple[str, ...],
) -> Score:
    failing = {
        key: [name for name in names if outcomes.get(name) not in ("PASSED", "XFAIL")] for key, names in named.items()
    }
    shares: dict[str, float | None] = {
        key: 1.0 - len(failing[key]) / len(names) if names else None for key, names in named.items()
    }
    if failing["fail_to_pass"]:
        labels = ("not_fixed", *labels)
    if failing["pass_to_pass"]:
        labels = ("broke_tests", *labels)
    n_failing, n = sum(map(len, failing.values())), sum(map(len, named.values()))
    first = next((name for names in failing.values() for name in names), "")
    detail = f"; {first} {outcomes.get(first, 'did not run').lower()}" if first else ""
    return Score(
        float(not n_failing), f"{n - n_failing} of {n} tests pass{detail}", views={**views, **shares}, labels=labels
    )
