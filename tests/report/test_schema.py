"""The verdict's JSON Schema: real records validate, every field is in it, and nothing else is."""

from __future__ import annotations

import dataclasses
import importlib.resources
import json
import typing
from typing import Any

import jsonschema
import pytest

from kernelwright import records
from kernelwright.measure import records as timing
from kernelwright.records import Verdict, from_json, to_json

pytestmark = pytest.mark.tiny


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    text = importlib.resources.files("kernelwright").joinpath("schema/verdict-1.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def validator(schema: dict[str, Any]) -> jsonschema.Draft202012Validator:
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("name", ["everything", "correct"])
def test_a_verdict_validates_and_comes_back_equal(
    name: str, schema: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    verdict: Verdict = request.getfixturevalue(name)
    text = json.dumps(to_json(verdict), allow_nan=False)
    validator(schema).validate(json.loads(text))
    # NaN is not equal to itself, so what comes back is compared as JSON.
    assert json.dumps(to_json(from_json(Verdict, json.loads(text)))) == json.dumps(to_json(verdict))


def test_every_record_of_a_verdict_has_exactly_its_fields_in_the_schema(schema: dict[str, Any]) -> None:
    seen = set()
    queue: list[type] = [Verdict]
    while queue:
        kind = queue.pop()
        if kind in seen:
            continue
        seen.add(kind)
        described = schema if kind is Verdict else schema["$defs"][kind.__name__]
        names = {field.name for field in dataclasses.fields(kind)}
        assert set(described["properties"]) == names == set(described["required"]), kind
        assert described["additionalProperties"] is False
        queue += [inner for hint in typing.get_type_hints(kind).values() for inner in _records_in(hint)]
    objects = {name for name, value in schema["$defs"].items() if value.get("type") == "object"}
    assert objects == {kind.__name__ for kind in seen} - {"Verdict"}


def _records_in(hint: Any) -> list[type]:
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return [hint]
    return [inner for argument in typing.get_args(hint) for inner in _records_in(argument)]


def test_every_word_of_every_enum_is_allowed_and_no_other(schema: dict[str, Any]) -> None:
    for name, value in schema["$defs"].items():
        if "enum" in value:
            assert value["enum"] == [word.value for word in getattr(records, name, None) or getattr(timing, name)]


@pytest.mark.parametrize(
    "spoil",
    [
        {"verdict": "perhaps"},
        {"schema": "kernelwright.verdict/2"},
        {"surprise": 1},
        {"stages": [{"stage": "load"}]},
        {"seconds": "soon"},
    ],
)
def test_what_is_no_verdict_is_refused(correct: Verdict, schema: dict[str, Any], spoil: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        validator(schema).validate({**to_json(correct), **spoil})
