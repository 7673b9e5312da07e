from agent2.llm.gemini import GeminiContent
from agent2.llm.messages import CallPart, ChatMessage, ResultPart, TextPart, ThoughtPart, picture_in

GEMINI = GeminiContent()
SCHEMA = {"properties": {"title": {"type": "string"}}}


def test_a_request_is_an_instruction_and_contents_of_parts():
    request = GEMINI.parse_request(
        {
            "systemInstruction": {"parts": [{"text": "You train."}]},
            "contents": [
                {"parts": [{"text": "go"}, {"inlineData": {"mimeType": "image/png", "data": "aGVsbG8="}}]},
                {"role": "model", "parts": [{"functionCall": {"name": "shell", "args": {"command": "ls"}}}]},
                {"role": "user", "parts": [{"functionResponse": {"name": "shell", "response": {"output": "a"}}}]},
            ],
            "tools": [{"functionDeclarations": [{"name": "shell", "parameters": {"properties": {"command": {}}}}]}],
            "generationConfig": {"responseSchema": SCHEMA},
        }
    )
    assert request.messages == (
        ChatMessage("system", (TextPart("You train."),)),
        ChatMessage("user", (TextPart("go"), picture_in("image/png", "aGVsbG8="))),
        ChatMessage("model", (CallPart("shell", {"command": "ls"}),)),
        ChatMessage("user", (ResultPart('{"output":"a"}'),)),
    )
    assert [(tool.name, dict(tool.properties)) for tool in request.tools] == [("shell", {"command": {}})]
    assert request.answer_schema == SCHEMA


def chunk(*parts, **more):
    return {"candidates": [{"content": {"role": "model", "parts": list(parts)}, **more}]}


def test_thought_and_answer_are_apart_whole_and_in_pieces():
    thought, text = {"text": "hm", "thought": True}, {"text": "42"}
    whole = GEMINI.parse_answer(chunk(thought, text, finishReason="STOP"))
    assert (whole.parts, whole.text, whole.stop) == ((ThoughtPart("hm"), TextPart("42")), "42", "STOP")
    pieces = [
        chunk({"text": "h", "thought": True}),
        chunk({"text": "m", "thought": True}),
        chunk({"text": "4"}),
        chunk({"text": "2"}, finishReason="STOP"),
    ]
    assert GEMINI.parse_answer(GEMINI.join_events(pieces)) == whole


def test_further_candidates_are_kept():
    body = {"candidates": [{"content": {"parts": [{"text": text}]}} for text in "ab"]}
    assert GEMINI.parse_answer(body).alternatives == ((TextPart("b"),),)
