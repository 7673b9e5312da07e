import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl.chat_template_utils import llama3_chat_template, qwen2_5_chat_template

from agent2.errors import ConfigError
from agent2.training.offline import NO_LABEL, SftSettings, labelled_chats, train_sft
from model_builders import make_model

CHAT = [
    {"role": "user", "content": "find the key"},
    {"role": "assistant", "content": "fly", "learn": False},
    {"role": "user", "content": "what?"},
    {"role": "assistant", "content": "go box"},
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return AutoTokenizer.from_pretrained(make_model(tmp_path_factory.mktemp("model")))


def labelled(tokenizer, messages, max_tokens=256):
    return labelled_chats([{"messages": messages}], tokenizer, max_tokens, "train_sft")[0]


def learned(tokenizer, row):
    return tokenizer.decode([token for token in row["labels"] if token != NO_LABEL])


def test_only_what_the_assistant_says_is_learned_with_its_end(tokenizer):
    plain = [{**message, "learn": True} for message in CHAT]
    row = labelled(tokenizer, plain)
    assert tokenizer.decode(row["input_ids"]).startswith("<|user|>find the key<|assistant|>fly<|end|>")
    assert learned(tokenizer, row) == "fly<|end|>go box<|end|>"


def test_a_message_that_is_not_to_be_learned_is_seen_and_not_imitated(tokenizer):
    row = labelled(tokenizer, CHAT)
    assert "fly<|end|>" in tokenizer.decode(row["input_ids"])
    assert learned(tokenizer, row) == "go box<|end|>"
    assert all(label in (NO_LABEL, token) for token, label in zip(row["input_ids"], row["labels"], strict=True))


@pytest.mark.parametrize(
    ("messages", "sentence"),
    [
        ([], "row 0 has no messages"),
        ("hello", "row 0 has no messages"),
        ([{"role": "user"}], "row 0, message 0 has no content"),
        (CHAT[:2], "row 0 has no assistant message to learn from"),
        ([*CHAT, {"role": "assistant", "content": "go desk"}, CHAT[0]], None),
    ],
)
def test_rows_that_cannot_be_used_are_refused_by_number(tokenizer, messages, sentence):
    if sentence is None:  # two assistant messages in a row: this template still marks them apart
        assert learned(tokenizer, labelled(tokenizer, messages)) == "go box<|end|>go desk<|end|>"
        return
    with pytest.raises(ConfigError, match=sentence):
        labelled(tokenizer, messages)


def test_a_conversation_that_does_not_fit_is_refused(tokenizer):
    with pytest.raises(ConfigError, match=r"row 0 has \d+ tokens, max_tokens is 5; raise it or drop"):
        labelled(tokenizer, CHAT, max_tokens=5)


def published(folder, template, *special):
    """The tiny model's tokenizer with a published template. special: the first begins a text, the last ends one."""
    make_model(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ends = {"bos_token": special[0], "eos_token": special[-1]}
    tokenizer.add_special_tokens({"additional_special_tokens": list(special), **ends})
    tokenizer.chat_template = template
    return tokenizer


def test_the_original_template_of_qwen2_5_is_learned_where_the_model_speaks(tmp_path):
    qwen = published(tmp_path / "model", qwen2_5_chat_template, "<|im_start|>", "<|im_end|>")
    row = labelled(qwen, CHAT)
    messages = [{key: message[key] for key in ("role", "content")} for message in CHAT]
    assert row["input_ids"] == qwen.apply_chat_template(messages, return_dict=True)["input_ids"]
    assert learned(qwen, row) == "go box<|im_end|>"
    learn_all = labelled(qwen, [{**message, "learn": True} for message in CHAT])
    assert learned(qwen, learn_all) == "fly<|im_end|>go box<|im_end|>"
    assert qwen.chat_template == qwen2_5_chat_template


def test_what_is_learned_begins_where_the_generation_prompt_ends(tmp_path):
    qwen = published(tmp_path / "model", qwen2_5_chat_template, "<|im_start|>", "<|im_end|>")
    row = labelled(qwen, CHAT[2:])
    first = next(index for index, label in enumerate(row["labels"]) if label != NO_LABEL)
    prompt = qwen.apply_chat_template(CHAT[2:3], add_generation_prompt=True, return_dict=True)["input_ids"]
    assert row["input_ids"][:first] == prompt


def test_another_template_that_trl_knows_is_learned_likewise(tmp_path):
    names = ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
    llama = published(tmp_path / "model", llama3_chat_template, *names)
    assert learned(llama, labelled(llama, CHAT)) == "go box<|eot_id|>"


@pytest.mark.slow
def test_a_model_with_the_template_of_qwen2_5_is_trained_on_conversations_and_keeps_its_template(tmp_path):
    base = tmp_path / "base"
    tokenizer = published(base, qwen2_5_chat_template, "<|im_start|>", "<|im_end|>")
    tokenizer.save_pretrained(base)
    model = AutoModelForCausalLM.from_pretrained(base)
    model.resize_token_embeddings(len(tokenizer))
    model.save_pretrained(base)
    settings = SftSettings(epochs=1, batch_size=1, max_tokens=512)
    report = train_sft(base, [{"messages": CHAT}], tmp_path / "run" / "model", settings)
    assert report.steps == 1
    assert AutoTokenizer.from_pretrained(report.checkpoint).chat_template == qwen2_5_chat_template


def test_a_template_without_generation_marks_that_nobody_knows_is_refused(tokenizer):
    changed = AutoTokenizer.from_pretrained(tokenizer.name_or_path)
    changed.chat_template = (
        "{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %} {% endif %}"
    )
    with pytest.raises(ConfigError, match=r"marks no \{% generation %\}.*TRL knows no marked one"):
        labelled(changed, CHAT)
    changed.chat_template = None
    with pytest.raises(ConfigError, match=r"marks no \{% generation %\}"):
        labelled(changed, CHAT)
