import pytest

from agent2.environments.household.world import ADMISSIBLE_MARK
from agent2.errors import ConfigError, Fault
from agent2.evaluation.context import ADMISSIBLE, context_policy, key_fact
from agent2.evaluation.engine import Attempt, PlaySettings, play
from agent2.models.hf import HfSampler
from agent2.models.sources import ScriptedSampler
from agent2.records import Item, Message, Picture, RolloutStatus, SamplingSettings, Score, Split, Step
from hf_builders import make_model, make_tokenizer

LIST = "\nAvailable actions: go to desk 1, look"
OPENING = [
    Message("system", "Rules."),
    Message("user", f"You are in a room. Your task is to: put a mug on desk 1.{LIST}"),
]


def episode(n_turns: int, observation="You arrive at shelf {i}. On the shelf {i}, you see a mug {i}.") -> list[Message]:
    turns = [
        message
        for i in range(1, n_turns + 1)
        for message in (Message("assistant", f"go to shelf {i}"), Message("user", observation.format(i=i) + LIST))
    ]
    return [*OPENING, *turns]


def sent(policy: str, messages) -> list[Message]:
    return list(context_policy(policy).messages_to_send(messages, len(OPENING)))


def test_full_sends_the_messages_themselves():
    messages = episode(5)
    assert context_policy("full").messages_to_send(messages, len(OPENING)) is messages


def test_only_the_newest_message_keeps_its_list_of_admissible_commands():
    messages = episode(3)
    messages_sent = sent("drop_admissible", messages)
    assert [m.role for m in messages_sent] == [m.role for m in messages]
    assert messages_sent[-1] == messages[-1]
    assert [m.content for m in messages_sent[1::2]][:2] == [
        OPENING[1].content,
        "You arrive at shelf 1. On the shelf 1, you see a mug 1.",
    ]
    assert sent("drop_admissible", OPENING) == OPENING


def test_a_reply_without_its_list_keeps_its_pictures():
    picture = Picture("0" * 64, "image/png", 0, 8, 4, "as-brought")
    messages = episode(2)
    messages[3] = Message("user", messages[3].content, (picture,))
    seen = sent("drop_admissible", messages)
    assert seen[3].pictures == (picture,) and LIST not in seen[3].content


@pytest.mark.parametrize("gap", ["\n\n", "\n"])
@pytest.mark.parametrize("policy", ["full", "drop_admissible", "drop_observations(keep_last=1)"])
def test_a_goal_behind_a_list_of_commands_is_always_sent(policy, gap):
    goal = "Your task is to: put a mug in the shelf."
    opening = [Message("user", f"You are in a house.\nAvailable actions:\n- look\n- go{gap}{goal}")]
    for n in (0, 1, 9):
        assert context_policy(policy).messages_to_send([*opening, *episode(n)[2:]], 1)[0] == opening[0]


def test_a_list_ends_at_the_first_blank_line():
    observation = "You see a mug 1.\nAvailable actions:\n- look\n- go\n \nThe door is shut."
    assert ADMISSIBLE.sub("", observation) == "You see a mug 1.\n \nThe door is shut."
    assert key_fact(observation, 40) == "You see a mug 1. The door is shut."


@pytest.mark.parametrize(
    "heading", ["Available actions: ", "Admissible commands:\n", "Your available actions are: ", ADMISSIBLE_MARK[1:]]
)
def test_lists_are_known_by_their_heading(heading):
    assert ADMISSIBLE.sub("", f"You see a mug 1.\n\n{heading}look, go") == "You see a mug 1."
    assert ADMISSIBLE.sub("", f"You see {heading}look") == f"You see {heading}look"


def test_last_turns_stand_in_full_and_earlier_ones_as_action_and_key_fact():
    messages_sent = sent("drop_observations(keep_last=2,fact_chars=40)", episode(5))
    texts = [m.content for m in messages_sent]
    assert messages_sent[:2] == OPENING
    assert texts[2:6] == [
        "go to shelf 1",
        "On the shelf 1, you see a mug 1.",
        "go to shelf 2",
        "On the shelf 2, you see a mug 2.",
    ]
    assert texts[6:8] == ["go to shelf 3", "You arrive at shelf 3. On the shelf 3, you see a mug 3."]
    assert texts[-1] == episode(5)[-1].content
    assert [m.role for m in messages_sent[2:]] == ["assistant", "user"] * 5


def test_what_lies_behind_changes_only_every_few_turns():
    """So a sampler that keeps its cache goes on with what it has, most of the time."""
    policy = context_policy("drop_observations(keep_last=4,fact_chars=20)")
    changes, before = [], []
    for n in range(1, 25):
        now = list(policy.messages_to_send(episode(n, "You arrive at shelf {i}. It holds a mug {i}."), len(OPENING)))
        if before and now[: len(before) - 1] != before[:-1]:
            changes.append(n)
        before = now
    assert changes == [8, 12, 16, 20, 24]


def test_turns_without_effect_and_turns_that_came_again_are_left_out_once_they_are_old():
    turns = [
        ("look", "A shelf 1."),
        ("fly", "Nothing happens."),
        ("look", "A shelf 1."),
        ("go", "A mug 1."),
        ("fly", "Nothing happens."),
    ]
    messages = [
        *OPENING,
        *(Message(role, text) for pair in turns for role, text in zip(("assistant", "user"), pair, strict=True)),
    ]
    texts = [m.content for m in sent("drop_observations(keep_last=1)", messages)[2:]]
    assert texts == ["look", "A shelf 1.", "go", "A mug 1.", "fly", "Nothing happens."]


def test_when_room_is_short_the_earliest_turns_give_way_and_the_opening_never():
    messages_sent = sent("drop_observations(keep_last=1,fact_chars=40,memory_chars=200)", episode(50))
    assert messages_sent[0].content == "Rules." and "put a mug on desk 1" in messages_sent[1].content
    assert [m.content for m in messages_sent[2::2]] == [
        "go to shelf 47",
        "go to shelf 48",
        "go to shelf 49",
        "go to shelf 50",
    ]


@pytest.mark.parametrize(
    ("observation", "max_chars", "fact"),
    [
        ("One. Two. Three.", 100, "One. Two. Three."),
        ("One. Two. Three.", 11, "Two. Three."),
        ("A sentence that is far too long.", 12, "A sentence…"),
        ("Done." + LIST, 20, "Done."),
        ("", 20, "…"),
        (LIST, 20, "…"),
    ],
)
def test_a_key_fact_is_the_end_of_an_observation_in_whole_sentences(observation, max_chars, fact):
    assert key_fact(observation, max_chars) == fact
    assert len(fact) <= max_chars


@pytest.mark.parametrize(
    "name", ["full", "drop_admissible", "drop_observations(keep_last=3,fact_chars=9,memory_chars=70)"]
)
def test_a_policy_is_found_again_by_its_name(name):
    assert context_policy(name).name == name
    assert context_policy("drop_observations").name == "drop_observations(keep_last=4,fact_chars=80,memory_chars=1600)"


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("ful", "did you mean 'full'"),
        ("drop_observations(keep=3)", "keep_last"),
        ("drop_observations(keep_last=0)", "at least 1"),
        ("drop_observations(keep_last=many)", "at least 1"),
        ("full(keep_last=3)", "keep_last"),
        ("drop observations", "cannot be read"),
    ],
)
def test_a_policy_that_is_none_is_refused(name, complaint):
    with pytest.raises(ConfigError, match=complaint):
        context_policy(name)


class LongDays:
    """Answers every action with a long observation; over after `payload["n_turns"]` of them."""

    def reset(self, item, seed):
        self.n_turns, self.n_done = item.payload["n_turns"], 0
        return [Message("user", "w5 w6 w7 w8")]

    def act(self, action):
        self.n_done += 1
        commands = " ".join(f"w{3 + (i * self.n_done) % 30}" for i in range(20))
        return Step(f"w4 w4. w9 w{3 + self.n_done % 30}.\nAvailable actions: {commands}", self.n_done >= self.n_turns)

    def state(self):
        return {"answer": str(self.n_done)}


class Lasted:
    name, version = "lasted", "1"

    def score(self, item, rollout):
        return Score(float(rollout.answer == item.reference), f"{rollout.answer} turns")


def play_long(sampler, context: str):
    attempts = [Attempt(Item("a", Split.DEV, "", "60", {"n_turns": 60}), 0, 1)]
    settings = PlaySettings(SamplingSettings(max_tokens=6), max_turns=60, context=context)
    (record,) = play(attempts, sampler, LongDays, Lasted(), settings)
    return record


@pytest.mark.parametrize("context", ["drop_observations", "drop_observations(keep_last=2,memory_chars=400)"])
def test_sixty_turns_fit_where_without_a_policy_they_do_not(context):
    """1,024 tokens: the ablation runs into the end of the context, and is told so."""
    model = make_model(max_position_embeddings=1024)
    cut = play_long(HfSampler.from_model(model, make_tokenizer()), context)
    assert (cut.rollout.status, len(cut.rollout.turns), cut.score.value) == (RolloutStatus.COMPLETED, 60, 1.0)
    assert max(turn.prompt_tokens for turn in cut.rollout.turns) < 1024
    assert all("Available actions" in (turn.observation or "") for turn in cut.rollout.turns)  # the card has it all
    full = play_long(HfSampler.from_model(model, make_tokenizer()), "full")
    assert (full.rollout.fault, full.score.value) == (Fault.MODEL, 0.0)
    assert len(full.rollout.turns) < 60 and "leaves no room" in full.rollout.reason


def test_the_engine_sends_what_the_policy_says():
    prompts = []

    def remember(messages):
        prompts.append(list(messages))
        return "go"

    play_long(ScriptedSampler(remember), "drop_admissible")
    assert len(prompts) == 60
    assert [sum("Available" in m.content for m in prompt) for prompt in prompts] == [0] + [1] * 59
