"""What agents really send, through the gateway: why each call that continues nothing exists, and who its episode's reward is for.

Each trace is a list of requests; the engine answers by what the last message says.
"""

import re

import pytest

SYSTEM = {"role": "system", "content": "You are a coding agent. Work in /repo."}
TASK = {"role": "user", "content": "Fix the failing test."}
SUMMARY = "So far: the test fails in parse(), because of an off-by-one in the loop over tokens."


def user(text):
    return {"role": "user", "content": text}


def tool(name):
    parameters = {"type": "object", "properties": {"task": {"type": "string"}}}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def answers(prompt):
    """What follows `say ` in the last message, or a number that no other prompt has."""
    last = prompt.rpartition("<|im_start|>")[0].rpartition("<|im_start|>")[2]
    found = re.search(r"say (.*?)<\|im_end\|>", last, re.DOTALL)
    return found[1] if found else f"answer {len(prompt)}"


class Trace:
    """One session and what it was told."""

    def __init__(self, stack, session):
        self.stack, self.session = stack, session

    async def ask(self, *messages, **more):
        answer = await self.stack.openai(self.session).chat.completions.create(
            model=self.stack.model, messages=list(messages), **more
        )
        return answer.choices[0].message.model_dump(exclude_none=True)

    async def reasons(self):
        return [row.fork_reason for row in await self.stack.rows(self.session)]

    async def rewarded(self):
        """Indices of the calls that an episode's reward reaches."""
        await self.stack.client.set_reward(self.session, 1.0, scope="episode")
        rows = await self.stack.client.export(self.session.session_id)
        return [n for n, row in enumerate(rows.values()) if row["rewards"]]


@pytest.fixture
async def trace(start):
    async with start(answers) as stack:
        yield Trace(stack, await stack.client.start_session("t"))


async def test_a_second_sending_of_an_answered_prompt_is_a_retry(trace):
    first = await trace.ask(SYSTEM, TASK)
    await trace.ask(SYSTEM, TASK, first, user("go on"))
    again = await trace.ask(SYSTEM, TASK, first, user("go on"))
    await trace.ask(SYSTEM, TASK, first, user("go on"), again, user("and?"))
    assert await trace.reasons() == ["root", None, "retry", None]


async def test_parallel_subagents_with_a_system_message_of_their_own(trace):
    plan = await trace.ask(SYSTEM, TASK)
    helper = {"role": "system", "content": "You search a code base."}
    for part in ("the parser", "the lexer"):
        found = await trace.ask(helper, user(f"Look into {part}"))
        await trace.ask(helper, user(f"Look into {part}"), found, user("be brief"))
    await trace.ask(SYSTEM, TASK, plan, user("both looked: it is the parser"))
    assert await trace.reasons() == ["root", "subagent", None, "subagent", None, None]
    assert await trace.rewarded() == [0, 5]


async def test_a_subagent_under_the_same_system_message_is_known_by_the_tool_call_that_gave_it_its_task(start):
    task = "Read every file in /repo/parser and report each loop."
    call = {"id": "c1", "type": "function", "function": {"name": "delegate", "arguments": f'{{"task": "{task}"}}'}}
    asked = {"role": "assistant", "content": "", "tool_calls": [call]}

    def replies(prompt):
        return asked if prompt.count("<|im_start|>user") == 1 and "Fix" in prompt else "done"

    async with start(replies) as stack:
        trace = Trace(stack, await stack.client.start_session("t"))
        turn = await trace.ask(SYSTEM, TASK, tools=[tool("delegate")])
        given = turn["tool_calls"][0]
        await trace.ask(SYSTEM, user(task), tools=[tool("delegate")])
        result = {"role": "tool", "tool_call_id": given["id"], "content": "three loops"}
        await trace.ask(SYSTEM, TASK, turn, result, tools=[tool("delegate")])
        assert await trace.reasons() == ["root", "subagent", None]
        assert await trace.rewarded() == [0, 2]


async def test_a_critic_that_is_shown_an_answer_is_a_subagent(trace):
    await trace.ask(SYSTEM, user(f"say {SUMMARY}"))
    await trace.ask({"role": "system", "content": "You review."}, user(f"Is this right? {SUMMARY}"))
    assert await trace.reasons() == ["root", "subagent"]


async def test_a_compaction_that_keeps_the_head_and_the_last_turns(trace):
    one = await trace.ask(SYSTEM, TASK)
    two = await trace.ask(SYSTEM, TASK, one, user("output 1"))
    three = await trace.ask(SYSTEM, TASK, one, user("output 1"), two, user("output 2"))
    four = await trace.ask(SYSTEM, TASK, user("[earlier turns left out]"), three, user("output 3"))
    await trace.ask(SYSTEM, TASK, user("[earlier turns left out]"), three, user("output 3"), four, user("output 4"))
    assert await trace.reasons() == ["root", None, None, "compaction", None]
    assert await trace.rewarded() == [0, 1, 2, 3, 4]


async def test_a_compaction_into_a_summary_that_the_model_wrote(trace):
    one = await trace.ask(SYSTEM, TASK)
    two = await trace.ask(SYSTEM, TASK, one, user("output 1"))
    await trace.ask(SYSTEM, TASK, one, user("output 1"), two, user(f"Summarise: say {SUMMARY}"))
    await trace.ask(SYSTEM, user(f"This goes on from an earlier conversation. {SUMMARY} Go on."))
    assert await trace.reasons() == ["root", None, None, "compaction"]
    assert await trace.rewarded() == [0, 1, 2, 3]


async def test_a_compaction_that_rewrites_the_system_message(trace):
    one = await trace.ask(SYSTEM, TASK)
    two = await trace.ask(SYSTEM, TASK, one, user("output 1"))
    noted = {"role": "system", "content": SYSTEM["content"] + " Notes: the parser is wrong."}
    await trace.ask(noted, two, user("output 2"))
    assert await trace.reasons() == ["root", None, "compaction"]
    assert await trace.rewarded() == [0, 1, 2]


async def test_old_results_cut_in_the_middle_of_the_history_are_a_compaction(trace):
    one = await trace.ask(SYSTEM, TASK)
    two = await trace.ask(SYSTEM, TASK, one, user("a long output " * 20))
    await trace.ask(SYSTEM, TASK, one, user("a long output [cut]"), two, user("output 2"))
    assert await trace.reasons() == ["root", None, "compaction"]
    assert await trace.rewarded() == [0, 1, 2]


async def test_a_conversation_taken_up_at_an_earlier_point_after_it_moved_on_is_a_branch(trace):
    one = await trace.ask(SYSTEM, TASK)
    two = await trace.ask(SYSTEM, TASK, one, user("try this"))
    await trace.ask(SYSTEM, TASK, one, user("try this"), two, user("and this"))
    await trace.ask(SYSTEM, TASK, one, user("no, try that"))
    rows = await trace.stack.rows(trace.session)
    assert [row.fork_reason for row in rows] == ["root", None, None, "other"]
    assert rows[3].parent_call_id == rows[0].call_id
    assert await trace.rewarded() == [0, 1, 2]


async def test_a_conversation_handed_whole_to_another_agent_is_other_and_its_line_goes_on(trace):
    one = await trace.ask(SYSTEM, TASK)
    await trace.ask({"role": "system", "content": "You write the patch."}, TASK, one, user("now patch"))
    assert await trace.reasons() == ["root", "other"]
    assert await trace.rewarded() == [0, 1]


async def test_an_unrelated_conversation_is_other_and_takes_no_part_in_the_episodes_reward(trace):
    await trace.ask(SYSTEM, TASK)
    await trace.ask(SYSTEM, user("Something else entirely."))
    assert await trace.reasons() == ["root", "other"]
    assert await trace.rewarded() == [0]
