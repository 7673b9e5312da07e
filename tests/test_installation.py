import os
import stat
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agent2 import installation
from agent2.errors import ConfigError


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))


def test_the_secret_is_made_once_and_kept():
    first = installation.secret()
    assert len(first) == installation.SECRET_BYTES
    assert installation.secret() == first


def test_the_words_for_an_extra_name_one_that_the_package_has():
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    for extra in ("household", "inspect", "tensorboard"):
        assert extra in project["optional-dependencies"]
        command = installation.install_hint(extra)
        assert f"-e '.[{extra}]' in the checkout" in command and f"'WHEEL[{extra}]'" in command


def test_the_secret_is_private():
    installation.secret()
    assert stat.S_IMODE((installation.home() / "secret").stat().st_mode) == 0o600


def test_several_first_uses_at_once_agree_on_one_secret():
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(lambda _: installation.secret(), range(32)))) == 1


def test_a_secret_that_others_may_read_is_refused():
    installation.secret()
    os.chmod(installation.home() / "secret", 0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        installation.secret()


def test_a_truncated_secret_is_refused():
    path = installation.home() / "secret"
    path.write_bytes(b"short")
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="contains 5 bytes, 32 are needed"):
        installation.secret()


def test_the_digest_names_a_secret_without_telling_it():
    digest = installation.secret_digest(b"a" * 32)
    assert digest != installation.secret_digest(b"b" * 32)
    assert (b"a" * 32).hex() not in digest


def test_a_home_that_cannot_be_made_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "file" / "home"))
    with pytest.raises(ConfigError, match=r"file/home: cannot be made .*AGENT2_HOME"):
        installation.home()


def test_a_secret_that_is_no_file_is_named():
    (installation.home() / "secret").mkdir(mode=0o700)
    with pytest.raises(ConfigError, match="secret: cannot be read or made"):
        installation.secret()
