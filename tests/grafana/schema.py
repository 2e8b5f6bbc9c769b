"""Checks Grafana dashboards against the types of Grafana's Foundation SDK.

The SDK drops fields that it does not know and takes any value for those that it knows, so a dashboard is
decoded, every decoded value is compared with its declared type, and what comes out is compared with what
went in.
"""

import enum
import json
import sys
import types
import typing

from grafana_foundation_sdk.cog import encoder, plugins, runtime
from grafana_foundation_sdk.models import dashboard

# Panels and queries are declared as `object`, and decoded to what their type says.
plugins.register_default_plugins()


def mistyped(path, value, hint):
    """What is wrong with a decoded value of a declared type, as lines."""
    if hint in (typing.Any, object) or isinstance(hint, typing.TypeVar):
        if hasattr(value, "__annotations__"):
            yield from mistyped_fields(path, value)
        return
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        options = [list(mistyped(path, value, option)) for option in arguments]
        if all(options):
            yield min(options, key=len)[0]
    elif origin is typing.Literal:
        if value not in arguments:
            yield f"{path} is {value!r}, and not one of {arguments}"
    elif origin is list:
        if not isinstance(value, list):
            yield f"{path} is {value!r}, and no list"
            return
        for index, item in enumerate(value):
            yield from mistyped(f"{path}[{index}]", item, arguments[0])
    elif origin is dict:
        if not isinstance(value, dict):
            yield f"{path} is {value!r}, and no object"
            return
        for key, item in value.items():
            yield from mistyped(f"{path}.{key}", item, arguments[1])
    elif isinstance(hint, type) and issubclass(hint, enum.Enum):
        if value not in [member.value for member in hint]:
            yield f"{path} is {value!r}, and not one of {[member.value for member in hint]}"
    elif hint is float:
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            yield f"{path} is {value!r}, and no number"
    elif hint is int:
        if not isinstance(value, int) or isinstance(value, bool):
            yield f"{path} is {value!r}, and no whole number"
    elif hint is type(None) or isinstance(hint, type):
        if not isinstance(value, hint):
            yield f"{path} is {value!r}, and no {hint.__name__}"
        elif hasattr(value, "__annotations__"):
            yield from mistyped_fields(path, value)


def mistyped_fields(path, value):
    """The same for the fields of an object of the SDK."""
    for name, hint in typing.get_type_hints(type(value)).items():
        yield from mistyped(f"{path}.{name}", getattr(value, name), hint)


def lost(path, written, decoded):
    """What was written and is not in what was decoded: fields that the schema does not have."""
    if isinstance(written, dict) and isinstance(decoded, dict):
        for key, value in written.items():
            if key not in decoded:
                yield f"{path}.{key} is unknown"
            else:
                yield from lost(f"{path}.{key}", value, decoded[key])
    elif isinstance(written, list) and isinstance(decoded, list) and len(written) == len(decoded):
        for index, (one, other) in enumerate(zip(written, decoded)):
            yield from lost(f"{path}[{index}]", one, other)
    elif written != decoded:
        yield f"{path} is {written!r}, and was read as {decoded!r}"


def unknown_types(panels):
    """Panels of no known type, whose options nothing has looked at."""
    for panel in panels:
        if runtime.panelcfg_config(panel["type"]) is None:
            yield f"panel {panel['title']!r} is of the unknown type {panel['type']!r}"


def panels_overlap(panels):
    """Panels that lie on others, or beyond the 24 columns of a page."""
    taken = {}
    for panel in panels:
        at = panel["gridPos"]
        if at["x"] + at["w"] > 24:
            yield f"panel {panel['title']!r} is beyond the right edge"
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                other = taken.setdefault((x, y), panel["title"])
                if other != panel["title"]:
                    yield f"panel {panel['title']!r} lies on {other!r}"
                    return


def problems(written):
    """Everything that is wrong with a dashboard."""
    decoded = dashboard.Dashboard.from_json(written)
    yield from mistyped("dashboard", decoded, dashboard.Dashboard)
    yield from lost("dashboard", written, json.loads(encoder.JSONEncoder().encode(decoded)))
    yield from unknown_types(written["panels"])
    yield from panels_overlap(written["panels"])


def main():
    found = 0
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as file:
            for problem in problems(json.load(file)):
                print(f"{path}: {problem}", file=sys.stderr)
                found += 1
    sys.exit(1 if found or len(sys.argv) < 2 else 0)


if __name__ == "__main__":
    main()
