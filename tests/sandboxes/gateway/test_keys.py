"""Three secrets, each opening its own doors."""

import stat

import pytest

from sandboxes.gateway.keys import new_key, operator_key, same

USER = {"role": "user", "content": "hi"}


def test_the_operator_key_is_made_once_and_only_its_owner_can_read_it(tmp_path):
    path = tmp_path / "keys" / "operator"
    key = operator_key(path)
    assert operator_key(path) == key
    assert len(key) > 40
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(("text", "mode", "remedy"), [("", 0o600, "delete it"), ("k\n", 0o644, "chmod 600")])
def test_an_empty_or_open_operator_key_is_refused_with_the_remedy(tmp_path, text, mode, remedy):
    path = tmp_path / "operator"
    path.write_text(text)
    path.chmod(mode)
    with pytest.raises(ValueError, match=remedy):
        operator_key(path)


def test_an_empty_key_equals_nothing():
    assert not same("", "")
    assert same("a", "a")
    assert new_key("model") != new_key("model")


async def test_each_key_opens_only_its_own_routes(start):
    async with start() as stack:
        session = await stack.client.start_session("t")
        operator, chat = stack.gateway.operator_key, {"model": stack.model, "messages": [USER]}
        assert (await stack.post("/v1/chat/completions", session.api_key, chat)).status_code == 200
        for key in (session.reward_key, operator, "nonsense", ""):
            assert (await stack.post("/v1/chat/completions", key, chat)).status_code == 401
        assert (await stack.post("/rl/set_reward", session.reward_key, {"reward": 1})).status_code == 200
        for key in (session.api_key, operator, "nonsense", ""):
            assert (await stack.post("/rl/set_reward", key, {"reward": 1})).status_code == 401
        for key in (session.api_key, session.reward_key, "nonsense", ""):
            assert (await stack.post("/rl/start_session", key, {"task_id": "t"})).status_code == 401
            assert (await stack.post("/grant_capacity", key)).status_code == 401
            assert (
                await stack.post("/export_trajectories", key, {"session_id": session.session_id})
            ).status_code == 401
            headers = {"Authorization": f"Bearer {key}"} if key else {}
            path = f"/sessions/{session.session_id}/calls"
            assert (await stack.http.get(path, headers=headers)).status_code == 401


async def test_no_key_is_written_down_in_the_clear(start, tmp_path, caplog):
    async with start() as stack:
        session = await stack.client.start_session("t")
        await stack.openai(session).chat.completions.create(model=stack.model, messages=[USER])
        await stack.client.end_session(session)
    for path in (tmp_path / "gateway").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert session.api_key.encode() not in path.read_bytes()
        assert session.reward_key.encode() not in path.read_bytes()
    assert session.api_key not in caplog.text + repr(session)
