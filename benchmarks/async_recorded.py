"""Write episodes of a lake as shapes for `lakeloop bench async`: `python -m benchmarks.async_recorded`.

It prints what `benchmarks/async_recorded.json` holds. The lake is that of LAKELOOP_HOME or LAKELOOP_LAKE. Per kind up to 150
training episodes that the policy played to an end, the same ones each time. An episode is [seconds outside of calls and
tools, then per call: tokens of its prompt that the call before it did not have, tokens sampled, seconds of its tools].
"""

import json

from lakehouse import connect

EPISODES = 150
CALLS = """
    with chosen as (
        select episode_id, problem_kind, duration_s
        from episodes
        where purpose = 'train' and status in ('ok', 'truncated', 'model_error')
        qualify row_number() over (partition by problem_kind order by md5(episode_id)) <= $1
    ),
    tools as (
        select call_id, sum(duration_s) as seconds from actions group by call_id
    ),
    steps as (
        select
            episode_id,
            call_index,
            latency_s,
            len(prompt_token_ids) as prompt,
            len(completion_token_ids) as tokens,
            coalesce(seconds, 0) as tool_s
        from calls
        left join tools using (call_id)
        where token_status = 'exact'
    )
    select problem_kind, episode_id, any_value(duration_s), sum(latency_s), sum(tool_s),
        list([prompt, tokens, tool_s] order by call_index)
    from chosen
    inner join steps using (episode_id)
    group by all
    order by all
"""


def write() -> None:
    """Print the file."""
    found: dict[str, list[object]] = {}
    with connect() as connection:
        for kind, _, seconds, asked_s, tools_s, calls in connection.execute(CALLS, [EPISODES]).fetchall():
            turns, before = [], 0
            for prompt, tokens, tool_s in calls:
                turns.append([max(1, int(prompt) - before), int(tokens), round(tool_s, 4)])
                before = int(prompt + tokens)
            found.setdefault(kind, []).append([round(max(0.0, seconds - asked_s - tools_s), 3), *turns])
    of = "episodes of policy `tiny` in a quickstart on two CPU cores; python -m benchmarks.async_recorded writes it"
    print(json.dumps({"of": of, "episodes": found}, separators=(",", ":")).replace("]],[", "]],\n["))


if __name__ == "__main__":
    write()
