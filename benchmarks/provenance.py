"""Can children of a base model be told from models of other origin? Measured on models made here.

    python benchmarks/provenance.py [--folder DIR] [--out FILE]

Makes at least 12 real children of tiny-arithmetic and 12 foreign models of the same shapes (`provenance_models.py`; six
minutes on one core, those that are there already are kept), and copies in disguise. Prints for each what the audit says
and the figures behind it; then the separation of the two sides and both error rates with exact 95% intervals. Exit code
1 if a child is voided, a foreign model or a disguised copy is not, or the sides overlap.
"""

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from scipy.stats import binomtest

from agent2.integrity import Effect
from agent2.integrity.provenance import WeightComparison, compare_weights, provenance_check
from agent2.models.checkpoint import inspect_checkpoint
from provenance_models import KINDS, make_all

EMBEDDING = "model.embed_tokens.weight"
Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Row:
    """One model."""

    kind: str
    name: str
    relation: str
    effect: str
    """Void, flag, note, or empty."""
    lowest: float
    """Smallest correlation of a matrix."""
    median: float
    highest: float
    highest_in_layers: float
    """Embeddings left out."""
    kin_share: float
    moved: float
    """Median relative change."""
    changed: int
    """Numbers that differ, rounding aside."""


def _permuted(tensors: Tensors) -> Tensors:
    """Units of the feed-forward layers in another order: the same function."""
    order = torch.randperm(tensors["model.layers.0.mlp.gate_proj.weight"].shape[0])
    out = dict(tensors)
    for name, tensor in tensors.items():
        if "gate_proj" in name or "up_proj" in name:
            out[name] = tensor[order].contiguous()
        elif "down_proj" in name:
            out[name] = tensor[:, order].contiguous()
    return out


def _rotated_heads(tensors: Tensors) -> Tensors:
    """The embedding's dimensions, and so all that reads or writes them, in another order: the same function."""
    order = torch.randperm(tensors[EMBEDDING].shape[1])
    out = {}
    for name, tensor in tensors.items():
        if tensor.ndim == 1 or "o_proj" in name or "down_proj" in name:
            out[name] = tensor[order].contiguous()
        else:
            out[name] = tensor[:, order].contiguous()
    return out


def _one_changed(tensors: Tensors) -> Tensors:
    out = {name: tensor.clone() for name, tensor in tensors.items()}
    out[EMBEDDING][3, 5] += 0.5
    return out


DISGUISES: MappingProxyType[str, Callable[[Tensors], Tensors]] = MappingProxyType(
    {
        "bfloat16": lambda tensors: {name: tensor.bfloat16() for name, tensor in tensors.items()},
        "float16 and back": lambda tensors: {name: tensor.half().float() for name, tensor in tensors.items()},
        "one number changed": _one_changed,
        "times 1.5": lambda tensors: {name: tensor * 1.5 for name, tensor in tensors.items()},
        "times 1.5, bfloat16": lambda tensors: {name: (t * 1.5).bfloat16() for name, t in tensors.items()},
        "feed-forward units permuted": _permuted,
        "all dimensions permuted, bfloat16": lambda t: {n: v.bfloat16() for n, v in _rotated_heads(t).items()},
        "other names": lambda tensors: {name.replace("model.", "net."): tensor for name, tensor in tensors.items()},
    }
)


def measure(folder: Path, tell: Callable[[str], None]) -> list[Row]:
    """Every model against the base."""
    base_path = make_all(folder, tell)
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        torch.manual_seed(0)
        weights = load_file(base_path / "model.safetensors")
        for name, disguise in DISGUISES.items():
            target = Path(scratch) / name.replace(" ", "-")
            shutil.copytree(base_path, target)
            (target / "model.safetensors").unlink()
            save_file(disguise(weights), target / "model.safetensors")
            rows.append(_row("disguised", name, target, base_path))
        for kind, models in KINDS.items():
            rows += [_row(kind, name, folder / kind / name, base_path) for name in models]
    return rows


def _row(kind: str, name: str, path: Path, base_path: Path) -> Row:
    candidate, base = inspect_checkpoint(path), inspect_checkpoint(base_path)
    comparison: WeightComparison = compare_weights(candidate, base)
    findings = provenance_check(candidate, base, name).findings
    correlations = [m.correlation for m in comparison.matrices]
    return Row(
        kind,
        name,
        comparison.relation.value,
        findings[0].effect.value if findings else "",
        min(correlations),
        comparison.median_correlation,
        max(correlations),
        max(m.correlation for m in comparison.matrices if m.name != EMBEDDING),
        comparison.related_share,
        comparison.moved,
        comparison.n_changed,
    )


def main() -> int:
    """Make, measure, print, say whether the sides are apart."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where the models are kept; a temporary folder if not given")
    parser.add_argument("--out", type=Path, help="also write the numbers here, as JSON")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        rows = measure(folder, lambda name: print(f"making {name}", file=sys.stderr, flush=True))
    print(f"{'kind':<11}{'model':<34}{'relation':<17}{'effect':<7}{'lowest r':>9}{'median r':>9}", end="")
    print(f"{'kin':>6}{'moved':>9}{'changed':>9}")
    for row in rows:
        head = f"{row.kind:<11}{row.name:<34}{row.relation:<17}{row.effect:<7}{row.lowest:>9.4f}{row.median:>9.4f}"
        print(head + f"{row.kin_share:>6.2f}{row.moved:>9.3g}{row.changed:>9}")
    if arguments.out is not None:
        arguments.out.write_text(json.dumps([asdict(row) for row in rows], indent=1))
        print(arguments.out)
    return _conclude(rows)


def _conclude(rows: list[Row]) -> int:
    """Print separation and error rates; 1 if something is on the wrong side."""
    children, foreign, disguised = (
        [row for row in rows if row.kind == kind] for kind in ("children", "foreign", "disguised")
    )
    lowest_child, highest_foreign = min(row.median for row in children), max(abs(row.median) for row in foreign)
    print(f"\nmedian correlation: children from {lowest_child:.4f} on, foreign models up to {highest_foreign:.4f}")
    in_layers = max(row.highest_in_layers for row in foreign)
    print(
        f"single matrices: children from {min(row.lowest for row in children):.4f} on, foreign ones in layers up to "
        f"{in_layers:.4f}, embeddings included up to {max(row.highest for row in foreign):.4f}"
    )
    voided = [row.name for row in children if row.effect == Effect.VOID.value]
    passed = [row.name for row in foreign if row.effect != Effect.VOID.value]
    hidden = [row.name for row in disguised if row.effect != Effect.VOID.value]
    for label, wrong, n in (
        ("children voided", voided, len(children)),
        ("foreign models not voided", passed, len(foreign)),
    ):
        interval = binomtest(len(wrong), n).proportion_ci(method="exact")
        print(f"{label}: {len(wrong)} of {n}, 95% interval {interval.low:.2f} to {interval.high:.2f}")
    flagged = [row.name for row in children if row.effect == Effect.FLAG.value]
    print(f"children flagged: {len(flagged)} of {len(children)} {flagged}; disguised copies not voided: {hidden}")
    return int(bool(voided or passed or hidden) or lowest_child <= highest_foreign or not np.isfinite(lowest_child))


if __name__ == "__main__":
    sys.exit(main())
