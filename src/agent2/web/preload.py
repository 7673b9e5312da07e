"""What a server of pages does before anybody asks: imports, templates and the newest evaluation.

The first page of a kind would wait a second or more for libraries that no command needs to print an address. Those of
an evaluation, the page that is most likely opened first, are loaded before the address is printed, so that a program
that asks for it at once does not wait for them. The others are loaded in the background in small steps, and no step
begins while a page is being made, so that preparing delays a reader by one step at most.
"""

import importlib
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from agent2.web.computed import draw_nothing
from agent2.web.entries import EntryKind, EntryState
from agent2.web.page import LiveLinks, PageAddress
from agent2.web.site import Site

logger = logging.getLogger(__name__)

EVALUATION_MODULES = (
    "numpy", "scipy.special", "pyarrow.parquet", "agent2.cards.tables", "agent2.scorers.answers",
    "agent2.scorers.process.statistics", "agent2.scorers.grounding", "agent2.analysis.behaviour",
    "agent2.contract.causes", "agent2.analysis.outcome", "agent2.reports.eval_process", "agent2.reports.eval_pages",
)  # fmt: skip
"""Of the page that is most likely opened first."""
OTHER_MODULES = ("agent2.cards.query", "agent2.arena.analysis.result", "agent2.reports.trial_view")
FIRST_TEMPLATES = ("page.html.j2", "web.html.j2", "evaluation_page.html.j2", "card.html.j2", "rollout.html.j2")
MOST_PREPARED = 2_000
"""Rollouts of the newest evaluation up to which its page is made before anybody asks for it."""
LONGEST_PAGE_S = 30.0
"""After which a step begins although a page is still being made."""
FIRST_PAGE_S = 1.5
"""Until the first step where no page is asked for; where one is, the first step begins after it."""


class Preload:
    """Prepares a site in a thread of its own; safe to use from several threads."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._is_idle = threading.Condition()
        self._n_making = 0
        self._has_made = threading.Event()

    @contextmanager
    def making_page(self) -> Iterator[None]:
        """While a page is made for a reader, in which no step begins."""
        with self._is_idle:
            self._n_making += 1
        try:
            yield
        finally:
            with self._is_idle:
                self._n_making -= 1
                self._is_idle.notify_all()
            self._has_made.set()

    def load_first(self) -> None:
        """What an evaluation's page needs, at once; a library that is broken is logged."""
        for name in EVALUATION_MODULES:
            _tried(partial(importlib.import_module, name))

    def start(self) -> threading.Thread:
        """Begin after the first page; the thread ends with the process."""

        def run_after_first_page() -> None:
            self._has_made.wait(FIRST_PAGE_S)
            self.run()

        thread = threading.Thread(target=run_after_first_page, name="preload", daemon=True)
        thread.start()
        return thread

    def run(self) -> None:
        """All steps. A step that fails is logged: the page that needs it says why, once it is asked for."""
        for step in self.steps():
            with self._is_idle:
                self._is_idle.wait_for(lambda: self._n_making == 0, LONGEST_PAGE_S)
            _tried(step)

    def steps(self) -> Iterator[Callable[[], object]]:
        """What is done, in this order."""
        for name in FIRST_TEMPLATES:
            yield partial(self._site.compile_template, name)
        yield self._make_newest_evaluation
        for name in OTHER_MODULES:
            yield partial(importlib.import_module, name)
        yield draw_nothing
        for name in self._site.template_names():
            yield partial(self._site.compile_template, name)

    def _make_newest_evaluation(self) -> None:
        """Its page, whose costly parts are cached; nothing where it runs, is large or there is none."""
        entries = [entry for entry in self._site.catalog.scan().entries.values() if entry.kind is EntryKind.EVALUATION]
        if not entries:
            return
        newest = max(entries, key=lambda entry: entry.changed)
        is_finished = self._site.catalog.summary(newest).state is EntryState.FINISHED
        if is_finished and 0 < self._site.n_rollouts_of(newest) <= MOST_PREPARED:
            self._site.html(PageAddress(EntryKind.EVALUATION.value, newest.id), LiveLinks())


def _tried(step: Callable[[], object]) -> None:
    try:
        step()
    except Exception as error:  # boundary: preparing is no reason to stop serving
        logger.debug("not prepared: %s", error)
