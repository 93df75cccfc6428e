"""The command that starts a vLLM engine on this machine's CPU. vLLM itself is never imported here."""

from dataclasses import dataclass
from pathlib import Path

from lakehouse.home import home
from tasks.serving.errors import EngineMissing
from tasks.serving.weights import servable

HOST = "127.0.0.1"  # the control routes have no login: never beyond loopback
STEP_TOKENS = 2048  # of all calls together, that the engine computes in a step: vLLM's default on a CPU
SMALL_BYTES = 100_000_000


@dataclass(frozen=True)
class Launch:
    """How to start an engine: its command line and what its environment needs on top of ours."""

    command: list[str]
    environment: dict[str, str]


def engine(folder: Path, *, name: str, port: int, python: Path, max_model_len: int) -> Launch:
    """Serve the model in `folder` as `name`, with a context of at most `max_model_len` tokens.

    A model with tied embeddings is shown through a view under `<home>/cache/serving`, so that it can be reloaded.
    """
    if not python.exists():
        raise EngineMissing(
            f"no engine environment at {python}: run `make install-engine`, or set LAKELOOP_ENGINE_PYTHON to a Python "
            "that has vLLM, or LAKELOOP_ENGINE_URL to an engine that runs elsewhere"
        )
    folder = servable(folder.resolve(), home().cache / "serving" / name)
    # `vllm serve` of the CPU distribution fails on its own missing metadata; the module starts.
    command = [str(python), "-m", "vllm.entrypoints.openai.api_server"]
    command += ["--model", str(folder), "--served-model-name", name, "--host", HOST, "--port", str(port)]
    command += ["--max-model-len", str(max_model_len)]
    # A prompt is computed in one step. Between the parts of one that is not, vLLM takes back a draw of a request with a seed, which
    # a generator of the CPU's cannot: the engine ends with "CPU Generator does not use offset".
    command += ["--no-enable-chunked-prefill", "--max-num-batched-tokens", str(max(STEP_TOKENS, max_model_len))]
    # Three times faster than bfloat16 on AVX2, and the trainer's own precision; compiling costs minutes of start-up.
    command += ["--dtype", "float32", "--enforce-eager"]
    # What the trainer needs is the probability the token was really drawn with: after temperature and truncation.
    command += ["--logprobs-mode", "processed_logprobs"]
    # Nor does a model folder's generation_config.json add its own top_k or repetition penalty, which the trainer would not
    # know of: how tokens are sampled is the caller's to say.
    command += ["--generation-config", "vllm"]
    command += ["--enable-scale-out"]  # the token-in, token-out routes
    command += ["--enable-auto-tool-choice", "--tool-call-parser", "hermes"]
    command += ["--disable-uvicorn-access-log"]  # a line per call would bury what matters in the log
    return Launch(command, _environment(small=_weight_bytes(folder) < SMALL_BYTES))


def _environment(*, small: bool) -> dict[str, str]:
    environment = {
        "VLLM_SERVER_DEV_MODE": "1",  # pause, reload, version label
        "VLLM_HOST_IP": HOST,  # the engine's own processes talk over sockets too
        "VLLM_CPU_KVCACHE_SPACE": "1" if small else "2",  # GiB
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
    }
    if not small:
        # One core is kept for the server by default. Measured: freeing it makes SmolLM2 a third faster and a model of a
        # few million parameters three times slower, because then server and worker fight for it.
        environment["VLLM_CPU_NUM_OF_RESERVED_CPU"] = "0"
    return environment


def _weight_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("*.safetensors"))
