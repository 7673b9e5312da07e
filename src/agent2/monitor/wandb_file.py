"""Reads the `.wandb` file that Weights & Biases writes beside an offline run, without the wandb package.

The file is a log of records in blocks of 32 KiB, as LevelDB writes them: a file header, then chunks, each with
checksum, length and type; a record that does not fit into its block continues in the next one. A record is a Protocol
Buffers message. The numbers of the few fields that are read here are part of W&B's format
(`wandb/proto/wandb_internal.proto`), which earlier versions share. Checked with files of wandb 0.31.

Promises: a file that is still being written is read up to its last whole record; a damaged chunk is an error with its
place. Does NOT read system metrics, media, tables or the console.
"""

import json
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from agent2.errors import ConfigError
from agent2.records import JsonValue

BLOCK = 32 * 1024
MAGIC = b":W&B"
_FILE_HEADER = struct.Struct("<4sHB")
_CHUNK_HEADER = struct.Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_HISTORY, _ITEM, _KEY, _NESTED_KEY, _VALUE_JSON = 2, 1, 1, 2, 16
"""Field numbers: Record.history, HistoryRecord.item, and those of HistoryItem."""
_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5


def history_rows(path: Path, notes: list[str]) -> Iterator[dict[str, JsonValue]]:
    """What `wandb.log` was given, one row a step of W&B (`_step`); nested keys are joined with dots.

    notes: is told if the end of the file is not complete. Raises ConfigError if it is not a W&B file or is damaged.
    """
    for place, record in _records(path, notes):
        try:
            histories = [value for number, value in _fields(record) if number == _HISTORY]
            for history in histories:
                yield dict(_item(value) for number, value in _fields(history) if number == _ITEM)
        except (ValueError, IndexError) as error:
            raise ConfigError(
                f"{path}: the record at byte {place} cannot be read ({error}); copy the file again"
            ) from error


def _records(path: Path, notes: list[str]) -> Iterator[tuple[int, bytes]]:
    """(place, bytes) of each record."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); check the path") from error
    if data[: len(MAGIC)] != MAGIC:
        raise ConfigError(f"{path}: does not begin as a W&B file does; pass the `run-*.wandb` of an offline run")
    at, parts, began = _FILE_HEADER.size, list[bytes](), 0
    while at + _CHUNK_HEADER.size <= len(data):
        if BLOCK - at % BLOCK < _CHUNK_HEADER.size:  # too little for a header: filled up with zeros
            at += BLOCK - at % BLOCK
            continue
        checksum, length, kind = _CHUNK_HEADER.unpack_from(data, at)
        begin = at + _CHUNK_HEADER.size
        if begin + length > len(data):
            break
        chunk = data[begin : begin + length]
        if kind not in (_FULL, _FIRST, _MIDDLE, _LAST) or zlib.crc32(chunk, zlib.crc32(bytes([kind]))) != checksum:
            raise ConfigError(f"{path}: the chunk at byte {at} is damaged; copy the file again")
        if kind in (_FULL, _FIRST):
            parts, began = [], at
        parts.append(chunk)
        at = begin + length
        if kind in (_FULL, _LAST):
            yield began, b"".join(parts)
            parts = []
    if parts or at < len(data):
        notes.append(f"the file ends within a record (byte {began if parts else at}): the run is still being written")


def _item(message: bytes) -> tuple[str, JsonValue]:
    """Name and value of one logged quantity."""
    key, nested, text = "", list[str](), "null"
    for number, value in _fields(message):
        if number == _KEY:
            key = value.decode()
        elif number == _NESTED_KEY:
            nested.append(value.decode())
        elif number == _VALUE_JSON:
            text = value.decode()
    return ".".join(nested) or key, json.loads(text)


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """(number, bytes) of the fields of a message that have a length; numbers are passed over."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        number, kind = tag >> 3, tag & 7
        if kind == _LENGTH:
            length, at = _varint(message, at)
            if at + length > len(message):
                raise ValueError(f"field {number} is longer than its message")
            yield number, message[at : at + length]
            at += length
        elif kind == _VARINT:
            _, at = _varint(message, at)
        elif kind in (_EIGHT_BYTES, _FOUR_BYTES):
            at += 8 if kind == _EIGHT_BYTES else 4
        else:
            raise ValueError(f"field {number} is of the unknown type {kind}")


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """A number of variable length, and where the next byte is. Raises IndexError at the end of the message."""
    value, shift = 0, 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number has more than 64 bits")
