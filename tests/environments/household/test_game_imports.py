import sys

import pytest

from agent2.environments.household.game import import_part, quiet_import
from agent2.errors import ConfigError


def test_a_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "alfworld.info", None)
    with pytest.raises(ConfigError, match=r"'alfworld'.*install the extra household: pip install .*\.\[household\]"):
        import_part("alfworld.info")


def test_arguments_and_data_folder_come_back(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["mine"])
    monkeypatch.setenv("ALFWORLD_DATA", "official")
    with quiet_import():
        sys.argv = ["translate.py", "domain", "task"]
    import os

    assert (sys.argv, os.environ["ALFWORLD_DATA"]) == (["mine"], "official")
    monkeypatch.delenv("ALFWORLD_DATA")
    with quiet_import():
        assert "ALFWORLD_DATA" in os.environ
    assert "ALFWORLD_DATA" not in os.environ
