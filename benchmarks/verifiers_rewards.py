"""A benchmark of ours as an environment of verifiers: what its own loop gives to right, wrong and useless answers.

    pip install verifiers==0.1.14      where agent2 is installed
    python benchmarks/verifiers_rewards.py mini_math [--items 6]
    python benchmarks/verifiers_rewards.py household_small --say look --items 2

Loads the environment as verifiers does, and evaluates it by its own loop against a server of this process which answers
with the reference, and then with other words. Prints mean reward, errors and messages of the model for both.
"""

import argparse
import json
import os
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "VERIFIERS_REWARDS_KEY"


def text_of(content: object) -> str:
    """Of a message, which may come in parts."""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)  # type: ignore[attr-defined]


def served(answer: Callable[[list[dict[str, Any]]], str]) -> ThreadingHTTPServer:
    """A server that answers chats by a function of their messages."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            message = {"role": "assistant", "content": answer(body["messages"])}
            reply = {
                "id": "reply",
                "object": "chat.completion",
                "created": 1,
                "model": body["model"],
                "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
                "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
            }
            encoded = json.dumps(reply).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(encoded)))
            self.end_headers()
            self.wfile.write(encoded)

        def log_message(self, *words: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def client_of(server: ThreadingHTTPServer) -> Any:
    """A client as the installed version takes it."""
    url = f"http://127.0.0.1:{server.server_port}/v1"
    os.environ[KEY] = "none"
    from verifiers.types import ClientConfig

    if "client_type" in getattr(ClientConfig, "model_fields", {}):
        return ClientConfig(api_key_var=KEY, api_base_url=url)
    from openai import AsyncOpenAI

    return AsyncOpenAI(base_url=url, api_key="none")


def main() -> None:
    """Print a line for each kind of answer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("--items", type=int, default=6)
    parser.add_argument("--say", default="I do not know.", help="the other words")
    arguments = parser.parse_args()
    import verifiers

    environment = verifiers.load_environment(
        "agent2.evaluation.verifiers_environment", name=arguments.name, n_items=arguments.items
    )
    keys = {text_of(row["prompt"][-1]["content"]): row["answer"] for row in environment.eval_dataset}
    kinds: dict[str, Callable[[list[dict[str, Any]]], str]] = {
        "the reference": lambda messages: keys.get(text_of(messages[-1]["content"])) or arguments.say,
        f"{arguments.say!r}": lambda messages: arguments.say,
    }
    for kind, answer in kinds.items():
        server = served(answer)
        played = environment.evaluate_sync(
            client=client_of(server), model="none", num_examples=arguments.items, rollouts_per_example=2
        )
        server.shutdown()
        states = played.get("outputs") or played["state"]
        rewards = [float(state["reward"]) for state in states]
        errors = [str(state["error"]) for state in states if state.get("error")]
        n_messages = sum(
            (message if isinstance(message, dict) else message.model_dump())["role"] == "assistant"
            for state in states
            for message in state["completion"]
        )
        print(
            f"{arguments.name}, {kind}: {len(rewards)} rollouts, mean reward {sum(rewards) / len(rewards):.3f}, "
            f"{n_messages} messages of the model, errors: {errors or 'none'}"
        )


if __name__ == "__main__":
    main()
