import pytest

from agent2.errors import ConfigError
from agent2.llm.gateway.settings import PROVIDERS, load_driver
from agent2.llm.records import WireProtocol

FILE = """\
name: lab-model
model: org/lab-model
provider: lab
endpoints: {openai-chat: "http://10.0.0.5:8000/v1"}
"""


def test_a_name_is_a_provider_and_the_model_as_it_calls_it():
    driver = load_driver("openrouter/meta/some-model")
    assert (driver.name, driver.model, driver.provider) == (
        "openrouter/meta/some-model",
        "meta/some-model",
        "openrouter",
    )
    for provider in PROVIDERS:
        assert load_driver(f"{provider}/m").endpoints


def test_a_file_names_any_endpoint(tmp_path):
    path = tmp_path / "lab.yaml"
    path.write_text(FILE)
    driver = load_driver(str(path))
    driver.require(WireProtocol.OPENAI_CHAT)
    (endpoint,) = driver.resolved({})
    assert (endpoint.base_url, endpoint.api_key.get_secret_value()) == ("http://10.0.0.5:8000/v1", "")
    with pytest.raises(ConfigError, match="speaks openai-chat, the agent needs gemini"):
        driver.require(WireProtocol.GEMINI)


def test_the_key_comes_from_the_environment_and_shows_nowhere():
    driver = load_driver("anthropic/claude")
    with pytest.raises(ConfigError, match="ANTHROPIC_API_KEY is not set"):
        driver.resolved({})
    endpoints = driver.resolved({"ANTHROPIC_API_KEY": "sk-very-secret"})
    assert endpoints[0].api_key.get_secret_value() == "sk-very-secret"
    assert "very-secret" not in repr(endpoints) + "".join(endpoint.model_dump_json() for endpoint in endpoints)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gpt-5", "write PROVIDER/MODEL"),
        ("opanai/gpt", "did you mean 'openai'"),
        ("missing.yaml", "cannot be read"),
    ],
)
def test_a_name_that_is_none_says_what_to_write(name, message):
    with pytest.raises(ConfigError, match=message):
        load_driver(name)


def test_an_address_that_is_none_is_refused(tmp_path):
    path = tmp_path / "lab.yaml"
    path.write_text(FILE.replace("http://10.0.0.5:8000/v1", "10.0.0.5:8000"))
    with pytest.raises(ConfigError, match=r"lab\.yaml:4: endpoints.*10\.0\.0\.5:8000"):
        load_driver(str(path))
