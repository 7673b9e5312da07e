"""A served model is sent pictures as content parts, and one that refuses them is refused before anything is played."""

import base64

import pytest

from agent2.errors import ConfigError
from agent2.llm.endpoints import Endpoint
from agent2.llm.served import ServedSampler
from agent2.pictures import prepared, read_picture, white_square
from agent2.records import Message, SamplingSettings
from served_fakes import chat, endpoint, error


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    prepared.cache_clear()


def opened(url, **changes):
    return ServedSampler(Endpoint(url, "m", first_wait_s=0.01, timeout_s=60.0, **changes))


def question(side=48):
    picture = read_picture(white_square(side), "here")
    return Message("user", "What is this?", (picture,))


def has_picture(body):
    return any(isinstance(message["content"], list) for message in body["messages"])


def test_text_and_picture_are_parts_and_a_text_alone_stays_a_text():
    with endpoint(lambda body, number: chat("a square")) as served:
        sampler = opened(served.url)
        sampler.submit(1, [Message("system", "Look."), question()], SamplingSettings(max_tokens=8))
        (done,) = sampler.collect()
        sampler.submit(2, [Message("user", "Hello")], SamplingSettings(max_tokens=8))
        sampler.collect()
        sampler.close()
    assert done[1].text == "a square"
    system, user = served.bodies[-2]["messages"]
    assert system == {"role": "system", "content": "Look."}
    address = "data:image/png;base64," + base64.b64encode(white_square(48)).decode()
    assert user["content"] == [
        {"type": "image_url", "image_url": {"url": address}},
        {"type": "text", "text": "What is this?"},
    ]
    assert served.bodies[-1]["messages"] == [{"role": "user", "content": "Hello"}]


def test_a_server_is_asked_once_whether_it_takes_pictures_before_an_item_is_sent():
    def refuse(body, number):
        return error(400, "image input is not supported by this model") if has_picture(body) else chat("hi")

    with endpoint(refuse) as served:
        sampler = opened(served.url)
        with pytest.raises(ConfigError, match=r"refuses pictures: .*image input is not supported.*serve a model that"):
            sampler.submit(1, [question()], SamplingSettings(max_tokens=8))
        sampler.submit(2, [Message("user", "Hello")], SamplingSettings(max_tokens=8))
        assert sampler.collect()[0][1].text == "hi", "texts are answered as before"
        sampler.close()
    assert sum(map(has_picture, served.bodies)) == 1

    with endpoint(lambda body, number: chat("yes")) as served:
        sampler = opened(served.url)
        for number in range(3):
            sampler.submit(number, [question()], SamplingSettings(max_tokens=8))
            sampler.collect()
        sampler.close()
    assert sum(map(has_picture, served.bodies)) == 4, "one square, three items"


def test_pictures_beside_native_tools_are_refused():
    with endpoint(lambda body, number: chat("hi")) as served:
        sampler = opened(served.url, native_tools=True)
        tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
        with pytest.raises(ConfigError, match="pictures are not sent beside native tools"):
            sampler.submit(1, [question()], SamplingSettings(max_tokens=8), tools)
        sampler.close()
