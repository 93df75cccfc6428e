"""The operator's listing of sessions that are over: what an outside application's episodes are landed from."""

import pytest

USER = {"role": "user", "content": "hi"}


def operator(stack):
    return {"Authorization": f"Bearer {stack.gateway.operator_key}"}


async def test_closed_sessions_are_listed_by_number_until_they_are_pruned(start):
    async with start() as stack:
        sessions = [await stack.client.start_session(f"t{n}") for n in range(4)]
        await stack.openai(sessions[0]).chat.completions.create(model=stack.model, messages=[USER])
        await stack.client.set_reward(sessions[0], 1.0)
        for session in sessions[:3]:
            await stack.client.end_session(session)
        await stack.client.seal_sessions([sessions[1].session_id])
        listed = await stack.client.closed_sessions()
        assert [(row["task_id"], row["state"], row["rewards"]) for row in listed] == [
            ("t0", "ended", 1),
            ("t1", "sealed", 0),
            ("t2", "ended", 0),
        ]
        assert listed[0]["started_at"] < listed[0]["ended_at"] and listed[0]["reason"] == "ended by its owner"
        await stack.client.prune(sealed_for_s=0)
        assert [row["task_id"] for row in await stack.client.closed_sessions()] == ["t0", "t2"]


async def test_they_come_in_pages(start):
    async with start() as stack:
        for n in range(3):
            await stack.client.end_session(await stack.client.start_session(f"t{n}"))
        first = (await stack.http.get("/sessions?limit=2", headers=operator(stack))).json()
        assert [row["task_id"] for row in first["sessions"]] == ["t0", "t1"]
        rest = (await stack.http.get(f"/sessions?limit=2&after={first['next']}", headers=operator(stack))).json()
        assert [row["task_id"] for row in rest["sessions"]] == ["t2"] and rest["next"] is None


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "after=-1", "after=x", "order=n"])
async def test_a_listing_that_makes_no_sense_is_a_400_that_names_the_parameter(start, query):
    async with start() as stack:
        answer = await stack.http.get(f"/sessions?{query}", headers=operator(stack))
        assert answer.status_code == 400 and answer.json()["error"]["param"] == query.split("=")[0]


async def test_only_the_operator_lists_sessions(start):
    async with start() as stack:
        session = await stack.client.start_session("t")
        for key in (session.api_key, session.reward_key, ""):
            answer = await stack.http.get("/sessions", headers={"Authorization": f"Bearer {key}"} if key else {})
            assert answer.status_code == 401
