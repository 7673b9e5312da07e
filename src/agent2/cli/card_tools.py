"""`agent2 cards replay`, `compare` and `import`."""

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from agent2.cli.show import AsJson

SHOWN = 20
"""Most ids listed per group."""
CardArgument = Annotated[Path, typer.Argument(help="Folder of a card.")]


def replay(
    card: CardArgument,
    item: Annotated[str | None, typer.Option("--id", help="Item to replay; default: the rollout numbered --n.")] = None,
    attempt: Annotated[int, typer.Option(help="Which attempt at the item.")] = 0,
    n: Annotated[int, typer.Option("--n", help="Number of the rollout on the card, from 0.")] = 0,
    step: Annotated[bool, typer.Option("--step", help="Wait for Enter after each turn.")] = False,
) -> None:
    """Replay one rollout turn by turn, from the card alone."""
    from agent2.cards.reader import find_rollouts, read_header, read_page
    from agent2.cards.replay import scenes
    from agent2.cli.show import print_path, print_scene
    from agent2.errors import ConfigError

    header = read_header(card)
    if item is not None:
        found = [record for _, record in find_rollouts(card, item, attempt)]
        wanted = f"item {item!r} attempt {attempt}"
    else:
        found, wanted = read_page(card, n, 1) if n >= 0 else [], f"rollout {n}"
    if not found:
        raise ConfigError(f"{card}: has no {wanted}; agent2 cards show lists its rollouts")
    for scene in scenes(found[0], header.reporting):
        print_scene(scene.title, scene.text)
        if step:
            typer.prompt("press Enter to continue", default="", show_default=False, prompt_suffix="")
    print_path("card", card)


def compare(
    old: Annotated[Path, typer.Argument(help="Folder of the card before.")],
    new: Annotated[Path, typer.Argument(help="Folder of the card after.")],
    as_json: AsJson = False,
) -> None:
    """Explain a difference of two scores: learned or avoided failures, success or cost, process or changed rules."""
    from agent2.cards.compare import compare_cards
    from agent2.cli.show import print_json, print_path, print_table

    found = compare_cards(old, new)
    if as_json:
        print_json(found)
        return
    print_table(["question", "answer"], [[name, text] for name, text in found.answers().items()])
    groups = {
        "better": found.won,
        "worse": found.lost,
        "score only before": found.only_old,
        "score only after": found.only_new,
    }
    rows = [[kind, str(len(ids)), " ".join(ids[:SHOWN]) + (" …" * (len(ids) > SHOWN))] for kind, ids in groups.items()]
    print_table(["items", "n", "ids"], rows)
    print_path("cards", f"{old} and {new}")


def import_log(
    log: Annotated[Path, typer.Argument(help="inspect-ai .json/.eval, or lm-eval samples_*.jsonl.")],
    out: Annotated[Path, typer.Argument(help="Folder of the new card.")],
    metric: Annotated[
        str | None,
        typer.Option(help="Scorer or metric to use, or SCORER/KEY of one that gives several; default: the first."),
    ] = None,
    filter_name: Annotated[str | None, typer.Option("--filter", help="lm-eval filter to use.")] = None,
    split: Annotated[str, typer.Option(help="Split that the items belong to.")] = "test_public",
) -> None:
    """Make a card from another harness's log; assumptions about what the log omits are listed in the card."""
    from agent2.cards.imports.inspect_log import read_inspect
    from agent2.cards.imports.lm_eval_log import read_lm_eval
    from agent2.cards.imports.writing import write_foreign
    from agent2.cards.reader import read_header
    from agent2.cli.show import print_path
    from agent2.errors import ConfigError, unknown_name
    from agent2.records import Split

    if split not in list(Split):
        raise unknown_name("split", split, list(Split), "--split")
    is_lm_eval = log.suffix == ".jsonl"
    if filter_name is not None and not is_lm_eval:
        raise ConfigError("--filter: only samples of lm-eval have filters; remove it")
    foreign = read_lm_eval(log, metric, filter_name) if is_lm_eval else read_inspect(log, metric)
    summary = write_foreign(foreign, out, Split(split))
    value = "none" if summary.value is None else f"{summary.value:.4f} [{summary.low:.4f}, {summary.high:.4f}]"
    typer.echo(f"{foreign.scorer}: {value} over {summary.n_items} items, {summary.n_missing} rollouts missing")
    reasons = Counter(one.score.reason for one in foreign.rollouts if one.score.value is None)
    for reason, n in reasons.most_common(SHOWN):
        typer.echo(f"missing: {n} x {reason}")
    for line in read_header(out).lock["assumed"]:
        typer.echo(f"assumed: {line}")
    print_path("card", out)
