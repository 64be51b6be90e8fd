"""Mutators of bytes, JSON, safetensors and compressed files, and replacements for files."""

from __future__ import annotations

import base64
import gzip
import json
import os
import random
import shutil
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

JUNK = (
    b"\0",
    b"\xff\xfe",
    b"\xc3",
    b"\r",
    b"\t",
    b"\n\n",
    b"\xe2\x80\xa8",
    b"\xef\xbb\xbf",
    b"\x1b]0;owned\x07",
    b"9" * 5000,
)
DEEP = 100_000
# In JSON syntax; Python's parser also accepts NaN and Infinity.
HOSTILE_JSON = (
    *(
        "null",
        "true",
        "0",
        "-1",
        "0.5",
        "1e308",
        "1e999",
        "NaN",
        "-Infinity",
        "1" + "0" * 30,
        "1" + "0" * 5000,
        "10000000",
        "8192",
    ),
    *(
        '""',
        "[]",
        "{}",
        "[1, 2, 3]",
        '{"a": 1}',
        '["a"]',
        '"../outside"',
        '"/dev/zero"',
        '"evilmod:Class"',
        '"unittest.__main__:x"',
    ),
    *('"."', '"é"', r'"\ud800"', r'"\u001b]0;owned\u0007"', r'"a\u0000b"', f'"{"x" * 1_000_000}"'),
    *("[" * DEEP + "]" * DEEP, '{"a":' * DEEP + "1" + "}" * DEEP),
)
SLOT = "the value that is replaced"
# Text of this length is treated as encoded data and mutated inside.
ENCODED = 200


class Mutation(NamedTuple):
    """The change of a file, and names of which an error must contain one."""

    text: str
    culprits: tuple[str, ...]


def mutate_bytes(data: bytes, dice: random.Random) -> tuple[bytes, str]:
    """Return mutated bytes and a description of the mutation."""
    start = dice.randrange(len(data) + 1)
    end = min(len(data), start + dice.choice((1, 2, 8, 64)))
    match dice.choice(("flip", "flip", "flip", "truncate", "cut", "insert", "insert", "repeat", "empty", "shuffle")):
        case "flip" if data:
            spoilt = bytearray(data)
            flips = [(dice.randrange(len(data)), 1 << dice.randrange(8)) for _ in range(dice.choice((1, 1, 3, 8)))]
            for position, bit in flips:
                spoilt[position] ^= bit
            return bytes(spoilt), f"bits flipped at {', '.join(str(position) for position, _ in flips)}"
        case "truncate":
            return data[:start], f"truncated to {start} bytes"
        case "cut":
            return data[:start] + data[end:], f"bytes {start} to {end} cut out"
        case "insert":
            junk = dice.choice(JUNK)
            return data[:start] + junk + data[start:], f"{junk[:12]!r} inserted at {start}"
        case "repeat":
            return data[:start] + data[start:end] * 3000 + data[end:], f"bytes {start} to {end} repeated"
        case "shuffle":
            return dice.randbytes(len(data)), "random bytes"
        case _:
            return b"", "emptied"


def mutate_json(text: str, dice: random.Random) -> tuple[str, str, tuple[str, ...]]:
    """Return a JSON text with one value replaced, removed or added.

    Also return a description, and the key with its old and new text.
    """
    document = json.loads(text)
    holder, key, path = dice.choice(list(entries(document)))
    keys, spot, value = (
        tuple(part for part in path if isinstance(part, str))[-1:],
        ".".join(map(str, path)),
        holder[key],
    )
    keys += (value,) if isinstance(value, str) and 2 < len(value) < ENCODED else ()
    match dice.choice(("replace", "replace", "replace", "replace", "remove", "add", "repeat")):
        case "remove":
            del holder[key]
            return json.dumps(document), f"{spot} removed", keys
        case "add" if isinstance(holder, dict):
            holder["unknown key"] = value
            return json.dumps(document), f"'unknown key' added beside {spot}", (*keys, "unknown key")
        case "repeat" if isinstance(value, list):
            holder[key] = value * 3
            return json.dumps(document), f"{spot} three times as long", keys
        case _ if isinstance(value, str) and len(value) > ENCODED:
            with suppress(ValueError):
                spoilt, done = mutate_bytes(base64.b64decode(value, validate=True), dice)
                holder[key] = base64.b64encode(spoilt).decode()
                return json.dumps(document), f"in {spot}: {done}", keys
    hostile = dice.choice(HOSTILE_JSON)
    holder[key] = SLOT
    keys += (hostile[1:-1],) if hostile.startswith('"') and 4 < len(hostile) < ENCODED else ()
    return json.dumps(document).replace(json.dumps(SLOT), hostile), f"{spot} = {hostile[:40]}", keys


def entries(value: Any, path: tuple[str | int, ...] = ()) -> Any:
    """Yield the container, key and path of every value; for long lists, only of those at the ends."""
    keys = list(value) if isinstance(value, dict) else [*range(len(value))][:3] + [*range(len(value))][3:][-1:]
    for key in keys:
        yield value, key, (*path, key)
        if isinstance(value[key], dict | list):
            yield from entries(value[key], (*path, key))


def mutate_safetensors(data: bytes, dice: random.Random) -> tuple[bytes, str]:
    """Return a safetensors file with a corrupt header length, header, or data."""
    size = struct.unpack("<Q", data[:8])[0]
    header, body = data[8 : 8 + size], data[8 + size :]
    match dice.choice(("length", "header", "header", "dtype", "numbers", "bytes")):
        case "length":
            length = dice.choice((0, 1, size - 1, size + 1, 10**8, 2**63, 2**64 - 1))
            return struct.pack("<Q", length) + header + body, f"a header of {length} bytes"
        case "header":
            text, done, _ = mutate_json(header.decode(), dice)
            return struct.pack("<Q", len(text.encode())) + text.encode() + body, f"header: {done}"
        case "dtype":
            dtype = dice.choice((b"I32", b"U32", b"F64", b"X32"))
            return data[:8] + header.replace(b"F32", dtype) + body, f"F32 called {dtype.decode()}"
        case "numbers":
            number, position = (
                dice.choice((float("nan"), float("inf"), -float("inf"), 3e38)),
                4 * dice.randrange(len(body) // 4),
            )
            return data[: 8 + size] + body[:position] + struct.pack("<f", number) + body[
                position + 4 :
            ], f"{number} at byte {position}"
    return mutate_bytes(data, dice)


def mutate_text(data: bytes, dice: random.Random, giant: int) -> tuple[bytes, str]:
    """Return corrupt lines, one of which may be `giant` bytes longer."""
    lines = data.splitlines(keepends=True) or [b""]
    row = dice.randrange(len(lines))
    match dice.choice(("bytes", "bytes", "bytes", "no tab", "giant", "giant", "empty lines", "one line", "numbers")):
        case "no tab":
            lines[row] = lines[row].replace(b"\t", b" ")
            return b"".join(lines), f"line {row + 1} without a tab"
        case "giant":
            length, unit = (
                dice.choice((min(2000, giant), min(2 * 10**6, giant), giant)),
                dice.choice((b"x", b"one ", b"a\tb ", b"1 ")),
            )
            lines[row] = lines[row].rstrip(b"\n") + unit * (length // len(unit)) + b"\n"
            return b"".join(lines), f"line {row + 1} has {length} bytes more"
        case "empty lines":
            return b"\n".join(lines), "an empty line after each"
        case "one line":
            return data.replace(b"\n", dice.choice((b"\r", b" ", b"\0"))), "no line feeds"
        case "numbers":
            number = dice.choice((b"1e999", b"nan", b"-1", b"9" * 30, b"9" * 5000, b"0"))
            lines[row] = b" ".join([number, *lines[row].split(b" ")[1:]]) + (b"" if b" " in lines[row] else b"\n")
            return b"".join(lines), f"line {row + 1} begins with {number[:12].decode()}"
    return mutate_bytes(data, dice)


def mutate_archive(data: Path, dice: random.Random) -> tuple[bytes, str]:
    """Return an .npz whose members have different names, sizes or compression."""
    with zipfile.ZipFile(data) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = dice.choice(sorted(members))
    match dice.choice(("bytes", "header", "header", "member", "name")):
        case "bytes":
            return mutate_bytes(data.read_bytes(), dice)
        case "header":
            shape = dice.choice(
                ("(10000000000,)", "(1000, 1000, 1000000)", "(-1,)", "()", "(0, 3, 5)", "[" * 5000, "(True,)", "(1e9,)")
            )
            kind = dice.choice(("<f4", "|O", "<c16", "<U9", "<M8[s]", "<f8", "|b1"))
            header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}}}\n".encode()
            done = f"{name} said to be {kind} {shape[:20]}"
            members[name] = b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header + members[name][128:]
        case "member":
            members[name], done = mutate_bytes(members[name], dice)
            done = f"{name}: {done}"
        case _:
            alias = dice.choice(("../outside.npy", "z.npy", "/x.npy", "x", ""))
            members[alias], done = members.pop(name), f"{name} called {alias!r}"
    spoilt = data.with_name("spoilt.npz")
    with zipfile.ZipFile(spoilt, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, content in members.items():
            archive.writestr(zipfile.ZipInfo(member), content)
    return spoilt.read_bytes(), done


def mutate_file(file: Path, dice: random.Random, giant: int = 10**7) -> Mutation:
    """Mutate a file according to the format of its extension."""
    data, keys = file.read_bytes(), ()
    if file.name.endswith(".gz"):
        if dice.random() < 0.5:
            spoilt, done = mutate_bytes(data, dice)
        else:
            with suppress(zlib.error):
                data = gzip.decompress(data)
            spoilt, done = mutate_text(data, dice, giant)
            spoilt, done = gzip.compress(spoilt, 1, mtime=0), f"unpacked: {done}"
    elif file.suffix == ".json" and dice.random() < 0.7:
        text, done, keys = mutate_json(data.decode(), dice)
        spoilt = text.encode(errors="surrogatepass")
    elif file.suffix == ".safetensors":
        spoilt, done = mutate_safetensors(data, dice)
    elif file.suffix == ".npz":
        spoilt, done = mutate_archive(file, dice)
    elif file.suffix in (".txt", ".tsv", ".jsonl", ".vec"):
        spoilt, done = mutate_text(data, dice, giant)
    else:
        spoilt, done = mutate_bytes(data, dice)
    file.write_bytes(spoilt)
    return Mutation(f"{file.name}: {done}", (file.name, *keys))


def replace_file(file: Path, canary: Path, dice: random.Random, *, may_block: bool = True) -> Mutation:
    """Replace a file or folder by something else.

    If a pipe is allowed in its place, a FIFO is not used, since waiting for it would be correct.
    """
    is_folder = file.is_dir() and not file.is_symlink()
    if is_folder:
        shutil.rmtree(file)
    else:
        file.unlink(missing_ok=True)
    actions: dict[str, Callable[[], object]] = {
        "a FIFO": lambda: os.mkfifo(file),
        "a link to /dev/zero": lambda: file.symlink_to("/dev/zero"),
        "a link to a file elsewhere": lambda: file.symlink_to(os.path.relpath(canary / "notes.txt", file.parent)),
        "a link to a folder elsewhere": lambda: file.symlink_to(
            os.path.relpath(canary / "photos", file.parent), target_is_directory=True
        ),
        "a link to itself": lambda: file.symlink_to(file.name),
        "a folder": lambda: file.mkdir(),
        "a file of a terabyte of nothing": lambda: (file.touch(), os.truncate(file, 10**12)),
        "nothing": lambda: None,
        "an empty file": lambda: file.touch(),
    }
    name = dice.choice(sorted(actions if may_block else actions.keys() - {"a FIFO"}))
    actions[name]()
    return Mutation(f"{file.name} is {name}", (file.name,))


def toml(tables: Mapping[str, Any], name: str = "") -> str:
    """Format nested tables of plain values as TOML, with numbers, strings and lists as in JSON."""
    inner = {key: value for key, value in tables.items() if isinstance(value, Mapping)}
    values = [f"{key} = {json.dumps(value)}" for key, value in tables.items() if key not in inner]
    tails = [toml(value, f"{name}.{key}" if name else key) for key, value in inner.items()]
    return "\n".join([*([f"[{name}]"] if name else []), *values, *tails])
