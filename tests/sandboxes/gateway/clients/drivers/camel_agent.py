"""CAMEL's ChatAgent with a tool. Options: stream."""

from camel.agents import ChatAgent
from camel.models import ModelFactory
from camel.toolkits import FunctionTool
from camel.types import ModelPlatformType
from camel.utils.token_counting import BaseTokenCounter
from told import API_KEY, BASE_URL, FOLLOW_UP, MAX_TOKENS, MODEL, OPTIONS, QUESTION, SYSTEM, found, saw, tell


def find(query: str) -> str:
    """Look a thing up.

    Args:
        query (str): What to look up.
    """
    return found(query)


class Characters(BaseTokenCounter):
    """CAMEL's own counter would fetch OpenAI's vocabulary from the network."""

    def count_tokens_from_messages(self, messages):
        return sum(len(str(message)) for message in messages) // 4

    def encode(self, text):
        return [ord(character) for character in text]

    def decode(self, token_ids):
        return "".join(map(chr, token_ids))


model = ModelFactory.create(
    model_platform=ModelPlatformType.OPENAI_COMPATIBLE_MODEL,
    model_type=MODEL,
    url=BASE_URL,
    api_key=API_KEY,
    token_counter=Characters(),
    model_config_dict={"temperature": 0, "max_tokens": MAX_TOKENS, **({"stream": True} if "stream" in OPTIONS else {})},
)
agent = ChatAgent(SYSTEM, model=model, tools=[FunctionTool(find)], max_iteration=3)
for question in (QUESTION, FOLLOW_UP):
    response = agent.step(question)
    parts = [response] if "stream" not in OPTIONS else list(response)
for message in agent.chat_history:
    if message["role"] == "assistant":
        calls = message.get("tool_calls") or []
        saw(message.get("content"), *[(call["function"]["name"], call["function"]["arguments"]) for call in calls])
tell()
