import json
from dataclasses import replace

import pytest
from transformers import TrainerCallback

from agent2.errors import ConfigError
from agent2.models.checkpoint import inspect_checkpoint
from agent2.training.online_grpo import OnlineGrpoHooks, OnlineGrpoSettings, train_online_grpo
from agent2.training.running import EPISODE_FIELDS
from episode_builders import BreaksAtFirst, Hunt, make_items, make_player

pytestmark = pytest.mark.slow

SETTINGS = OnlineGrpoSettings(
    batches=40, prompts_per_batch=12, generations=8, max_turns=2, max_tokens=6, learning_rate=5e-3
)
SHORT = replace(SETTINGS, batches=2)
NOT_ALWAYS = {
    "reward_success", "reward_valid", "reward_format",  # of a composite reward
    "updates_behind", "trainer_idle_s", "player_idle_s", "importance_mean", "importance_max",  # of asynchronous runs
}  # fmt: skip


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return make_player(tmp_path_factory.mktemp("base"))


def run(base, folder, settings=SHORT, world=Hunt, **hooks):
    lines = []
    report = train_online_grpo(
        base, make_items(), world, folder / "model", settings, OnlineGrpoHooks(on_log=lines.append, **hooks)
    )
    return report, lines


class EndsAtFirstStep(TrainerCallback):
    """What a monitor does to a run that goes wrong."""

    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop = True


def digest(folder):
    return inspect_checkpoint(folder).weights_digest


def test_it_learns_to_play_and_logs_every_batch(base, tmp_path):
    saved = []
    report, lines = run(
        base,
        tmp_path / "run",
        replace(SETTINGS, checkpoint_batches=(20,), stop_at_success=0.95),
        on_checkpoint=lambda batch, folder: saved.append((batch, folder.name, digest(folder))),
    )
    before, after = (sum(line["success"] for line in group) / 5 for group in (lines[:5], lines[-5:]))
    assert after > before + 0.12  # 0.54 to 0.75 where one of four kinds is never found by chance, else to 0.96
    assert [entry[:2] for entry in saved] == [(20, "model-batch20")]
    assert len({saved[0][2], digest(report.checkpoint), digest(base)}) == 3
    assert set(EPISODE_FIELDS) - NOT_ALWAYS <= set(lines[0])
    assert all(line["foreign_share"] == 0 for line in lines)
    assert all(line.get("logprob_gap", 0.0) < 1e-4 for line in lines), "a batch without a signal has none"
    assert "logprob_gap" in lines[0]
    assert lines[0]["kl_initial"] == pytest.approx(0, abs=1e-6)
    assert lines[-1]["kl_initial"] > 0.01
    assert lines[0]["staleness"] == 0.5, "the second of two updates is one step behind"
    assert [json.loads(line) for line in report.log.read_text().splitlines()] == lines
    assert [line["step"] for line in lines] == list(range(2, 2 * len(lines) + 1, 2))
    if len(lines) < 40:
        assert "at least 0.95" in report.stopped and report.steps == lines[-1]["step"]


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(base, tmp_path):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        run(base, tmp_path / name, replace(SHORT, seed=seed))
    digests = [digest(tmp_path / name / "model") for name in "abc"]
    assert digests[0] == digests[1] != digests[2]


def test_a_caller_or_the_clock_can_end_it(base, tmp_path):
    report, lines = run(base, tmp_path / "a", SETTINGS, stop=lambda line: "enough" if line["step"] >= 4 else None)
    assert report.stopped == "enough" and report.steps == 4 and len(lines) == 2
    report, _ = run(base, tmp_path / "b", replace(SETTINGS, max_seconds=0.01))
    assert "more than max_seconds 0.01" in report.stopped and report.steps == 2
    assert run(base, tmp_path / "c")[0].stopped == ""
    at_the_end = run(base, tmp_path / "d", replace(SETTINGS, batches=1, max_seconds=0.01))[0]
    assert (at_the_end.steps, at_the_end.stopped) == (2, ""), "nothing was left to do when time was up"
    report, _ = run(base, tmp_path / "e", SETTINGS, callbacks=[EndsAtFirstStep()])
    assert report.steps < 80 and report.stopped == "a callback ended it"


@pytest.mark.parametrize(("n_broken", "n_failed", "n_retried"), [(3, 0, 3), (97, 1, 96)])
def test_worlds_that_break_are_begun_anew_and_the_log_says_so(base, tmp_path, n_broken, n_failed, n_retried):
    """The 96 worlds of a batch are opened before any is opened again: the 97th that breaks is a second try."""
    BreaksAtFirst.n_failures = n_broken
    _, lines = run(base, tmp_path, world=BreaksAtFirst)
    assert lines[0]["masked_failed"] == pytest.approx(n_failed / 96)
    assert lines[0]["retried_share"] == pytest.approx(n_retried / 96)
    assert lines[1]["retried_share"] == 0


def test_unmasked_observations_are_in_the_loss_and_the_log_says_how_much(base, tmp_path):
    _, lines = run(base, tmp_path, replace(SHORT, mask_observations=False))
    assert lines[0]["foreign_share"] > 0.1


def test_a_reference_model_with_weight_holds_the_policy_back(base, tmp_path):
    settings = replace(SETTINGS, batches=12, seed=1)
    free = run(base, tmp_path / "free", settings)[1]
    held = run(base, tmp_path / "held", replace(settings, kl_weight=2.0))[1]
    moving = run(base, tmp_path / "moving", replace(settings, kl_weight=2.0, refresh_reference_every=2))[1]
    far, near, between = (sum(line["kl_initial"] for line in lines[-4:]) / 4 for lines in (free, held, moving))
    assert near < far / 2
    assert held[-1]["kl"] > 0
    assert between > near


@pytest.mark.parametrize(
    "changed",
    [
        {"normalise": "token"},
        {"advantage": "leave-one-out", "by_spread": False, "updates_per_batch": 1},
        {"reward": "composite", "decay": 0.9},
        {"mask_truncated": True, "max_episode_tokens": 30},
        {"mask_capped": True},
    ],
)
def test_every_option_runs(base, tmp_path, changed):
    settings = replace(SHORT, **changed)
    report, lines = run(base, tmp_path, settings)
    assert len(lines) == 2 and report.steps == 2 * settings.updates_per_batch
    assert (digest(report.checkpoint) != digest(base)) is not settings.mask_capped, "only wins are left: no gradient"


def test_a_model_that_hardly_ever_ends_its_turn_is_played_on_and_trained(base, tmp_path):
    report, lines = run(base, tmp_path, replace(SHORT, max_tokens=1))
    assert len(lines) == 2 and all(line["unterminated_share"] > 0.5 for line in lines)
    assert digest(report.checkpoint) != digest(base)


def test_settings_that_cannot_work_are_refused_before_anything_is_loaded(tmp_path):
    with pytest.raises(ConfigError, match="12 items for 32 prompts"):
        train_online_grpo(tmp_path, make_items(), Hunt, tmp_path / "out", OnlineGrpoSettings())
