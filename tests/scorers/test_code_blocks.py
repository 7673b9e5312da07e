import time

import pytest

from agent2.scorers.code_blocks import code_blocks, code_of

ADD = "def add(a, b):\n    return a + b\n"


@pytest.mark.parametrize(
    "answer",
    [
        ADD,
        f"```python\n{ADD}```",
        f"```\n{ADD}```",
        f"```python\n{ADD}```\nOutput:\n```\n3\n```",
        f"```python\n{ADD}```\nExample:\n```python\nprint(add(1, 2))\n```",
        f"```python\n{ADD}```\nExample:\n```python\nresult = add(1, 2)\n```",
        f"First try:\n```python\ndef add(a, b):\n    return a - b\n```\nBetter:\n```python\n{ADD}```",
        f"~~~python\n{ADD}~~~",
        f"````python\n{ADD}````",
        f"```Python\n{ADD}```",
        f"``` {{.python}}\n{ADD}```",
        "1. So:\n   ```python\n   def add(a, b):\n       return a + b\n   ```\n",
        f"```python\n{ADD}",
        f"{ADD}```",
        f"```text\nplan\n```python\n{ADD}```",
        f"```python\n{ADD}```\n```bash\npython add.py\n```\n```json\n{{}}\n```",
        f"```python\nimport math\n```\nand\n```python\n{ADD}```\n```python\nassert add(1, 2) == 3\n```",
    ],
)
def test_the_program_is_the_block_that_defines_what_the_tests_call(answer):
    for names in ({"add"}, frozenset()):
        if "result = " in answer and not names:
            continue  # two blocks define something: only the tests tell which
        namespace = {}
        exec(code_of(answer, names), namespace)
        assert namespace["add"](1, 2) == 3


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ("```text\nno code\n```", ""),
        ("```python\n    return a + b\n```", "    return a + b\n"),  # the body that a prompt asked for
        ("```python\nx = 1\n```\n```python\nx = 2\n```", "x = 2\n"),
        ("```python\nprint(1)\n```\n```\n1\n```", "print(1)\n"),
        ("```\nx = 1\n", "x = 1\n"),
        ("```", ""),
        ("", ""),
    ],
)
def test_without_a_name_to_look_for_the_last_block_that_is_python_counts(answer, code):
    assert code_of(answer) == code


def test_blocks_have_their_language_and_lose_the_indentation_of_their_fence():
    blocks, before = code_blocks("So:\n  ```js\n  a\n    b\n  ```\n~~~\n```\n~~~")
    assert before == "So:"
    assert [(block.language, block.code) for block in blocks] == [("js", "a\n  b\n"), ("", "```\n")]
    assert code_blocks("none") == ([], None)


@pytest.mark.parametrize("text", ["```\n" * 100_000, "`" * 400_000, " " * 400_000 + "```", "a =" * 100_000])
def test_no_answer_takes_long(text):
    started = time.process_time()
    code_of(text, {"add"})
    assert time.process_time() - started < 10


@pytest.mark.parametrize(
    "line", ["```" + " " * 10**5 + "`", "~" * 10**5 + "`", "\t" * 10**5 + "```\t`", "`" * 10**5 + "x`"]
)
def test_a_long_line_is_read_once(line):
    started = time.process_time()
    assert code_of(line) == line
    assert time.process_time() - started < 10  # with backtracking over the spaces: minutes


def test_a_language_may_stand_behind_spaces_and_tabs():
    assert code_of("```\t python\nx = 1\n```") == "x = 1\n"
