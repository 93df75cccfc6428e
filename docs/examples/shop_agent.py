"""A service agent in a shop with scripted customers: outside of Lakeloop, and judged by what the shop's books say afterwards.

python docs/examples/shop_agent.py --samples 4                # a model serves every customer four times
python docs/examples/shop_agent.py --agent expert             # demonstrations
python docs/examples/shop_agent.py --problems problems.jsonl  # no model: run the gates, write the problems' rows
"""

import argparse
import json
from collections.abc import Callable
from typing import Any

from openai import APIError, BadRequestError, OpenAI
from session import GATEWAY, MODEL, judge, post, start
from shop.customer import Customer
from shop.scenarios import SCENARIOS, Scenario
from shop.world import POLICY, Shop, schemas

TURNS = 14
Message = dict[str, Any]
Speaker = Callable[[list[Message]], Message]


def converse(case: Scenario, speaker: Speaker) -> Shop:
    """A conversation to its end: the case is closed, the customer leaves, or the turns are used up."""
    shop, customer = Shop(), Customer(case)
    messages: list[Message] = [{"role": "system", "content": POLICY}, {"role": "user", "content": case.opening}]
    for _ in range(TURNS):
        message = speaker(messages)
        messages.append(message)
        for call in message.get("tool_calls") or ():
            said = shop.call(call["function"]["name"], arguments_of(call["function"]["arguments"]))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": said})
        if shop.outcome is not None:
            break
        if not message.get("tool_calls"):
            answer = customer.answer(message["content"] or "")
            if answer is None:
                break
            messages.append({"role": "user", "content": answer})
    return shop


def arguments_of(text: str) -> dict[str, Any]:
    """A tool call's arguments; none where they are no JSON object, which the tool then says."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def plan(case: Scenario) -> list[Message]:
    """The expert's turns: ask, look, act, close."""
    acts = [("lookup_order", {"order": case.order}), *case.acts, ("close_case", {"outcome": case.outcome})]
    asks = ["What is your order number, and your e-mail address?", "Please tell me what happened."]
    asks += ["Where should it go?"] if case.address else []
    return [{"role": "assistant", "content": ask} for ask in asks] + [using(n, *act) for n, act in enumerate(acts)]


def using(number: int, tool: str, arguments: dict[str, Any]) -> Message:
    """A turn that uses a tool."""
    function = {"name": tool, "arguments": json.dumps(arguments)}
    calls = [{"id": f"call_{number}", "type": "function", "function": function}]
    return {"role": "assistant", "content": "", "tool_calls": calls}


def scripted(turns: list[Message]) -> Speaker:
    """Says these, one after the other, then nothing."""
    rest = iter(turns)
    return lambda _: next(rest, {"role": "assistant", "content": ""})


def through(session: dict[str, Any], turns: list[Message] | None) -> Speaker:
    """A model behind the gateway; with `turns`, these are recorded as if it had said them."""
    client = OpenAI(base_url=f"{GATEWAY}/v1", api_key=session["api_key"], max_retries=5)
    rest = iter(turns or [])

    def speak(messages: list[Message]) -> Message:
        extra = {} if turns is None else {"demonstration": next(rest)}
        answer = client.chat.completions.create(
            model=MODEL, messages=messages, tools=schemas(), max_tokens=256, extra_body=extra
        )
        said = answer.choices[0].message.model_dump(include={"role", "content", "tool_calls"}, exclude_none=True)
        return {"content": "", **said}

    return speak


def serve(case: Scenario, agent: str) -> None:
    """One episode. A model that cannot go on is judged by the books; a gateway that cannot is nobody's fault, so no reward."""
    session = start(case.problem_id, "demonstration" if agent == "expert" else "policy")
    shop = Shop()
    try:
        shop = converse(case, through(session, plan(case) if agent == "expert" else None))
    except BadRequestError as error:  # the context is full, or a budget spent
        print(error.message)
    except APIError as error:
        post("/rl/end_session", session["reward_key"], {})
        print(f"{session['session_id']}: no reward, {error.message}")
        return
    wrong = case.wrong(shop)
    judge(session, float(wrong is None), wrong or "the books are right")


def problem(case: Scenario) -> dict[str, Any]:
    """The row for `lakeloop problems import external`, with what the gates say now."""
    return {
        "problem_id": case.problem_id,
        "title": case.name,
        "prompt": case.opening,
        "difficulty": case.difficulty,
        "split": case.split,
        "oracle_passed": case.wrong(converse(case, scripted(plan(case)))) is None,
        "null_failed": case.wrong(converse(case, scripted([]))) is not None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agent", choices=["model", "expert"], default="model")
    names = [case.name for case in SCENARIOS]
    parser.add_argument(
        "--only", action="append", choices=names, metavar="NAME", help="a scenario's name; may be repeated"
    )
    parser.add_argument("--samples", type=int, default=1, help="episodes per scenario")
    parser.add_argument("--problems", help="write the rows of the problems to this file, and play nothing")
    given = parser.parse_args()
    chosen = [case for case in SCENARIOS if not given.only or case.name in given.only]
    if given.problems:
        with open(given.problems, "w") as file:  # noqa: PTH123 - a path as the user gave it
            file.writelines(json.dumps(problem(case)) + "\n" for case in chosen)
        return
    for case in chosen:
        for _ in range(given.samples):
            serve(case, given.agent)


if __name__ == "__main__":
    main()
