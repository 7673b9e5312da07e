"""Merge an untrusted LoRA adapter into the base model, for evaluation.

An adapter's config is data here, not an instruction (`adapters.lora_settings`): the base model it names is ignored, and
no path, pattern or initialisation from it is ever followed. Weights are read from safetensors only.

Does NOT merge other adapter types than LoRA, and does not check that the result is a better model.
"""

import shutil
from pathlib import Path
from typing import Any

from peft import LoraConfig, PeftModel, set_peft_model_state_dict
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from agent2.errors import CheckpointError, shown
from agent2.models.adapters import lora_settings
from agent2.models.checkpoint import (
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    CONFIG,
    INDEX,
    SHARD_NAME,
    CheckpointInfo,
    inspect_checkpoint,
)
from agent2.models.loading import no_progress_bars, require_finite


def merge_adapter(adapter_dir: Path, base_dir: Path, out_dir: Path) -> CheckpointInfo:
    """Write base model + adapter as a whole checkpoint, with the base model's tokenizer and dtype.

    out_dir must not exist or be empty. Raises CheckpointError if the adapter does not fit the base model,
    is no LoRA, or holds numbers that are not finite.
    """
    adapter, base = inspect_checkpoint(adapter_dir), inspect_checkpoint(base_dir)
    if not adapter.is_adapter or base.is_adapter:
        raise CheckpointError(f"{adapter_dir}: an adapter and a whole base model ({base_dir}) are needed to merge")
    if out_dir.exists() and any(out_dir.iterdir()):
        raise CheckpointError(f"{out_dir}: is not empty; merge into a new folder")
    settings = lora_settings(adapter, base)
    require_finite(adapter)
    with no_progress_bars():
        model = AutoModelForCausalLM.from_pretrained(
            base_dir, dtype="auto", use_safetensors=True, trust_remote_code=False, local_files_only=True
        )
        _merge(model, adapter, settings).save_pretrained(out_dir)
    for name in base.files:
        if name not in (CONFIG, INDEX) and not SHARD_NAME.fullmatch(name):
            shutil.copyfile(base_dir / name, out_dir / name)
    merged = inspect_checkpoint(out_dir)
    require_finite(merged)
    return merged


def _merge(model: Any, adapter: CheckpointInfo, settings: dict[str, Any]) -> Any:
    """The model with the adapter's weights added in."""
    place = adapter.path / ADAPTER_CONFIG
    try:
        wrapped = PeftModel(model, LoraConfig(task_type="CAUSAL_LM", inference_mode=True, **settings))
        result = set_peft_model_state_dict(wrapped, load_file(adapter.path / ADAPTER_WEIGHTS))
    except Exception as error:  # boundary: untrusted settings can make the library raise anything
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise CheckpointError(f"{place}: the adapter does not fit the base model: {shown(reason)}") from error
    own_names = {name for name, _ in wrapped.named_parameters() if "lora_" in name or "modules_to_save" in name}
    lost = sorted(result.unexpected_keys) + sorted(own_names & set(result.missing_keys))
    if lost:
        raise CheckpointError(
            f"{place}: {len(lost)} adapter weights do not match the base model, the first is {lost[0]!r}; train the "
            "adapter on the base model that was given"
        )
    return wrapped.merge_and_unload()
