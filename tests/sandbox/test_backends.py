import pytest

from agent2.errors import ConfigError
from agent2.sandbox.backends import SANDBOXES, find_sandbox


def test_every_named_sandbox_can_be_found():
    assert [find_sandbox(name).name for name in SANDBOXES] == list(SANDBOXES)


def test_the_default_contains():
    assert find_sandbox().name == "bubblewrap"


def test_an_unknown_sandbox_offers_the_nearest_name():
    with pytest.raises(ConfigError, match=r"unknown sandbox 'bublewrap'; did you mean 'bubblewrap'"):
        find_sandbox("bublewrap")
