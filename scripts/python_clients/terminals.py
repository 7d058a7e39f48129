"""Programs of the terminal, run by their own commands as their users do."""
import json
import os
import pathlib
import subprocess
import sys

from python_clients.asked import DESCRIPTION, PLACE, QUESTION, RESULT, place

PROGRAM_SECONDS = 300


def program(name, *arguments, **more):
    """What a program of this environment writes to its standard output."""
    command = [pathlib.Path(sys.executable).parent / name, *arguments]
    run = subprocess.run(command, env=os.environ | more, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=True,
                         timeout=PROGRAM_SECONDS)
    return run.stdout


def llm(url, model):
    """A streamed answer, a question that goes on from it, a tool and a schema."""
    user = pathlib.Path("user").resolve()
    user.mkdir(exist_ok=True)
    # YAML takes JSON.
    (user / "extra-openai-models.yaml").write_text(json.dumps([{
        "model_id": "chimere", "model_name": model, "api_base": url, "supports_schema": True, "supports_tools": True}]))
    (user / "tools.py").write_text(f"def get_weather(city: str) -> str:\n    {DESCRIPTION!r}\n    return {RESULT!r}\n")

    def ask(*arguments):
        return program("llm", *arguments, "-o", "temperature", "0", LLM_USER_PATH=str(user))

    text = ask("-m", "chimere", "What is 17 + 25?")
    assert "42" in text, text
    text = ask("-c", "What is 3 + 4?")
    assert "7" in text, text
    text = ask("-m", "chimere", "--functions", user / "tools.py", QUESTION)
    assert "21" in text, text
    kind = place()
    kind.model_validate_json(ask("-m", "chimere", "--schema", json.dumps(kind.model_json_schema()), PLACE))


def aider(url, model):
    """A streamed answer with its thought, in the mode that changes no files."""
    text = program("aider", "--model", f"openai/{model}", "--openai-api-base", url, "--openai-api-key", "none", "--edit-format", "ask",
                   "--message", "What is 17 + 25?", "--no-git", "--yes-always", "--no-check-update", "--analytics-disable",
                   "--no-show-model-warnings", "--no-pretty", "--map-tokens", "0", HOME=os.getcwd())
    assert "THINKING" in text and "17 + 25 = 42" in text, text
