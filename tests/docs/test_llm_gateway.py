"""The page of the LLM gateway says what the code does."""

import re
from pathlib import Path

import pytest

from agent2.config import parse_yaml
from agent2.llm.gateway.answers import VOLATILE_TEXT
from agent2.llm.gateway.routes import find_route
from agent2.llm.gateway.settings import PROVIDERS, GatewaySettings, PriceFile
from agent2.llm.records import Driver, WireProtocol

PAGE = (Path(__file__).parents[2] / "docs" / "llm-gateway.md").read_text()


def test_the_driver_file_and_the_price_file_of_the_page_are_read():
    driver, prices = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert parse_yaml(driver, Driver, "page").endpoints == {WireProtocol.OPENAI_CHAT: "http://10.0.0.5:8000/v1"}
    assert parse_yaml(prices, PriceFile, "page").models["my-long-model"].long.above == 200_000


def test_the_providers_of_the_page_are_those_of_the_table():
    rows = re.findall(r"^\| `(\w+)` \| ([\w, -]+) \| `(\w+)` \|$", PAGE, re.MULTILINE)
    told = {name: (set(protocols.split(", ")), key) for name, protocols, key in rows}
    assert told == {name: ({p.value for p in one.endpoints}, one.api_key_env) for name, one in PROVIDERS.items()}


@pytest.mark.parametrize("protocol", list(WireProtocol))
def test_the_paths_of_the_page_are_served(protocol):
    (first,) = re.findall(rf"^\| `{protocol.value}` \| `POST (\S+)`", PAGE, re.MULTILINE)
    assert find_route("POST", first, {}).protocol is protocol


def test_the_numbers_of_the_page_are_the_defaults():
    fields, text = GatewaySettings.model_fields, " ".join(PAGE.split())
    assert fields["unlisted_output_tokens"].default == 16_384 and "16,384 tokens" in text
    assert fields["max_retries"].default == 3 and "at most three times" in text
    assert fields["max_retry_wait_s"].default == 60 and "more than a minute" in text
    assert fields["max_bodies_mib"].default == 4096 and "4 GiB of bodies" in text
    assert fields["max_calls"].default == 100_000 and "100,000 calls" in text
    assert VOLATILE_TEXT and "`VOLATILE_TEXT`" in PAGE
