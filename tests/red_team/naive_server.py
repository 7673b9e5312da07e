"""The fork server that one would write in an afternoon: a loop that forks where it is, or does not fork at all.

    python naive_server.py ORDERS ANSWERS fork|same MODULE...

ORDERS and ANSWERS are descriptors of pipes. An order is a line of JSON: a script, its arguments, and the file with its
standard input. The answer is what the script printed, as one line. The script runs with the server's user, files,
process numbers and descriptors; with `same` in the server's own interpreter.
"""

import importlib
import json
import os
import runpy
import sys
import traceback


def main(orders: int, answers: int, way: str, modules: list[str]) -> None:
    for name in modules:
        importlib.import_module(name)
    with os.fdopen(orders, "r") as lines:
        for line in lines:
            order = json.loads(line)
            output = order["input"] + ".out"
            if way == "same":
                play(order, output)
            elif (child := os.fork()) == 0:
                play(order, output)
                os._exit(0)
            else:
                os.waitpid(child, 0)
            with open(output, "rb") as file:
                os.write(answers, file.read().replace(b"\n", b" ") + b"\n")


def play(order: dict, output: str) -> None:
    kept = os.dup(1)
    for number, path, flags in ((0, order["input"], os.O_RDONLY), (1, output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)):
        descriptor = os.open(path, flags, 0o644)
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
    sys.argv = [order["script"], *order["arguments"]]
    try:
        runpy.run_path(order["script"], run_name="__main__")
    except BaseException:  # the next order has to be read
        traceback.print_exc()
    sys.stdout.flush()
    os.dup2(kept, 1)
    os.close(kept)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:])
