"""Where fini's binary is, for programs that start others by it."""

from __future__ import annotations

import importlib.metadata
import os
import sys
from typing import Iterator, NamedTuple, Sequence

_said = False


class Wrapped(NamedTuple):
    """A command and its arguments, as subprocess and MCP's SDK want them."""

    command: str
    args: list[str]


def path(binary: str | None = None) -> str:
    """The path of the binary: the given one, that of FINI_BINARY, of this wheel, or on PATH. Without one, FileNotFoundError."""
    binary = binary or os.environ.get("FINI_BINARY")
    for file in [binary] if binary else [*_packaged(), *_on_path()]:
        if os.access(file, os.X_OK):
            return os.path.abspath(file)
    raise FileNotFoundError(f"cannot execute {binary}" if binary else "it needs Linux, and a wheel for this machine")


def _packaged() -> list[str]:
    here = os.path.dirname(os.path.abspath(__file__))
    beside = os.path.join(os.path.dirname(here), "bin", "fini-init")  # pip install --target
    try:
        files = importlib.metadata.files("fini-init") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    return [str(f.locate()) for f in files if f.name == "fini-init"] + [beside]


def _on_path() -> Iterator[str]:
    """A fini on PATH. PyPI has another program of that name, which is no binary."""
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        try:
            with open(os.path.join(folder, "fini"), "rb") as file:
                if file.read(4) == b"\x7fELF":
                    yield file.name
        except OSError:
            pass


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
