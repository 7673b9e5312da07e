"""Finds the checkpoint that a user names, and opens a sampler of it.

    FOLDER                      a model in Hugging Face layout, or a LoRA adapter, played in this process; with an
                                encoder of pictures and a processor, it is shown pictures (`models.vision`)
    NAME                        a published model that is on this machine (`agent2 models get`), played likewise
    ENGINE:FOLDER               the same model, served by an inference engine that agent2 starts (`agent2.engines`)
    FILE.gguf                   a model in one file, in 4 bits or others, played by the engine `llama-cpp` as it is
    http(s)://HOST/v1#MODEL     an OpenAI-compatible endpoint
    scripted:FILE.py:FUNCTION   a Python function from chat to reply: an oracle, a heuristic, a test

`find_checkpoint` inspects what is named, so that a wrong name is an error before anything is played, and computes the
digests that a card needs; `open` loads or connects. A model in this process is accepted only if its folder is
complete (`models.checkpoint`); an adapter is merged into its base model when it is opened (`models.adapter_sources`),
and its digest covers both. Of an endpoint nothing but address and name is known: its digest names those, not
the weights, and `caveats` says so.

Runs the code of a scripted FILE unchecked.

`ScriptedSampler` answers at once with what a function returns, for tests, demos and overhead measurements. It has no
tokenizer: token counts are 0 unless the script returns whole completions. It does NOT sample: temperature and seed are
ignored.
"""

import hashlib
import importlib
import importlib.util
import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

import psutil

from agent2.engines.catalogue import AUTO, ENGINES, IN_PROCESS, LLAMA_CPP, VLLM, InferenceEngine, find_engine
from agent2.engines.environments import InstalledEnvironment, installed_engine, require_engine
from agent2.errors import CheckpointError, ConfigError, SamplerFailed, quoted
from agent2.files import why_no_folder
from agent2.foreign_files import MAX_TEXT_BYTES, read_limited
from agent2.llm.endpoints import Endpoint, EndpointOptions, public_url
from agent2.llm.served import ServedSampler
from agent2.models.adapter_sources import AdapterOnBase, find_base
from agent2.models.bases import ensure_base_model
from agent2.models.checkpoint import (
    NO_CHAT_TEMPLATE,
    PROCESSOR_FILES,
    CheckpointInfo,
    inspect_checkpoint,
    template_digest,
)
from agent2.models.gguf_files import GgufInfo, inspect_gguf, is_gguf
from agent2.models.published import PublishedRecipes, chat_models
from agent2.records import Completion, JsonValue, Message, Prompt, Sampler, SamplingSettings, digest_of

BY_SERVER = "by the server"
"""Stands for the chat template of an endpoint, which is not known here."""
PLAIN_TEMPLATE = (
    "{% for message in messages %}{{ message['role'].capitalize() }}: {{ message['content'] }}\n\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)
"""For base models without a chat template: each message after its role, a blank line between; the answer ends at the
model's own end token or the limit."""
PLAIN_DIGEST = f"plain-{template_digest(PLAIN_TEMPLATE)[:16]}"
"""Stands for `PLAIN_TEMPLATE` in the protocol, so that scores in another format are not compared."""
Reply = Callable[[Sequence[Message]], str | Completion]
"""From the chat so far to the next message, or to a whole completion (a fault, token counts)."""
MAX_FOLDERS = 3
"""Of a checkpoint's name that tells it from another one, its own folder included."""
SCRIPTED = "scripted:"
HF_SAMPLER = ("agent2.models.hf", "HfSampler")
"""Imported only when a model is opened, since it imports torch."""
VISION_SAMPLER = "agent2.models.vision"
"""Of models that see pictures; imported only when one is opened."""
ENGINE_SAMPLER = "agent2.engines.sampler"
"""Imported only when an engine is started."""
DTYPES = ("float32", "bfloat16", "float16")
"""Number formats of a model in this process; the keys of `loading.DTYPES`, which needs torch to be imported."""
GIB = 1 << 30
MEMORY_FACTORS = {"float32": 2.3}
"""Memory for opening a model, in sizes of its weights: in 32 bits they are laid out for the processor once more."""
OTHER_MEMORY_FACTOR = 1.25
ANSWER_TOKENS = 512
"""Tokens of prompt and answer that are counted for each answer before anything is played."""
CACHE_FACTOR = 1.5
"""The cache of keys and values grows by half at a time."""
MAX_IN_FLIGHT = 64
"""Requests at once to a model in this process, unless a setting says otherwise."""
SMALL_BYTES = 256 << 20
"""Up to this size nothing is checked: the libraries alone take more."""
FORMS = (
    "a FOLDER in Hugging Face layout, a name of `agent2 models list`, a FILE.gguf, http://HOST/v1#MODEL or "
    "scripted:FILE.py:FUNCTION"
)


class SourceKind(StrEnum):
    """Where completions come from."""

    HF = "hf"
    SERVED = "served"
    ENGINE = "engine"
    """Of a folder, through an inference engine in a process of its own."""
    SCRIPTED = "scripted"


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """How a checkpoint is loaded or queried; not part of its identity."""

    dtype: str = "float32"
    """Of a model in this process; one of `DTYPES`."""
    engine: str = IN_PROCESS
    """What plays folders: `hf`, this process; the name of an engine; `auto`, an engine where one is worth it."""
    device: str | None = None
    """Of a model in this process; None: CUDA where there is one, else the CPU."""
    max_in_flight: int | None = None
    """Requests at once to a model in this process; None: 64."""
    endpoint: EndpointOptions = field(default_factory=EndpointOptions)
    """How an endpoint is queried."""
    context_length: int | None = None
    """Most tokens of prompt and completion together; None: the model's own limit."""
    is_plain: bool = False
    """Render the messages for models in this process in the plain format of `PLAIN_TEMPLATE`, not their own."""
    keeps_tokens: bool = False
    """Whether a model in this process gives the text of each sampled token, so that a card can keep them."""
    top_logprobs: int = 0
    """How many of the likeliest tokens an endpoint is asked for at each position."""
    base: str | None = None
    """Folder of the base model of an adapter; None: what the adapter's config names."""


@dataclass(frozen=True, slots=True)
class CheckpointSource:
    """One checkpoint that can be played."""

    spec: str
    """As the user wrote it."""
    kind: SourceKind
    name: str
    """In reports and on cards."""
    digest: str
    """Of the folder's content; of address and model name; of the script."""
    chat_template_digest: str
    dtype: str
    opener: Callable[[], Sampler]
    caveats: tuple[str, ...] = ()
    """What is not known of the checkpoint, one sentence each."""
    merges: AdapterOnBase | None = None
    """The adapter and its base model, where that is what is played."""
    folder: Path | None = None
    """Where a model in this process is, whether it was named by folder or by name; None: there is none."""
    settings: LoadSettings = field(default_factory=LoadSettings)
    """How it is loaded or queried, to find it again elsewhere."""
    gives_likelihoods: bool = True
    """Whether it may compare given answers by their log-probabilities; of an endpoint only its server knows."""

    def open(self) -> Sampler:
        """A sampler of it. Raises CheckpointError or ConfigError if it cannot be loaded or reached."""
        return self.opener()


def find_checkpoint(spec: str, settings: LoadSettings | None = None) -> CheckpointSource:
    """The checkpoint that `spec` names. Raises ConfigError or CheckpointError if there is none."""
    settings = settings or LoadSettings()
    engine, separator, model = spec.partition(":")
    if separator and engine in ENGINES and not Path(spec).exists():
        spec, settings = model, replace(settings, engine=engine)
        if spec.startswith(("http://", "https://", SCRIPTED)):
            raise ConfigError(f"checkpoint {engine}:{spec!r}: an engine serves a FOLDER; leave {engine}: out")
    if spec.startswith(("http://", "https://")):
        return _served(spec, settings)
    if spec.startswith(SCRIPTED):
        return _scripted(spec)
    folder = Path(spec).expanduser()
    if is_gguf(folder):
        return _gguf(spec, folder, settings)
    if not folder.is_dir() and spec in chat_models():
        folder = ensure_base_model(spec, PublishedRecipes())
    if not folder.is_dir():
        raise ConfigError(f"checkpoint {spec!r}: {why_no_folder(folder)}; give {FORMS}")
    return _hf(spec, folder, settings)


def require_chat_template(source: CheckpointSource, advice: str) -> None:
    """Raise CheckpointError for a model without a chat template. advice: what to do instead."""
    if source.chat_template_digest == NO_CHAT_TEMPLATE:
        raise CheckpointError(f"{source.spec}: has no chat template, so no prompt can be made for it; {advice}")


def with_distinct_names(first: CheckpointSource, second: CheckpointSource) -> tuple[CheckpointSource, CheckpointSource]:
    """Both sources, renamed as `distinctly_named` does."""
    renamed = distinctly_named([first, second])
    return renamed[0], renamed[1]


def distinctly_named(sources: Sequence[CheckpointSource]) -> list[CheckpointSource]:
    """Sources in which no two different checkpoints have the same name.

    Folders of one name are told apart by those above them, as far as that takes (`sft/model`, `grpo/model`); others by
    a part of their digests.
    """
    rivals: dict[str, dict[str, CheckpointSource]] = {}
    for source in sources:
        rivals.setdefault(source.name, {}).setdefault(source.digest, source)
    names = {
        (name, digest): distinct
        for name, by_digest in rivals.items()
        for digest, distinct in zip(by_digest, _distinct_names(list(by_digest.values())), strict=True)
    }
    return [replace(source, name=names[source.name, source.digest]) for source in sources]


def _distinct_names(rivals: Sequence[CheckpointSource]) -> list[str]:
    """One for each of several checkpoints of the same name."""
    if len(rivals) == 1:
        return [rivals[0].name]
    places = [source.folder or Path(source.spec).expanduser() for source in rivals]
    parts = [(*place.resolve().parent.parts[1:], source.name) if place.exists() else ()
             for place, source in zip(places, rivals, strict=True)]  # fmt: skip
    for n in range(2, min(MAX_FOLDERS, *map(len, parts)) + 1):
        names = ["/".join(path[-n:]) for path in parts]
        if len(set(names)) == len(names):
            return names
    return [f"{source.name}-{source.digest[:8]}" for source in rivals]


def _hf(spec: str, folder: Path, settings: LoadSettings) -> CheckpointSource:
    info = inspect_checkpoint(folder)
    merges = find_base(info, settings.base) if info.is_adapter else None
    caveats = [f"{folder.name}: {note}" for note in info.notes]
    if merges is not None:
        caveats.append(merges.caveat)
    if settings.is_plain:
        caveats.append(_plain_caveat(folder))
    template = info.chat_template_digest if merges is None else merges.base.chat_template_digest
    engine = _chosen_engine(settings)
    if engine is not None:
        ready = require_engine(engine, f"checkpoint {spec!r}")
        caveats.append(f"{folder.name}: answered by {engine.name} {ready.version}, which {engine.differences}")
    return CheckpointSource(
        spec=spec,
        kind=SourceKind.HF if engine is None else SourceKind.ENGINE,
        name=folder.resolve().name,
        digest=info.content_digest if merges is None else merges.digest,
        chat_template_digest=PLAIN_DIGEST if settings.is_plain else template,
        dtype=settings.dtype if engine is None else engine.precision(settings.dtype, ready.version),
        opener=(
            (lambda: _open_in_memory(info, merges, settings))
            if engine is None
            else (lambda: _open_engine(engine, info, merges, settings))
        ),
        caveats=tuple(caveats),
        merges=merges,
        folder=folder,
        settings=settings,
        gives_likelihoods=engine is None or engine.gives_likelihoods,
    )


def _gguf(spec: str, file: Path, settings: LoadSettings) -> CheckpointSource:
    if settings.engine not in (IN_PROCESS, AUTO, LLAMA_CPP):
        raise ConfigError(
            f"checkpoint {spec!r}: engine {settings.engine} plays no GGUF file; leave the engine out, or unpack the "
            f"file to 32 bits: agent2 models convert {file} FOLDER"
        )
    engine = ENGINES[LLAMA_CPP]
    ready = require_engine(engine, f"checkpoint {spec!r}")
    info = inspect_gguf(file, engine, ready)
    caveats = [info.note, f"{file.name}: answered by {engine.name} {ready.version}, which draws with its own generator"]
    if settings.is_plain:
        caveats.append(_plain_caveat(file))
    return CheckpointSource(
        spec=spec,
        kind=SourceKind.ENGINE,
        name=file.stem,
        digest=info.content_digest,
        chat_template_digest=PLAIN_DIGEST if settings.is_plain else info.chat_template_digest,
        dtype=engine.precision(info.precision, ready.version),
        opener=lambda: _open_gguf(engine, ready, info, settings),
        caveats=tuple(caveats),
        settings=settings,
        gives_likelihoods=engine.gives_likelihoods,
    )


def _plain_caveat(model: Path) -> str:
    return f"{model.name}: prompts in the plain format ({PLAIN_DIGEST}), not in a chat template of its own"


def _chosen_engine(settings: LoadSettings) -> InferenceEngine | None:
    """The engine that plays folders; None: this process. Raises ConfigError for one that cannot be had."""
    if settings.engine == IN_PROCESS:
        return None
    if settings.engine != AUTO:
        return find_engine(settings.engine, "--set run.engine")
    best = ENGINES[VLLM]
    return best if installed_engine(best) is not None and _is_on_gpu(settings) else None


def _open_engine(
    engine: InferenceEngine, info: CheckpointInfo, merges: AdapterOnBase | None, settings: LoadSettings
) -> Sampler:
    """Start an engine on a folder, or on the merged model of an adapter."""
    whole = info if merges is None else merges.base
    ready = require_engine(engine, str(info.path))
    return serve_folder(engine, ready, info.path if merges is None else merges.merged(), whole, settings)


def serve_folder(
    engine: InferenceEngine,
    ready: InstalledEnvironment,
    folder: Path | AbstractContextManager[Path],
    whole: CheckpointInfo,
    settings: LoadSettings,
    logs: Path | None = None,
) -> Sampler:
    """Start an engine on a folder. whole: says its end tokens and its longest context. logs: as `EngineSettings`.

    Raises EndpointFailed if the engine does not start, ConfigError for what it cannot do.
    """
    own_limit = (whole.config.get("text_config") or whole.config).get("max_position_embeddings")
    module = importlib.import_module(ENGINE_SAMPLER)
    started = module.EngineSettings(
        engine=engine,
        dtype=settings.dtype,
        extra_body=engine.request_fields(_end_tokens(whole)),
        logs=logs,
        **_serving(settings, own_limit),
    )
    return cast(Sampler, module.EngineSampler(started, ready, folder))


def _open_gguf(engine: InferenceEngine, ready: InstalledEnvironment, info: GgufInfo, settings: LoadSettings) -> Sampler:
    """Start an engine on a GGUF file, which brings its own end tokens."""
    module = importlib.import_module(ENGINE_SAMPLER)
    served = _serving(settings, info.context_length)
    started = module.EngineSettings(engine=engine, dtype=info.precision, content_digest=info.content_digest, **served)
    return cast(Sampler, module.EngineSampler(started, ready, info.path))


def _serving(settings: LoadSettings, own_limit: object) -> dict[str, Any]:
    """What an engine is told of a run. own_limit: the model's longest context, if it says one."""
    limits = [limit for limit in (settings.context_length, own_limit) if isinstance(limit, int)]
    return {
        "max_length": min(limits) if limits else None,
        "capacity": settings.max_in_flight,
        "chat_template": PLAIN_TEMPLATE if settings.is_plain else None,
        "top_logprobs": settings.top_logprobs,
        "timeout_s": settings.endpoint.timeout_s,
    }


def _end_tokens(info: CheckpointInfo) -> list[int]:
    """The tokens that end an answer in this process, for a server that reads them from elsewhere; empty: unknown."""
    file = info.path / "generation_config.json"
    generation = json.loads(read_limited(file, MAX_TEXT_BYTES, follow=True)) if file.exists() else {}
    ids = generation.get("eos_token_id", info.config.get("eos_token_id"))
    listed = ids if isinstance(ids, list) else [ids]
    return [number for number in listed if isinstance(number, int)]


def _open_in_memory(info: CheckpointInfo, merges: AdapterOnBase | None, settings: LoadSettings) -> Sampler:
    """Open a model in this process where it fits into memory."""
    whole = info if merges is None else merges.base
    n_weights = sum(math.prod(tensor.shape) for tensor in whole.tensors.values())
    _require_memory(info.path, n_weights, whole.config, settings)
    if merges is not None:
        return _open_merged(merges, info.path, settings)
    if info.sees_pictures and not PROCESSOR_FILES.isdisjoint(info.files):
        return _open_vision(info.path, settings)
    try:
        return _open_hf(info.path, settings)
    except CheckpointError as error:
        if not info.sees_pictures:
            raise
        raise CheckpointError(
            f"{info.path}: the model sees pictures, and there is no processor "
            f"({' or '.join(sorted(PROCESSOR_FILES))}); save it beside the model (processor.save_pretrained). As "
            f"a model of texts alone: {error}"
        ) from error


def _require_memory(folder: Path, n_weights: int, config: Mapping[str, Any], settings: LoadSettings) -> None:
    """Raise CheckpointError before a model is loaded that the machine would be killed for."""
    number_bytes = 4 if settings.dtype == "float32" else 2
    n_bytes, available = n_weights * number_bytes, psutil.virtual_memory().available
    weights = MEMORY_FACTORS.get(settings.dtype, OTHER_MEMORY_FACTOR) * n_bytes
    n_answers = settings.max_in_flight or MAX_IN_FLIGHT
    answer = CACHE_FACTOR * ANSWER_TOKENS * _numbers_a_token(config) * number_bytes
    needed = weights + n_answers * answer
    if n_bytes <= SMALL_BYTES or needed <= available or _is_on_gpu(settings):
        return
    n_possible = min(n_answers - 1, int((available - weights) // answer)) if answer else 0
    fewer = f"give --set run.max_in_flight={n_possible}, " if n_possible >= 1 else ""
    raise CheckpointError(
        f"{folder}: its {n_weights / 1e6:.0f} million weights take about {weights / GIB:.1f} GiB of memory in "
        f"{settings.dtype}, and {n_answers} answers at once of {ANSWER_TOKENS} tokens each "
        f"{n_answers * answer / GIB:.1f} GiB; {available / GIB:.1f} GiB are free; {fewer}close other programs, use a "
        "larger machine, or serve it elsewhere and name it as http://HOST/v1#MODEL"
    )


def _numbers_a_token(config: Mapping[str, Any]) -> int:
    """Keys and values that a model keeps for one token of a sequence; 0 where its config does not say."""
    config = config.get("text_config") or config
    layers, heads = config.get("num_hidden_layers"), config.get("num_attention_heads")
    width = config.get("head_dim")
    if not width and isinstance(heads, int) and heads > 0 and isinstance(config.get("hidden_size"), int):
        width = config["hidden_size"] // heads
    key_heads = config.get("num_key_value_heads") or heads
    if not all(isinstance(number, int) for number in (layers, key_heads, width)):
        return 0
    return 2 * int(layers) * int(key_heads) * int(width)  # type: ignore[arg-type]


def _is_on_gpu(settings: LoadSettings) -> bool:
    if settings.device is not None:
        return settings.device != "cpu"
    return bool(importlib.import_module(HF_SAMPLER[0]).torch.cuda.is_available())


def require_whole_model(source: CheckpointSource) -> None:
    """Raise CheckpointError for an adapter, where a model is not played but read from its folder."""
    if source.merges is not None:
        raise CheckpointError(f"{source.spec}: contains an adapter; merge it into its base model and give that folder")


def _open_merged(merges: AdapterOnBase, folder: Path, settings: LoadSettings) -> Sampler:
    with merges.merged() as merged:
        return _open_hf(merged, settings, called=folder)


def _open_vision(folder: Path, settings: LoadSettings) -> Sampler:
    if settings.is_plain:
        raise ConfigError(f"{folder}: run.plain is for models of texts, and this one sees pictures; leave it out")
    module = importlib.import_module(VISION_SAMPLER)
    sampler = module.VisionSampler(
        folder,
        max_batch=settings.max_in_flight or module.MAX_BATCH,
        dtype=settings.dtype,
        device=settings.device or ("cuda" if module.torch.cuda.is_available() else "cpu"),
        context_length=settings.context_length,
    )
    sampler.returns_pieces = settings.keeps_tokens
    sampler.require_rendering()
    return cast(Sampler, sampler)


def _open_hf(folder: Path, settings: LoadSettings, called: Path | None = None) -> Sampler:
    """called: the folder that messages and cards name; None: the one that is loaded."""
    module = importlib.import_module(HF_SAMPLER[0])
    sampler = getattr(module, HF_SAMPLER[1])(
        folder,
        max_batch=settings.max_in_flight or MAX_IN_FLIGHT,
        dtype=settings.dtype,
        device=settings.device or ("cuda" if module.torch.cuda.is_available() else "cpu"),
        context_length=settings.context_length,
        chat_template=PLAIN_TEMPLATE if settings.is_plain else None,
    )
    sampler.returns_pieces = settings.keeps_tokens
    if called is not None:
        sampler.source = str(called)
    sampler.require_rendering()
    return cast(Sampler, sampler)


def _served(spec: str, settings: LoadSettings) -> CheckpointSource:
    url, _, model = spec.partition("#")
    shown_url = public_url(url)
    if not model:
        raise ConfigError(f"checkpoint {shown_url}: name the model after a #: {shown_url}#MODEL")
    options = settings.endpoint
    endpoint = Endpoint(
        url,
        model,
        max_in_flight=options.concurrency,
        timeout_s=options.timeout_s,
        max_tries=options.max_tries,
        extra_body=options.extra_body,
        native_tools=options.native_tools,
        top_logprobs=settings.top_logprobs,
    )
    caveats = [
        f"{model} is served at {shown_url}: which weights, chat template and precision answer is the server's word, "
        "and so is whether it samples with the seed that it is sent"
    ]
    if settings.context_length is not None:
        caveats.append(
            f"{model}: that prompt and completion together have at most {settings.context_length} tokens is for the "
            "server to keep; it is not checked here"
        )
    rendering = BY_SERVER
    if options.rendering:
        caveats.append(f"{model} was asked with {json.dumps(options.rendering, sort_keys=True)} beside the protocol")
        rendering = f"{BY_SERVER}, asked with {digest_of(options.rendering)[:16]}"
    return CheckpointSource(
        spec=f"{shown_url}#{model}",
        kind=SourceKind.SERVED,
        name=model.rstrip("/").rpartition("/")[2] or model,
        digest=digest_of([SourceKind.SERVED, shown_url, model]),
        chat_template_digest=rendering,
        dtype=BY_SERVER,
        opener=lambda: ServedSampler(endpoint),
        caveats=tuple(caveats),
        settings=settings,
    )


def _scripted(spec: str) -> CheckpointSource:
    file, separator, function = spec.removeprefix(SCRIPTED).rpartition(":")
    path = Path(file).expanduser()
    if not separator or not function.isidentifier() or path.suffix != ".py":
        raise ConfigError(f"checkpoint {spec!r}: write scripted:FILE.py:FUNCTION")
    try:
        source = read_limited(path, MAX_TEXT_BYTES, follow=True)
    except OSError as error:
        raise ConfigError(f"checkpoint {spec!r}: {path} cannot be read ({error.strerror}); check the path") from error
    return CheckpointSource(
        spec=spec,
        kind=SourceKind.SCRIPTED,
        name=function,
        digest=hashlib.sha256(source + function.encode()).hexdigest(),
        chat_template_digest=SourceKind.SCRIPTED,
        dtype=SourceKind.SCRIPTED,
        opener=lambda: ScriptedSampler(_load_function(path, function)),
        caveats=(f"{function} is a script; no model answered",),
        gives_likelihoods=False,
    )


def _load_function(path: Path, function: str) -> Reply:
    spec = importlib.util.spec_from_file_location(f"agent2_scripted_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path}: is not a Python file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        reply = getattr(module, function)
    except Exception as error:  # boundary: a user's script can raise anything
        raise ConfigError(f"{path}: cannot be run for {function!r}: {type(error).__name__}: {error}") from error
    if not callable(reply):
        raise ConfigError(f"{path}: {function!r} is not a function")
    return cast(Reply, reply)


class ScriptedSampler:
    """Answers each request with `reply(messages)`, as soon as it is submitted.

    More in flight would gain nothing: 64 worlds are enough to work side by side, and what is in flight for long costs
    the garbage collector time.
    """

    takes_pictures = True
    """Its function is given messages whole."""

    def __init__(self, reply: Reply, capacity: int = 64) -> None:
        self.capacity = capacity
        self._reply = reply
        self._done: dict[int, Completion] = {}

    def submit(self, request_id: int, prompt: Prompt, settings: SamplingSettings) -> None:
        """Answer the chat at once. Raises SamplerFailed for an id in flight and for token-id prompts."""
        if request_id in self._done:
            raise SamplerFailed(f"request {request_id} is in flight already; give each request a unique id")
        messages = [message for message in prompt if isinstance(message, Message)]
        if len(messages) != len(prompt):
            raise SamplerFailed("a scripted sampler reads messages, not token ids; submit a chat")
        reply = self._reply(messages)
        if not isinstance(reply, str | Completion):
            raise ConfigError(f"the scripted function returned {quoted(reply)}; return a str or a Completion")
        self._done[request_id] = Completion(reply) if isinstance(reply, str) else reply

    def collect(self) -> list[tuple[int, Completion]]:
        """All requests since the last call, in the order in which they came."""
        done = list(self._done.items())
        self._done.clear()
        return done

    def describe(self) -> dict[str, JsonValue]:
        """That no model was involved."""
        return {"kind": "scripted", "model": None}

    def close(self) -> None:
        """Forget what was not collected."""
        self._done.clear()
