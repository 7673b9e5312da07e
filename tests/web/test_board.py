"""The leaderboard's page: filters, groups and order from the address, ties, two rows compared, the making of it."""

import json
import os
import re
import subprocess
import sys
import threading

import numpy as np
import pytest
from fastapi.testclient import TestClient

from agent2.arena.analysis.leaderboard import make_leaderboard
from agent2.arena.evidence import MarkState
from agent2.arena.trial_folder import TrialPaths
from agent2.reports.leaderboard_pages import NOT_OURS, subtitle
from agent2.web.board import (
    BoardCache,
    BoardFilter,
    BoardProgress,
    BoardSnapshot,
    board_groups,
    board_page,
    compare_rows,
    exam_choices,
    filter_options,
)
from agent2.web.catalog import Catalog
from agent2.web.entries import EntryKind
from agent2.web.page import LiveLinks, PageAddress
from agent2.web.server import ReaderGuard, make_view_app
from agent2.web.site import Site
from pool_builders import conditions, pooled, simulation
from web_builders import HOSTILE, write_trial


@pytest.fixture(scope="module")
def snapshot():
    rates = {("low", "gpt"): 0.3, ("high", "gpt"): 0.9, ("tall", None): 0.9}
    pool = [pooled(name, seed, rate, driver=driver) for (name, driver), rate in rates.items() for seed in range(4)]
    pool += [pooled("high", seed, 0.6, task="u", driver="gpt") for seed in range(2)]
    places = {trial.trial.folder: f"id-{number}" for number, trial in enumerate(pool)}
    return BoardSnapshot((), make_leaderboard(pool), pool, places)


def stacks_shown(snapshot, **query):
    """Stacks of each group, in order."""
    groups = board_groups(snapshot, BoardFilter.of(query))
    return {
        group.title.partition(" (")[0]: [row.cells[group.names.index("stack")] for row in group.rows]
        for group in groups
    }


def test_filters_groups_and_order_come_from_the_address(snapshot):
    assert stacks_shown(snapshot) == {"t": ["high+gpt", "tall", "low+gpt"], "u": ["high+gpt"]}
    assert stacks_shown(snapshot, sort="stack") == {"t": ["high+gpt", "low+gpt", "tall"], "u": ["high+gpt"]}
    assert stacks_shown(snapshot, task="t", driver="gpt") == {"t": ["high+gpt", "low+gpt"]}
    assert stacks_shown(snapshot, system="tall") == {"t": ["tall"]}
    assert stacks_shown(snapshot, driver="no driver", group="driver") == {"no driver": ["tall"]}
    assert stacks_shown(snapshot, group="agent system")["high"] == ["high+gpt", "high+gpt"]
    assert stacks_shown(snapshot, task="nothing") == {}
    assert stacks_shown(snapshot, sort="drop table", group="x") == stacks_shown(snapshot)
    assert filter_options(snapshot.board) == {
        "task": ["t", "u"], "driver": ["gpt", "no driver"], "system": ["high", "low", "tall"]
    }  # fmt: skip


def test_another_exam_is_shown_by_its_address_and_an_unknown_one_is_ignored(tmp_path):
    trials = [pooled("mine", seed, 0.5, conditions=conditions(n_public=60, n_private=100)) for seed in range(3)]
    trials += [
        pooled("large", seed, 0.5, conditions=conditions(items="more", n_public=60, n_private=200)) for seed in range(2)
    ]
    default = BoardSnapshot((), make_leaderboard(trials), trials, {})
    cache = BoardCache(Catalog(tmp_path))
    chosen = cache.with_exams(default, BoardFilter.of({"exam": "t=60/200"}).exams)
    assert stacks_shown(default) == {"t": ["mine"]} and stacks_shown(chosen) == {"t": ["large"]}
    assert [(exam.key, address) for exam, address in exam_choices(default.board)] == [
        ("60/100", "t=60/100"),
        ("60/200", "t=60/200"),
    ]
    assert cache.with_exams(default, ("t=9/9", "u=60/100")) is default
    assert cache.with_exams(default, ("t=60/100",)) is default
    assert cache.with_exams(default, ("t=60/200",)) is chosen, "kept, not ranked again"
    (group,) = board_groups(chosen, BoardFilter())
    assert group.note.startswith("Exam: 60 public and 200 private items of another installation.")
    page = board_page(chosen, BoardFilter())
    assert [exam.is_shown for exam, _ in page.exams] == [True, False] and "digest" not in str(page.exams[0][0].label)
    assert exam_choices(make_leaderboard(trials[:3])) == []


def test_trials_without_this_installations_mark_count_when_the_reader_asks_for_them(tmp_path):
    trials = [pooled("mine", seed, 0.5, mark=MarkState.OWN) for seed in range(3)]
    trials += [pooled("theirs", seed, 0.9) for seed in range(3)]
    default = BoardSnapshot((), make_leaderboard(trials), trials, {})
    cache = BoardCache(Catalog(tmp_path))
    counted = {}
    for query in ({}, {"unmarked": "count"}, {"unmarked": "nonsense"}):
        chosen = BoardFilter.of(query)
        snapshot = cache.with_exams(default, chosen.exams, counts_unmarked=chosen.counts_unmarked)
        counted[str(query)] = {standing.stack: standing.n_counted for standing in snapshot.board.tasks[0].standings}
        assert board_page(snapshot, chosen).n_unmarked == 3
    assert list(counted.values()) == [{"mine": 3, "theirs": 0}, {"mine": 3, "theirs": 3}, {"mine": 3, "theirs": 0}]


def test_ties_are_shown_as_ties_and_ranks_do_not_depend_on_the_filter(snapshot):
    pool = [pooled(name, seed, 0.6) for name in ("a", "b", "c") for seed in range(4)]
    tied = BoardSnapshot((), make_leaderboard(pool), pool, {})
    (group, _) = board_groups(snapshot, BoardFilter())
    first, second, third = group.rows
    rank = group.names.index("rank")
    assert (first.cells[rank], second.cells[rank], third.cells[rank]) == ("1-2", "1-2", "3")
    assert first.tie == "tied with tall" and second.tie == "tied with high+gpt" and third.tie == ""
    assert third.begins_tier and not second.begins_tier
    (same,) = board_groups(tied, BoardFilter())
    assert [row.tie for row in same.rows] == ["tied with all others"] * 3
    (alone,) = board_groups(snapshot, BoardFilter.of({"system": "low"}))
    assert alone.rows[0].cells[rank] == "3"
    assert len(first.trials) == 4


def test_pinned_columns_stand_beside_the_stack_and_are_in_the_address(snapshot, tmp_path):
    (first, _) = board_groups(
        snapshot, BoardFilter.of({"pin": "LLM cost,within noise,no such column", "columns": "all"})
    )
    assert list(first.names)[:4] == ["stack", "LLM cost", "within noise", "rank"] and first.n_pinned == 3
    assert len(set(first.names)) == len(first.names)
    (short, _) = board_groups(snapshot, BoardFilter.of({"pin": "seeds"}))
    assert list(short.names)[:3] == ["stack", "seeds", "rank"] and "routes" in short.names
    by_driver = board_groups(snapshot, BoardFilter.of({"pin": "seeds", "group": "driver"}))[0]
    assert list(by_driver.names)[:3] == ["task", "stack", "seeds"] and by_driver.n_pinned == 3
    site = Site(Catalog(tmp_path))
    site._board.board = lambda wait_s: snapshot
    page = site.html(PageAddress("leaderboard", query={"pin": "seeds", "columns": "all", "task": "t"}), LiveLinks())
    assert 'href="/leaderboard?pin=&amp;' not in page and 'href="/leaderboard?columns=all&amp;task=t"' in page, "unpin"
    assert "pin=seeds%2Ctier&amp;columns=all&amp;task=t" in page, "pin another one"
    assert '<input type="hidden" name="pin" value="seeds">' in page, "filters keep it"


def test_columns_that_say_nothing_of_any_stack_are_left_out_unless_asked_for(snapshot):
    pool = [pooled("a", seed, 0.6) for seed in range(2)]
    bare = BoardSnapshot((), make_leaderboard(pool), pool, {})
    (short,) = board_groups(bare, BoardFilter())
    assert "marks" not in short.names and all(len(row.cells) == len(short.names) for row in short.rows)
    for query in ({"pin": "marks"}, {"columns": "all"}):
        (asked,) = board_groups(bare, BoardFilter.of(query))
        assert "marks" in asked.names and len(asked.rows[0].cells) == len(asked.names)


def test_two_rows_are_compared(snapshot):
    comparison = compare_rows(snapshot, "t / high+gpt", "t / low+gpt")
    assert "high+gpt is better" in comparison.verdict and dict(comparison.lines)["runs that count"] == "4 and 4"
    assert "not shown to differ" in compare_rows(snapshot, "t / high+gpt", "t / tall").verdict
    assert "Two tasks" in compare_rows(snapshot, "t / high+gpt", "u / high+gpt").verdict
    assert "same row twice" in compare_rows(snapshot, "t / tall", "t / tall").verdict
    assert "has no trial" in compare_rows(snapshot, "t / tall", f"t / {HOSTILE}").verdict


def test_two_rows_of_two_items_are_not_told_apart_by_an_interval_alone():
    few = [
        pooled(name, 0, 0.5, base={"a": 0.0, "b": 0.0}, final={"a": value, "b": value})
        for name, value in (("won", 1.0), ("lost", 0.0))
    ]
    comparison = compare_rows(BoardSnapshot((), make_leaderboard(few), few, {}), "t / won", "t / lost")
    assert dict(comparison.lines)["p"] == "p = 0.50" and comparison.verdict.startswith("not shown to differ")


def test_a_folder_without_finished_trials_says_what_is_left_out(tmp_path):
    write_trial(tmp_path / "killed", {"event": "agent_started"})
    write_trial(tmp_path / "broken").joinpath("trial.json").write_text("{")
    client = TestClient(make_view_app(Site(Catalog(tmp_path)), ReaderGuard("localhost", None)))
    client.base_url = "http://localhost"
    text = client.get("/leaderboard").text
    for _ in range(200):
        if "Verifying trials" not in text:
            break
        text = client.get("/leaderboard").text
    assert "Nothing to rank yet" in text and "killed in its" in text and "is not JSON" in text
    hostile = client.get("/leaderboard", params={"task": HOSTILE, "one": HOSTILE, "other": HOSTILE})
    assert hostile.status_code == 200 and "<img src=x" not in hostile.text
    assert client.get("/leaderboard/x").status_code == 404


def test_who_asks_early_is_told_how_far_it_is(tmp_path):
    for number in range(3):
        write_trial(tmp_path / f"trial-{number}", {"event": "finished"})
    may_look = threading.Event()

    class Held(Catalog):
        def summary(self, entry):
            assert may_look.wait(120)
            return super().summary(entry)

    cache = BoardCache(Held(tmp_path))
    first = cache.board(0.0)
    assert isinstance(first, BoardProgress) and first.n_trials == 3
    may_look.set()
    snapshot = cache.board(600.0)
    assert len(snapshot.board.left_out) == 3 and cache.board(0.0) is snapshot, (
        "nothing changed, so nothing is made again"
    )
    write_trial(tmp_path / "new", {"event": "agent_started"})
    later = BoardCache(Catalog(tmp_path)).board(600.0)
    assert len(later.board.left_out) == 4


def test_a_board_is_made_again_when_only_a_card_changes(tmp_path):
    simulated = simulation()
    sweep = simulated.simulate(np.random.default_rng(5), n_stacks=2, n_runs=1, n_items=20)
    for stack, task, seed, verdicts in simulated.trials_of(sweep):
        if task == "static-1":
            simulated.write_trial(
                tmp_path / str(stack), task, simulated.stack_name(stack), seed, verdicts, sweep.base_TAI[0]
            )
    cache = BoardCache(Catalog(tmp_path))
    honest = cache.board(600.0).board
    assert [trial.is_verified for trial in honest.trials] == [True, True]
    assert subtitle(honest) == "2 trials, 2 count, 2 stacks, 1 task"
    for name in ("card.json", "rollouts.parquet"):
        file = tmp_path / "0" / "cards" / "final-test_private" / name
        data, times = file.read_bytes(), file.stat()
        file.write_bytes(data[:-40] + bytes(40))
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
        assert sum(trial.is_verified for trial in cache.board(600.0).board.trials) == 1, name
        file.write_bytes(data)
        assert sum(trial.is_verified for trial in cache.board(600.0).board.trials) == 2, name


def test_two_compared_rows_lead_to_their_runs_item_by_item(tmp_path):
    simulated = simulation()
    sweep = simulated.simulate(np.random.default_rng(5), n_stacks=2, n_runs=2, n_items=20)
    for stack, task, seed, verdicts in simulated.trials_of(sweep):
        if task == "static-1" and (stack, seed) != (1, 1):
            folder = tmp_path / f"{stack}-{seed}"
            simulated.write_trial(folder, task, simulated.stack_name(stack), seed, verdicts, sweep.base_TAI[0])
    site = Site(Catalog(tmp_path))
    site._board.board(600.0)
    names = [f"static-1 / {simulated.stack_name(number)}" for number in (0, 1)]
    route = PageAddress("leaderboard", query={"one": names[0], "other": names[1]})
    page = site.html(route, LiveLinks(route))
    ((href, link_text),) = re.findall(r'<a href="(/compare/[^"]*)">([^<]*)</a>', page)
    assert link_text == "seed 0", "the seed that both have"
    _, _, card, other_part = re.split(r"[/?]", href)[:4]
    entry = site.catalog.get(card, EntryKind.CARD)
    assert entry is not None and entry.display_path == "0-0/cards/final-test_private"
    pair = site.html(PageAddress("compare", card, query={"with": other_part.removeprefix("with=")}), LiveLinks())
    assert "20 rollouts" in pair and "Items are hidden" in pair
    trial = next(entry for entry in site.catalog.scan().entries.values() if entry.display_path == "0-0")
    links = site._tile_links(TrialPaths(trial.path), None, LiveLinks())
    assert links[3] == f"/card/{card}" and links[4].startswith(f"/compare/{card}?with=")


def test_the_page_shows_profiles_and_published_figures_as_others_and_none_that_a_trial_forged(tmp_path):
    simulated = simulation()
    sweep = simulated.simulate(np.random.default_rng(5), n_stacks=2, n_runs=2, n_items=20)
    for stack, task, seed, verdicts in simulated.trials_of(sweep):
        if task == "static-1":
            folder = tmp_path / "sweep" / f"{stack}-{seed}"
            simulated.write_trial(folder, task, simulated.stack_name(stack), seed, verdicts, sweep.base_TAI[0])
    forged = tmp_path / "sweep" / "0-0" / "submissions" / "1" / "snapshot"
    forged.mkdir(parents=True)
    (tmp_path / "paper").mkdir()
    for place, title in ((tmp_path / "paper", f"A paper {HOSTILE}"), (forged, "Forged")):
        rows = [{"name": "theirs", "score": 41.5, "base": 20}]
        (place / "published.yaml").write_text(json.dumps({"title": title, "source": "table 3", "rows": rows}))
    cache = BoardCache(Catalog(tmp_path))
    board = cache.board(600.0)
    assert [source.title.startswith("A paper") for source in board.board.published] == [
        True
    ] and not board.board.left_out
    site = Site(Catalog(tmp_path))
    client = TestClient(make_view_app(site, ReaderGuard("localhost", None)), base_url="http://localhost")
    text = client.get("/leaderboard").text
    for _ in range(200):
        if "Verifying trials" not in text:
            break
        text = client.get("/leaderboard").text
    assert NOT_OURS in text and "41.500" in text and "one run" in text and "Forged" not in text
    assert "<img src=x" not in text and text.count("<svg") == 1
    assert "Performance profiles" in text and "above the base [95%]" in text
    (profile,) = board.overall
    assert [row[0] for row in profile.profiles.cells()] == [
        standing.stack for standing in board.board.overall[0].standings
    ]
    (tmp_path / "paper" / "published.yaml").unlink()
    assert BoardCache(Catalog(tmp_path)).board(600.0).board.published == ()


def test_the_server_starts_without_the_libraries_that_only_figures_need():
    code = "import sys, agent2.web.server; print(*"
    code += "({'matplotlib', 'scipy', 'torch', 'fastapi', 'agent2.evaluation.runner'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"
