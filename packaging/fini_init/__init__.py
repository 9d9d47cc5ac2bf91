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
    if sys.platform != "linux":
        raise FileNotFoundError(f"it needs Linux, and this is {sys.platform}")
    given = binary or os.environ.get("FINI_BINARY")
    own = [given] if given else _packaged()
    for file in own if given else own + _on_path():
        if not _unusable(file):
            return os.path.abspath(file)
    if own:
        source = "binary" if binary else "FINI_BINARY" if given else "the wheel"
        raise FileNotFoundError(f"{source}: {own[0]} {_unusable(own[0])}")
    raise FileNotFoundError("the wheel's binary is missing: pip install --force-reinstall fini-init")


def _packaged() -> list[str]:
    """The binary that was installed with this module, and with no other of the same name that is on sys.path."""
    site = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    files = [str(f.locate()) for d in importlib.metadata.distributions(name="fini-init", path=[site]) for f in d.files or []]
    beside = os.path.join(site, "bin", "fini-init")  # pip install --target
    return [file for file in [*files, beside] if os.path.basename(file) == "fini-init" and os.path.exists(file)]


def _on_path() -> list[str]:
    """Without what execvp(3) takes for the working directory: that may be a stranger's checkout."""
    return [os.path.join(folder, "fini") for folder in os.environ.get("PATH", "").split(os.pathsep) if os.path.isabs(folder)]


def _unusable(file: str) -> str:
    if not os.path.exists(file):
        return "does not exist"
    if not os.path.isfile(file):
        return "is not a file"  # to open a FIFO waits for its writer
    if not os.access(file, os.X_OK):
        return "is not executable"
    return "" if _machine(file) == _machine("/proc/self/exe") != b"" else "is not a program for this machine"


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
    """What to start in the place of a command: fini with the command. Without a binary it is the command, unless required.

    Start it without a shell; in a shell line, put exec before it, or fini doesn't see your process exit.
    """
    global _said
    try:
        return Wrapped(path(binary), [*flags, "--", command, *args])
    except FileNotFoundError as error:
        if required:
            raise FileNotFoundError(f"fini: {error}") from error
        if not _said:
            print(f"fini: {error}: {command} runs without it", file=sys.stderr, flush=True)
        _said = True
        return Wrapped(command, list(args))
