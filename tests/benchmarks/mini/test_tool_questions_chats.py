from agent2.benchmarks.mini.tool_questions import play_chat
from tool_builders import FIX, READ, REPO_ITEM, SUBMIT, call_text, repo_world


def script(*calls):
    return lambda messages: call_text(*calls[len(messages) // 2])


def test_a_chat_alternates_and_ends_with_the_players_last_message():
    chat = play_chat(repo_world(), REPO_ITEM, script(READ, FIX, SUBMIT), seed=0, max_turns=8)
    assert [message.role for message in chat] == ["user", "assistant"] * 3
    assert chat[0].content == REPO_ITEM.prompt
    assert chat[-1].content == call_text(*SUBMIT)


def test_a_chat_is_cut_at_the_turn_cap_behind_a_message_of_the_player():
    chat = play_chat(repo_world(), REPO_ITEM, script(READ, FIX, SUBMIT), seed=0, max_turns=2)
    assert [message.content for message in chat[1::2]] == [call_text(*READ), call_text(*FIX)]
    assert chat[-1].role == "assistant"
