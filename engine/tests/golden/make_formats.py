"""Makes the golden directories of quantised checkpoints: tiny random models, encoded by the formats' own packages.

    python3 -m venv venv && venv/bin/pip install torch==2.15.0 transformers==5.24.0 compressed-tensors==0.20.1 \
        nvidia-modelopt==0.47.0 accelerate requests setuptools wheel
    venv/bin/pip install --no-deps --no-build-isolation autoawq==0.2.9 auto_gptq==0.7.1
    venv/bin/python make_formats.py [NAME ...]

Each folder of `formats/` gets config.json and model.safetensors as releases of Qwen3.5-MoE in that format have them,
and golden.safetensors: what `transformers` computes in float32 with the decoded weights. The package decodes them in
float32, and the numpy functions here decode the bytes of the file once more and so document the layout: both must agree
in every bit. Quantisers round to nearest without calibration, so the scales of inputs and caches are made up.
"""
import functools
import importlib.util
import json
import pathlib
import sys
import types

import numpy as np
import torch
import transformers
from compressed_tensors.compressors.base import BaseCompressor
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
from compressed_tensors.compressors.mx_utils import decompress_mx_scale
from compressed_tensors.compressors.pack_quantized.helpers import unpack_from_int32
from compressed_tensors.quantization import QuantizationConfig, preset_name_to_scheme
from compressed_tensors.quantization.lifecycle.forward import dequantize
from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam
from compressed_tensors.utils.match import match_name
from modelopt.torch.export import convert_hf_config, quant_utils
from modelopt.torch.quantization.qtensor import FP8QTensor, NVFP4QTensor
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_torch
from transformers.integrations.finegrained_fp8 import _dequantize_fp8_weight

from make_families import golden, random_value

OUT = pathlib.Path(__file__).resolve().parent / "formats"
PREFIX = "model.language_model."
VOCAB, TOKENS, KEPT = 24, 72, 8
GDN, ATTENTION = "linear_attention", "full_attention"
FP8 = torch.float8_e4m3fn


def without_init(name, path):
    """A module of a package, imported without the package's __init__, which needs an older version of transformers."""
    if name not in sys.modules:
        package = types.ModuleType(name)
        package.__path__ = list(importlib.util.find_spec(name).submodule_search_locations)
        sys.modules[name] = package
    return importlib.import_module(f"{name}.{path}")


# Shapes -------------------------------------------------------------------------------------------------------------


def text_config(kinds=(GDN, ATTENTION), hidden=64, width=32, shared=32, experts=3, used=2, key_heads=1, value_heads=2,
                heads=2, kv_heads=1):
    """The text part of config.json. All heads are 32 wide."""
    return dict(
        model_type="qwen3_5_moe_text", vocab_size=VOCAB, hidden_size=hidden, num_hidden_layers=len(kinds),
        layer_types=list(kinds), num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=32,
        linear_num_key_heads=key_heads, linear_num_value_heads=value_heads, linear_key_head_dim=32,
        linear_value_head_dim=32, linear_conv_kernel_dim=4, num_experts=experts, num_experts_per_tok=used,
        moe_intermediate_size=width, shared_expert_intermediate_size=shared, rms_norm_eps=1e-6, hidden_act="silu",
        max_position_embeddings=4096, tie_word_embeddings=False, attention_bias=False, attn_output_gate=True,
        rope_parameters=dict(rope_type="default", rope_theta=1e7, partial_rotary_factor=.25, mrope_section=[2, 1, 1],
                             mrope_interleaved=True),
        bos_token_id=0, eos_token_id=0, dtype="bfloat16", mamba_ssm_dtype="float32")


def random_model(config, rng):
    """Values of all tensors by their names in a release. All but A_log and the gated norm are values of bf16."""
    net = transformers.Qwen3_5MoeForCausalLM(transformers.Qwen3_5MoeTextConfig(**config))
    values = {}
    for name, parameter in net.state_dict().items():
        value = torch.tensor(np.asarray(random_value(name, tuple(parameter.shape), rng), np.float32))
        if name.endswith("norm.weight") and "linear_attn" not in name:
            value -= 1
        values[name.replace("model.", PREFIX, 1)] = value if is_float32(name) else value.bfloat16().float()
    for i in range(config["num_hidden_layers"]):
        experts = f"{PREFIX}layers.{i}.mlp.experts."
        fused, down = values.pop(experts + "gate_up_proj"), values.pop(experts + "down_proj")
        for e in range(config["num_experts"]):
            gate, up = fused[e].chunk(2)
            values |= {f"{experts}{e}.{part}_proj.weight": w.contiguous()
                       for part, w in (("gate", gate), ("up", up), ("down", down[e]))}
    return values


def is_float32(name):
    return name.endswith(("A_log", "linear_attn.norm.weight"))


def network(config, values):
    """The reference with these weights."""
    config = transformers.Qwen3_5MoeTextConfig(**config)
    config._attn_implementation = config._experts_implementation = "eager"
    net = transformers.Qwen3_5MoeForCausalLM(config).float().eval()
    state = {}
    for name in net.state_dict():
        release = name.replace("model.", PREFIX, 1)
        if release in values:
            state[name] = values[release]
            continue
        parts = ("gate", "up") if name.endswith("gate_up_proj") else ("down",)
        place = release.rsplit(".", 1)[0]
        state[name] = torch.stack([torch.cat([values[f"{place}.{e}.{part}_proj.weight"] for part in parts])
                                   for e in range(config.num_experts)])
    net.load_state_dict(state)
    return net


# What is encoded ----------------------------------------------------------------------------------------------------

MIXERS = ("linear_attn.in_proj_qkv", "linear_attn.in_proj_z", "linear_attn.out_proj", "self_attn.q_proj",
          "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")
# Linear layers that no release encodes.
KEPT_LINEAR = ("linear_attn.in_proj_a", "linear_attn.in_proj_b", "mlp.gate", "mlp.shared_expert_gate", "lm_head")


def modules(values):
    """Names of all matrices that a linear layer multiplies with."""
    plain = ("embed_tokens.weight", "norm.weight", "conv1d.weight")
    return [n.removesuffix(".weight") for n in values if n.endswith(".weight") and not n.endswith(plain)]


def is_kept(module):
    return module.endswith(KEPT_LINEAR)


def partners(module):
    """What releases multiply with at once, and therefore scale together."""
    for parts in (("gate_proj", "up_proj"), ("q_proj", "k_proj", "v_proj")):
        for part in parts:
            if module.endswith("." + part):
                return [module.removesuffix(part) + p for p in parts]
    return [module]


def largest(values, module):
    """The largest magnitude among a matrix and its partners."""
    return torch.stack([values[f"{m}.weight"].abs().max() for m in partners(module)]).max()


# Packages: each function gives the tensors of a module and the float32 matrix that the package decodes from them ------


def fp8_block(values, module):
    """Scales of squares in bf16 where Qwen writes them so, and in f32 for the attention block."""
    w, squares = values[f"{module}.weight"], {-1: 128, -2: 128}
    kind = torch.float32 if "self_attn" in module else torch.bfloat16
    scale = FP8QTensor.quantize(w, block_sizes=squares)[1].to(kind)
    q = FP8QTensor.quantize(w, scale.float(), block_sizes=squares)[0]._quantized_data.contiguous()
    return dict(weight=q, weight_scale_inv=scale), _dequantize_fp8_weight(q, scale, [128, 128], torch.float32)


def modelopt_fp8(values, module):
    scale = largest(values, module) / 448
    q = quant_utils.to_quantized_weight(values[f"{module}.weight"], scale, quant_utils.QUANTIZATION_FP8)
    decoded = FP8QTensor(q.shape, torch.float32, q).dequantize(torch.float32, scale=scale)
    return dict(weight=q, weight_scale=scale, input_scale=torch.tensor(.0123)), decoded


def modelopt_nvfp4(values, module):
    w, double = values[f"{module}.weight"], largest(values, module) / (6 * 448)
    scale = NVFP4QTensor.get_weights_scaling_factor(w, 16, double)[0]
    q = quant_utils.to_quantized_weight(w.clone(), scale, quant_utils.QUANTIZATION_W4A16_NVFP4, double, 16)
    decoded = NVFP4QTensor(w.shape, torch.float32, q).dequantize(torch.float32, scale=scale, double_scale=double,
                                                                 block_sizes={-1: 16})
    return dict(weight=q, weight_scale=scale, weight_scale_2=double, input_scale=torch.tensor(.0045)), decoded


def limits(w, args):
    """Smallest and largest value of each group, row or tensor."""
    if args.group_size:
        w = w.unflatten(-1, (-1, args.group_size))
    return (w.amin(-1), w.amax(-1)) if args.group_size else (w.amin(-1, True), w.amax(-1, True))


@functools.cache
def compressed(preset, scale_type):
    """The encoder of a scheme of compressed-tensors, whose scales have this type or that of the scheme."""
    scheme = preset_name_to_scheme(preset, ["Linear"])
    args, kind = scheme.weights, BaseCompressor.get_value_from_registry(FORMATS_OF_PRESETS[preset])

    def encode(values, module):
        w = values[f"{module}.weight"]
        # Not every release shares a scale among partners: here each matrix has its own.
        top = w.abs().max()
        shared = generate_gparam(-top, top) if preset.startswith("NVFP4") else None
        scale, zero = calculate_qparams(*limits(w, args), args, global_scale=shared)
        given = dict(weight=w, weight_scale=scale.to(scale_type or scale.dtype), weight_zero_point=zero)
        if shared is not None:
            given |= dict(weight_global_scale=shared, input_global_scale=torch.tensor([321.0]))
        if args.symmetric:
            del given["weight_zero_point"]
        made = {k: v.contiguous() for k, v in kind.compress(given, scheme).items()}
        decoded = decompressed(made, args, shared)
        # The package itself decodes into the type of scales or bf16.
        rounded = kind.decompress(made, scheme)["weight"].float()
        assert torch.allclose(rounded, decoded, rtol=2 ** -7, atol=0), module
        return made, decoded

    return encode


def decompressed(made, args, shared):
    """With the package's parts in float32."""
    scale, zero, shape = made["weight_scale"], None, made.get("weight_shape")
    if shape is not None:
        q = unpack_from_int32(made["weight_packed"], args.num_bits, torch.Size(shape))
        if not args.symmetric:
            zero = unpack_from_int32(made["weight_zero_point"], args.num_bits, torch.Size([shape[0], scale.shape[1]]),
                                     packed_dim=0).float()
    elif "weight_packed" in made:
        rows, half = made["weight_packed"].shape
        q = unpack_fp4_from_uint8(made["weight_packed"], rows, 2 * half, torch.float32)
        scale = decompress_mx_scale(scale) if scale.dtype == torch.uint8 else scale
    else:
        q = made["weight"]
    return dequantize(q.float(), scale.float(), zero, args=args, dtype=torch.float32, global_scale=shared)


FORMATS_OF_PRESETS = {
    "FP8_DYNAMIC": "float-quantized", "NVFP4": "nvfp4-pack-quantized", "MXFP4A16": "mxfp4-pack-quantized",
    "W4A16_ASYM": "pack-quantized", "W4A16": "pack-quantized"}


def rounded_groups(w, symmetric):
    """The matrix as groups of 128 with 4 bits hold it, with scales and zeros [rows, groups]."""
    groups = w.unflatten(-1, (-1, 128))
    low, high = groups.amin(-1).clamp(max=0), groups.amax(-1).clamp(min=0)
    if symmetric:
        high = torch.maximum(high, -low)
        low = -high
    scale = ((high - low) / 15).half()
    zero = torch.full_like(low, 8) if symmetric else (-low / scale).round().clamp(0, 15)
    q = ((groups / scale[..., None]).round() + zero[..., None]).clamp(0, 15)
    return ((q - zero[..., None]) * scale[..., None]).flatten(-2), scale.float(), zero


def linear(w):
    layer = torch.nn.Linear(w.shape[1], w.shape[0], bias=False)
    layer.weight.data = w.clone()
    return layer


def awq(values, module):
    gemm = without_init("awq", "modules.linear.gemm")
    w, scale, zero = rounded_groups(values[f"{module}.weight"], symmetric=False)
    layer = gemm.WQLinear_GEMM.from_linear(linear(w), 4, 128, scales=scale.T.contiguous(), zeros=zero.T.contiguous())
    made = {k: v.contiguous() for k, v in layer.state_dict().items()}
    decoded = gemm.dequantize_gemm(made["qweight"], made["qzeros"], made["scales"].float(), 4, 128).T
    return made, decoded.contiguous()


def gptq(values, module):
    kind = without_init("auto_gptq", "nn_modules.qlinear.qlinear_cuda_old")
    w, scale, zero = rounded_groups(values[f"{module}.weight"], symmetric=True)
    layer = kind.QuantLinear(4, 128, w.shape[1], w.shape[0], bias=False)
    layer.pack(linear(w.half()), scale.half(), zero.clone(), None)
    made = {k: v.clone().contiguous() for k, v in layer.state_dict().items()}
    layer.scales = layer.scales.float()
    return made, layer(torch.eye(w.shape[1])).T.contiguous()


# The layouts once more, from the bytes of a file ---------------------------------------------------------------------


def read_raw(path):
    """Arrays of a file by name; 8-bit floats and bf16 as their bits, with their types."""
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    head = json.loads(raw[8:8 + size])
    types_of = dict(F8_E4M3="u1", U8="u1", BF16="<u2", F16="<f2", F32="<f4", I32="<i4", I64="<i8")
    return {n: (t["dtype"], np.frombuffer(raw, types_of[t["dtype"]], offset=8 + size + t["data_offsets"][0],
                                          count=int(np.prod(t["shape"]))).reshape(t["shape"]))
            for n, t in head.items() if n != "__metadata__"}


def floats(kind, x):
    """Bits of a file as float32."""
    if kind == "F8_E4M3":
        e, m = (x >> 3 & 15).astype(int), (x & 7).astype(np.float32)
        size = np.where(e == 0, m / 512, (1 + m / 8) * np.exp2(e - 7.0))
        return np.where(x & 128, -size, size).astype(np.float32)
    return (x.astype(np.uint32) << 16).view(np.float32) if kind == "BF16" else x.astype(np.float32)


def fp4(x):
    """Bytes [rows, cols / 2] as values: the low nibble is the even column."""
    codes = np.stack([x & 15, x >> 4], -1).reshape(len(x), -1)
    return np.float32([0, .5, 1, 1.5, 2, 3, 4, 6])[codes & 7] * np.where(codes & 8, np.float32(-1), np.float32(1))


def nibbles(x, order=range(8)):
    """Words [..., n] as [..., 8 n] unsigned values: value i of a word stands in nibble order[i]."""
    values = np.stack([x.view(np.uint32) >> np.uint32(4 * i) & 15 for i in order], -1)
    return values.reshape(*x.shape[:-1], -1).astype(np.float32)


def spread(scale, shape, rows, cols):
    """The scale of each value of a matrix of this shape, where rectangles of rows and columns share one."""
    return scale.repeat(rows, 0).repeat(cols, 1)[:shape[0], :shape[1]]


def numpy_matrix(tensors, method):
    """The matrix of a module's tensors, which are given by suffix."""
    value = {k: floats(*t) for k, t in tensors.items()}
    bits = {k: t[1] for k, t in tensors.items()}
    if "qweight" in bits and method == "awq":
        order = (0, 4, 1, 5, 2, 6, 3, 7)
        q, zero, scale = nibbles(bits["qweight"], order), nibbles(bits["qzeros"], order), value["scales"]
        return ((q - zero.repeat(128, 0)) * scale.repeat(128, 0)).T
    if "qweight" in bits:
        q, zero, g = nibbles(bits["qweight"].T.copy()), nibbles(bits["qzeros"]) + 1, bits["g_idx"]
        return (q - zero[g].T) * value["scales"][g].T
    if "weight_shape" in bits:
        (rows, cols), scale = bits["weight_shape"], value["weight_scale"]
        q, group = nibbles(bits["weight_packed"])[:, :cols], cols // scale.shape[1]
        zero = np.full_like(scale, 8)
        if "weight_zero_point" in bits:
            zero = nibbles(bits["weight_zero_point"].T.copy()).T[:rows]
        return (q - spread(zero, q.shape, 1, group)) * spread(scale, q.shape, 1, group)
    if "weight_packed" in bits and tensors["weight_scale"][0] == "U8":
        w = fp4(bits["weight_packed"])
        return w * spread(np.exp2(value["weight_scale"] - 127), w.shape, 1, 32)
    if "weight_packed" in bits:
        w = fp4(bits["weight_packed"])
        return w * spread(value["weight_scale"] / value["weight_global_scale"], w.shape, 1, 16)
    if "weight_scale_2" in bits:
        w = fp4(bits["weight"])
        return w * spread(value["weight_scale"] * value["weight_scale_2"], w.shape, 1, 16)
    if "weight_scale_inv" in bits:
        return value["weight"] * spread(value["weight_scale_inv"], value["weight"].shape, 128, 128)
    return value["weight"] * value["weight_scale"]


# Formats ------------------------------------------------------------------------------------------------------------


# For groups of 128: rows of the attention's out-projection have two.
WIDE = dict(kinds=[ATTENTION], hidden=128, width=128, experts=2, used=1, heads=8)


class Format:
    """`encoder` chooses what a linear layer is encoded with, `quantization` gives the part of config.json."""
    shape, method = {}, None

    def encoder(self, module):
        return None if is_kept(module) else self.encode

    def extra(self, config):
        """Tensors beside those of modules."""
        return {}

    def also(self, config, encoded, plain):
        """Further files by name."""
        return {}


class Fp8Block(Format):
    shape = dict(heads=5)
    encode, method = staticmethod(fp8_block), "fp8"

    def quantization(self, config, encoded, plain):
        kept = [n for n in plain if n.startswith(PREFIX)]
        return dict(quant_method="fp8", activation_scheme="dynamic", fmt="e4m3", weight_block_size=[128, 128],
                    modules_to_not_convert=["lm_head", "model.embed_tokens", *kept])


class CompressedTensors(Format):
    """Of `groups` each is a scheme with its targets."""
    groups, scale_type, method = (), torch.bfloat16, "compressed-tensors"

    def encoder(self, module):
        preset = next((p for p, target in self.groups if target == "Linear" or match_name(module, target)), None)
        return None if is_kept(module) or preset is None else compressed(preset, self.scale_type)

    def ignore(self, plain):
        return plain

    def quantization(self, config, encoded, plain):
        form = FORMATS_OF_PRESETS[self.groups[0][0]]
        groups = {f"group_{i}": preset_name_to_scheme(*of) for i, of in enumerate((p, [t]) for p, t in self.groups)}
        for scheme in groups.values():
            scheme.format = form
        made = QuantizationConfig(config_groups=groups, format=form, quantization_status="compressed",
                                  ignore=self.ignore(plain))
        return json.loads(made.model_dump_json()) | dict(version="0.20.1")


class Fp8Channel(CompressedTensors):
    groups, shape = [("FP8_DYNAMIC", "Linear")], dict(kinds=[GDN])


class Nvfp4(CompressedTensors):
    groups, scale_type, shape = [("NVFP4", "Linear")], None, dict(width=64, shared=64)

    def ignore(self, plain):
        return ["lm_head", "re:.*mlp.gate$", "re:.*shared_expert_gate$", r"re:.*linear_attn\.in_proj_[ab]$",
                "re:.*embed_tokens"]


class Mxfp4(CompressedTensors):
    groups, scale_type = [("MXFP4A16", "Linear")], None


class Int4(CompressedTensors):
    """Groups of 128: experts without zero points, attention with them."""
    groups = [("W4A16", r"re:.*mlp\.experts\.\d+\.(gate|up|down)_proj$"),
              ("W4A16_ASYM", r"re:.*self_attn\.(q|k|v|o)_proj$")]
    shape = WIDE

    def ignore(self, plain):
        return ["lm_head", "re:.*mlp.gate$", "re:.*shared_expert.*"]


class Modelopt(Format):
    method = "modelopt"
    names = {modelopt_fp8: ("fp8", 0), modelopt_nvfp4: ("w4a16_nvfp4", 16)}

    def details(self, config, encoded, plain):
        """hf_quant_config.json."""
        found = {}
        for module, encode in encoded.items():
            # All experts of a layer have one entry.
            module = module.split(".experts.")[0] + ".experts" if ".experts." in module else module
            form, group = self.names[encode]
            found |= {f"{module}.quantization": form, f"{module}.awq_block_size": group}
        found |= {f"{module}.quantization": None for module in plain}
        made = quant_utils.process_layer_quant_config(found)
        made["exclude_modules"] = sorted(quant_utils._prefix_wildcard_summarize_exclude_modules(plain, encoded))
        return dict(producer=dict(name="modelopt", version="0.47.0"),
                    quantization=made | dict(kv_cache_quant_algo="FP8"))

    def quantization(self, config, encoded, plain):
        return convert_hf_config.convert_hf_quant_config_format(self.details(config, encoded, plain))

    def also(self, config, encoded, plain):
        return {"hf_quant_config.json": self.details(config, encoded, plain)}

    def extra(self, config):
        layers = [i for i, kind in enumerate(config["layer_types"]) if kind == ATTENTION]
        return {f"{PREFIX}layers.{i}.self_attn.{p}_proj.{p}_scale": torch.tensor(.05) for i in layers for p in "kv"}


class Fp8Tensor(Modelopt):
    shape = dict(kinds=[ATTENTION])
    encode = staticmethod(modelopt_fp8)


class Mixed(Modelopt):
    """As nvidia/Qwen3.6-35B-A3B-NVFP4: mixers in FP8, experts and head in NVFP4."""
    shape = dict(width=64, shared=64)

    def encoder(self, module):
        if module.endswith(MIXERS):
            return modelopt_fp8
        return modelopt_nvfp4 if module == "lm_head" or not is_kept(module) else None


class Awq(Format):
    shape = WIDE
    encode, method = staticmethod(awq), "awq"

    def encoder(self, module):
        return None if "shared_expert" in module else super().encoder(module)

    def quantization(self, config, encoded, plain):
        return dict(quant_method="awq", bits=4, group_size=128, zero_point=True, version="gemm", backend="autoawq",
                    do_fuse=False, modules_to_not_convert=["mlp.gate", "shared_expert"])


class Gptq(Format):
    """As Qwen's own: only the routed experts are encoded."""
    shape = dict(kinds=[GDN], hidden=128, width=256, experts=2, used=1, value_heads=1)
    encode, method = staticmethod(gptq), "gptq"

    def encoder(self, module):
        return gptq if ".experts." in module else None

    def quantization(self, config, encoded, plain):
        dynamic = ["lm_head", "model.language_model.embed_tokens", "-:.*attn.*", "-:.*shared_expert.*", "-:.*mtp.*",
                   "-:.*visual.*"]
        return dict(quant_method="gptq", bits=4, group_size=128, sym=True, desc_act=False, lm_head=False,
                    checkpoint_format="gptq", true_sequential=True, dynamic={rule: {} for rule in dynamic})


FORMATS = {"fp8-block": Fp8Block, "fp8-channel": Fp8Channel, "fp8-tensor": Fp8Tensor, "nvfp4-modelopt": Mixed,
           "nvfp4-ct": Nvfp4, "mxfp4-ct": Mxfp4, "awq": Awq, "gptq": Gptq, "int4-ct": Int4}


def encode(kind, values):
    """Tensors of the file, the decoded values, and what each encoded module was encoded with."""
    tensors = {n: x if is_float32(n) else x.bfloat16() for n, x in values.items()}
    decoded, encoded = dict(values), {}
    for module in modules(values):
        encoder = kind.encoder(module)
        if encoder is None:
            continue
        made, matrix = encoder(values, module)
        del tensors[f"{module}.weight"]
        tensors |= {f"{module}.{suffix}": x for suffix, x in made.items()}
        decoded[f"{module}.weight"], encoded[module] = matrix, encoder
    return tensors, decoded, encoded


def check_layout(path, kind, decoded, encoded):
    """That the functions above read in the file what the package decodes."""
    raw = read_raw(path)
    for module in encoded:
        own = {n.removeprefix(module + "."): t for n, t in raw.items() if n.startswith(module + ".")}
        assert np.array_equal(numpy_matrix(own, kind.method), decoded[f"{module}.weight"].numpy()), module


def margin(rows, chosen=1):
    """How far the last chosen value of each row is above the next, at least."""
    order = np.sort(rows, -1)[:, ::-1]
    return float((order[:, chosen - 1] - order[:, chosen]).min())


def reference(config, decoded, rng):
    """What the model computes, and the smallest margins of routers and of greedy tokens."""
    net, scores = network(config, decoded), []
    for layer in net.model.layers:
        layer.mlp.gate.register_forward_hook(lambda module, given, made: scores.append(made[0].numpy()))
    arrays = golden(net, rng, TOKENS)
    arrays = {k: v for k, v in arrays.items() if not k.startswith("layer.")} | dict(logits=arrays["logits"][-KEPT:])
    routers = min(margin(s, config["num_experts_per_tok"]) for s in scores)
    return arrays, (routers, margin(arrays["decode_logits"]))


def make(name):
    """Takes the first seed whose routers and greedy tokens do not depend on rounding."""
    kind = FORMATS[name]()
    config = text_config(**kind.shape)
    for seed in range(1000):
        rng = np.random.default_rng([sorted(FORMATS).index(name), seed])
        values = random_model(config, rng)
        tensors, decoded, encoded = encode(kind, values)
        arrays, least = reference(config, decoded, rng)
        if least[0] > .002 and least[1] > .05:
            break
    plain = [m for m in modules(values) if m not in encoded]
    out = OUT / name
    out.mkdir(parents=True, exist_ok=True)
    save_torch(tensors | kind.extra(config), out / "model.safetensors")
    check_layout(out / "model.safetensors", kind, decoded, encoded)
    whole = dict(architectures=["Qwen3_5MoeForConditionalGeneration"], model_type="qwen3_5_moe", text_config=config,
                 tie_word_embeddings=False, quantization_config=kind.quantization(config, encoded, plain))
    for file, content in {"config.json": whole, **kind.also(config, encoded, plain)}.items():
        (out / file).write_text(json.dumps(content, indent=1) + "\n")
    save_file({k: np.ascontiguousarray(v) for k, v in arrays.items()}, out / "golden.safetensors")
    size = sum(file.stat().st_size for file in out.iterdir())
    print(name, f"{len(encoded)} encoded, {size} bytes, seed {seed}, margins {least}, standard deviation of logits",
          float(arrays["logits"].std()))


def make_tokenizer():
    """A list of words for all folders, since a directory must have a tokenizer."""
    words = {f"<t{i}>": i for i in range(VOCAB)}
    whole = dict(version="1.0", added_tokens=[], model=dict(type="WordLevel", vocab=words, unk_token="<t1>"))
    (OUT / "tokenizer.json").write_text(json.dumps(whole) + "\n")


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_grad_enabled(False)
    for name in sys.argv[1:] or FORMATS:
        make(name)
    make_tokenizer()
