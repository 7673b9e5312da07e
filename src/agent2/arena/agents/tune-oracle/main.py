"""Puts a search on short runs first in the place of the one that stands still."""

import os
import shutil
from pathlib import Path


def main() -> None:
    """Copy the search."""
    target = Path(os.environ["WORKSPACE"]) / "code" / "search" / "search.py"
    shutil.copyfile(Path(__file__).with_name("search.py.txt"), target)
    print("tune-oracle: wrote search.py")


if __name__ == "__main__":
    main()
