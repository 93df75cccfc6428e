"""Tokens that were sampled after a swap of weights and before its proof."""

import asyncio

import pytest

from sandboxes.gateway.client import GatewayUnavailable
from sandboxes.gateway.engines import proofs
from sandboxes.gateway.engines.labels import claimed, unproven
from sandboxes.gateway.engines.tokens import Completion

USER = {"role": "user", "content": "hi"}
SWAPPED, AGAIN = unproven(2), unproven(2)


@pytest.mark.parametrize(
    ("labels", "now", "known"),
    [
        (["1", SWAPPED], "2", ["1", "2"]),
        (["1", SWAPPED, "2"], None, ["1", "2", "2"]),
        (["1", SWAPPED], "-1", ["1", SWAPPED]),
        (["1", SWAPPED], "3", ["1", SWAPPED]),
        (["1", SWAPPED], None, ["1", SWAPPED]),
        ([SWAPPED, "-1", "2"], None, [SWAPPED, "-1", "2"]),
        ([SWAPPED, AGAIN], "2", [SWAPPED, "2"]),
    ],
    ids=[
        "proven",
        "proven in time",
        "not proven",
        "another",
        "nobody knows",
        "one that failed",
        "one that was done again",
    ],
)
def test_they_have_its_version_where_the_next_label_is_that_versions_number(labels, now, known):
    completion = Completion(spans=[(label, at, at + 1) for at, label in enumerate(labels)])
    completion.decide(now)
    assert completion.spans == [(label, at, at + 1) for at, label in enumerate(known)]


def test_no_two_swaps_have_one_label_and_other_labels_claim_nothing():
    assert SWAPPED != AGAIN
    assert (claimed(SWAPPED), claimed("2"), claimed("-1"), claimed("unproven-two-1"), claimed("unproven-2")) == (
        "2", None, None, None, None
    )  # fmt: skip


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("proof", "versions", "status"), [("2", {2}, "exact"), ("-1", {-2}, "missing")])
async def test_a_call_that_ends_before_the_proof_waits_for_what_it_says(start, stream, proof, versions, status):
    def reply(_):
        stack.engine.weight_version = SWAPPED
        return "hello there"

    async with start(reply) as stack:
        session = await stack.client.start_session("t")

        async def asked():
            answer = await stack.openai(session).chat.completions.create(
                model=stack.model, messages=[USER], stream=stream
            )
            return [chunk async for chunk in answer] if stream else answer

        call = asyncio.create_task(asked())
        await asyncio.sleep(0.6)
        assert not call.done()
        stack.engine.weight_version = proof
        await call
        [row] = await stack.rows(session)
        assert (set(row.weight_versions), row.token_status, row.status) == (versions, status, "ok")


async def test_a_proof_that_never_comes_leaves_them_unknown_and_the_engine_without_calls(start, monkeypatch):
    monkeypatch.setattr(proofs, "DECIDED_S", 0.3)

    def reply(_):
        stack.engine.weight_version = SWAPPED
        return "hello there"

    async with start(reply) as stack:
        session = await stack.client.start_session("t")
        await stack.openai(session).chat.completions.create(model=stack.model, messages=[USER])
        [row] = await stack.rows(session)
        assert (set(row.weight_versions), row.token_status) == ({-2}, "missing")
        [member] = stack.gateway.engines.members
        await member.look()
        with pytest.raises(GatewayUnavailable, match=r"deployment failed there.*are not proven"):
            await stack.client.start_session("t2")
