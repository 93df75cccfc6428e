"""A search agent: Pydantic AI over a small corpus; the reward is whether the answer holds what the corpus says."""

from pydantic_ai import Agent, AgentRunError, UsageLimits
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from session import GATEWAY, MODEL, judge, start

CORPUS = {"Atlantis": "Atlantis. Capital: Poseidonis. Lost.", "Lemuria": "Lemuria. Capital: none known."}
session = start("search/atlantis")
model = OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=f"{GATEWAY}/v1", api_key=session["api_key"]))
agent = Agent(model, instructions="You look things up.")


@agent.tool_plain
def search(query: str) -> str:
    return ", ".join(title for title, text in CORPUS.items() if set(query.split()) & set(text.split())) or "none"


@agent.tool_plain(name="open")
def open_page(title: str) -> str:
    return CORPUS.get(title, "no such page")


try:
    answer = agent.run_sync("What is the capital of Atlantis?", usage_limits=UsageLimits(request_limit=6)).output
except AgentRunError as error:  # too many turns, a tool that does not exist: the model's doing, so judged as well
    answer = str(error)
judge(session, float("Poseidonis" in answer), answer[:80])
