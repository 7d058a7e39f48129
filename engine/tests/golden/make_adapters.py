"""Makes the golden adapters: PEFT directories for three golden presets, with the logits that `peft` gives in float32.

    python3 -m venv venv && venv/bin/pip install torch==2.15.0 transformers==5.24.0 peft==0.21.2
    venv/bin/python make_adapters.py moe next qwen3

Each folder `adapters/PRESET` gets adapter_config.json and adapter_model.safetensors as `save_pretrained` writes them, and
golden.safetensors with `input_ids` and the `logits` of the last 8 positions. `lora_B` is random, so that nothing is left
out unseen.
"""
import json
import pathlib
import sys

import torch
import transformers
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file

HERE = pathlib.Path(__file__).resolve().parent
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
FEED_FORWARD = ["gate_proj", "up_proj", "down_proj"]
LAST = 8
# Of each preset: modules that are changed, and what else its configuration says.
PRESETS = {
    "moe": (["in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj", *ATTENTION, *FEED_FORWARD],
            dict(r=4, lora_alpha=8, rank_pattern={"q_proj": 6, "layers.1.linear_attn.out_proj": 2},
                 alpha_pattern={"k_proj": 3})),
    "next": (["in_proj_qkvz", "in_proj_ba", "out_proj", *ATTENTION], dict(r=3, lora_alpha=6, use_rslora=True)),
    "qwen3": ([*ATTENTION, *FEED_FORWARD], dict(r=5, lora_alpha=5)),
}


def make(preset):
    torch.manual_seed(7)
    modules, settings = PRESETS[preset]
    folder = HERE / preset
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.eval()
    adapted = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", target_modules=modules, **settings))
    with torch.no_grad():
        for name, weight in adapted.named_parameters():
            if "lora_B" in name:
                weight.normal_(0, 0.3)
        ids = load_file(folder / "golden.safetensors")["input_ids"]
        plain = model_logits(adapted, ids, off=True)
        logits = model_logits(adapted, ids)
    out = HERE / "adapters" / preset
    adapted.save_pretrained(out)
    (out / "README.md").unlink()
    config = json.loads((out / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = preset
    (out / "adapter_config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
    save_file({"input_ids": ids, "logits": logits}, out / "golden.safetensors")
    saved = load_file(out / "adapter_model.safetensors")
    print(preset, len(saved) // 2, "matrices,", f"logits change by {(logits - plain).std() / plain.std():.2f} of their deviation")


def model_logits(model, ids, off=False):
    context = model.disable_adapter() if off else torch.no_grad()
    with context:
        return model(input_ids=ids[None].long()).logits[0, -LAST:].contiguous()


for name in sys.argv[1:]:
    make(name)
