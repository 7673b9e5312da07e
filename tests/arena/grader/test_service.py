import json
import math
import os
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import save_file

from agent2.arena.evidence import SubmissionState
from agent2.arena.grader import service
from agent2.arena.grader.evaluator import EvaluationFailed, log_of
from agent2.arena.grader.job import EvaluationOutcome, EvaluationStopped
from agent2.arena.grader.service import Grader
from agent2.arena.spec import Deadline
from agent2.errors import Fault, SubmissionError
from agent2.records import Split
from grading_builders import ScriptedEvaluation, broken, llama_tensors, scored, write_checkpoint


@pytest.fixture
def model(trial):
    return write_checkpoint(trial.workspace / "output" / "model", seed=1)


def verdict(grader: Grader, number: int):
    record = grader.wait(number, 120)
    assert record is not None and record.state is not SubmissionState.ACCEPTED
    return record


def refusal(grader: Grader, model_path: str = "output/model") -> str:
    receipt = grader.submit(model_path)
    assert not receipt.is_accepted
    record = grader.get(receipt.number)
    assert record is not None
    assert (record.state, record.score, record.reason) == (SubmissionState.REJECTED, None, receipt.reason)
    root = grader.settings.paths.root
    assert str(root) not in receipt.reason and str(grader.settings.base) not in receipt.reason
    assert not (root / "submissions" / str(receipt.number)).exists()
    return receipt.reason


def test_a_submission_is_scored_and_remembered(make_grader, model, trial):
    evaluate = ScriptedEvaluation([scored(0.75)])
    grader = make_grader(evaluate, lambda number: f"revision-{number}")
    grader.start()
    receipt = grader.submit("output/model", "first try")
    record = verdict(grader, receipt.number)
    assert receipt.is_accepted and record.number == 1
    assert record.score is not None and record.score.value == 0.75
    assert (record.note, record.revision, record.received_at) == ("first try", "revision-1", 1_100.0)
    assert not record.is_base_copy and len(record.weights_digest or "") == 64
    job = evaluate.jobs[0]
    assert job.checkpoint == trial.snapshot(1) and job.split is Split.TEST_PUBLIC and len(job.items) == 8
    assert not job.scratch.exists()
    assert grader.best() == record


def test_an_attempt_sent_again_with_its_key_is_the_same_attempt(make_grader, model):
    """Also while the first is being copied, with the budget used up, after the deadline and after a restart."""
    times = iter([1_100.0] * 20)
    deadline = Deadline(1_000.0, 600.0, lambda: next(times, 2_000.0))
    grader = make_grader(max_submissions=1, deadline=deadline)
    with ThreadPoolExecutor(4) as pool:
        receipts = list(pool.map(lambda _: grader.submit("output/model", "note", "key-1"), range(4)))
    assert len(set(receipts)) == 1 and receipts[0].is_accepted and grader.count() == 1
    closed = grader.submit("output/model", "note", "key-2")
    assert closed.is_closed and "budget of 1 submissions" in closed.reason
    list(times)
    assert grader.deadline.is_over
    assert grader.submit("output/model", "note", "key-1") == receipts[0]
    assert grader.submit("output/model", "note", "key-2") == closed
    grader.stop()
    again = make_grader(max_submissions=1, deadline=deadline)
    assert again.submit("output/model", "note", "key-1") == receipts[0] and again.count() == 2
    with pytest.raises(SubmissionError, match=r"key 'key-1' was used for submission 1 of output/model; send a new key"):
        again.submit("output/other", "note", "key-1")
    assert again.submit("output/model").number == 3  # without a key, each request is an attempt of its own


def test_a_refused_attempt_sent_again_is_refused_with_the_same_reason(make_grader, trial):
    grader = make_grader()
    first = grader.submit("output/gone", key="k")
    write_checkpoint(trial.workspace / "output" / "gone", seed=1)
    assert grader.submit("output/gone", key="k") == first and not first.is_accepted and not first.is_closed
    assert grader.submit("output/gone", key="l").is_accepted


def test_what_is_scored_is_the_snapshot(make_grader, model, trial):
    evaluate = ScriptedEvaluation()
    grader = make_grader(evaluate)
    number = grader.submit("output/model").number
    shutil.rmtree(model)
    grader.start()
    assert verdict(grader, number).state is SubmissionState.SCORED


def test_a_copy_of_the_base_is_known_by_its_weights(make_grader, base, trial):
    copy = trial.workspace / "output" / "copy"
    shutil.copytree(base, copy)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"_name_or_path": "mine"}, indent=4))
    grader = make_grader()
    grader.start()
    record = verdict(grader, grader.submit("output/copy").number)
    assert record.is_base_copy
    assert "the weights equal the base model's; nothing was trained" in grader.remarks(1)


def test_other_tokenizer_settings_template_and_generation_config_are_told(make_grader, model):
    (model / "chat_template.jinja").write_text("{{ messages[0]['content'] }}")
    (model / "generation_config.json").write_text('{"temperature": 2}')
    (model / "optimizer.pt").write_bytes(b"x")
    grader = make_grader()
    assert grader.submit("output/model").is_accepted
    assert grader.remarks(1) == [
        "left aside: 'optimizer.pt'",
        "its chat template differs from the base model's; scoring uses the base model's",
        "its generation config differs from the base model's; scoring uses the base model's",
    ]


def test_missing_paths_are_refused_and_recorded(make_grader):
    assert "does not exist" in refusal(make_grader(), "output/none")


def test_pickle_weights_are_refused(make_grader, model):
    (model / "model.safetensors").rename(model / "pytorch_model.bin")
    assert "pickle weights, which are never loaded" in refusal(make_grader())


def test_custom_code_is_refused(make_grader, model):
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"auto_map": {"AutoModel": "evil.Model"}}))
    reason = refusal(make_grader())
    assert "custom code, which is never run" in reason and reason.startswith("output/model/config.json")


def test_another_architecture_is_refused(make_grader, model):
    write_checkpoint(model, hidden_size=32)
    assert "not the architecture of the base model" in refusal(make_grader())


def test_truncated_weights_are_refused(make_grader, model):
    weights = model / "model.safetensors"
    os.truncate(weights, weights.stat().st_size - 100)
    assert "is truncated" in refusal(make_grader())


def test_a_missing_tokenizer_is_refused(make_grader, model):
    (model / "tokenizer.json").unlink()
    assert "there is no tokenizer.json" in refusal(make_grader())


def test_an_empty_folder_is_refused(make_grader, trial):
    (trial.workspace / "output" / "empty").mkdir()
    assert "is empty" in refusal(make_grader(), "output/empty")


def test_a_file_swapped_by_another_thread_is_refused_or_whole(make_grader, model):
    """The snapshot is one of the two versions or it is refused; never a mixture."""
    versions = [llama_tensors(seed) for seed in (1, 2)]
    done = threading.Event()

    def swap() -> None:
        turn = 0
        while not done.is_set():
            turn += 1
            save_file(versions[turn % 2], model / "draft", {"format": "pt"})
            (model / "draft").rename(model / "model.safetensors")

    grader = make_grader()
    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        receipts = [grader.submit("output/model") for _ in range(10)]
    finally:
        done.set()
        swapper.join()
    digests = {record.weights_digest for record in grader.all() if record.state is SubmissionState.ACCEPTED}
    assert len(digests) <= 2
    refused = [receipt.reason for receipt in receipts if not receipt.is_accepted]
    assert all("changed while the snapshot was taken" in reason for reason in refused), refused


def test_two_submits_at_once_are_both_accepted_and_scored_once(make_grader, model, trial):
    write_checkpoint(trial.workspace / "output" / "other", seed=2)
    evaluate = ScriptedEvaluation()
    grader = make_grader(evaluate)
    grader.start()
    barrier = threading.Barrier(2)
    numbers = []

    def submit(path: str) -> None:
        barrier.wait()
        numbers.append(grader.submit(path).number)

    threads = [threading.Thread(target=submit, args=(path,)) for path in ("output/model", "output/other")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(numbers) == [1, 2]
    assert {verdict(grader, number).state for number in numbers} == {SubmissionState.SCORED}
    assert [job.name for job in evaluate.jobs] == ["submission-1", "submission-2"]


def test_after_the_deadline_nothing_is_taken(make_grader, model):
    now = [1_599.9]
    grader = make_grader(deadline=Deadline(1_000.0, 600.0, lambda: now[0]))
    assert grader.submit("output/model").is_accepted
    now[0] = 1_600.0
    receipt = grader.submit("output/model")
    assert receipt.is_closed and "the deadline is over" in receipt.reason
    assert [record.state for record in grader.all()] == [SubmissionState.ACCEPTED, SubmissionState.REJECTED]


def test_the_budget_of_submissions_holds_and_refusals_do_not_use_it(make_grader, model):
    grader = make_grader(max_submissions=2)
    grader.submit("output/none")
    assert grader.submit("output/model").is_accepted
    assert grader.submit("output/model").is_accepted
    receipt = grader.submit("output/model")
    assert receipt.is_closed and "the budget of 2 submissions is used up" in receipt.reason


def test_a_submission_that_breaks_the_grading_is_charged_like_any_other(make_grader, model):
    """Else a submission that hangs is evaluated for nothing, again and again."""
    faults = [broken(Fault.INFRASTRUCTURE)] * 4
    grader = make_grader(ScriptedEvaluation(faults), max_submissions=2)
    grader.start()
    for _ in range(2):
        assert verdict(grader, grader.submit("output/model").number).fault is Fault.INFRASTRUCTURE
    assert "the budget of 2 submissions is used up" in refusal(grader)


class SlowEvaluation(ScriptedEvaluation):
    """Takes as long as the job lets it, up to 0.75 s of its own clock, then has a fault that may be retried."""

    now = 0.0

    def __call__(self, job, stop):
        self.jobs.append(job)
        self.now += min(0.75, job.timeout_s)
        return broken(Fault.INFRASTRUCTURE, "it hangs")


def test_the_grading_of_all_submissions_together_has_an_end(make_grader, model, monkeypatch):
    evaluate = SlowEvaluation()
    monkeypatch.setattr(service, "time", SimpleNamespace(monotonic=lambda: evaluate.now))
    grader = make_grader(evaluate, grading_s=1.0)
    numbers = [grader.submit("output/model").number for _ in range(4)]
    grader.start()
    records = [verdict(grader, number) for number in numbers]
    assert [record.fault for record in records] == [Fault.INFRASTRUCTURE] + [Fault.SUBMITTER] * 3
    assert "1 seconds for the grading of all submissions are used up" in records[-1].reason
    assert [job.name for job in evaluate.jobs] == ["submission-1"] * 2, "the first one used it up"
    assert all(job.timeout_s is not None and job.timeout_s <= 1.0 for job in evaluate.jobs)
    assert "grading of all submissions are used up" in refusal(grader)
    grader.stop()
    after = make_grader(evaluate, grading_s=1.0)
    assert "grading of all submissions are used up" in refusal(after), "a restart gives no new time"


def lying(**changes) -> EvaluationOutcome:
    """An outcome as no evaluation can have it, past the checks on what a child prints."""
    fields = {"value": 0.5, "low": 0.4, "high": 0.6, "n_items": 8, "n_missing": 0, "weights_digest": "d" * 64}
    return EvaluationOutcome.model_construct(**fields, fault=None, reason="", is_resumable=False).model_copy(
        update=changes
    )


@pytest.mark.parametrize(
    "changes", [{"low": math.nan}, {"value": -5.0}, {"n_items": 10**400}], ids=["nan", "negative", "vast"]
)
def test_a_score_that_cannot_be_recorded_ends_in_a_fault_after_one_evaluation(
    make_grader, model, trial, monkeypatch, changes
):
    monkeypatch.setattr(service, "PAUSE_S", 0.01)

    class Liar(ScriptedEvaluation):
        def __call__(self, job, stop):
            self.jobs.append(job)
            return lying(**changes) if job.name == "submission-1" else scored(0.5)

    evaluate = Liar()
    grader = make_grader(evaluate)
    grader.start()
    first, second = (grader.submit("output/model").number for _ in range(2))
    record = verdict(grader, first)
    assert (record.state, record.fault, record.score) == (SubmissionState.FAILED, Fault.INFRASTRUCTURE, None)
    assert "cannot be recorded" in record.reason
    assert verdict(grader, second).state is SubmissionState.SCORED, "the others go on"
    assert [job.name for job in evaluate.jobs] == ["submission-1", "submission-2"]


def test_a_submitters_fault_is_final_and_never_a_zero(make_grader, model):
    evaluate = ScriptedEvaluation([broken(Fault.SUBMITTER, "tensor 'x' holds NaN")])
    grader = make_grader(evaluate)
    grader.start()
    record = verdict(grader, grader.submit("output/model").number)
    assert (record.state, record.fault, record.score) == (SubmissionState.FAILED, Fault.SUBMITTER, None)
    assert record.reason == "tensor 'x' holds NaN" and len(evaluate.jobs) == 1
    assert grader.best() is None


def test_an_infrastructure_fault_is_tried_once_more_and_the_agent_is_told(make_grader, model):
    evaluate = ScriptedEvaluation([broken(Fault.INFRASTRUCTURE), scored(0.5)])
    grader = make_grader(evaluate)
    grader.start()
    record = verdict(grader, grader.submit("output/model").number)
    assert record.state is SubmissionState.SCORED
    assert any("evaluated twice" in remark for remark in grader.remarks(record.number))
    assert [job.discard_card for job in evaluate.jobs] == [False, True]


def test_two_infrastructure_faults_end_in_a_fault_with_no_host_path(make_grader, model, trial, base):
    reason = f"{trial.snapshot(1)}/model.safetensors and {base}/config.json are odd"
    evaluate = ScriptedEvaluation([RuntimeError("boom"), broken(Fault.INFRASTRUCTURE, reason), scored(1.0)])
    grader = make_grader(evaluate)
    grader.start()
    record = verdict(grader, grader.submit("output/model").number)
    assert (record.state, record.fault, record.score) == (SubmissionState.FAILED, Fault.INFRASTRUCTURE, None)
    assert record.reason == "the checkpoint/model.safetensors and the base model/config.json are odd"
    assert len(evaluate.jobs) == 2


def test_what_was_accepted_is_scored_by_the_next_grader(make_grader, model):
    first = make_grader(ScriptedEvaluation([EvaluationStopped()]))
    number = first.submit("output/model").number
    first.start()
    first.stop()
    second = make_grader(ScriptedEvaluation([scored(0.5)]))
    second.start()
    assert verdict(second, number).state is SubmissionState.SCORED
    assert [record.number for record in second.all()] == [1]


def test_draining_finishes_what_was_accepted_and_takes_no_more(make_grader, model):
    evaluate = ScriptedEvaluation()
    evaluate.may_go_on.clear()
    grader = make_grader(evaluate)
    grader.start()
    for _ in range(3):
        grader.submit("output/model")
    assert grader.drain(0.05) is False
    assert not grader.submit("output/model").is_accepted
    evaluate.may_go_on.set()
    assert grader.drain(120) is True
    assert [record.state for record in grader.all()] == [SubmissionState.SCORED] * 3 + [SubmissionState.REJECTED]


def test_waiting_ends_at_its_time(make_grader, model):
    grader = make_grader()
    number = grader.submit("output/model").number
    started = time.monotonic()
    record = grader.wait(number, 0.05)
    assert record is not None and record.state is SubmissionState.ACCEPTED
    assert time.monotonic() - started < 100
    assert grader.wait(99, 1) is None


def test_a_failing_recorder_costs_no_submission(make_grader, model):
    def fail(number: int) -> str:
        raise RuntimeError("odd workspace")

    grader = make_grader(None, fail)
    assert grader.submit("output/model").is_accepted
    assert grader.remarks(1) == ["the code revision in the workspace could not be recorded"]


def test_a_full_disk_of_the_grader_is_not_the_agents_fault(make_grader, model, trial):
    trial.root.joinpath("submissions").write_text("a file where the folder should be")
    grader = make_grader()
    receipt = grader.submit("output/model")
    record = grader.get(receipt.number)
    assert record is not None and record.fault is Fault.INFRASTRUCTURE
    assert "the checkpoint is not to blame" in record.reason


def test_a_leftover_of_an_attempt_cut_short_is_not_mixed_in(make_grader, model, trial):
    trial.snapshot(1).mkdir(parents=True)
    (trial.snapshot(1) / "chat_template.jinja").write_text("old")
    (model / "chat_template.jinja").unlink()
    assert make_grader().submit("output/model").is_accepted
    assert not (trial.snapshot(1) / "chat_template.jinja").exists()


def test_odd_text_from_an_agent_is_kept_as_text(make_grader, model):
    grader = make_grader()
    grader.submit("output/\ud800", "n" * 5_000)
    record = grader.get(1)
    assert record is not None and record.model_path == "output/\\ud800" and len(record.note) == 2_000


def test_the_trial_itself_may_ask_for_base_and_final_scores(make_grader, base, trial):
    evaluate = ScriptedEvaluation([scored(0.25), broken(Fault.SUBMITTER, "bad")])
    grader = make_grader(evaluate)
    card = trial.card("base", Split.TEST_PRIVATE)
    score = grader.evaluate_checkpoint(base, Split.TEST_PRIVATE, card, "base", attempts=4)
    assert score.value == 0.25
    assert evaluate.jobs[0].attempts == 4
    assert [item.split for item in evaluate.jobs[0].items] == [Split.TEST_PRIVATE] * 8
    with pytest.raises(EvaluationFailed, match="base on test_private: bad") as caught:
        grader.evaluate_checkpoint(base, Split.TEST_PRIVATE, card, "base")
    assert caught.value.fault is Fault.SUBMITTER
    assert grader.all() == []


def test_an_evaluation_that_nobody_submitted_is_not_told_to_be_submitted_again(make_grader, base, trial):
    late = EvaluationOutcome(
        fault=Fault.INFRASTRUCTURE, reason="it did not end", advice="submit again, and shorter", is_timeout=True
    )
    grader = make_grader(ScriptedEvaluation([late, late]))
    card = trial.card("base", Split.TEST_PUBLIC)
    card.parent.mkdir(parents=True, exist_ok=True)
    log_of(card).write_text("the engine's own words")
    with pytest.raises(EvaluationFailed) as caught:
        grader.evaluate_checkpoint(base, Split.TEST_PUBLIC, card, "base")
    message = str(caught.value)
    assert f"what it printed is in {log_of(card)}" in message and "own words" not in message
    assert "submit" not in message and "evaluation_timeout_s" in message and trial.resume_command in message
    assert late.reason_for_submitter == "it did not end; submit again, and shorter"
    assert EvaluationOutcome(fault=Fault.MODEL, reason="bad").reason_for_submitter == "bad"


def test_sharded_weights_of_equal_tensors_are_the_same_weights(make_grader, base, trial):
    sharded = trial.workspace / "output" / "sharded"
    shutil.copytree(base, sharded)
    (sharded / "model.safetensors").unlink()
    tensors = llama_tensors(0)
    names = sorted(tensors)
    halves = {"model-00001-of-00002.safetensors": names[:5], "model-00002-of-00002.safetensors": names[5:]}
    for file, tensor_names in halves.items():
        save_file(
            {name: np.ascontiguousarray(tensors[name]) for name in tensor_names}, sharded / file, {"format": "pt"}
        )
    where = {name: file for file, tensor_names in halves.items() for name in tensor_names}
    (sharded / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
    grader = make_grader()
    assert grader.submit("output/sharded").is_accepted
    assert grader.all()[0].is_base_copy


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "generation_config.json"])
@pytest.mark.parametrize(
    "text",
    ["[" * 200_000, '{"vocab_size": ' + "9" * 5_000 + "}", '{"vocab_size": 1e400}', '{"a": "\\ud800"}', "\x00", "\xff"],
    ids=["nested", "digits", "infinite", "surrogate", "zero", "latin"],
)
def test_hostile_json_in_a_submission_ends_in_a_verdict_not_in_an_error(make_grader, model, name, text):
    (model / name).write_bytes(text.encode("latin-1"))
    grader = make_grader()
    receipt = grader.submit("output/model")
    record = grader.get(receipt.number)
    assert record is not None
    if not receipt.is_accepted:
        assert record.fault is Fault.SUBMITTER, record.reason
        assert str(grader.settings.paths.root) not in record.reason


def bloated_tokenizer(model):
    content = json.loads((model / "tokenizer.json").read_text())
    (model / "tokenizer.json").write_text(json.dumps(content | {"extra": [0] * 3_000_000}))


def bloated_header(model):
    empty = {f"t{number}": np.zeros(0, np.float32) for number in range(40_000)}
    save_file(llama_tensors(1) | empty, model / "model.safetensors", {"format": "pt"})


def bloated_shards(model):
    """Each header is small enough; together they are not."""
    (model / "model.safetensors").unlink()  # beside a whole file shards would be left aside
    for shard in range(12):
        empty = {f"t{shard}-{number}": np.zeros(0, np.float32) for number in range(8_000)}
        save_file(empty, model / f"model-{shard:05}-of-00012.safetensors", {"format": "pt"})


@pytest.mark.parametrize("bloat", [bloated_tokenizer, bloated_header, bloated_shards])
def test_text_that_would_explode_in_memory_is_refused_before_it_is_parsed(make_grader, model, bloat):
    bloat(model)
    assert "far more than the base model's" in refusal(make_grader())


def test_what_arrived_in_time_is_recorded_before_a_stopping_grader_closes(make_grader, model):
    may_go_on = threading.Event()
    grader = make_grader(None, lambda number: may_go_on.wait(120))
    arrivals = [threading.Thread(target=grader.submit, args=("output/model",)) for _ in range(3)]
    for arrival in arrivals:
        arrival.start()
    ends_at = time.monotonic() + 120
    while grader._n_arriving < 3:
        assert time.monotonic() < ends_at
        time.sleep(0.01)
    threading.Timer(0.5, may_go_on.set).start()
    grader.stop()
    for arrival in arrivals:
        arrival.join()
    again = make_grader()
    assert [record.state for record in again.all()] == [SubmissionState.ACCEPTED] * 3
