"""Settings of every test: one thread for numeric libraries (cores are shared) and no model hub."""

import importlib.util
import os
import re
import sys

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

# How long an example takes is the machine's affair, not a claim of a test.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

OPT_IN = {"gpu", "network", "agents", "long_attack", "thorough"}
"""Markers of tests that run only when `-m` names them."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = OPT_IN - set(re.findall(r"\w+", config.option.markexpr))
    sorted_items: dict[bool, list[pytest.Item]] = {True: [], False: []}
    for item in items:
        sorted_items[any(mark.name in left_out for mark in item.iter_markers())].append(item)
    if sorted_items[True]:
        config.hook.pytest_deselected(items=sorted_items[True])
        items[:] = sorted_items[False]
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)  # a long file that starts last would be waited for alone


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
