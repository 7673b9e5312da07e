"""The assignment kind `page`: the agent builds a web page, which is opened in Chromium with checks that it never saw.

The request is a hidden item of the benchmark that the task names in `pages`, chosen by the trial's seed; its checks and
reference page stay with the grader. Credit is the share of the checks that hold. The five other views of `page_checks`
are told beside it and never added up. Does NOT look at checkpoints: the base model of such a trial has no part in it.
"""

import hmac
from pathlib import Path

from agent2.arena.agent_files import read_beneath
from agent2.arena.assignments.records import Bench, Scores
from agent2.arena.evidence import AssignmentPart, AssignmentVerdict
from agent2.benchmarks import load_benchmark
from agent2.benchmarks.home import ProvidesCount
from agent2.errors import ConfigError, Fault, MachineError
from agent2.records import Item, Score, Split
from agent2.scorers.page_checks import FILES, MAX_PAGE_BYTES, NO_PAGE, VIEWS, missing_program

PLACE = Path("code") / "page"
REQUEST = "REQUEST.md"
N_REQUESTS = 60
"""Hidden items among which a request is chosen."""
FUNCTION = VIEWS[0]


class BuildPage:
    """Gives out a request for a page, and looks at what the agent delivers."""

    def prepare(self, bench: Bench) -> None:
        """Write the request. Raises ConfigError without a browser, and where there is no such request."""
        if problem := missing_program():
            raise ConfigError(f"an assignment of the kind page opens a browser: {problem}")
        request = request_of(bench).prompt
        target = bench.workspace / PLACE
        target.mkdir(parents=True)
        (target / REQUEST).write_text(f"{request}\n", encoding="utf-8")

    def judge(self, bench: Bench, scores: Scores) -> AssignmentVerdict:
        """The six views of the page that is there when the time is over."""
        request = request_of(bench)
        score = bench.look(request, files_in(bench.workspace), bench.folder / "page")
        if score.value is None and score.fault is Fault.INFRASTRUCTURE:
            raise MachineError(f"the page could not be looked at: {score.reason}")
        if score.value is None:
            part = AssignmentPart(FUNCTION, None, f"it could not be looked at: {score.reason}")
            return AssignmentVerdict("page", False, None, (part,))
        views = {name: score.views.get(name) for name in VIEWS}
        other_parts = [
            AssignmentPart(name, None, "not known" if view is None else f"{view:.2f} of 1")
            for name, view in views.items()
            if name != FUNCTION
        ]
        function = AssignmentPart(FUNCTION, views[FUNCTION], _function_reason(request, score))
        return AssignmentVerdict("page", score.value == 1.0, views[FUNCTION], (function, *other_parts), views)


def request_of(bench: Bench) -> Item:
    """The hidden item that this trial asks for. Raises ConfigError."""
    name, kind = bench.spec.pages, bench.spec.case
    if not name:
        raise ConfigError("assignment: pages is empty; name a benchmark of requests for web pages")
    benchmark, split = load_benchmark(name), Split.TEST_PUBLIC  # private ones are for scores alone
    secret, n_items = bench.secret, N_REQUESTS
    if isinstance(benchmark, ProvidesCount):
        n_items = min(n_items, benchmark.count(split, secret))
    else:  # generated: no trial that trains a model has the requests of this secret among its hidden items
        secret = hmac.digest(secret, b"requests for pages", "sha256")
    items = [item for item in benchmark.items(split, n_items, secret) if item.payload.get("checks")]
    chosen = [item for item in items if kind in ("", item.payload.get("task_type"))]
    if not chosen:
        kinds = ", ".join(sorted({str(item.payload.get("task_type")) for item in items}))
        raise ConfigError(f"assignment: {name} has no request of the kind {kind!r}; it has: {kinds or 'none'}")
    return chosen[bench.config.seed % len(chosen)]


def _function_reason(request: Item, score: Score) -> str:
    """How many checks hold, without their names: reports are shown and shared, and a check stays hidden."""
    function = score.views.get(FUNCTION)
    if function is None or NO_PAGE in score.labels:
        return score.reason
    n_checks = len(request.payload["checks"])
    return f"{round(function * n_checks)} of {n_checks} checks hold"


def files_in(workspace: Path) -> dict[str, str]:
    """The files of the page that an agent left; without those that are missing, links or too large."""
    names = dict.fromkeys(FILES.values())
    contents = {name: read_beneath(workspace, f"{PLACE}/{name}", MAX_PAGE_BYTES) for name in names}
    return {name: content.decode("utf-8", "replace") for name, content in contents.items() if content is not None}
