"""What a server prepares: everything named exists, no step begins while a reader waits, and failures stop nothing."""

import importlib
import os
import subprocess
import sys
import threading

import pytest

from agent2.web import preload
from agent2.web import site as site_module
from agent2.web.catalog import Catalog
from agent2.web.preload import Preload
from agent2.web.site import Site
from web_builders import html_of, id_of, write_evaluation


@pytest.fixture
def site(tmp_path):
    (tmp_path / "results").mkdir()
    return Site(Catalog(tmp_path / "results"))


def test_everything_that_is_prepared_exists_and_every_template_compiles(site):
    for name in preload.EVALUATION_MODULES:
        importlib.import_module(name)
    for step in Preload(site).steps():
        step()
    names = site.template_names()
    assert set(preload.FIRST_TEMPLATES) <= set(names) and "home.html.j2" in names


def test_no_step_begins_while_a_page_is_made(site, monkeypatch):
    prepared, begun = Preload(site), threading.Event()
    monkeypatch.setattr(prepared, "steps", lambda: iter([begun.set]))
    with prepared.making_page():
        thread = prepared.start()
        assert not begun.wait(0.2)
    thread.join(120)
    assert begun.is_set()


def test_a_page_that_never_ends_holds_preparing_up_for_a_limited_time(site, monkeypatch):
    monkeypatch.setattr(preload, "LONGEST_PAGE_S", 0.01)
    prepared, begun = Preload(site), threading.Event()
    monkeypatch.setattr(prepared, "steps", lambda: iter([begun.set]))
    with prepared.making_page():
        prepared.run()
    assert begun.is_set()


def test_a_step_that_fails_does_not_stop_the_next_ones(site, monkeypatch):
    prepared, begun = Preload(site), threading.Event()

    def fail():
        raise ImportError("a library is broken")

    monkeypatch.setattr(prepared, "steps", lambda: iter([fail, begun.set]))
    prepared.run()
    assert begun.is_set()


def test_the_newest_evaluation_is_computed_once_before_anybody_asks(tmp_path, monkeypatch):
    root = tmp_path / "results"
    write_evaluation(tmp_path / "players", root / "an evaluation")
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    site = Site(Catalog(root))
    computed, real = [], site_module.evaluation_fields
    monkeypatch.setattr(site_module, "evaluation_fields", lambda path: computed.append(path) or real(path))
    Preload(site).run()
    assert [path.name for path in computed] == ["an evaluation"]
    assert "next data" in html_of(site, "evaluation", id_of(site.catalog, "an evaluation"))
    assert len(computed) == 1


def test_what_the_first_evaluation_needs_is_loaded_before_the_address_is_printed(tmp_path):
    root = tmp_path / "results"
    write_evaluation(tmp_path / "players", root / "an evaluation")
    program = f"""
import sys
from pathlib import Path
from agent2.web.catalog import Catalog
from agent2.web.page import LiveLinks, PageAddress
from agent2.web.preload import Preload
from agent2.web.site import Site
site = Site(Catalog(Path({str(root)!r})))
Preload(site).load_first()
loaded = set(sys.modules)
entry = next(one for one in site.catalog.scan().entries.values() if one.kind == "evaluation")
assert "next data" in site.html(PageAddress("evaluation", entry.id), LiveLinks())
packages = {{name.partition(".")[0] for name in sys.modules.keys() - loaded}}
print(sorted(packages & {{"scipy", "pyarrow", "numpy", "agent2"}}))
"""
    environment = {**os.environ, "AGENT2_HOME": str(tmp_path / "home")}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert done.stdout == "[]\n", done.stderr


def test_a_library_that_is_broken_does_not_stop_the_server(site, monkeypatch):
    monkeypatch.setattr(preload, "EVALUATION_MODULES", ("no_such_library", "numpy"))
    Preload(site).load_first()


def test_a_large_evaluation_waits_until_it_is_asked_for(tmp_path, monkeypatch):
    root = tmp_path / "results"
    write_evaluation(tmp_path / "players", root / "an evaluation")
    site = Site(Catalog(root))
    monkeypatch.setattr(
        preload, "MOST_PREPARED", site.n_rollouts_of(next(iter(site.catalog.scan().entries.values()))) - 1
    )
    monkeypatch.setattr(site_module, "evaluation_fields", lambda path: pytest.fail("was computed"))
    Preload(site).run()


def test_nothing_is_prepared_of_an_empty_folder(site):
    Preload(site).run()
    assert site.catalog.scan().entries == {}
