"""Starts `transformers serve` on one folder, for the Python of its own environment (no import from agent2).

    python -P transformers_server.py serve FOLDER --port N --served-model-name NAME --dtype TYPE
        [--max-model-len N] [--chat-template FILE]

Its own command lists the models of a cache, asks for no key, takes no other chat template and does not refuse a prompt
that is longer than the model allows; these four are added to the server that it builds. Answers are its own.
"""

import argparse
import hmac
import os
from pathlib import Path
from typing import Any

KEY_VARIABLE = "TRANSFORMERS_SERVE_KEY"


def guard(app: Any, name: str, key: str) -> Any:
    """The application, for those who know the key; it lists one model."""
    from starlette.responses import JSONResponse

    async def answer_known(request: Any, call_next: Any) -> Any:
        authorization = request.headers.get("authorization", "")
        if not hmac.compare_digest(authorization.encode(), f"Bearer {key}".encode()):
            return JSONResponse({"error": {"message": "wrong key"}}, status_code=401)
        if request.url.path == "/v1/models":
            return JSONResponse({"data": [{"id": name}]})
        return await call_next(request)

    app.middleware("http")(answer_known)
    return app


def place_without_mark(folder: Path) -> Path:
    """The folder by a path without `@`, at which the server would cut a revision off; as long as this process lives."""
    if "@" not in str(folder):
        return folder
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    return Path(f"/proc/{os.getpid()}/fd/{descriptor}")


def serve(options: argparse.Namespace, key: str) -> None:
    """Serve until the process ends."""
    from fastapi import HTTPException
    from transformers.cli.serve import Serve
    from transformers.cli.serving import server
    from transformers.cli.serving.model_manager import ModelManager
    from transformers.cli.serving.utils import GenerateManager

    folder = place_without_mark(options.folder.resolve())
    name, limit = options.served_model_name, options.max_model_len
    template = options.chat_template.read_text(encoding="utf-8") if options.chat_template else None
    build, load_processor = server.build_server, ModelManager._load_processor
    generate = GenerateManager.generate_non_streaming

    def load_with_template(self: Any, *arguments: Any, **named: Any) -> Any:
        processor = load_processor(self, *arguments, **named)
        if template is not None:
            processor.chat_template = template
        return processor

    async def generate_within(self: Any, model: Any, processor: Any, inputs: Any, config: Any, **named: Any) -> Any:
        n_prompt, n_new = inputs["input_ids"].shape[-1], config.max_new_tokens
        if limit is not None and n_prompt + n_new > limit:
            raise HTTPException(
                400,
                f"This model's maximum context length is {limit} tokens. However, you requested {n_prompt + n_new} "
                f"tokens ({n_prompt} in the messages, {n_new} in the completion).",
            )
        return await generate(self, model, processor, inputs, config, **named)

    server.build_server = lambda *arguments, **named: guard(build(*arguments, **named), name, key)
    ModelManager.process_model_name = staticmethod(lambda model_id: f"{folder}@main")
    ModelManager._load_processor = load_with_template
    GenerateManager.generate_non_streaming = generate_within
    Serve(
        force_model=name,
        dtype=options.dtype,
        host="127.0.0.1",
        port=options.port,
        reasoning="auto",
        device="auto",
        attn_implementation=None,
        quantization=None,
    )


def main() -> None:
    """Read the flags and serve."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["serve"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--served-model-name", required=True)
    parser.add_argument("--dtype", required=True)
    parser.add_argument("--max-model-len", type=int)
    parser.add_argument("--chat-template", type=Path)
    serve(parser.parse_args(), os.environ[KEY_VARIABLE])


if __name__ == "__main__":
    main()
