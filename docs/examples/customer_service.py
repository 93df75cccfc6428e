"""A customer-service agent that lives outside: OpenAI's Agents SDK, tools over an order book, a reward by its outcome."""

from contextlib import suppress

from agents import Agent, AgentsException, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI
from session import GATEWAY, MODEL, judge, start

ORDERS = {"4711": "a lamp, arrived broken", "4712": "a chair, on its way"}


@function_tool
def find_order(order: str) -> str:
    return ORDERS.get(order, "no such order")


@function_tool
def refund(order: str) -> str:
    ORDERS[order] = "refunded"
    return f"The money for {order} is on its way."


set_tracing_disabled(True)
session = start("customer-service/4711")
model = OpenAIResponsesModel(MODEL, AsyncOpenAI(base_url=f"{GATEWAY}/v1", api_key=session["api_key"]))
agent = Agent("service", instructions="Help the customer.", model=model, tools=[find_order, refund])
with suppress(AgentsException):  # too many turns, a tool that does not exist: the model's doing, so judged as well
    print(Runner.run_sync(agent, "My lamp, order 4711, arrived broken.", max_turns=6).final_output)
judge(session, float(ORDERS == {"4711": "refunded", "4712": "a chair, on its way"}), f"orders are now {ORDERS}")
