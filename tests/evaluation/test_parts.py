"""An evaluation in parts: the card of one process, whatever happens to parts and driver in between."""

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from agent2 import installation
from agent2.cards.reader import read_header, read_summary, scored_digest, validate_card
from agent2.contract.suite import EvaluationRole
from agent2.errors import CardError, ConfigError, Fault, SamplerFailed
from agent2.evaluation.first_items import first_items
from agent2.evaluation.part_play import play_part
from agent2.evaluation.parts import PartPlayer
from agent2.evaluation.runner import evaluate
from agent2.evaluation.suite_folder import CHECKPOINT
from agent2.evaluation.suite_plan import SuiteRequest, open_contract, plan_suite, read_run_settings
from agent2.executors.jobs import ExecutorSettings, JobEnd, PartSettings, Resources
from agent2.models.sources import find_checkpoint

MODEL = """
import hashlib

def model(messages):
    return str(int(hashlib.sha256(messages[-1].content.encode()).hexdigest(), 16) % 20)
"""


class InThisProcess:
    """An executor that plays parts at once; `losses`: (part, attempt) -> before or after it is played."""

    capacity = None

    def __init__(self, losses=(), broken=()):
        self.losses, self.broken, self.queue, self.n_played = dict(losses), broken, [], 0

    def require(self, jobs, needs):
        pass

    def submit(self, job, attempt):
        self.queue.append((job, attempt))

    def collect(self):
        job, attempt = self.queue.pop(0)
        part = job.name.rpartition(" ")[2]
        when = self.losses.get((part, attempt))
        if part in self.broken:
            return [JobEnd(job.name, attempt, 2, Fault.SUBMITTER, "ended with exit code 2")]
        if when != "before":
            self.n_played += 1
            play_part(self._file(job))
        end = JobEnd(job.name, attempt, 0)
        lost = JobEnd(job.name, attempt, None, Fault.INFRASTRUCTURE, "was lost", is_lost=True)
        return [end, end] if when is None else [lost]

    def _file(self, job):
        return Path(job.start[1])

    def interrupt(self):
        pass

    def close(self):
        pass


@pytest.fixture
def evaluation(tmp_path, monkeypatch):
    """A request of a scripted model on hidden items, with its plan and source."""
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    (tmp_path / "model.py").write_text(MODEL)
    source = find_checkpoint(f"scripted:{tmp_path / 'model.py'}:model")
    suite = open_contract("arithmetic")
    settings = PartSettings(ExecutorSettings("local", parallel=3), 3, Resources())
    request = SuiteRequest(suite, source, source, tmp_path / "out", role=EvaluationRole.NIGHTLY, seed=5, parts=settings)
    plan = plan_suite(request).benchmarks[0].sides[CHECKPOINT]
    return request, plan, source


def player_of(request, executor, limit=None):
    return PartPlayer(request.parts, request.suite, request.role, executor, limit)


def in_one(plan, source, card):
    evaluate(plan, source.open(), card)
    return scored_digest(card)


def test_parts_make_the_card_of_one_process_and_no_item_is_in_their_files(evaluation, tmp_path, monkeypatch):
    request, plan, source = evaluation
    card, files = tmp_path / "cards" / "card", []
    executor = InThisProcess(losses={("1-of-3", 1): "before", ("2-of-3", 1): "after"})
    submit = executor.submit
    monkeypatch.setattr(
        executor, "submit", lambda job, n: (files.append(executor._file(job).read_text()), submit(job, n))
    )
    player_of(request, executor).play(plan, source, card, lambda done, total: None)
    assert scored_digest(card) == in_one(plan, source, tmp_path / "one")
    assert validate_card(card) == []
    assert read_summary(card).n_rollouts == len(plan.items) * plan.protocol().attempts
    assert read_header(card).protocol == read_header(tmp_path / "one").protocol
    assert not any(item.prompt in text or item.id in text for item in plan.items for text in files)
    assert installation.secret().hex() not in "".join(files)
    assert [path.name for path in card.parent.iterdir()] == ["card"]


def test_pictures_that_a_part_showed_elsewhere_come_with_its_rollouts(evaluation, tmp_path, monkeypatch):
    request, plan, source = evaluation
    executor, content = InThisProcess(), b"of a reply"
    digest = hashlib.sha256(content).hexdigest()
    collect = executor.collect

    def collect_with_picture():
        ends = collect()
        for header in (tmp_path / "cards").rglob("card.json"):
            (header.parent / "pictures").mkdir(exist_ok=True)
            (header.parent / "pictures" / digest).write_bytes(content)
        return ends

    monkeypatch.setattr(executor, "collect", collect_with_picture)
    card = tmp_path / "cards" / "card"
    player_of(request, executor).play(plan, source, card, lambda done, total: None)
    assert (card / "pictures" / digest).read_bytes() == content


def test_a_part_that_cannot_be_played_leaves_no_finished_card_and_the_next_call_plays_only_that_one(
    evaluation, tmp_path
):
    request, plan, source = evaluation
    card = tmp_path / "card"
    with pytest.raises(SamplerFailed, match="1 of 3 parts could not be played"):
        player_of(request, InThisProcess(broken=("1-of-3",))).play(plan, source, card, lambda *_: None)
    assert not card.exists()
    finished = tmp_path / ".card.parts" / "0-of-3"
    played_at = (finished / "card.json").stat().st_mtime_ns
    kept_stamps = []
    player_of(request, InThisProcess()).play(
        plan, source, card, lambda *_: kept_stamps.append((finished / "card.json").stat().st_mtime_ns)
    )
    assert set(kept_stamps) == {played_at}
    assert scored_digest(card) == in_one(plan, source, tmp_path / "one")


def test_parts_of_an_earlier_plan_that_lie_there_finished_are_played_again(evaluation, tmp_path):
    request, plan, source = evaluation
    card, other = tmp_path / "card", replace(plan, seed=plan.seed + 1)
    with pytest.raises(SamplerFailed):
        player_of(request, InThisProcess(broken=("1-of-3",))).play(other, source, card, lambda *_: None)
    player_of(replace(request, seed=plan.seed), InThisProcess()).play(plan, source, card, lambda *_: None)
    assert scored_digest(card) == in_one(plan, source, tmp_path / "one")


def test_a_part_in_which_another_one_was_put_is_refused(evaluation, tmp_path):
    request, plan, source = evaluation
    folder = tmp_path / ".card.parts"

    class Forger(InThisProcess):
        def collect(self):
            ends = super().collect()
            if not self.queue:
                shutil.rmtree(folder / "1-of-3")
                shutil.copytree(folder / "0-of-3", folder / "1-of-3")
            return ends

    with pytest.raises(CardError, match="1-of-3"):
        player_of(request, Forger()).play(plan, source, tmp_path / "card", lambda *_: None)
    assert not (tmp_path / "card").exists()


def test_a_node_with_another_secret_or_checkpoint_plays_nothing(evaluation, tmp_path, monkeypatch):
    request, plan, source = evaluation
    player = player_of(request, InThisProcess())
    (tmp_path / "parts").mkdir()
    part = player._request(plan, source, tmp_path / "parts" / "0-of-3", 0, 3)
    file = tmp_path / "parts" / "0-of-3.json"
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "other-home"))
    with pytest.raises(ConfigError, match="would play other items"):
        play_part(file)
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    (tmp_path / "model.py").write_text(MODEL.replace("20", "21"))
    with pytest.raises(ConfigError, match="or another checkpoint"):
        play_part(file)
    assert not part.card.exists()


def test_a_file_that_is_no_part_is_refused(tmp_path):
    (tmp_path / "part.json").write_text(json.dumps({"benchmark": "arithmetic"}))
    with pytest.raises(ConfigError, match="is not a part of an evaluation"):
        play_part(tmp_path / "part.json")


def test_the_first_items_of_a_look_are_the_same_in_parts(evaluation, tmp_path):
    request, plan, source = evaluation
    look = replace(plan, items=first_items(plan.items, 7))
    player_of(request, InThisProcess(), limit=7).play(look, source, tmp_path / "card", lambda *_: None)
    assert scored_digest(tmp_path / "card") == in_one(look, source, tmp_path / "one")


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["run.executor=rai"], "did you mean 'ray'"),
        (["run.address=head:6379"], "add --set run.executor=ray"),
        (["run.parts=2", "run.whole=true"], "run.whole: is not played in parts"),
        (["run.executor=ray", "run.tokens=true"], "run.tokens: is not played in parts"),
    ],
)
def test_settings_that_do_not_fit_are_refused(overrides, sentence):
    with pytest.raises(ConfigError, match=sentence):
        read_run_settings(overrides)[0].part_settings()


def test_without_settings_nothing_is_played_in_parts():
    assert read_run_settings([])[0].part_settings() is None
    assert read_run_settings(["run.parts=4"])[0].part_settings().n_parts == 4
