"""A coding agent: mini-swe-agent repairs a file in a folder of its own; the reward is what the file does afterwards."""

import tempfile
from pathlib import Path

from minisweagent.agents.default import DefaultAgent
from minisweagent.environments import get_environment
from minisweagent.models.litellm_model import LitellmModel
from session import GATEWAY, MODEL, judge, start

folder = Path(tempfile.mkdtemp())
(folder / "calc.py").write_text("def add(a, b):\n    return a - b\n")
session = start("coding/calc")
reach = {"api_base": f"{GATEWAY}/v1", "api_key": session["api_key"]}
model = LitellmModel(model_name=f"openai/{MODEL}", model_kwargs=reach, cost_tracking="ignore_errors")
# The model's commands see this folder and, read-only, this system; an agent that is in a box itself sees less.
environment = get_environment({"environment_class": "bubblewrap", "cwd": str(folder)})
templates = {"system_template": "You repair code with the bash tool.", "instance_template": "{{task}}"}
ending = DefaultAgent(model, environment, **templates, step_limit=8, cost_limit=0).run("add() in calc.py subtracts.")
check = "python3 -c 'from calc import add; raise SystemExit(add(2, 3) != 5)'"
passed = environment.execute({"command": check})["returncode"] == 0
judge(session, float(passed), f"{ending['exit_status']}, add(2, 3) is {'' if passed else 'not '}5")
