"""A LangGraph graph over langchain-openai. Options: stream, responses."""

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from told import FOLLOW_UP, MAX_TOKENS, MODEL, OPTIONS, QUESTION, SYSTEM, answers, found, saw, tell


@tool
def find(query: str) -> str:
    """Look a thing up."""
    return found(query)


llm = ChatOpenAI(
    model=MODEL,
    temperature=0,
    max_tokens=MAX_TOKENS,
    streaming="stream" in OPTIONS,
    use_responses_api="responses" in OPTIONS,
)
bound = [llm.bind_tools([find], tool_choice=choice) for choice in ("required", "auto", "none")]


def model(state: MessagesState):
    answer = bound[len(answers)].invoke([("system", SYSTEM), *state["messages"]])
    saw(answer.text, *[(call["name"], call["args"]) for call in answer.tool_calls])
    return {"messages": [answer]}


graph = StateGraph(MessagesState)
graph.add_node("model", model)
graph.add_node("tools", ToolNode([find]))
graph.add_edge(START, "model")
graph.add_conditional_edges("model", tools_condition, ["tools", END])
# The tiny model never stops by itself: after the second answer it is asked something else.
graph.add_conditional_edges("tools", lambda _: END if len(answers) == 2 else "model", ["model", END])
agent = graph.compile()
messages = agent.invoke({"messages": [("user", QUESTION)]})["messages"]
agent.invoke({"messages": [*messages, ("user", FOLLOW_UP)]})
tell()
