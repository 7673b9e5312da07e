"""Settings of every test: one thread for numeric libraries (cores are shared) and no model hub.

Every run ends with the CPU time that it took; `--costs N` adds the N most expensive tests and test files.
`--failures FILE` writes the failed tests there, for `make test-again`.
"""

import atexit
import collections
import gc
import hashlib
import importlib.util
import os
import re
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

# Containers often forbid bytecode. Then each test process rewrites the assertions of every test file again (10 s of CPU
# time) and each program that a test starts compiles the package again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# How long an example takes is the machine's affair, not a claim of a test.
# Nor are examples drawn anew: what passes in one run passes in the next. `--hypothesis-profile explore` draws others.
LENIENT = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("explore", **LENIENT)
settings.register_profile("any machine", **LENIENT, derandomize=True)
settings.load_profile("any machine")

OPT_IN = {"gpu", "network", "agents", "long_attack", "thorough"}
"""Markers of tests that run only when `-m` names them."""
ENGINE_IS_INSTALLED = all(importlib.util.find_spec(name) for name in ("alfworld", "textworld", "fast_downward"))


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Without the garbage collector, which looks at 8,000 new tests again and again and finds nothing."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()  # what has been imported and collected stays, so later passes need not look at it
        atexit.register(gc.unfreeze)  # or extension modules complain of leaks


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Of a file whose tests all need the engine, not even the imports work without it."""
    if ENGINE_IS_INSTALLED or not collection_path.match("test_*.py"):
        return None
    return True if "\npytestmark = pytest.mark.engine\n" in collection_path.read_text("utf-8") else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = OPT_IN - set(re.findall(r"\w+", config.option.markexpr))
    if not ENGINE_IS_INSTALLED:
        left_out.add("engine")
    sorted_items: dict[bool, list[pytest.Item]] = {True: [], False: []}
    for item in items:
        sorted_items[any(mark.name in left_out for mark in item.iter_markers())].append(item)
    if sorted_items[True]:
        config.hook.pytest_deselected(items=sorted_items[True])
        items[:] = sorted_items[False]
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)  # a long file that starts last would be waited for alone


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--costs", type=int, default=0, help="print the N tests and files that took the most CPU time")
    parser.addoption("--failures", type=Path, help="write the failed tests here, one a line")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A test process tells the one that started it what it cost, imports and collection included."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["cpu_s"] = _cpu_seconds()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node) -> None:
    costs = node.config.stash.setdefault(_WORKER_COSTS, [])
    costs.append(getattr(node, "workeroutput", {}).get("cpu_s", 0.0))


def _cpu_seconds() -> float:
    """Of this process and its finished children: a trial or a sandbox is a child."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    """Put the phase's CPU seconds on its report; xdist carries `user_properties` from its workers."""
    now = _cpu_seconds()
    before = item.config.stash.get(_LAST_CPU, now)
    item.config.stash[_LAST_CPU] = now
    report = yield
    report.user_properties = [*report.user_properties, ("cpu_s", now - before)]
    return report


_LAST_CPU = pytest.StashKey[float]()
_WORKER_COSTS = pytest.StashKey[list[float]]()


def pytest_terminal_summary(terminalreporter, config: pytest.Config) -> None:
    if config.option.failures is not None:
        bad = [report for kind in ("failed", "error") for report in terminalreporter.stats.get(kind, [])]
        config.option.failures.write_text("".join(f"{name}\n" for name in sorted({report.nodeid for report in bad})))
    tests: collections.Counter[str] = collections.Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()):
                tests[report.nodeid] += value if name == "cpu_s" else 0
    workers = config.stash.get(_WORKER_COSTS, [])
    whole = time.process_time() + sum(workers) if workers else _cpu_seconds()
    terminalreporter.write_line(f"CPU time: {whole / 60:.1f} min, {sum(tests.values()) / 60:.1f} of it in the tests")
    if not ENGINE_IS_INSTALLED:
        terminalreporter.write_line("Tests marked `engine` are left out: no ALFWorld engine (`make test` installs it)")
    files: collections.Counter[str] = collections.Counter()
    for test, seconds in tests.items():
        files[test.partition("::")[0]] += seconds
    for title, costs in (("tests", tests), ("test files", files)):
        if config.option.costs:
            terminalreporter.section(f"{config.option.costs} most expensive {title}, CPU seconds")
            for name, seconds in costs.most_common(config.option.costs):
                terminalreporter.write_line(f"{seconds:7.1f}  {name}")


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    """A folder for what several modules of one test process use."""
    return tmp_path_factory.mktemp("shared")


@pytest.fixture(scope="session")
def common_home(tmp_path_factory):
    """One installation for the trials of all test processes, so that the cards of a base model are made once."""
    root = tmp_path_factory.getbasetemp()
    home = (root.parent if "PYTEST_XDIST_WORKER" in os.environ else root) / "installation"
    home.mkdir(mode=0o700, exist_ok=True)
    # Always the same secret, and so the same hidden items: what passes in one run passes in the next. Made apart and
    # moved, since several test processes do this at once.
    secret = home / f"secret.{os.getpid()}"
    secret.touch(mode=0o600)
    secret.write_bytes(hashlib.sha256(b"the installation of all tests").digest())
    secret.replace(home / "secret")
    return home


@pytest.fixture(scope="session", autouse=True)
def not_the_users_installation(common_home):
    """A test that names no installation of its own leaves the user's secret, caches and access log alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENT2_HOME", str(common_home))
        yield


@pytest.fixture
def scikit_learn(monkeypatch):
    """scikit-learn, importable for one test: transformers loads it in every process where it is installed."""
    apart = os.path.join(sys.prefix, "apart")
    if importlib.util.find_spec("sklearn") is None:
        if not os.path.isdir(apart):
            pytest.skip("needs scikit-learn in a folder apart, as `make test` installs it")
        monkeypatch.syspath_prepend(apart)
    importlib.import_module("sklearn")
