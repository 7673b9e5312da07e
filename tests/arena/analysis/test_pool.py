"""Trials that are verified from their cards, and what is made of one that lies."""

import json
import shutil
from dataclasses import asdict

import numpy as np
import pytest

from agent2.arena.agents import load_agent
from agent2.arena.analysis.leaderboard import make_leaderboard
from agent2.arena.analysis.pool import find_trials, read_pool
from agent2.arena.spec import config_digest
from agent2.arena.trial_folder import read_config
from agent2.cards.folder import header_digests
from agent2.cli.run import play_new_trial
from agent2.errors import ConfigError
from agent2.reports.leaderboard_pages import leaderboard_csv, leaderboard_html, leaderboard_markdown
from pool_builders import simulation


def test_what_an_agent_left_in_a_workspace_is_no_trial(tmp_path):
    for place in ("a", "a/workspace/b", ".hidden/c"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "trial.json").write_text("{}")
    assert list(find_trials(tmp_path)) == [tmp_path / "a"]
    pool = read_pool([tmp_path])
    assert pool.trials == []
    assert pool.left_out[0].folder == f"{tmp_path.name}/a"


def test_a_folder_without_trials_is_refused_with_what_could_be_there(tmp_path):
    with pytest.raises(ConfigError, match="contains no trial"):
        read_pool([tmp_path])
    with pytest.raises(ConfigError, match="none: no such folder; pass folders with sweeps or trials"):
        read_pool([tmp_path / "none"])
    (tmp_path / "board.md").write_text("")
    with pytest.raises(ConfigError, match=r"board\.md: is a file, not a folder"):
        read_pool([tmp_path / "board.md"])


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    """The script's module, a small sweep of 20 trials, and the folder that it is written to."""
    module, out = simulation(), tmp_path_factory.mktemp("sweep")
    sweep = module.simulate(np.random.default_rng(3), n_stacks=2, n_runs=2, n_items=40)
    module.write_sweep(sweep, out)
    return module, sweep, out


def test_a_board_of_folders_is_that_of_the_verdicts_in_their_cards(simulated):
    module, sweep, out = simulated
    pool = read_pool([out])
    assert len(pool.trials) == 20 and all(pooled.trial.is_verified and not pooled.trial.marks for pooled in pool.trials)
    board = make_leaderboard(pool.trials)
    assert module.boards_of(board) == module.ranked(sweep.verdicts_KTRI)
    (best, _) = board.tasks[0].standings
    at = int(best.stack[-1]), module.TASKS.index(board.tasks[0].task)
    gain = sweep.verdicts_KTRI[at].mean() - sweep.base_TAI[at[1], 0].mean()
    assert best.summary.mean_gain.value == pytest.approx(gain)
    assert [standings.is_interactive for standings in board.overall] == [False, True]


def event(name, key, change, at=-1):
    """Changes a value in an event of that name, by default the last."""

    def lie(folder):
        log = folder / "events" / "trial.jsonl"
        rows = [json.loads(line) for line in log.read_text().splitlines()]
        row = [row for row in rows if row["event"] == name][at]
        *path, last = key.split(".")
        for part in path:
            row = row[part]
        row[last] = change(row[last])
        log.write_text("".join(json.dumps(row) + "\n" for row in rows))

    return lie


def field(file, key, value):
    """Sets a value in a JSON file; None takes it away."""

    def lie(folder):
        stored = json.loads((folder / file).read_text())
        inner = stored[0] if isinstance(stored, list) else stored
        *path, last = key.split(".")
        for part in path:
            inner = inner[part]
        if value is None:
            del inner[last]
        else:
            inner[last] = value
        (folder / file).chmod(0o644)
        (folder / file).write_text(json.dumps(stored))

    return lie


def swapped_card(folder):
    """The result's rollouts in place of the base model's: every number of the card is right, of other weights."""
    cards = folder / "cards"
    shutil.rmtree(cards / "base-test_private")
    shutil.copytree(cards / "final-test_private", cards / "base-test_private")


def other_files(folder):
    shutil.copytree(load_agent("nop").folder, folder / "agent")


def files_of_another(folder):
    """Another agent's name, and a lock that fits both it and the files."""
    other_files(folder)
    field("trial.json", "agent", "sft")(folder)
    field("lock.json", "config_digest", config_digest(read_config(folder / "trial.json")))(folder)
    field("lock.json", "agent_digest", load_agent("nop").digest)(folder)


def copy_without_its_final_card(folder):
    field("submissions.json", "is_base_copy", True)(folder)
    event("final_scored", "gain", lambda value: None)(folder)
    shutil.rmtree(folder / "cards" / "final-test_private")


def without_event(name):
    """Takes the events of that name out of the log."""

    def lie(folder):
        log = folder / "events" / "trial.jsonl"
        log.write_text("".join(line for line in log.read_text().splitlines(True) if f'"{name}"' not in line))

    return lie


def cleared(folder):
    """What the audit found gets another weight; the number of findings stays."""
    path = folder / "integrity.json"
    path.write_text(path.read_text().replace("nothing", "no thing"))


def base_kept_by_a_raised_score(folder):
    """The base model is made the best in public, so that nothing seems to beat it."""
    event("base_scored", "score.value", lambda value: 2.0, at=0)(folder)
    for key in ("submission", "gain", "score"):
        event("final_scored", key, lambda value: None)(folder)


def base_kept_without_the_final_card(folder):
    base_kept_by_a_raised_score(folder)
    shutil.rmtree(folder / "cards" / "final-test_private")


@pytest.mark.parametrize(
    ("lie", "why"),
    [
        (event("final_scored", "gain.change.value", lambda value: value + 0.2), "the gain that the trial reports"),
        (event("final_scored", "gain.change.low", lambda value: value + 0.2), "the lower end of the gain"),
        (event("final_scored", "gain.p_value", lambda value: value + 0.5), "the p-value"),
        (event("final_scored", "score.value", lambda value: value - 0.1), "the final score that the trial reports"),
        (event("base_scored", "score.value", lambda value: value + 0.1), "the base score that the trial reports"),
        (event("noise_measured", "half_width", lambda value: 0.0), "the noise band that the trial reports"),
        (event("final_scored", "submission", lambda value: None), "best public score"),
        (field("submissions.json", "weights_digest", "f" * 64), "the final card is of other weights"),
        (field("lock.json", "base_model.weights_digest", None), "the base card is of other weights"),
        (field("lock.json", "items", None), "of other items than the lock names"),
        (field("lock.json", "installation_secret_digest", None), "the lock names no installation secret digest"),
        (field("cards/final-test_private/card.json", "summary.score.value", 1.0), "card.json"),
        (swapped_card, "the base card is of other weights"),
        (lambda folder: shutil.rmtree(folder / "cards"), "no cards"),
        (lambda folder: shutil.rmtree(folder / "cards" / "base-noise"), "base-noise"),
        (field("lock.json", "config_digest", None), "the lock names no config digest"),
        (field("trial.json", "agent", "stack-best"), "trial.json is not"),
        (field("trial.json", "seed", 77), "trial.json is not"),
        (field("trial.json", "sandbox", "none"), "trial.json is not"),
        (field("trial.json", "mode", "rl-only"), "trial.json is not"),
        (field("trial.json", "budget.wall_clock_s", 1.0), "trial.json is not"),
        (field("trial.json", "base_model", None), "base_model"),
        (other_files, "the agent's files are not those that the lock names"),
        (files_of_another, "the agent's files are of nop, trial.json names sft"),
        (field("submissions.json", "is_base_copy", True), "submission-1 is marked as a copy"),
        (copy_without_its_final_card, "final-test_private"),
        (base_kept_by_a_raised_score, "there is a final card"),
        (base_kept_without_the_final_card, "the public base score that the trial reports"),
        (event("final_scored", "gain", lambda value: None), "reports no gain"),
        (event("final_scored", "score", lambda value: None), "the final score that the trial reports, none"),
        (field("submissions.json", "score.value", 0.9), "the submission-1 score that the trial reports"),
        (lambda folder: shutil.rmtree(folder / "submissions"), "the submission-1 score has no card"),
        (lambda folder: shutil.rmtree(folder / "cards" / "base-test_public"), "the public base score has no card"),
        (cleared, "integrity.json: was changed since the audit wrote it"),
        (field("integrity.json", "checks", []), "integrity.json: was changed since the audit wrote it"),
        (lambda folder: (folder / "integrity.json").unlink(), "integrity.json: is missing"),
        (without_event("audited"), "integrity.json: is of an audit that is not in the log"),
    ],
)
def test_a_trial_that_says_something_else_than_its_cards_is_unverified(simulated, tmp_path, lie, why):
    shutil.copytree(simulated[2] / "static-1-stack-00-0", tmp_path / "trial")
    lie(tmp_path / "trial")
    (pooled,) = read_pool([tmp_path]).trials
    assert not pooled.trial.is_verified and not pooled.trial.is_counted
    assert pooled.trial.marks[0].startswith("unverified: ") and why in pooled.trial.marks[0]


def renamed(trial_id, seed):
    def lie(folder):
        field("trial.json", "trial_id", trial_id)(folder)
        field("trial.json", "seed", seed)(folder)
        field("lock.json", "config_digest", config_digest(read_config(folder / "trial.json")))(folder)
        event("agent_started", "t", lambda value: value + seed)(folder)

    return lie


def test_copies_under_other_names_are_one_run(simulated, tmp_path):
    runs = ["static-1-stack-00-0", "static-1-stack-00-1", "static-1-stack-01-0"]
    for name in runs:
        shutil.copytree(simulated[2] / name, tmp_path / name)
    for seed in (8, 9):
        shutil.copytree(simulated[2] / runs[0], tmp_path / f"copy-{seed}")
        renamed(f"copy-{seed}", seed)(tmp_path / f"copy-{seed}")
    pool = read_pool([tmp_path])
    assert len({pooled.identity for pooled in pool.trials}) == 3
    assert [excluded.why.partition(" of ")[0] for excluded in make_leaderboard(pool.trials).left_out] == ["a copy"] * 2
    for seed in (8, 9):  # whatever the header says of when and where it was played
        card = tmp_path / f"copy-{seed}" / "cards" / "final-test_private"
        field("card.json", "header.created_at", 1000.0 + seed)(card)
        field("card.json", "header_digest", header_digests(card)[0])(card)
    pool = read_pool([tmp_path])
    assert all(pooled.trial.is_verified for pooled in pool.trials)
    assert len({pooled.identity for pooled in pool.trials}) == 3
    for folder in tmp_path.iterdir():
        shutil.rmtree(folder / "cards" / "final-test_private")  # as where the base model is the result
    assert len({pooled.identity for pooled in read_pool([tmp_path]).trials}) == 3


def test_counts_tell_an_edited_audit_of_a_trial_whose_log_has_no_digest(simulated, tmp_path):
    shutil.copytree(simulated[2] / "static-1-stack-00-0", tmp_path / "trial")
    event("audited", "digest", lambda digest: None)(tmp_path / "trial")
    without_digest = tmp_path / "trial" / "events" / "trial.jsonl"
    without_digest.write_text(without_digest.read_text().replace(', "digest": null', ""))
    (honest,) = read_pool([tmp_path]).trials
    assert honest.trial.is_verified and honest.trial.row.integrity == "clean"
    field("integrity.json", "checks", [])(tmp_path / "trial")
    (edited,) = read_pool([tmp_path]).trials
    assert not edited.trial.is_verified and edited.trial.row.integrity == "not_audited"


def test_an_edited_report_moves_nothing_and_a_missing_audit_is_marked(simulated, tmp_path):
    shutil.copytree(simulated[2] / "static-1-stack-00-0", tmp_path / "trial")
    (honest,) = read_pool([tmp_path]).trials
    (tmp_path / "trial" / "report").mkdir()
    (tmp_path / "trial" / "report" / "report.json").write_text('{"gain": {"value": 0.99}}')
    (tmp_path / "trial" / "integrity.json").unlink()
    without_event("audited")(tmp_path / "trial")
    (edited,) = read_pool([tmp_path]).trials
    assert edited.trial.row.gain == honest.trial.row.gain
    assert edited.trial.marks == ("not audited",) and edited.trial.is_counted


def test_one_damaged_folder_hides_no_other(simulated, tmp_path):
    for name in ("list", "database", "whole"):
        shutil.copytree(simulated[2] / "static-1-stack-00-0", tmp_path / name)
    field("lock.json", "base_model", ["what"])(tmp_path / "list")
    (tmp_path / "database" / "grader.db").write_bytes(b"SQLite format 3\x00" + b"\xff" * 200)
    pool = read_pool([tmp_path])
    assert len(pool.trials) == 1
    assert [excluded.folder.rpartition("/")[2] for excluded in pool.left_out] == ["database", "list"]
    assert all("cannot be read" in excluded.why for excluded in pool.left_out), pool.left_out


def test_published_figures_are_found_below_and_those_of_a_trials_task_come_by_themselves(simulated, tmp_path):
    trial = tmp_path / "trials" / "one"
    shutil.copytree(simulated[2] / "static-1-stack-00-0", trial)
    field("trial.json", "task.name", "alfworld")(trial)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "scores.json").write_text('{"somebody": "else\'s"}')
    (trial / "workspace").mkdir()
    for place, text in (
        ("paper", "title: A paper\nsource: its table 3\nrows: [{name: x, score: 41.5, base: 20}]"),
        ("broken", "title: A paper\nsource: s\nrows: [{name: x, score: 415}]"),
        ("trials/one/workspace", "title: Forged\nsource: s\nrows: [{name: x, score: 99}]"),
    ):
        (tmp_path / place).mkdir(exist_ok=True)
        (tmp_path / place / "published.yaml").write_text(text)
    pool = read_pool([tmp_path])
    assert [board.title for board in pool.published] == ["A paper", "ALFWorld, as published"]
    (row,) = pool.published[1].rows
    assert (row.base, row.score.value) == pytest.approx((0.0597, 0.9328))
    assert pool.published[0].rows[0].runs == "one run" and pool.published[0].rows[0].score.low is None
    (out,) = pool.left_out
    assert "broken" in out.folder and "100" in out.why


def test_nothing_that_is_published_says_where_the_folders_are(simulated, tmp_path):
    root = tmp_path / "private-place" / "board"
    shutil.copytree(simulated[2] / "static-1-stack-00-0", root / "good")
    for name, lie in (("lie", field("cards/final-test_private/card.json", "summary.score.value", 1.0)),
                      ("damaged", field("lock.json", "base_model", ["what"]))):  # fmt: skip
        shutil.copytree(simulated[2] / "static-1-stack-00-1", root / name)
        lie(root / name)
    pool = read_pool([root, root / "good"])
    board = make_leaderboard(pool.trials, pool.left_out, pool.published, pool.sources)
    assert board.sources == ("board", "good")
    texts = [leaderboard_html(board), leaderboard_markdown(board), leaderboard_csv(board), str(asdict(board))]
    assert all(str(tmp_path) not in text for text in texts) and "board/damaged" in texts[-1]


@pytest.mark.slow
def test_a_trial_is_verified_from_its_cards_and_a_changed_one_is_not(task, tmp_path):
    honest = play_new_trial(task, "base-copy", 0, tmp_path / "honest")
    (pooled,) = read_pool([tmp_path / "honest"]).trials
    assert pooled.trial.is_verified and pooled.trial.is_counted
    assert len(pooled.base) == 20 and pooled.final == pooled.base

    def changed(name):
        shutil.copytree(honest, tmp_path / name, symlinks=True)
        return tmp_path / name

    reported = changed("told")
    log = reported / "events" / "trial.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if line["event"] == "base_scored" and line["split"] == "test_private":
            line["score"]["value"] += 0.5
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))

    other_items = changed("items")
    lock = json.loads((other_items / "lock.json").read_text())
    lock["items"]["test_private"] = "0" * 64
    (other_items / "lock.json").write_text(json.dumps(lock))

    card = changed("card") / "cards" / "base-test_private" / "card.json"
    stored = json.loads(card.read_text())
    stored["summary"]["score"]["value"] = 0.9
    card.chmod(0o644)
    card.write_text(json.dumps(stored))

    shutil.rmtree(changed("recording") / "cards")

    unfinished = changed("unfinished") / "events" / "trial.jsonl"
    unfinished.write_text(unfinished.read_text().splitlines()[0] + "\n")

    for name, why in (
        ("told", "the base score that the trial reports"),
        ("items", "of other items than the lock names"),
        ("card", "card.json"),
        ("recording", "no cards"),
    ):
        (pooled,) = read_pool([tmp_path / name]).trials
        assert not pooled.trial.is_verified and not pooled.trial.is_counted, name
        assert why in pooled.trial.marks[0], name
    assert "not finished" in read_pool([tmp_path / "unfinished"]).left_out[0].why
