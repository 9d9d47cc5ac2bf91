"""Where fini's binary is, for programs that start others by it."""

from __future__ import annotations

import importlib.metadata
import os
import sys
from typing import NamedTuple, Sequence

_said = False


class Wrapped(NamedTuple):
    """A command and its arguments, as subprocess and MCP's SDK want them."""

    command: str
    args: list[str]


def path(binary: str | None = None) -> str:
    """The path of the binary: the given one, that of FINI_BINARY, of this wheel, or on PATH. Without one, FileNotFoundError."""
    given = binary or os.environ.get("FINI_BINARY")
    for file in [given] if given else [*_packaged(), *_on_path()]:
        if os.access(file, os.X_OK) and _machine(file) == _machine("/proc/self/exe"):
            return os.path.abspath(file)
    if given:
        raise FileNotFoundError(f"{'binary' if binary else 'FINI_BINARY'}: {given} is not a program for this machine")
    raise FileNotFoundError("it needs Linux, and a wheel for this machine")


def _packaged() -> list[str]:
    here = os.path.dirname(os.path.abspath(__file__))
    beside = os.path.join(os.path.dirname(here), "bin", "fini-init")  # pip install --target
    try:
        files = importlib.metadata.files("fini-init") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    return [str(f.locate()) for f in files if f.name == "fini-init"] + [beside]


def _on_path() -> list[str]:
    return [os.path.join(folder, "fini") for folder in os.environ.get("PATH", "").split(os.pathsep)]


def _machine(path: str) -> bytes:
    """The part of elf(5)'s header that names the machine. PyPI has another program called fini, which is no binary."""
    try:
        with open(path, "rb") as file:
            header = file.read(20)
    except OSError:
        return b""
    return header[:6] + header[18:]


def wrap(
    command: str,
    args: Sequence[str] = (),
    flags: Sequence[str] = (),
    *,
    required: bool = False,
    binary: str | None = None,
) -> Wrapped:
    """What to start in the place of a command: fini with the command. Without a binary it is the command, unless required."""
    global _said
    try:
        return Wrapped(path(binary), [*flags, "--", command, *args])
    except FileNotFoundError as error:
        if required:
            raise
        if not _said:
            print(f"fini: {error}: {command} runs without it", file=sys.stderr, flush=True)
        _said = True
        return Wrapped(command, list(args))
