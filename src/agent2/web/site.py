"""Every page of the web app, from an address to its HTML.

A page is made from what the folder contains at that moment. What is costly (the analysis of a trial, the outcome of an
evaluation) is cached until the files behind it change.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import resources
from typing import TYPE_CHECKING, Any

from agent2.arena.host_folders import HostFolders
from agent2.arena.submissions import read_submissions_of
from agent2.arena.trial_folder import TrialPaths
from agent2.cards import folder as card_folder
from agent2.cards.card import CardFile
from agent2.cards.judgement import JUDGEMENT
from agent2.errors import CardError, ConfigError
from agent2.records import ScoredRollout, Split
from agent2.reports.masthead import Masthead
from agent2.reports.text import clean, clean_lines
from agent2.web.board import BoardCache, BoardFilter, BoardProgress, BoardSnapshot, board_page, trials_of
from agent2.web.catalog import Catalog
from agent2.web.computed import (
    EvaluationFields,
    card_process,
    change_figure,
    evaluation_fields,
    stored_sweep_fields,
    trial_fields,
)
from agent2.web.entries import CatalogEntry, EntryKind, EntryState, EntrySummary, ago, last_events, reason_of
from agent2.web.history import history_of, history_page, training_page
from agent2.web.home import LIVE_KINDS, home_page
from agent2.web.items import NOTHING_STORED, found_by_field, stored_items, toggled, with_listed_items
from agent2.web.judging import judges_of, spot_check_page
from agent2.web.notes import NoteListing, RolloutNote
from agent2.web.one_rollout import view_rollout
from agent2.web.page import (
    Links,
    LiveLinks,
    NoSuchPageError,
    PageAddress,
    PageContext,
    SingleLinks,
    file_stamp,
    shelf_of,
    without_dead_links,
)
from agent2.web.pairs import comparable, compare_page
from agent2.web.plots import histogram
from agent2.web.rollouts import (
    ANY_NOTE,
    MAX_SAVED_TEXT,
    MAX_TEXT,
    BesideCard,
    CardFilter,
    is_hidden_card,
    list_card,
    neighbours,
    searches_questions,
    verdict_of,
)
from agent2.web.runs import runs_page
from agent2.web.search import search_page
from agent2.web.shown_pictures import SIDE, SIDE_IN_LIST, PictureShelf, ScreenshotRow, screenshot_rows
from agent2.web.summaries import sweep_grid
from agent2.web.trials import (
    event_words,
    evidence_anchor,
    gives_out_hidden,
    log_tail,
    revision_diffs,
    submission_words,
    timeline_of,
    transcript_of,
)

if TYPE_CHECKING:
    from agent2.reports.eval_process import ProcessView

ASSETS = {
    "style.css": ("agent2.reports", "text/css"),
    "app.css": ("agent2.web", "text/css"),
    "app.js": ("agent2.web", "text/javascript"),
}
"""Style sheets and script of the pages -> package and media type."""
BOARD_WAIT_S, LONGEST_WAIT_S = 1.0, 3600.0
"""For a leaderboard that is being built, before the page shows its progress; an exported site waits for the end."""
STATES_CACHED_S = 1.0
MOST_ROLLOUTS = 100_000
"""Of an evaluation up to which its report is computed here; a larger one has a stored report."""
MAX_REFERENCE = 2_000
LEAST_REPEATED = 24
"""Characters of an item's field from which on it is left out where its prompt has the same words."""
MAX_HEADING = 80
"""Characters of a question that is the heading of its rollout's page."""
MAX_PROCESS = 2_000
"""Rollouts of a card up to which its page shows how they were worked; `agent2 cards process` takes any number."""
TRIAL_PARTS = {"": "Overview", "timeline": "Timeline", "transcript": "Transcript", "code": "Code"}


def read_asset(name: str) -> str:
    """A style sheet or the script of the pages."""
    return (resources.files(ASSETS[name][0]) / "templates" / name).read_text(encoding="utf-8")


class Site(PageContext):
    """The pages over one folder; safe to use from several threads."""

    def __init__(self, catalog: Catalog, *, shows_hidden: bool = False, masthead: Masthead | None = None) -> None:
        """shows_hidden: texts of hidden items are shown too. masthead: of home and leaderboard, where published."""
        super().__init__(catalog, shows_hidden=shows_hidden, masthead=masthead)
        self._board = BoardCache(catalog)
        self._states: tuple[float, list[EntrySummary]] = (-STATES_CACHED_S, [])
        self._pages: dict[str, Callable[[PageAddress, Links], str]] = {
            "home": partial(home_page, self),
            "leaderboard": self._leaderboard,
            "trial": self._trial,
            "evaluation": self._evaluation,
            "sweep": self._sweep,
            "training": partial(training_page, self),
            "card": self._card,
            "rollout": self._rollout,
            "history": partial(history_page, self),
            "spotcheck": partial(spot_check_page, self),
            "search": partial(search_page, self),
            "compare": partial(compare_page, self),
            "runs": partial(runs_page, self),
        }

    def html(self, route: PageAddress, links: Links) -> str:
        """The page. Raises NoSuchPageError, and UnreadableResultError for a result that cannot be shown."""
        page = self._pages.get(route.kind)
        if page is None:
            raise NoSuchPageError(f"there are no pages of the kind {clean(route.kind, 40)}")
        text = self.guarded(route, lambda: page(route, links))
        return self.without_host_folders(text) if links.is_static else text

    def without_host_folders(self, page: str) -> str:
        """A page that leaves this machine, without its folders."""
        return HostFolders(more={self.catalog.root: self.catalog.root.resolve().name}).replaced_in_page(page)

    # Home

    def states(self) -> list[EntrySummary]:
        """Results that may be running, as of a second ago at most."""
        # the live home page of every reader polls this
        cached = self._states
        if time.monotonic() - cached[0] > STATES_CACHED_S:
            entries = [entry for entry in self.catalog.scan().entries.values() if entry.kind in LIVE_KINDS]
            self._states = cached = time.monotonic(), [self.catalog.summary(entry) for entry in entries]
        return cached[1]

    # Leaderboard

    def _leaderboard(self, route: PageAddress, links: Links) -> str:
        if route.id:
            raise NoSuchPageError("the leaderboard is one page")
        board_filter = BoardFilter.of(route.query)
        snapshot = self._board.board(LONGEST_WAIT_S if links.is_static else BOARD_WAIT_S)
        if isinstance(snapshot, BoardProgress):
            return self.render("leaderboard_page.html.j2", links, progress=snapshot)
        snapshot = self._board.with_exams(snapshot, board_filter.exams, counts_unmarked=board_filter.counts_unmarked)

        def pinned(name: str) -> str:
            """The address of the board with a column pinned, or no longer."""
            pins = [pin for pin in board_filter.pins if pin != name] + ([] if name in board_filter.pins else [name])
            return links.to("leaderboard", **(dict(route.query) | {"pin": ",".join(pins)}))

        def with_exam(choice: str) -> str:
            """The address of the board with those exams."""
            return links.to("leaderboard", **(dict(route.query) | {"exam": choice}))

        return self.render(
            "leaderboard_page.html.j2", links, query=dict(route.query), board_filter=board_filter, pinned=pinned,
            with_exam=with_exam,
            is_filtered=board_filter != BoardFilter(), board=board_page(snapshot, board_filter), progress=None,
            pairs=self._run_pairs(snapshot, board_filter, links),
        )  # fmt: skip

    def _run_pairs(self, snapshot: BoardSnapshot, board_filter: BoardFilter, links: Links) -> list[tuple[str, str]]:
        """(seed, address of the item-by-item comparison) of the seeds that both compared stacks were run with."""
        if board_filter.first == board_filter.second:
            return []
        new_by_seed = self._result_cards(snapshot, board_filter.first)
        old_by_seed = self._result_cards(snapshot, board_filter.second)
        pairs = []
        for seed, new in new_by_seed.items():
            old = old_by_seed.get(seed)
            href = links.to("compare", new.id, **{"with": old.id}) if old is not None else ""
            if href:
                pairs.append((f"seed {seed}", href))
        return pairs

    def _result_cards(self, snapshot: BoardSnapshot, stack_name: str) -> dict[str, CatalogEntry]:
        """Seed -> card of the result on private items, of the runs of a row `TASK / STACK`."""
        task, _, stack = stack_name.partition(" / ")
        cards: dict[str, CatalogEntry | None] = {}
        for trial_id, seed in trials_of(snapshot, task, stack):
            trial = self.catalog.get(trial_id, EntryKind.TRIAL)
            path = TrialPaths(trial.path).card("final", Split.TEST_PRIVATE) if trial is not None else None
            cards[seed] = self.catalog.at(path) if path is not None else None
        return {seed: card for seed, card in cards.items() if card is not None}

    # Trials and sweeps

    def _trial(self, route: PageAddress, links: Links) -> str:
        entry = self.entry(route, EntryKind.TRIAL)
        paths = TrialPaths(entry.path)
        summary = self.catalog.summary(entry)
        fields = {
            "entry": entry,
            "summary": summary,
            "breadcrumbs": self.breadcrumbs(entry, links),
            "tabs": [
                (name, links.to("trial", entry.id, part), part == route.part) for part, name in TRIAL_PARTS.items()
            ],
        }
        withholds = links.is_static and not (links.is_single and self.shows_hidden) and gives_out_hidden(paths)
        if withholds and (route.part or summary.state in (EntryState.RUNNING, EntryState.STOPPED)):
            return self.problem(
                "Withheld",
                "The agent was shown a hidden item, which its conversation, log and code quote. See agent2 view.",
                links,
            )
        if route.part == "timeline":
            now = time.time() if summary.state is EntryState.RUNNING else None
            return self.render("timeline.html.j2", links, timeline=timeline_of(paths, now), **fields)
        if route.part == "transcript":
            transcript = self.cached(
                ("transcript", entry.id, file_stamp(paths.llm / "exchanges.jsonl")), lambda: transcript_of(paths)
            )
            return self.render(
                "transcript.html.j2", links, transcript=transcript, log=log_tail(paths.agent_log), **fields
            )
        if route.part == "code":
            key = ("code", entry.id, file_stamp(paths.revisions_log))
            diffs, sources, problems = self.cached(key, lambda: revision_diffs(paths))
            return self.render("code.html.j2", links, diffs=diffs, sources=sources, problems=problems, **fields)
        if route.part:
            raise NoSuchPageError(f"a trial has no page {clean(route.part, 40)}")
        fields |= {"cards": self._cards_of(entry, links)}
        if summary.state in (EntryState.RUNNING, EntryState.STOPPED):
            return self._unfinished_trial(paths, links, fields)
        later = (paths.reproductions_log, paths.retention_log)
        sources = (paths.trial_log, paths.integrity, paths.report / "report.json", *later)
        stamp = tuple(map(file_stamp, sources))
        name = ("trial", entry.id, stamp, withholds)
        view, figures = self.cached(name, lambda: trial_fields(entry.path, withholds=withholds))

        def evidence(where: str) -> str:
            """The address of the evidence of a verdict; empty where no page shows it."""
            target = evidence_anchor(where)
            page = links.to("trial", entry.id, target[0]) if target is not None else ""
            return f"{page}#{target[1]}" if page and target is not None else ""

        return self.render("trial_page.html.j2", links, view=view, figures=figures, evidence=evidence,
                           withholds=withholds, tile_links=self._tile_links(paths, view.best_submission, links),
                           submission_links=[self._submission_link(paths, submission.number, links)
                                             for submission in view.submissions.records], **fields)  # fmt: skip

    def _submission_link(self, paths: TrialPaths, number: int, links: Links) -> str:
        """Address of the card of a submission on the public items; empty where there is none."""
        card = self.catalog.at(paths.submission_card(number))
        return links.to("card", card.id) if card is not None else ""

    def _tile_links(self, paths: TrialPaths, best: int | None, links: Links) -> list[str]:
        """Addresses behind the tiles of a trial's page: public base, best submission, private base, result, gain."""
        base, before, result = (
            self.catalog.at(paths.card(model, split))
            for model, split in (
                ("base", Split.TEST_PUBLIC),
                ("base", Split.TEST_PRIVATE),
                ("final", Split.TEST_PRIVATE),
            )
        )
        gain = (
            links.to("compare", result.id, **{"with": before.id}) if result is not None and before is not None else ""
        )
        public, private, final = (
            links.to("card", card.id) if card is not None else "" for card in (base, before, result)
        )
        return [public, self._submission_link(paths, best, links) if best is not None else "", private, final, gain]

    def _unfinished_trial(self, paths: TrialPaths, links: Links, fields: dict[str, Any]) -> str:
        events = last_events(paths.trial_log)
        # taken before the logs are read: what grows meanwhile comes as a live update, nothing is missed
        log_end = file_stamp(paths.agent_log)
        try:
            submissions = [submission_words(submission) for submission in read_submissions_of(paths)]
        except Exception as error:  # boundary: the grader may be about to make its file
            submissions = [f"cannot be read now: {reason_of(error)}"]
        return self.render(
            "trial_live.html.j2",
            links,
            events=[(row.get("t", 0.0), event_words(row)) for row in events],
            submissions=submissions,
            log=log_tail(paths.agent_log, _file_size(log_end)),
            read={"after": _file_size(file_stamp(paths.trial_log)), "log": _file_size(log_end)},
            **fields,
        )

    def _cards_of(self, entry: CatalogEntry, links: Links) -> list[tuple[str, str, str, str, str]]:
        """(name, address, score as text, split, id) of each card that is part of a result."""
        cards = []
        for card in self.catalog.children(entry, EntryKind.CARD):
            summary = self.catalog.summary(card)
            name = clean(str(card.path.relative_to(entry.path)), 120)
            cards.append((name, links.to("card", card.id), summary.message, summary.detail, card.id))
        return cards

    def _sweep(self, route: PageAddress, links: Links) -> str:
        entry = self.entry(route, EntryKind.SWEEP)
        trials = [self.catalog.summary(trial) for trial in self.catalog.children(entry, EntryKind.TRIAL)]
        fields: dict[str, Any] = {
            "entry": entry,
            "breadcrumbs": self.breadcrumbs(entry, links),
            "trials": trials,
            "ago": ago,
        }
        report = entry.path / "report" / "sweep.json"
        if not report.is_file():
            return self.render(
                "sweep_live.html.j2",
                links,
                summary=self.catalog.summary(entry),
                grid=sweep_grid(entry, trials),
                **fields,
            )
        stored = self.cached(("sweep", entry.id, file_stamp(report)), lambda: stored_sweep_fields(report))
        by_id = {trial.entry.path.name: trial.entry.id for trial in trials}
        trial_links = [
            links.to("trial", by_id[row.trial]) if row.trial in by_id else "" for row in stored["rows"].records
        ]
        return self.render("sweep_page.html.j2", links, trial_links=trial_links, **stored, **fields)

    # Evaluations

    def _evaluation(self, route: PageAddress, links: Links) -> str:
        entry = self.entry(route, EntryKind.EVALUATION)
        summary = self.catalog.summary(entry)
        fields: dict[str, Any] = {"entry": entry, "summary": summary, "breadcrumbs": self.breadcrumbs(entry, links)}
        cards = self._cards_of(entry, links)
        if summary.state in (EntryState.RUNNING, EntryState.STOPPED):
            return self.render("evaluation_live.html.j2", links, cards=cards, reason="", **fields)
        n_rollouts = self.n_rollouts_of(entry)
        if n_rollouts > MOST_ROLLOUTS:
            reason = f"{n_rollouts:,} rollouts are too many to compute a report from here; its folder has report.html."
            return self.render("evaluation_live.html.j2", links, cards=cards, reason=reason, **fields)
        computed = self._evaluated(entry)
        view, listed = computed.view, computed.listed
        figure: str | bool | None = self._figure(entry) if links.is_static else computed.has_figure
        card_entries = {name: self.catalog.at(entry.path / folder) for name, folder in listed.folders.items()}

        def rollout(benchmark: str, item: str) -> str:
            """The address of an item's rollout by the checkpoint, beside the baseline's."""
            new, old = card_entries.get((benchmark, "checkpoint")), card_entries.get((benchmark, "baseline"))
            if new is None or old is None:
                return ""
            return links.to("rollout", new.id, "item", id=item, beside=old.id)

        def card(benchmark: str, side: str, **query: str) -> str:
            card_entry = card_entries.get((benchmark, side))
            return links.to("card", card_entry.id, **query) if card_entry is not None else ""

        def pair(benchmark: str) -> str:
            """The address of all items of both sides; empty where there is no server, or a side is missing."""
            new, old = card_entries.get((benchmark, "checkpoint")), card_entries.get((benchmark, "baseline"))
            return links.to("compare", new.id, **{"with": old.id}) if new is not None and old is not None else ""

        def metric(benchmark: str | None) -> str:
            if links.is_single:
                return ""
            return (pair(benchmark) or card(benchmark, "checkpoint")) if benchmark else "#cards"

        metric_links = [metric(line.spec.benchmark) for line in view.metrics.records]
        return self.render(
            "evaluation_page.html.j2", links, pair_of=pair, metric_links=metric_links, view=view, figure=figure,
            listed=listed, rollout=rollout, card_of=card, cards=cards, history=history_of(self, entry, links),
            **fields,
        )  # fmt: skip

    def _evaluated(self, entry: CatalogEntry) -> EvaluationFields:
        key = ("evaluation", entry.id, file_stamp(entry.path / "report.json"))
        fields: EvaluationFields = self.cached(key, lambda: evaluation_fields(entry.path))
        return fields

    def _figure(self, entry: CatalogEntry) -> str | None:
        key = ("figure", entry.id, file_stamp(entry.path / "report.json"))
        svg: str | None = self.cached(key, lambda: change_figure(self._evaluated(entry)))
        return svg

    def figure(self, route: PageAddress) -> str:
        """The figure of an evaluation as an image that follows the reader's choice of light or dark. Raises as `html`.

        Apart from the page, since drawing it takes longer.
        """
        # an <img> sees no style of its page, so the colours, light and dark, are put into the image
        svg = self.guarded(route, lambda: self._figure(self.entry(route, EntryKind.EVALUATION)) or "")
        if not svg:
            raise NoSuchPageError("no metric of this evaluation has a number on both sides")
        colours, _, _ = read_asset("style.css").partition("* {")
        return svg.replace(">", f"><style>{colours}</style>", 1)

    def picture(self, route: PageAddress) -> bytes:
        """A picture of a card as a PNG: a digest, or the file of a screenshot. Raises as `html`."""

        def read() -> bytes:
            entry = self.entry(route, EntryKind.CARD)
            if self.hides(self.tables.pages(entry.path).card, LiveLinks()):
                raise NoSuchPageError("pictures of hidden items are not shown")
            is_small = route.query.get("size") == "small"
            return PictureShelf(entry.path).named(route.part, SIDE_IN_LIST if is_small else SIDE)

        return self.guarded(route, read)

    def n_rollouts_of(self, evaluation: CatalogEntry) -> int:
        """On the closed cards of an evaluation."""
        return sum(self._n_rollouts(card) for card in self.catalog.children(evaluation, EntryKind.CARD))

    def _n_rollouts(self, entry: CatalogEntry) -> int:
        try:
            summary = card_folder.load_card(entry.path).summary
        except CardError:
            return 0
        return summary.n_rollouts if summary is not None else 0

    # Cards and rollouts

    def hides(self, card: CardFile, links: Links) -> bool:
        """Whether the texts of a card's items are left out of a page."""
        return is_hidden_card(card) and not (self.shows_hidden and (links.is_single or not links.is_static))

    def _card(self, route: PageAddress, links: Links) -> str:
        entry = self.entry(route, EntryKind.CARD)
        card = self.tables.pages(entry.path).card
        card_filter = CardFilter.of(route.query)
        hides = self.hides(card, links)
        by_rollout = {} if hides or links.is_static or card.state == "open" else self.notes.on_card(entry.path)
        labels = Counter(label for notes in by_rollout.values() for label in {note.label for note in notes})
        noted = _noted(by_rollout, card_filter)
        stored = NOTHING_STORED if hides else stored_items(self, entry, card)
        beside_card = BesideCard(noted, found_by_field(stored, card_filter.search))
        listing = list_card(self.tables, entry.path, card, card_filter, hides=hides, beside=beside_card)
        if not hides:
            listing = with_listed_items(self, entry, card, listing, card_filter, links)
        has_related = card.state == "closed" and not links.is_single
        is_whole = replace(card_filter, columns=None) == CardFilter()
        has_judges = has_related and is_whole
        judge, others = judges_of(self, entry, card, links) if has_judges else ("", [])
        query = card_filter.query()

        def filtered(**changes: str) -> str:
            """The address of this card with another filter, at its first page unless `page` is changed."""
            unchanged = query if "page" in changes else {name: value for name, value in query.items() if name != "page"}
            return links.to("card", entry.id, **(unchanged | changes))

        return self.render(
            "card.html.j2",
            links,
            entry=entry,
            breadcrumbs=self.breadcrumbs(entry, links),
            card=card,
            title=clean(card.header.checkpoint_name, 160),
            score_text=self.catalog.summary(entry).message,
            listing=listing,
            problems=self.tables.problems(entry.path, card) if card.state == "closed" else (),
            card_filter=card_filter,
            query=query,
            filtered=filtered,
            column_links=[
                (name, filtered(columns=toggled(name, listing))) for name in listing.all_columns if not links.is_static
            ],
            hides=hides,
            looked_in=card_filter.looked_in(
                is_hidden=hides, in_questions=searches_questions(card), in_fields=bool(stored.payloads)
            ),
            seconds=card.wall_clock_s,
            n_noted=len(by_rollout),
            note_labels=sorted((clean(label, 80), n) for label, n in labels.items() if label),
            judge=judge,
            others=others,
            choices=comparable(self, entry, card) if has_related else [],
            history=history_of(self, entry, links) if has_related else ("", 0),
            is_judgement=JUDGEMENT in card.header.lock,
            process=self._process(entry, card) if is_whole else None,
        )

    def _process(self, entry: CatalogEntry, card: CardFile) -> "ProcessView | None":
        """Of a finished card of several turns; None for others, and for one that would take long."""
        is_worked = card.state == "closed" and card.header.protocol.max_turns > 1
        if not is_worked or JUDGEMENT in card.header.lock or self._n_rollouts(entry) > MAX_PROCESS:
            return None
        key = ("process", entry.id, file_stamp(entry.path / "card.json"))
        try:
            view: ProcessView = self.cached(key, lambda: card_process(entry.path))
        except CardError:  # the page names what is damaged
            return None
        return view

    def record(self, entry: CatalogEntry, line: int) -> ScoredRollout:
        """One rollout of a card. Raises NoSuchPageError if there is no such line, CardError for a damaged card."""
        pages = self.tables.pages(entry.path)
        records = pages.page(line, 1)
        if not records:
            summary = pages.card.summary
            raise NoSuchPageError(
                f"the card has no rollout {line}; it has {summary.n_rollouts if summary else 'fewer'}"
            )
        return records[0]

    def line_of(self, entry: CatalogEntry, item_id: str, attempt: int | None = None) -> int | None:
        """Line of an item's rollout on a card: of `attempt`, otherwise the first one; None if the item is not on it."""
        rollouts = self.tables.pages(entry.path).find(item_id)
        same = [line for line, record in rollouts if record.rollout.attempt == attempt]
        return same[0] if same else rollouts[0][0] if rollouts else None

    def _rollout(self, route: PageAddress, links: Links) -> str:
        entry = self.entry(route, EntryKind.CARD)
        card = self.tables.pages(entry.path).card
        line = self._line(route, entry)
        record = self.record(entry, line)
        hides = self.hides(card, links)
        card_filter = CardFilter.of(route.query)
        query: dict[str, str] = card_filter.query()
        beside_id = route.query.get("beside", "")
        beside = self.catalog.get(beside_id, EntryKind.CARD) if beside_id else None
        beside_fields = self._beside_fields(beside, record, links) if beside is not None else None
        noted = _noted(self.notes.on_card(entry.path), card_filter) if card_filter.note and not hides else ()
        stored = NOTHING_STORED if hides else stored_items(self, entry, card)
        beside_card = BesideCard(noted, found_by_field(stored, card_filter.search))
        around = neighbours(self.tables, entry.path, card, line, card_filter, hides=hides, beside=beside_card)
        query = {name: value for name, value in query.items() if name != "page"}
        query |= {"page": str(page)} if (page := around.pop("page") or 1) > 1 else {}
        listed_at = links.to("card", entry.id, **query)

        def at(number: int | None, **changes: str) -> str:
            return (
                ""
                if number is None
                else links.to("rollout", entry.id, number, **(query | {"beside": beside_id} | changes))
            )

        attempts = [
            (number, scored.rollout.attempt, verdict_of(scored.score.value), scored.score.value)
            for number, scored in self.tables.pages(entry.path).find(record.rollout.item_id)
        ]
        note_listing = NoteListing((), 0) if hides else self.notes.of(entry.path, record)
        place = "" if hides else clean(stored.places.get(record.rollout.item_id, ""), 120)
        return self.render(
            "rollout.html.j2",
            links,
            entry=entry,
            breadcrumbs=[
                *self.breadcrumbs(entry, links),
                (clean(card.header.checkpoint_name, 80), f"{listed_at}#r{line}" if listed_at else ""),
            ],
            card=card,
            line=line,
            n_lines=card.summary.n_rollouts if card.summary is not None else None,
            view=view_rollout(
                record,
                card,
                hides=hides,
                max_characters=MAX_SAVED_TEXT if links.is_single else MAX_TEXT,
                shelf=shelf_of(entry, links),
            ),
            screenshots=() if hides else self._screenshots(entry, record, beside_fields, links),
            name=clean(card.header.checkpoint_name, 80),
            place=place,
            heading=place or ("" if hides else _first_line(record)) or clean(record.rollout.item_id, 120),
            known=() if hides else self._known_of(entry, card, record),
            pairs_at=self._pairs_at(entry, beside, route, line, links),
            beside=beside_fields,
            around={name: at(number) for name, number in around.items()},
            attempts=attempts if len(attempts) > 1 else [],
            bins=histogram([value for *_, value in attempts if value is not None]) if len(attempts) > 1 else (),
            at=at,
            choices=[] if links.is_static else comparable(self, entry, card),
            beside_id=beside_id if beside_fields is not None else "",
            hides=hides,
            query=query,
            notes=[_note_fields(note) for note in note_listing.notes],
            noted=Counter(note.turn for note in note_listing.notes),
            n_unread=note_listing.n_unread,
            verdicts=("new", "old", "tie") if JUDGEMENT in card.header.lock else ("right", "wrong"),
            note_action=links.to("note", entry.id, line, **(query | {"beside": beside_id})),
        )

    def _known_of(self, entry: CatalogEntry, card: CardFile, record: ScoredRollout) -> list[tuple[str, str]]:
        """(name, text) of what is known of an item that is not hidden.

        Its reference answer, the fields that its prompt does not say, and its id where its place in the data is the
        page's title.
        """
        stored, item = stored_items(self, entry, card), record.rollout.item_id
        facts = [("reference", clean_lines(stored.references.get(item, ""), MAX_REFERENCE))]
        # an item whose place in the data is known is called by it
        facts += [("item", clean(item, 160) if stored.places.get(item) else "")]
        prompt = "\n".join(message.text for message in record.rollout.prompt)
        # a long field that the prompt has word for word is read there
        fields = {
            name: text
            for name, text in stored.payloads.get(item, {}).items()
            if len(text) < LEAST_REPEATED or text not in prompt
        }
        facts += [(clean(name, 60), clean(text)) for name, text in fields.items()]
        return [(name, text) for name, text in facts if text]

    def _pairs_at(
        self, entry: CatalogEntry, beside: CatalogEntry | None, route: PageAddress, line: int, links: Links
    ) -> str:
        """The address of this rollout in the comparison of the two cards; empty without one."""
        if beside is None:
            return ""
        query = {"with": beside.id, "kind": route.query.get("kind", ""), "page": route.query.get("pairs", "")}
        href = links.to("compare", entry.id, **query)
        return f"{href}#r{line}" if href else ""

    def add_note(self, route: PageAddress, form: Mapping[str, str]) -> str:
        """Save a note on a rollout; returns the turn that it is about.

        Raises NoSuchPageError, and ConfigError for a note that cannot be saved or is on a hidden item.
        """
        entry = self.entry(route, EntryKind.CARD)
        card = self.tables.pages(entry.path).card
        if self.hides(card, LiveLinks()):
            raise ConfigError("notes on hidden items need `agent2 view --show-hidden`: they may quote the item")
        return self.notes.add(entry.path, card, self.record(entry, self._line(route, entry)), form).turn

    def _line(self, route: PageAddress, entry: CatalogEntry) -> int:
        if route.part == "item":
            attempt = route.query.get("attempt", "")
            line = self.line_of(entry, route.query.get("id", ""), _number(attempt))
            if line is None:
                raise NoSuchPageError(f"the card has no item {clean(route.query.get('id', ''), 120)}")
            return line
        if not (route.part.isascii() and route.part.isdigit() and len(route.part) < 12):
            raise NoSuchPageError(f"{clean(route.part, 40)} is not the number of a rollout")
        return int(route.part)

    def _beside_fields(self, beside: CatalogEntry, record: ScoredRollout, links: Links) -> dict[str, Any]:
        """The same item on another card; without a view if that card lacks it."""
        card = self.tables.pages(beside.path).card
        rollout = record.rollout
        line = self.line_of(beside, rollout.item_id, rollout.attempt)
        fields: dict[str, Any] = {
            "name": clean(card.header.checkpoint_name, 80),
            "entry": beside,
            "view": None,
            "href": "",
        }
        if line is None:
            return fields
        shelf = shelf_of(beside, links)
        view = view_rollout(self.record(beside, line), card, hides=self.hides(card, links), shelf=shelf)
        return fields | {"view": view, "href": links.to("rollout", beside.id, line)}

    def _screenshots(
        self, entry: CatalogEntry, record: ScoredRollout, beside: Mapping[str, Any] | None, links: Links
    ) -> tuple[ScreenshotRow, ...]:
        """Of the page that a rollout delivered, beside those of the other card's unless that is hidden."""
        shelf_beside = None
        if beside is not None and beside["view"] is not None and not beside["view"].hides:
            shelf_beside = (beside["name"], shelf_of(beside["entry"], links))
        return screenshot_rows(shelf_of(entry, links), record.rollout.item_id, record.rollout.attempt, shelf_beside)

    def standalone(self, route: PageAddress) -> str:
        """Any page as one HTML file that needs no server, no network and no script; a rollout's texts are not cut."""
        return without_dead_links(self.html(route, SingleLinks()))


def _noted(
    by_rollout: Mapping[tuple[str, int], Sequence[RolloutNote]], card_filter: CardFilter
) -> list[tuple[str, int]]:
    """The rollouts with the notes that a filter asks for."""
    return [
        key for key, notes in by_rollout.items()
        if card_filter.note == ANY_NOTE or any(clean(note.label, 80) == card_filter.note for note in notes)
    ]  # fmt: skip


def _note_fields(note: RolloutNote) -> dict[str, str]:
    """A note as the page shows it; its file is untrusted."""
    return {
        "turn": clean(note.turn, 20),
        "label": clean(note.label, 80),
        "comment": clean_lines(note.comment, 4_000),
        "author": clean(note.author, 80) or "somebody",
        "when": ago(note.at),
    }


def _file_size(stamp: tuple[int, int] | None) -> int:
    """Size of the file that `file_stamp` looked at."""
    return stamp[0] if stamp is not None else 0


def _number(text: str) -> int | None:
    """A plain number of an address; None for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else None


def _first_line(record: ScoredRollout) -> str:
    """How an item's question begins; "" if nothing was asked."""
    questions = [message.text for message in record.rollout.prompt if message.role == "user"]
    lines = [line for line in "\n".join(questions[-1:]).splitlines() if line.strip()]
    line = clean(lines[0], 400) if lines else ""
    return line if len(line) <= MAX_HEADING else f"{line[:MAX_HEADING].rstrip()}…"
