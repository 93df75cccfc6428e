"""From sampled ids to a message."""

import pytest

from sandboxes.gateway.calls.reply import well_formed


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [('{"a": 1}', True), ("[1]", False), ("{", False), ('{"a": ' + "[" * 9000 + "]" * 9000 + "}", False)],
    ids=["object", "list", "cut off", "nested too deep"],
)
def test_arguments_that_are_no_readable_object_are_the_models_error_and_not_the_engines(arguments, wanted):
    call = {"id": "c", "type": "function", "function": {"name": "search", "arguments": arguments}}
    assert well_formed({"role": "assistant", "content": None, "tool_calls": [call]}) is wanted
