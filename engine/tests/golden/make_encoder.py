"""Makes the golden directory of an encoder: a tiny random BERT, whose vectors sentence-transformers computes on the CPU in float32.

    python3 -m venv venv && venv/bin/pip install sentence-transformers==6.2.0 numpy
    venv/bin/python make_encoder.py [MINILM]

`encoder/` gets the directory in the layout of older releases, with f16 weights, and golden.json: texts, their ids, and their vectors with
each way of pooling and each form of GELU. With the directory of all-MiniLM-L6-v2 as MINILM, encoder/minilm.json gets its vectors of texts.
"""
import json
import pathlib
import sys
import tempfile

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

HERE = pathlib.Path(__file__).resolve().parent / "encoder"
TOKENS_MAX = 24
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
WORDS = ["hello", "world", "##ing", "the", "of", "port", "ship", "##s", ",", ".", "!", "?", "-", "[", "]", "\u4e2d", "\u6587"]
TEXTS = ["Hello, World!", "Caf\u00e9 d\u00e9j\u00e0-vu: \u4e2d\u6587 x\u00fcz", "[SEP] [MASK]", "The ships of the port. " * 9, "\u20ac"]
PROSE = ["How do I parse a date?", "The ships of the northern port carry grain and timber to the capital every autumn. " * 30,
         "Na\u00efve caf\u00e9s, 123.45 \u20ac and \u6771\u4eac \u2014 d\u00e9j\u00e0 vu", "use strict; my %seen; @list = grep { !$seen{$_}++ } @list;"]


def tokenizer():
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *[f"##{c}" for c in LETTERS], *WORDS]
    made = Tokenizer(models.WordPiece({word: i for i, word in enumerate(vocab)}, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    made.decoder = decoders.WordPiece()
    made.add_special_tokens(vocab[:5])
    return made, len(vocab)


def write(folder, name, value):
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(json.dumps(value, indent=1) + "\n")


def describe(folder, cls, normalized):
    kinds = ["Transformer", "Pooling", "Normalize"][:3 if normalized else 2]
    paths = ["", "1_Pooling", "2_Normalize"]
    write(folder, "modules.json", [dict(idx=i, name=str(i), path=paths[i], type=f"sentence_transformers.models.{kind}")
                                   for i, kind in enumerate(kinds)])
    write(folder, "1_Pooling/config.json", dict(word_embedding_dimension=32, pooling_mode_cls_token=cls, pooling_mode_mean_tokens=not cls,
                                                pooling_mode_max_tokens=False, pooling_mode_mean_sqrt_len_tokens=False))
    write(folder, "sentence_bert_config.json", dict(max_seq_length=TOKENS_MAX, do_lower_case=False))


def plain(texts):
    """What looks like a control token is text here, as it is in the service."""
    return [text.replace("[SEP]", "[ sep ]").replace("[MASK]", "[ mask ]") for text in texts]


def vectors(folder, texts):
    model = SentenceTransformer(str(folder), device="cpu", model_kwargs={"dtype": torch.float32})
    return model, [[round(float(x), 7) for x in model.encode([text])[0]] for text in plain(texts)]


def tiny():
    made, vocab = tokenizer()
    torch.manual_seed(7)
    config = transformers.BertConfig(vocab_size=vocab, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48,
                                     max_position_embeddings=40, initializer_range=0.3)
    model = transformers.BertModel(config)
    for name, tensor in model.named_parameters():  # norms and biases of a fresh model say nothing
        if "LayerNorm" in name or name.endswith("bias"):
            tensor.data += 0.2 * torch.randn_like(tensor)
    HERE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        model.save_pretrained(work)
        weights = load_file(pathlib.Path(work) / "model.safetensors")
        save_file({name: tensor.half() for name, tensor in weights.items()}, HERE / "model.safetensors", {"format": "pt"})
    keys = ["attention_probs_dropout_prob", "hidden_act", "hidden_dropout_prob", "hidden_size", "initializer_range", "intermediate_size",
            "layer_norm_eps", "max_position_embeddings", "num_attention_heads", "num_hidden_layers", "pad_token_id", "type_vocab_size",
            "use_cache", "vocab_size"]
    known = config.to_dict()
    own = dict(architectures=["BertModel"], model_type="bert", position_embedding_type="absolute",
               **{key: known[key] for key in keys if key in known})
    made.save(str(HERE / "tokenizer.json"))
    golden = {"texts": TEXTS, "ways": {}}
    for name, cls, normalized, act in [("mean", False, False, "gelu"), ("cls", True, False, "gelu"), ("tanh", False, False, "gelu_new"),
                                       ("unit", False, True, "gelu")]:
        write(HERE, "config.json", {**own, "hidden_act": act})
        describe(HERE, cls, normalized)
        loaded, golden["ways"][name] = vectors(HERE, TEXTS)
        assert next(loaded.parameters()).dtype == torch.float32, "the reference computes in float32"
        golden["ids"] = [loaded.tokenizer(text, truncation=True, max_length=TOKENS_MAX)["input_ids"] for text in plain(TEXTS)]
    (HERE / "golden.json").write_text(json.dumps(golden) + "\n")


def minilm(folder):
    loaded, golden = vectors(folder, PROSE)
    ids = [loaded.tokenizer(text, truncation=True, max_length=loaded.max_seq_length)["input_ids"] for text in PROSE]
    (HERE / "minilm.json").write_text(json.dumps({"texts": PROSE, "ids": ids, "vectors": golden}) + "\n")


if __name__ == "__main__":
    tiny()
    if len(sys.argv) > 1:
        minilm(pathlib.Path(sys.argv[1]))
