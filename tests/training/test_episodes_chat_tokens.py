from types import SimpleNamespace

import pytest
from transformers import AutoTokenizer

from agent2.errors import ConfigError
from agent2.records import Message
from agent2.training.episodes import ChatTokens
from model_builders import make_model

CHAT = [
    Message("user", "1 + 2"),
    Message("assistant", "4"),
    Message("user", "no; 1 + 2"),
    Message("assistant", "3"),
    Message("user", "yes"),
]
TEMPLATES = {
    "newline after the end": "{% for m in messages %}{{ '<|user|>' if m.role == 'user' else '<|assistant|>' }}"
    "{{ m.content + '<|end|>\n' }}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}",
    "no marks": "{% for m in messages %}{% if m.role == 'assistant' %}{{ ' ' + m.content + eos_token }}"
    "{% else %}{{ m.content + '\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %} {% endif %}",
}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return AutoTokenizer.from_pretrained(make_model(tmp_path_factory.mktemp("model")))


def pieces_match(tokenizer, messages):
    """Whether a conversation put together piece by piece gives the ids of the whole one rendered at once."""
    chat = ChatTokens(tokenizer)
    ids = chat.opening(messages[:1])
    for message, observed in zip(messages[1::2], messages[2::2], strict=True):
        ids += [*tokenizer(message.content, add_special_tokens=False)["input_ids"], chat.end]
        ids += chat.reply(observed.content)
    return ids == chat.opening(messages)


def test_pieces_put_together_are_the_conversation_as_the_template_renders_it(tokenizer):
    assert pieces_match(tokenizer, CHAT)


@pytest.mark.parametrize("name", TEMPLATES)
def test_other_templates_are_cut_at_the_end_token_too(tokenizer, name):
    tokenizer = AutoTokenizer.from_pretrained(tokenizer.name_or_path, chat_template=TEMPLATES[name])
    assert pieces_match(tokenizer, CHAT)


def test_a_reply_begins_behind_the_end_token_and_ends_where_the_model_speaks(tokenizer):
    chat = ChatTokens(tokenizer)
    assert tokenizer.decode(chat.reply("what?")) == "<|user|>what?<|assistant|>"
    assert chat.end == tokenizer.eos_token_id


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        (None, "has no chat template"),
        ("{% for m in messages %}{{ m.content }}{% endfor %}", "ends no assistant message with '<|end|>'"),
        ("{{ messages | length }}{% for m in messages %}{{ m.content + '<|end|>' }}{% endfor %}", "rewrites earlier"),
    ],
)
def test_a_template_that_cannot_be_appended_to_is_refused(tokenizer, template, sentence):
    changed = AutoTokenizer.from_pretrained(tokenizer.name_or_path)
    changed.chat_template = template
    with pytest.raises(ConfigError, match=sentence):
        ChatTokens(changed).reply("what?")


def test_a_tokenizer_without_an_end_token_is_refused():
    with pytest.raises(ConfigError, match="no end token"):
        ChatTokens(SimpleNamespace(chat_template="x", eos_token_id=None))
