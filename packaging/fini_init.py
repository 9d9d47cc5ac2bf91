"""Where fini's binary is, for programs that start others by it."""

import importlib.metadata
import os
import sys
from typing import NamedTuple

_said = False


class Wrapped(NamedTuple):
    """A command and its arguments, as subprocess and MCP's SDK want them."""

    command: str
    args: list


def path():
    """The path of the binary. FileNotFoundError if there is none for this system."""
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "fini-init")  # pip install --target
    try:
        files = importlib.metadata.files("fini-init") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in [str(f.locate()) for f in files if f.name == "fini-init"] + [beside]:
        if os.access(file, os.X_OK):
            return os.path.abspath(file)
    raise FileNotFoundError("it needs Linux, and a wheel for this machine")


def wrap(command, args=(), flags=()):
    """What to start in the place of a command. Without a fini for this system it is the command."""
    global _said
    try:
        return Wrapped(path(), [*flags, "--", command, *args])
    except FileNotFoundError as error:
        if not _said:
            print(f"fini: {error}: {command} runs without it", file=sys.stderr, flush=True)
        _said = True
        return Wrapped(command, list(args))
