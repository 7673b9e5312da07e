"""Whether the files of an installed package are those that a bridge was written for."""

import hashlib
from pathlib import Path


def files_digest(folder: Path) -> str:
    """SHA-256 over paths and bytes of all files below a folder but compiled ones."""
    total = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            contents = hashlib.sha256(path.read_bytes()).hexdigest()
            total.update(f"{path.relative_to(folder).as_posix()} {contents}\n".encode())
    return total.hexdigest()


def require_unchanged(folder: Path, digest: str) -> None:
    """Raise RuntimeError if a package's files are others than the pinned ones."""
    if (actual := files_digest(folder)) != digest:
        raise RuntimeError(f"{folder.name} has other files than the pinned package (SHA-256 {actual[:16]}); install it")
