"""broker.yaml: the settings of `craft2 broker` in a file."""

from __future__ import annotations

import textwrap
from collections.abc import Collection
from pathlib import Path
from typing import Any

import typer

from craft2.errors import Craft2Error

_NOT_IN_FILE = {"config", "with_stdin", "example_config", "help"}
_HEAD = """\
# Every setting of `craft2 broker`, with its default; `craft2 broker --example-config` prints this
# file. Remove a `#` to change one, and name the file: --config broker.yaml, or CRAFT2_CONFIG. Flags
# go before environment variables, and these before this file.
"""


class BadBrokerFile(Craft2Error):
    """A broker.yaml that cannot be used."""


def read_settings(path: Path, known: set[str], lists: Collection[str] = ()) -> dict[str, Any]:
    """The settings in a broker.yaml, by the names of the options, which are known. lists: those
    that take several values.

    Raises BadBrokerFile.
    """
    import msgspec

    try:
        found = msgspec.yaml.decode(path.read_bytes(), type=dict[str, Any] | None)
    except OSError as error:
        raise BadBrokerFile(
            f"{str(path)!r} cannot be read: {error.strerror}", "correct the path"
        ) from error
    except ValueError as error:
        raise BadBrokerFile(
            f"{str(path)!r} cannot be read: {error}", "write lines such as `port: 9092`"
        ) from error
    written = {name.replace("-", "_"): name for name in found or ()}
    settings = {name.replace("-", "_"): value for name, value in (found or {}).items()}
    for name in _NOT_IN_FILE & settings.keys():
        flag = name.replace("_", "-")
        raise BadBrokerFile(
            f"{str(path)!r} sets {written[name]}, which is only a flag",
            f"give --{flag} when you start the broker",
        )
    known = known - _NOT_IN_FILE
    unknown = sorted(written[name] for name in settings.keys() - known)
    if unknown:
        names = ", ".join(sorted(name.replace("_", "-") for name in known))
        raise BadBrokerFile(
            f"{str(path)!r} sets {', '.join(unknown)}, which no broker has", f"take from: {names}"
        )
    for name in lists:
        value = settings.get(name)
        if value is not None and not isinstance(value, list):
            setting = name.replace("_", "-")
            example = value if isinstance(value, str) else "name=value"
            raise BadBrokerFile(f"{setting} is a list, in {str(path)!r}", f"{setting}: [{example}]")
    return settings


_TEXT: tuple[tuple[type, ...], str] = ((str, int, float), "text")
_KINDS: dict[str, tuple[tuple[type, ...], str]] = {  # by how the type of an option begins
    "int": ((int, str), "a whole number"),
    "float": ((int, float, str), "a number"),
    "bool": ((bool, str), "true or false"),
    "path": ((str,), "a path"),
}


def check_setting(context: typer.Context, option: Any, value: object, path: Path) -> None:
    """Whether an option can have a value that a file gives it; None: its default. Raises
    BadBrokerFile: an option's own error would name the flag, and not the file."""
    found = (kind for begin, kind in _KINDS.items() if option.type.name.startswith(begin))
    types, kind = next(found, _TEXT)
    name = str(option.name).replace("_", "-")
    says = f"{str(path)!r} sets {name} to {value!r}"
    fix = f"correct it; what {name} may be: craft2 broker --help"
    values = value if isinstance(value, list) and option.multiple else [value]
    if any(type(one) not in types for one in values if value is not None):
        raise BadBrokerFile(f"{says}, and it takes {kind}", fix)
    try:
        option.type_cast_value(context, value)
    except typer.BadParameter as error:
        if "is not a valid" in error.message:  # with what the library calls such values
            raise BadBrokerFile(f"{says}, and it takes {kind}", fix) from None
        raise BadBrokerFile(f"{says}: {error.message.rstrip('.')}", fix) from None


def example_file(command: Any) -> str:
    """A broker.yaml with every setting of the command, all of them comments: it changes nothing."""
    parts = [_HEAD]
    for one in command.params:
        if one.name in _NOT_IN_FILE:
            continue
        lines = textwrap.wrap(one.help, 96)
        if one.envvar:
            lines.append(f"Variable: {one.envvar}")
        name = str(one.name).replace("_", "-")
        parts.append("\n".join([*(f"# {line}" for line in lines), f"#{name}:{_yaml(one)}\n"]))
    return "\n".join(parts)


def _yaml(option: Any) -> str:
    """The default, as it would be written."""
    if option.multiple:
        return " []"
    if option.default is None or callable(option.default):
        return ""
    text = str(option.default)
    return f" {text.lower() if isinstance(option.default, bool) else text}"
