"""Evaluations and measurements, run by their own commands on tasks made here, because no data set is fetched."""
import json
import pathlib
import shutil

from python_clients.asked import DESCRIPTION, QUESTION, RESULT
from python_clients.terminals import program

SUMS = {f"What is {n} + {n}?": str(n + n) for n in (11, 12, 13)}


def lm_eval(url, model):
    """Chat; and completions with log-probabilities of given answers, counted by the service's tokenizer."""
    # It reads every task below the folder that it is given, and its own are thousands.
    tasks = pathlib.Path("tasks")
    tasks.mkdir(exist_ok=True)
    sums = tasks.resolve() / "sums.jsonl"
    sums.write_text("".join(json.dumps({"question": q, "answer": a}) + "\n" for q, a in SUMS.items()))
    shared = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(sums)}}, "test_split": "test",
              "doc_to_text": "{{question}}"}
    said = {"task": "said", "output_type": "generate_until", "doc_to_target": "{{answer}}", "metric_list": [{"metric": "exact_match"}],
            "generation_kwargs": {"until": ["\n\n"], "max_gen_toks": 300, "temperature": 0}}
    chosen = {"task": "chosen", "output_type": "multiple_choice", "doc_to_target": 0, "doc_to_choice": ["{{answer}}", "zebra"],
              "metric_list": [{"metric": "acc"}]}
    for task in (said, chosen):
        (tasks / f"{task['task']}.yaml").write_text(json.dumps(shared | task))   # YAML takes JSON
    shutil.rmtree("reports", ignore_errors=True)

    def run(kind, path, names, *more, **arguments):
        settings = ",".join(f"{key}={value}" for key, value in (arguments | {"model": model, "base_url": f"{url}/{path}"}).items())
        program("lm_eval", "run", "--model", kind, "--model_args", settings, "--include_path", tasks, "--tasks", names, "--log_samples",
                "--output_path", f"reports/{kind}", *more, HF_HUB_OFFLINE="1")
        lines = [line for file in pathlib.Path(f"reports/{kind}").rglob("samples_*.jsonl") for line in file.read_text().splitlines()]
        return [json.loads(line) for line in lines]

    # A stop string ends a thought too, and this one stands between a thought and its answer.
    samples = run("local-chat-completions", "chat/completions", "said", "--apply_chat_template", "--gen_kwargs", "reasoning_effort=none",
                  tokenized_requests=False)
    assert len(samples) == 3 and all(sample["doc"]["answer"] in sample["resps"][0][0] for sample in samples), samples
    samples = run("local-completions", "completions", "said,chosen", tokenizer_backend="remote")
    chosen = [sample for sample in samples if "acc" in sample]
    assert len(samples) == 6 and [sample["acc"] for sample in chosen] == [1.0] * 3, samples


def evalscope(url, model):
    """Three chats one after another, timed."""
    pathlib.Path("prompts.txt").write_text("\n".join(SUMS) + "\n")
    shutil.rmtree("measured", ignore_errors=True)
    program("evalscope", "perf", "--url", f"{url}/chat/completions", "--api", "openai", "--model", model, "--dataset", "line_by_line",
            "--dataset-path", "prompts.txt", "--number", "3", "--parallel", "1", "--max-tokens", "300", "--min-prompt-length", "1",
            "--outputs-dir", "measured", "--no-timestamp")
    summary = json.loads(next(pathlib.Path("measured").rglob("benchmark_summary.json")).read_text())
    assert [value for key, value in summary.items() if "success" in key.lower() or "succeed" in key.lower()][0] == 3, summary


def inspect_ai(url, model):
    """A sum and a tool with its providers for responses, chat completions and messages."""
    from inspect_ai import Task, eval
    from inspect_ai.dataset import Sample
    from inspect_ai.scorer import includes
    from inspect_ai.solver import generate, use_tools
    from inspect_ai.tool import tool

    @tool
    def get_weather():
        async def execute(city: str):
            return RESULT

        execute.__doc__ = f"{DESCRIPTION}\n\nArgs:\n    city: The city"
        return execute

    said = Task(name="said", dataset=[Sample(input=question, target=answer) for question, answer in SUMS.items()], solver=generate(),
                scorer=includes())
    called = Task(name="called", dataset=[Sample(input=QUESTION, target="21")], solver=[use_tools(get_weather()), generate()],
                  scorer=includes(), message_limit=8)
    places = {"openai": ("openai", url, {"responses_api": True}), "chat": ("openai", url, {"responses_api": False}),
              "messages": ("anthropic", url.removesuffix("/v1"), {})}
    for name, (provider, place, arguments) in places.items():
        logs = eval([said, called], model=f"{provider}/{model}", model_base_url=place, model_args=arguments | {"api_key": "none"},
                    temperature=0, max_tokens=500, display="none", log_dir="evaluated")
        accuracy = [log.status == "success" and log.results.scores[0].metrics["accuracy"].value for log in logs]
        assert accuracy == [1.0, 1.0], (name, accuracy, [log.error for log in logs])
