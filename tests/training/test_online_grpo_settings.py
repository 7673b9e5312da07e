import pytest

from agent2.errors import ConfigError
from agent2.training.online_grpo import OnlineGrpoSettings, validate_settings


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"max_turns": 0}, "max_turns is 0; set it to at least 1"),
        ({"generations": 1}, "generations is 1; set it to at least 2"),
        ({"temperature": 0.0}, "episodes need chance"),
        ({"decay": 1.5}, "decay is 1.5"),
        ({"decay": 0.0}, "decay is 0.0"),
        ({"kl_weight": -0.1}, "kl_weight is -0.1"),
        ({"prompts_per_batch": 101}, "100 items for 101 prompts a batch"),
        ({"updates_per_batch": 3}, "256 episodes a batch cannot be cut into 3"),
        ({"refresh_reference_every": 10}, "without kl_weight has no effect"),
    ],
)
def test_settings_that_cannot_work_are_refused_by_name(changed, sentence):
    with pytest.raises(ConfigError, match=sentence):
        validate_settings(OnlineGrpoSettings(**changed), 100)


@pytest.mark.parametrize(
    ("changed", "sentence"), [({"reward": "composite"}, "can rise while success"), ({"mask_capped": True}, "no group")]
)
def test_settings_that_seldom_work_are_warned_of(changed, sentence, caplog):
    validate_settings(OnlineGrpoSettings(**changed), 100)
    assert sentence in caplog.text


def test_the_defaults_are_taken_without_a_word(caplog):
    validate_settings(OnlineGrpoSettings(), 100)
    assert not caplog.records
