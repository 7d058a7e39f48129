"""Evaluations and measurements, run by their own commands on tasks made here, because no data set is fetched."""
import json
import os
import pathlib
import shutil

from python_clients.terminals import program

SUMS = {f"What is {n} + {n}?": str(n + n) for n in (11, 12, 13)}


def lm_eval(url, model):
    """Chat; and completions with log-probabilities of given answers, counted by the service's tokenizer."""
    pathlib.Path("sums.jsonl").write_text("".join(json.dumps({"question": q, "answer": a}) + "\n" for q, a in SUMS.items()))
    shared = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": os.path.abspath("sums.jsonl")}}, "test_split": "test",
              "doc_to_text": "{{question}}"}
    said = {"task": "said", "output_type": "generate_until", "doc_to_target": "{{answer}}", "metric_list": [{"metric": "exact_match"}],
            "generation_kwargs": {"until": ["\n\n"], "max_gen_toks": 300, "temperature": 0}}
    chosen = {"task": "chosen", "output_type": "multiple_choice", "doc_to_target": 0, "doc_to_choice": ["{{answer}}", "zebra"],
              "metric_list": [{"metric": "acc"}]}
    for task in (said, chosen):
        pathlib.Path(f"{task['task']}.yaml").write_text(json.dumps(shared | task))   # YAML takes JSON
    shutil.rmtree("reports", ignore_errors=True)

    def run(kind, path, tasks, *more, **arguments):
        settings = ",".join(f"{key}={value}" for key, value in (arguments | {"model": model, "base_url": f"{url}/{path}"}).items())
        program("lm_eval", "run", "--model", kind, "--model_args", settings, "--include_path", ".", "--tasks", tasks, "--log_samples",
                "--output_path", f"reports/{kind}", *more, HF_HUB_OFFLINE="1")
        lines = [line for file in pathlib.Path(f"reports/{kind}").rglob("samples_*.jsonl") for line in file.read_text().splitlines()]
        return [json.loads(line) for line in lines]

    samples = run("local-chat-completions", "chat/completions", "said", "--apply_chat_template", tokenized_requests=False)
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
