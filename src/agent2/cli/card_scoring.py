"""`agent2 cards rescore` and `judge`: new verdicts on kept rollouts, without a model."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    pass

Settings = Annotated[
    list[str] | None, typer.Option("--settings", help="A setting of the scorer, NAME=VALUE; may be given again.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]


def rescore(
    card: Annotated[Path, typer.Argument(help="Folder of a finished card; it is not changed.")],
    scorer: Annotated[str | None, typer.Option(help="Name of the scorer; default: the benchmark's own.")] = None,
    settings: Settings = None,
    benchmark: Annotated[
        str | None,
        typer.Option(help="Benchmark that the card was played on; default: the one it names."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the new card; default: below rescored/.")] = None,
    as_json: Json = False,
) -> None:
    """Judge a card's rollouts again with another scorer; writes a new card, and no model is needed.

    What is counted of the same verdicts, and how, is `agent2 cards regrade`.
    """
    from agent2.benchmarks import load_benchmark
    from agent2.cards.reader import read_summary
    from agent2.cli.show import print_path, print_table, progress_bar, resumed_by_repeating
    from agent2.errors import ConfigError
    from agent2.evaluation.rescoring import benchmark_of, finished_header
    from agent2.evaluation.rescoring import rescore as rescore_card
    from agent2.scorers import load_scorer
    from agent2.stats.estimates import RAW

    given = read_settings(settings)
    if given and scorer is None:
        raise ConfigError("--settings: are those of a scorer; name it with --scorer")
    header = finished_header(card)
    source = load_benchmark(benchmark) if benchmark is not None else benchmark_of(card, header)
    judge = load_scorer(scorer, given) if scorer is not None else source.scorer()
    name = f"{judge.name}-v{judge.version}"
    target = out or _default_folder("rescored", f"{card.resolve().name}-{name}", [card], name, given)
    with progress_bar() as steps, resumed_by_repeating():
        new = rescore_card(
            card, target, judge, given, source, on_progress=lambda done, total: steps(f"scoring by {name}", done, total)
        )
    old = read_summary(card)
    moved = sum(old.item_scores[item] != value for item, value in new.item_scores.items())
    if as_json:
        _print_json(
            {
                "card": str(target),
                "from": str(card),
                "scorer": name,
                "settings": given,
                "old": old.score,
                "new": new.score,
                "n_items_moved": moved,
            }
        )
        return
    rows = [
        ["scorer", header.protocol.scorer, name],
        ["score [95%]", RAW.estimate(old.score), RAW.estimate(new.score)],
        ["rollouts without a score", str(old.n_missing), str(new.n_missing)],
        ["items moved", "", f"{moved} of {len(new.item_scores)}"],
    ]
    print_table(["", "before", "now"], rows)
    print_path("card", target)


def judge(
    old: Annotated[Path, typer.Argument(help="Folder of the baseline's card.")],
    new: Annotated[Path, typer.Argument(help="Folder of the card whose win rate is wanted.")],
    scorer: Annotated[str, typer.Option(help="Name of a pairwise scorer.")],
    settings: Settings = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the judgement card; default: below judged/.")] = None,
    as_json: Json = False,
) -> None:
    """Compare two cards item by item with a pairwise scorer, in both orders; writes a judgement card."""
    from agent2.cards.judgement import BASELINE, read_judgement
    from agent2.cli.show import print_path, print_table, progress_bar, resumed_by_repeating
    from agent2.evaluation.judging import judge_cards
    from agent2.scorers import load_scorer
    from agent2.stats.estimates import RAW

    given = read_settings(settings)
    referee: Any = load_scorer(scorer, given)
    name = f"{referee.name}-v{referee.version}"
    both = f"{new.resolve().name}-against-{old.resolve().name}-{name}"
    target = out or _default_folder("judged", both, [old, new], name, given)
    with progress_bar() as steps, resumed_by_repeating():
        judge_cards(
            old,
            new,
            target,
            referee,
            given,
            on_progress=lambda done, total: steps(f"judging by {name}", done, total),
        )
    found = read_judgement(target)
    if as_json:
        from dataclasses import asdict

        _print_json({"card": str(target), "baseline": BASELINE, **asdict(found)})
        return
    rate = RAW.estimate(found.win_rate)
    shown = "" if found.first_shown is None else f"{found.first_shown:.4f}"
    rows = [
        ["scorer", found.scorer],
        ["win rate of the new side [95%]", f"{rate}; {BASELINE} by definition if there is no difference"],
        ["wins, ties, losses", f"{found.n_wins}, {found.n_ties}, {found.n_losses}"],
        ["without a verdict", str(found.n_missing)],
        ["verdicts that turn with the order", str(found.n_flips)],
        ["points of the answer shown first", f"{shown}; 0.5 without position bias"],
    ]
    print_table(["", ""], rows)
    print_path("card", target)


def read_settings(given: Sequence[str] | None) -> dict[str, Any]:
    """NAME=VALUE pairs; values as YAML reads them. Raises ConfigError for another form, and for a name given twice."""
    import yaml

    from agent2.errors import ConfigError

    settings: dict[str, Any] = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier() or name in settings:
            raise ConfigError(f"--settings {text!r}: write NAME=VALUE, each name once")
        try:
            settings[name] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise ConfigError(f"--settings {text!r}: the value cannot be read; quote it") from error
    return settings


def _default_folder(below: str, name: str, cards: Sequence[Path], scorer: str, settings: Mapping[str, Any]) -> Path:
    """The same for the same cards, scorer and settings, so that the same command resumes."""
    from agent2.cards.folder import CARD_JSON, file_digest
    from agent2.records import digest_of

    parts = [[file_digest(card / CARD_JSON) if (card / CARD_JSON).exists() else "" for card in cards], scorer]
    return Path(below) / f"{name}-{digest_of([*parts, dict(settings)])[:8]}"


def _print_json(value: Mapping[str, Any]) -> None:
    import msgspec

    typer.echo(msgspec.json.encode(value))
