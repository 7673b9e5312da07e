import json

from agent2.cards.imports.foreign_log import write_foreign
from agent2.cards.imports.formats import read_log
from agent2.errors import Fault
from agent2.records import RolloutStatus, Split

PLAYED = [{"role": "user", "content": "help"}, {"role": "assistant", "content": "done"}]


def trial(number, reward, messages=PLAYED, **info):
    return {"task_id": 0, "trial": number, "reward": reward, "traj": messages, "info": {"task": {}, **info}}


def test_a_trial_that_ended_with_an_error_is_missing_and_not_zero(tmp_path):
    path = tmp_path / "run.json"
    rows = [trial(0, 1.0), trial(1, 0.0), trial(2, 0.0, [], error="APIError: overloaded", traceback="...")]
    path.write_text(json.dumps(rows))
    log = read_log(path)
    assert [record.score.value for record in log.rollouts] == [1.0, 0.0, None]
    last = log.rollouts[-1]
    assert (last.rollout.status, last.rollout.fault, last.score.fault) == (
        RolloutStatus.FAILED,
        Fault.INFRASTRUCTURE,
        Fault.INFRASTRUCTURE,
    )
    assert "APIError: overloaded" in last.score.reason
    summary = write_foreign(log, tmp_path / "card", Split.TEST_PUBLIC)
    assert (summary.score.value, summary.n_missing) == (0.5, 1)
