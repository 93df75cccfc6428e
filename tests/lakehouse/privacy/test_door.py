"""What a policy lets through, and that what was found is nowhere in what is left."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakehouse.privacy import detect
from lakehouse.privacy.door import NO_TOKENIZER, admit
from lakehouse.query import query
from lakehouse.write import Writer

MAIL, TOKEN = "jane.doe@example.com", "ghp_" + "a1B2" * 9


def conversation(make, tokenizer, turns, **changes):
    """An episode whose calls go on from each other: (what is added to the prompt, what is answered) per turn."""
    calls, before, messages = [], [], []
    for index, (asked, answered) in enumerate(turns):
        prompt = before + tokenizer.encode(f"<|im_start|>user\n{asked}<|im_end|>\n<|im_start|>assistant\n").ids
        completion = tokenizer.encode(answered + "<|im_end|>").ids
        messages = [*messages, {"role": "user", "content": asked}]
        answer = {"role": "assistant", "content": answered}
        calls.append(
            make.call(
                prompt,
                completion,
                index=index,
                parent_call_id=f"c{index - 1}" if index else None,
                request_messages=json.dumps(messages),
                response_message=json.dumps(answer),
            )
        )
        messages = [*messages, answer]
        before = prompt + completion
    return make.batch(calls=calls, **changes)


def admitted(batch, lake):
    return admit(batch.episodes, batch.calls, batch.actions, batch.evidence, lake=lake)


def all_text(batch, tokenizer):
    """Everything that an admitted batch says, in text and in tokens."""
    rows = [*batch.episodes, *batch.calls, *batch.actions, *batch.evidence]
    ids = [call.prompt_token_ids + call.completion_token_ids for call in batch.calls]
    return "\n".join(
        [*(row.model_dump_json() for row in rows), *(tokenizer.decode(one, skip_special_tokens=False) for one in ids)]
    )


TURNS = [(f"I am {MAIL}, help", "Hello"), ("what is my address?", f"It is {MAIL}."), ("thanks", "Bye")]


def test_an_outside_application_is_masked_where_nobody_declared_anything_and_our_own_episodes_are_not(
    make, tokenizer, lake
):
    outside = conversation(make, tokenizer, TURNS, problem_kind="external")
    own = conversation(make, tokenizer, TURNS)
    assert MAIL not in all_text(admitted(outside, lake), tokenizer)
    assert MAIL in all_text(admitted(own, lake), tokenizer)
    assert not admitted(own, lake).redactions


def test_the_newest_declaration_of_a_source_holds_before_that_of_every_source(make, tokenizer, lake, declare):
    Writer(lake).put_problems([make.problem()])
    batch = conversation(make, tokenizer, TURNS)
    for source, privacy, kept in (
        ("*", "mask", False),
        ("made up", "allow", True),
        ("made up", "quarantine", False),
        ("made up", "allow", True),
    ):
        declare(source, privacy)
        found = admitted(batch, lake)
        assert (MAIL in all_text(found, tokenizer)) == kept
        assert bool(found.refused) == (privacy == "quarantine")


def test_masking_replaces_it_in_every_column_and_in_the_tokens_and_says_where(make, tokenizer, lake, declare):
    declare()
    batch = conversation(make, tokenizer, TURNS, error=f"ValueError: {TOKEN}")
    batch.actions[0] = batch.actions[0].model_copy(
        update={
            "arguments": r'{"to": "jane.doe\u0040example.com"}',
            "observation": f"sent to {MAIL}",
        }
    )
    batch.evidence[0] = batch.evidence[0].model_copy(
        update={"value": json.dumps({"note": f"of {MAIL}", "card": 4111111111111111})}
    )
    found = admitted(batch, lake)
    left = all_text(found, tokenizer)
    assert MAIL not in left and TOKEN not in left and "4111111111111111" not in left
    assert not detect.found(left)
    assert json.loads(found.actions[0].arguments) == {"to": "<redacted:email>"}
    assert json.loads(found.evidence[0].value) == {"note": "of <redacted:email>", "card": "<redacted:card>"}
    places = {(row.place, row.detector) for row in found.redactions}
    assert {
        ("episodes/error", "github_token"),
        ("calls/0/request_messages", "email"),
        ("calls/0/prompt_token_ids", "email"),
        ("calls/1/response_message", "email"),
        ("calls/1/completion_token_ids", "email"),
        ("actions/0/arguments", "email"),
        ("actions/0/observation", "email"),
        ("evidence/answer/value", "card"),
    } <= places
    assert not any(MAIL in row.model_dump_json() for row in found.redactions)


def test_masked_tokens_keep_the_chain_their_number_and_say_that_they_are_masked(make, tokenizer, lake, declare):
    declare()
    batch = conversation(make, tokenizer, TURNS)
    first, second, third = admitted(batch, lake).calls
    for parent, child in ((first, second), (second, third)):
        known = parent.prompt_token_ids + parent.completion_token_ids
        assert child.prompt_token_ids[: len(known)] == known
    assert first.redacted is None and third.redacted is None
    assert len(second.redacted) == len(second.completion_token_ids) == len(batch.calls[1].completion_token_ids)
    gone = [
        flag
        for flag, old, new in zip(
            second.redacted, batch.calls[1].completion_token_ids, second.completion_token_ids, strict=True
        )
        if old != new
    ]
    assert gone and all(gone)
    assert all((value == 0.0) == bool(flag) for value, flag in zip(second.logprobs, second.redacted, strict=True))
    assert 0 < sum(second.redacted) < len(second.redacted)
    assert tokenizer.decode(second.completion_token_ids, skip_special_tokens=True).startswith("It is")


def test_what_a_child_completes_is_masked_in_its_parent_and_in_the_parents_other_children(
    make, tokenizer, lake, declare
):
    """The address is cut in two by the border between a completion and the next prompt."""
    declare()
    start = tokenizer.encode("<|im_start|>user\nwrite to ").ids
    half, rest = tokenizer.encode("jane.doe@exam").ids, tokenizer.encode("ple.com now").ids
    other = tokenizer.encode(" what?").ids
    calls = [
        make.call(start, half, index=0),
        make.call(start + half + rest, [2], index=1, parent_call_id="c0"),
        make.call(start + half + other, [2], index=2, parent_call_id="c0"),
    ]
    one, two, three = admitted(make.batch(calls=calls), lake).calls
    known = one.prompt_token_ids + one.completion_token_ids
    assert sum(one.redacted) == len(half)
    assert two.prompt_token_ids[: len(known)] == known == three.prompt_token_ids[: len(known)]
    assert MAIL not in tokenizer.decode(two.prompt_token_ids)
    assert three.prompt_token_ids[len(known) :] == other


def test_without_a_tokenizer_nothing_gets_through_and_what_is_kept_of_it_is_no_content(make, tokenizer, lake, declare):
    declare()
    batch = conversation(make, tokenizer, TURNS, model_name="another")
    found = admitted(batch, lake)
    assert not (found.episodes or found.calls or found.actions or found.evidence)
    [row] = found.quarantine
    assert row.rule.startswith(NO_TOKENIZER) and "another" in row.rule
    assert row.payload is None and MAIL not in row.model_dump_json()
    assert list(found.refused) == [batch.episodes[0].episode_id]
    assert admitted(batch, lake).quarantine[0].quarantine_id == row.quarantine_id


def test_quarantine_refuses_what_has_something_and_lets_the_rest_through(make, tokenizer, lake, declare):
    declare(privacy="quarantine")
    bad = conversation(make, tokenizer, TURNS, subject="customer-17")
    good = conversation(make, tokenizer, [("hi", "Hello")], sample=1)
    found = admitted(bad + good, lake)
    assert [row.episode_id for row in found.episodes] == [good.episodes[0].episode_id]
    [row] = found.quarantine
    assert "email (1)" in row.rule and MAIL not in row.model_dump_json()
    assert row.payload == '{"subject":"customer-17"}'  # and nothing else


def test_problems_that_an_application_brings_are_looked_through_and_others_are_not(make, lake, declare):
    told = {"prompt": f"Ask {MAIL}.", "spec": json.dumps({"customer": MAIL})}
    outside, own = make.problem("shop/1", kind="external", source="shop", **told), make.problem("p", **told)
    Writer(lake).put_problems([outside, own])
    Writer(lake).put_problems([outside, own])
    rows = query("select prompt, spec from problems order by problem_id", lake).rows()
    assert rows == [
        (f"Ask {MAIL}.", json.dumps({"customer": MAIL})),
        ("Ask <redacted:email>.", '{"customer":"<redacted:email>"}'),
    ]
    declare("shop", "quarantine")
    Writer(lake).put_problems([make.problem("shop/2", kind="external", source="shop", **told)])
    [(rule, payload)] = query("select rule, payload from bronze.quarantine", lake).rows()
    assert "email (1)" in rule and payload is None
    assert query("select count(*) from bronze.problems", lake).item() == 2


def test_nothing_to_land_is_nothing_to_look_at(lake, declare):
    declare("made up")
    assert admit([], [], [], [], lake=lake).episodes == []


def test_detectors_that_cannot_run_stop_the_landing(make, tokenizer, lake, declare, monkeypatch):
    declare()
    monkeypatch.setitem(__import__("sys").modules, "lakehouse.privacy.secrets", None)
    with pytest.raises(detect.DetectorsMissing, match="nothing was written"):
        admitted(conversation(make, tokenizer, TURNS), lake)


WORDS = st.text("abc xyz 019.-\n\t\"'é日{}", max_size=12)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    parts=st.lists(
        st.tuples(WORDS, st.sampled_from([MAIL, TOKEN, "4111-1111-1111-1111", ""]), WORDS), min_size=1, max_size=4
    )
)
def test_whatever_stands_around_it_nothing_that_was_found_is_left(make, tokenizer, lake, parts):
    turns = [(f"{before} {thing} {after}", f"{after} {thing} {before}") for before, thing, after in parts]
    found = admitted(conversation(make, tokenizer, turns, problem_kind="external"), lake)
    left = all_text(found, tokenizer)
    assert not any(thing in left for thing in (MAIL, TOKEN, "4111-1111-1111-1111"))
    for parent, child in zip(found.calls, found.calls[1:], strict=False):
        known = parent.prompt_token_ids + parent.completion_token_ids
        assert child.prompt_token_ids[: len(known)] == known
