import asyncio
import json
from itertools import pairwise

import httpx
import pytest
from fastapi import FastAPI

from agent2.engines.catalogue import ENGINES, TRANSFORMERS_SERVE, ServedModel
from agent2.engines.transformers_server import guard, place_without_mark
from agent2.errors import ConfigError


def ask(path, key):
    async def answer():
        app = FastAPI()
        for route in ("/v1/models", "/reset"):
            app.get(route)(cached)
        guard(app, "random-name", "secret")
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://engine") as client:
            return await client.get(path, headers={"authorization": f"Bearer {key}"})

    return asyncio.run(answer())


async def cached():
    return {"data": [{"id": "a model of the cache"}]}


def test_a_folder_with_an_at_sign_is_found_where_the_server_would_cut_its_path(tmp_path):
    folder = tmp_path / "model@v2"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    place = place_without_mark(folder)
    assert "@" not in str(place) and (place / "config.json").read_text() == "{}"
    assert place_without_mark(folder.parent) == folder.parent


def test_the_server_lists_its_one_model_by_the_random_name_and_does_all_else_itself():
    assert ask("/v1/models", "secret").json() == {"data": [{"id": "random-name"}]}
    assert ask("/reset", "secret").json() == {"data": [{"id": "a model of the cache"}]}


@pytest.mark.parametrize("path", ["/v1/models", "/reset"])
def test_the_server_does_nothing_for_those_who_do_not_know_the_key(path):
    assert ask(path, "another").status_code == 401
    assert ask(path, "").status_code == 401


def test_no_sampling_setting_that_a_model_proposes_applies_beside_the_protocol():
    settings = json.loads(ENGINES[TRANSFORMERS_SERVE].request_fields([2, 7])["generation_config"])
    neutral = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "repetition_penalty": 1.0}
    assert {name: settings[name] for name in neutral} == neutral
    assert (settings["eos_token_id"], settings["pad_token_id"]) == ([2, 7], 2)
    assert "eos_token_id" not in ENGINES[TRANSFORMERS_SERVE].request_fields([])["generation_config"]


def test_flags_follow_from_the_model_and_an_ambiguous_path_is_refused(tmp_path):
    engine = ENGINES[TRANSFORMERS_SERVE]
    template = tmp_path / "template.jinja"
    model = ServedModel(tmp_path / "model", "name", 8000, "key", "bfloat16", 64, 1, template)
    command = engine.arguments(model)
    flags = dict(pairwise(command))
    assert (flags["serve"], flags["--dtype"], flags["--max-model-len"]) == (str(model.folder), "bfloat16", "64")
    assert flags["--chat-template"] == str(template)
    assert "key" not in command
    with pytest.raises(ConfigError, match="an @ in its path; rename it"):
        engine.arguments(ServedModel(tmp_path / "a@b", "name", 8000, "key", "float32", None, 1))
