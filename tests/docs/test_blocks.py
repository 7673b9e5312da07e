"""Every code block of README and docs is run by a test, or says why not; `-s` prints the share."""

from collections import Counter

import pytest

from page_blocks import REPO, Block, all_blocks, blocks_of, shell_commands


def faults(block: Block) -> list[str]:
    """What is wrong with a block's mark."""
    if block.is_run is None:
        return [f"{block.place}: write <!-- run: TEST --> or <!-- not run: REASON --> on the line above"]
    if not block.is_run:
        return [] if len(block.said.split()) >= 3 else [f"{block.place}: {block.said!r} is no reason"]
    test = REPO / block.said
    if not (block.said.startswith("tests/") and test.is_file()):
        return [f"{block.place}: no test {block.said}"]
    words = test.read_text(encoding="utf-8")
    names = (f'"{block.page.rsplit("/", 1)[-1]}"', f"docs/{block.page.removeprefix('docs/')}", block.page)
    reads = any(name in words for name in names) or (block.page.startswith("docs/start/") and '"start"' in words)
    runs_an_example = block.text.startswith("python examples/") and test.stem.removeprefix("test_") in block.text
    return [] if reads or runs_an_example else [f"{block.place}: {block.said} does not read that page"]


def test_every_block_is_run_or_says_why_not(capsys):
    blocks = all_blocks()
    kinds = Counter(block.is_run for block in blocks)
    with capsys.disabled():
        print(f"\ncode blocks of README and docs: {len(blocks)}, run by tests: {kinds[True]}", end="")
        print(f" ({kinds[True] / len(blocks):.0%}), marked as not run: {kinds[False]}, unmarked: {kinds[None]}")
    assert [fault for block in blocks for fault in faults(block)] == []


@pytest.mark.parametrize(
    ("mark", "problem"),
    [
        ("", "write <!-- run"),
        ("<!-- run: tests/docs/test_nowhere.py -->\n", "no test"),
        ("<!-- run: README.md -->\n", "no test"),
        ("<!-- run: tests/docs/test_suites.py -->\n", "does not read that page"),
        ("<!-- not run: later -->\n", "is no reason"),
        ("<!-- not run -->\n", "write <!-- run"),
    ],
)
def test_a_block_without_an_honest_mark_is_found(mark, problem):
    (block,) = blocks_of("docs/cards.md", f"Text.\n\n{mark}```sh\nagent2 doctor\n```\n")
    (fault,) = faults(block)
    assert fault.startswith("docs/cards.md:") and problem in fault


@pytest.mark.parametrize("mark", ["run: tests/docs/test_cards.py", "not run: needs a GPU"])
def test_a_block_with_an_honest_mark_is_not(mark):
    (block,) = blocks_of("docs/cards.md", f"<!-- {mark} -->\n```sh\nagent2 doctor  # why\n\nagent2 \\\n eval\n```\n")
    assert faults(block) == []
    assert [command.split() for command in shell_commands(block.text)] == [["agent2", "doctor"], ["agent2", "eval"]]


def test_an_indented_or_unclosed_fence_hides_no_block():
    with pytest.raises(AssertionError, match=r"page\.md:1"):
        list(blocks_of("page.md", "  ```sh\n  agent2 doctor\n  ```\n"))
    with pytest.raises(AssertionError, match=r"page\.md:3: indented commands"):
        list(blocks_of("page.md", "To see it:\n\n    agent2 doctor --json\n"))
    with pytest.raises(ValueError, match="not in list"):
        list(blocks_of("page.md", "```sh\nagent2 doctor\n"))
