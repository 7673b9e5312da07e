import json
import shutil
from pathlib import Path

import pytest
from msgspec import structs

from agent2.arena import agents
from agent2.arena.analysis.process import autonomy_of
from agent2.arena.analysis.read import read_evidence
from agent2.arena.analysis.result import analyse, integrity_verdict
from agent2.arena.evidence import AgentEnd
from agent2.arena.grader.store import Arrival, GraderStore
from agent2.arena.recorder import RevisionRecorder
from agent2.arena.trial_folder import EventLog, TrialPaths
from agent2.cards.writer import CardWriter
from agent2.errors import ConfigError
from agent2.records import Split
from builders import DESIGN, GRPO_SOURCE, START, make_gain, make_score, make_task
from card_builders import make_header, make_record


def write_trial(root, *, end=AgentEnd.EXITED, finished=True, program=GRPO_SOURCE, logs=None):
    """A trial's folder, written by the writers that the harness uses."""
    paths = TrialPaths(root)
    root.mkdir()
    config = {
        "trial_id": "t1",
        "task": make_task().model_dump(mode="json"),
        "agent": "no-such-agent/mine",
        "seed": 3,
        "sandbox": "bubblewrap",
        "budget": {"wall_clock_s": 300, "submissions": 4},
        "containment": [{"what": "network", "strength": "hard", "how": "namespace"}],
        "some_new_key": 1,
    }
    paths.trial_json.write_text(json.dumps(config))
    paths.lock_json.write_text(json.dumps({"agent2": "0", "base_model": {"weights_digest": "bb"}}))
    log = EventLog(paths.trial_log)
    log.append("base_scored", t=START - 5, split="test_public", score=make_score(0.3, 400), card="cards/base")
    log.append("agent_started", t=START, deadline=START + 300)
    _work(paths, program, logs or {"output/log.jsonl": "reward"})
    log.append("agent_ended", t=START + 1000, end=end.value, exit_code=0, reason="ended by itself")
    log.append("graded", t=START + 1001)
    if finished:
        log.append("base_scored", split="test_private", score=make_score(0.31), card="cards/base")
        log.append("noise_measured", half_width=0.03, n_replicates=4)
        log.append("final_scored", split="test_private", submission=1, score=make_score(0.55), gain=make_gain(0.24))
        log.append("finished")
    log.close()
    return paths


def _work(paths, program, logs):
    (paths.workspace / "code").mkdir(parents=True)
    (paths.workspace / "output").mkdir()
    (paths.workspace / "code" / "train.py").write_text(program)
    (paths.workspace / "output" / "design.json").write_text(json.dumps(DESIGN))
    (paths.workspace / "output" / "tokenizer.json").write_text("{}")
    revisions = RevisionRecorder(paths.workspace, paths.revisions_git, EventLog(paths.revisions_log, lambda: START + 4))
    revision = revisions.capture(1)
    revisions.close()
    processes = EventLog(paths.processes_log)
    sample = {"pid": 5, "command": ["python", "code/train.py"], "first_seen": START + 5, "last_seen": START + 90}
    processes.append("process", t=START + 90, **sample, cpu_s=80.5, max_rss_bytes=5_000_000)
    processes.close()
    metrics = EventLog(paths.metrics_log)
    for place, (file, key) in enumerate(logs.items()):
        for step in range(3):
            t = START + 10 * (place + 1) + step
            metrics.append("metric", t=t, file=file, step=step, values={key: step / 10})
    metrics.close()
    store = GraderStore(paths.grader_db)
    store.add(Arrival(1, START + 95, "output/model", "first", revision, weights_digest="aa"))
    store.set_scored(
        1, make_score(0.6, 400), START + 99, card="submissions/1/card", weights_digest="aa", is_base_copy=False
    )
    store.close()
    paths.agent_log.write_bytes(b"x" * 30_000 + b"\xff the end\n")


def test_what_the_harness_wrote_comes_back_as_evidence(tmp_path):
    evidence = read_evidence(write_trial(tmp_path / "t").root)
    assert (evidence.trial_id, evidence.agent, evidence.seed, evidence.driver) == ("t1", "mine", 3, None)
    assert (evidence.started_at, evidence.ended_at, evidence.deadline) == (START, START + 1000, START + 300)
    assert evidence.task.budget.submissions == 4  # what was granted, not what the task suggests
    assert (evidence.base_public.value, evidence.base_private.value, evidence.final_private.value) == (0.3, 0.31, 0.55)
    assert (evidence.final_submission, evidence.gain.change.value, evidence.noise.n_replicates) == (1, 0.24, 4)
    assert [(s.number, s.score.value, s.note) for s in evidence.submissions] == [(1, 0.6, "first")]
    assert evidence.submissions[0].revision == evidence.revisions[0].id
    assert sorted(evidence.revisions[0].files) == ["code/train.py", "output/design.json"]
    assert evidence.design == DESIGN
    assert list(evidence.processes[0].command) == ["python", "code/train.py"]
    assert [point.values["reward"] for point in evidence.metrics] == [0.0, 0.1, 0.2]
    assert evidence.base_weights_digest == "bb"
    assert len(evidence.agent_log_tail) == 20_000 and evidence.agent_log_tail.endswith("\ufffd the end\n")


def test_how_long_answers_became_is_read_from_the_cards_of_private_items_and_unknown_without_them(tmp_path):
    root = tmp_path / "trial"
    paths = write_trial(root)
    assert (evidence := read_evidence(root)).base_answer_tokens is evidence.final_answer_tokens is None
    for model, n_tokens in (("base", 40), ("final", 6)):
        with CardWriter(paths.card(model, Split.TEST_PRIVATE), make_header()) as writer:
            for item in ("item-1", "item-2"):
                record = make_record(item)
                usage = structs.replace(record.rollout.usage, completion_tokens=n_tokens)
                writer.append(structs.replace(record, rollout=structs.replace(record.rollout, usage=usage)))
            writer.close()
    evidence = read_evidence(root)
    assert (evidence.base_answer_tokens, evidence.final_answer_tokens) == (40.0, 6.0)


def test_evidence_from_disk_can_be_analysed(tmp_path):
    analysis = analyse(read_evidence(write_trial(tmp_path / "t").root))
    assert analysis.route.label == "RL only (GRPO)"
    assert analysis.result.gain.value == pytest.approx(0.24)


def test_a_grpo_trial_with_a_warm_up_is_not_sft_only(tmp_path):
    program = (Path(agents.__file__).parent / "grpo" / "episodes.py").read_text()
    two_logs = {"output/warm-up/model_log.jsonl": "loss", "output/learning/model_log.jsonl": "reward"}
    warm_up = dict(list(two_logs.items())[:1])
    labels = {
        name: analyse(read_evidence(write_trial(tmp_path / name, program=program, logs=logs).root)).route.label
        for name, logs in {"both": two_logs, "warm-up": warm_up}.items()
    }
    assert labels["both"].startswith("SFT then RL") and labels["warm-up"] == "SFT only"


def test_a_torn_line_is_left_out_and_counted(tmp_path):
    paths = write_trial(tmp_path / "t")
    with paths.metrics_log.open("ab") as log:
        log.write(b'{"t": 1, "file": "x", "st')
    with paths.processes_log.open("ab") as log:
        log.write(b'{"t": 1, "pid": "none"}\n')
    evidence = read_evidence(paths.root)
    assert len(evidence.metrics) == 3 and len(evidence.processes) == 1
    assert "events/metrics.jsonl: 1 damaged line left out." in evidence.warnings
    assert "events/processes.jsonl: 1 damaged line left out." in evidence.warnings


def test_a_revision_that_is_gone_is_counted(tmp_path):
    paths = write_trial(tmp_path / "t")
    with paths.revisions_log.open("ab") as log:
        log.write(b'{"t": 1, "id": "' + b"0" * 40 + b'", "submission": null}\n')
    evidence = read_evidence(paths.root)
    assert len(evidence.revisions) == 1
    assert "events/revisions.jsonl: 1 revision could not be read." in evidence.warnings


@pytest.mark.parametrize("damage", ["no objects", "damaged objects"])
def test_a_damaged_repository_of_revisions_is_counted(tmp_path, damage):
    paths = write_trial(tmp_path / "t")
    objects = paths.revisions_git / "objects"
    if damage == "no objects":
        shutil.rmtree(objects)
    else:
        for file in (path for path in objects.rglob("*") if path.is_file()):
            file.chmod(0o644)
            file.write_bytes(b"garbage")
    evidence = read_evidence(paths.root)
    assert evidence.revisions == ()
    assert "events/revisions.jsonl: 1 revision could not be read." in evidence.warnings


def test_a_configuration_that_lacks_a_key_is_refused_with_its_name(tmp_path):
    paths = write_trial(tmp_path / "t")
    config = json.loads(paths.trial_json.read_text())
    del config["trial_id"]
    paths.trial_json.write_text(json.dumps(config))
    with pytest.raises(ConfigError, match=r"trial\.json: contains no 'trial_id'; it is machine-written, restore it"):
        read_evidence(paths.root)


def test_downtime_after_an_interruption_counts_for_nobody(tmp_path):
    evidence = read_evidence(write_trial(tmp_path / "t", end=AgentEnd.INTERRUPTED).root)
    assert evidence.ended_at == START + 95  # the last sign of life, not the resume at +1000


def test_an_intervention_just_before_the_harness_died_still_counts(tmp_path):
    paths = write_trial(tmp_path / "t", end=AgentEnd.INTERRUPTED)
    EventLog(paths.interventions_log, clock=lambda: START + 97).append("intervention", note="helped", by="")
    evidence = read_evidence(paths.root)
    assert evidence.ended_at == START + 97
    assert not autonomy_of(evidence, integrity_verdict(evidence), is_shown=True).is_autonomous


def test_an_unfinished_trial_is_refused_with_what_to_do(tmp_path):
    paths = write_trial(tmp_path / "t", finished=False)
    with pytest.raises(ConfigError, match=r"contains no 'final_scored', the trial is not finished.*agent2 resume"):
        read_evidence(paths.root)


def test_a_folder_that_is_no_trial_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"trial\.json: cannot be read"):
        read_evidence(tmp_path)


def test_an_agent_whose_files_changed_is_judged_without_them(tmp_path):
    evidence = read_evidence(write_trial(tmp_path / "t").root)
    assert evidence.agent_files == {}
    assert any("are not those that ran" in warning for warning in evidence.warnings)


@pytest.mark.parametrize("text", ["[1, 2]", "{", "[" * 100_000])
def test_a_design_that_is_no_object_is_none(tmp_path, text):
    paths = write_trial(tmp_path / "t")
    (paths.workspace / "output" / "design.json").write_text(text)
    revisions = RevisionRecorder(paths.workspace, paths.revisions_git, EventLog(paths.revisions_log, lambda: START + 9))
    revisions.capture()
    revisions.close()
    assert read_evidence(paths.root).design is None
