#!/usr/bin/env python3
"""Holds Chimère's logits beside llama.cpp's, of the same GGUF file and the same tokens, both on the CPU.

    python3 scripts/compare_logits.py --llama DIR [--positions 2048] [--text FILE] MODEL.gguf ...

DIR holds llama.cpp's shared libraries (libllama, libggml and its parts), built or unpacked. They are called through ctypes; no header is
needed, because the structures of parameters begin as they always did and are handed over with room to spare. Tokens are random ids, or those
that llama.cpp makes of a text, cut into windows that are each read from nothing. Three rows of logits come of every position: Chimère as it serves, Chimère with --exact
(decoded weights, float activations: the yardstick for who is right), and llama.cpp. Prints a table with a line a file:

    same top     positions at which llama.cpp's best token is Chimère's; of all, and of those where it is clear (by --clear of the
                 deviation of the row) with --exact, where rounding cannot change it
    near exact   root of the mean square of the differences to --exact, of its own (after the mean of each row), for both
    right        of the positions where the two disagree, who has the best token of --exact

Exits with 1 when fewer than --aim of all positions agree in any file.
"""
import argparse
import array
import ctypes as c
import math
import pathlib
import random
import subprocess
import sys
import tempfile

PARAMS_BYTES = 1024     # more than any version's structure of parameters


class Params(c.Structure):
    """Those of a context begin with n_ctx, n_batch, n_ubatch; those of a model are taken as they come."""
    _fields_ = [("n_ctx", c.c_uint32), ("n_batch", c.c_uint32), ("n_ubatch", c.c_uint32), ("rest", c.c_uint8 * (PARAMS_BYTES - 12))]


class Batch(c.Structure):
    _fields_ = [("n_tokens", c.c_int32), ("token", c.POINTER(c.c_int32)), ("embd", c.POINTER(c.c_float)), ("pos", c.POINTER(c.c_int32)),
                ("n_seq_id", c.POINTER(c.c_int32)), ("seq_id", c.POINTER(c.POINTER(c.c_int32))), ("output", c.POINTER(c.c_int8))]


LOG = c.CFUNCTYPE(None, c.c_int, c.c_char_p, c.c_void_p)


class Llama:
    """llama.cpp with one model and room for a window."""

    def __init__(self, folder, model, window, threads):
        self.lib, self.window, self.said = load_libraries(folder), window, []
        self.log = LOG(lambda level, text, _: self.said.append(text.decode(errors="replace")))
        self.declare()
        self.lib.llama_log_set(self.log, None)
        self.lib.llama_backend_init()
        self.model = self.lib.llama_model_load_from_file(str(model).encode(), self.lib.llama_model_default_params())
        self.check(self.model, f"{model}: llama.cpp does not load it")
        params = self.lib.llama_context_default_params()
        params.n_ctx = params.n_batch = params.n_ubatch = window
        self.context = self.lib.llama_init_from_model(self.model, params)
        self.check(self.context, f"{model}: llama.cpp makes no context")
        self.lib.llama_set_n_threads(self.context, threads, threads)
        self.words = self.lib.llama_model_get_vocab(self.model)
        self.vocab = self.lib.llama_vocab_n_tokens(self.words)
        self.batch = self.lib.llama_batch_init(window, 0, 1)

    def declare(self):
        pointer, number = c.c_void_p, c.c_int32
        for name, result, arguments in [
                ("llama_log_set", None, [LOG, pointer]), ("llama_backend_init", None, []), ("llama_model_default_params", Params, []),
                ("llama_context_default_params", Params, []), ("llama_model_load_from_file", pointer, [c.c_char_p, Params]),
                ("llama_init_from_model", pointer, [pointer, Params]), ("llama_set_n_threads", None, [pointer, number, number]),
                ("llama_model_get_vocab", pointer, [pointer]), ("llama_vocab_n_tokens", number, [pointer]),
                ("llama_batch_init", Batch, [number, number, number]), ("llama_decode", number, [pointer, Batch]),
                ("llama_get_logits_ith", c.POINTER(c.c_float), [pointer, number]), ("llama_get_memory", pointer, [pointer]),
                ("llama_memory_clear", None, [pointer, c.c_bool]),
                ("llama_tokenize", number, [pointer, c.c_char_p, number, c.POINTER(number), number, c.c_bool, c.c_bool]), ("llama_free", None, [pointer]), ("llama_model_free", None, [pointer])]:
            function = getattr(self.lib, name)
            function.restype, function.argtypes = result, arguments

    def check(self, ok, message):
        if not ok:
            sys.exit(f"{message}\n{''.join(self.said[-20:])}")

    def tokens(self, text, count):
        """The first `count` tokens of a text."""
        data = text.encode()[:16 * count]
        room = (c.c_int32 * len(data))()
        made = self.lib.llama_tokenize(self.words, data, len(data), room, len(data), False, True)
        self.check(made >= count, f"a text of {made} tokens: wanted at least {count}")
        return list(room[:count])

    def read(self, ids):
        """Logits of every position of a window, a row each."""
        self.lib.llama_memory_clear(self.lib.llama_get_memory(self.context), True)
        self.batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            self.batch.token[i], self.batch.pos[i], self.batch.n_seq_id[i], self.batch.output[i] = token, i, 1, 1
            self.batch.seq_id[i][0] = 0
        result = self.lib.llama_decode(self.context, self.batch)
        self.check(result == 0, f"llama_decode returned {result}")
        for i in range(len(ids)):
            row = array.array("f")
            row.frombytes(c.string_at(self.lib.llama_get_logits_ith(self.context, i), 4 * self.vocab))
            yield row

    def close(self):
        self.lib.llama_free(self.context)
        self.lib.llama_model_free(self.model)


def load_libraries(folder):
    """libllama, after what it needs: each is found by whichever comes later. Processors' variants are libraries that ggml loads itself."""
    def find(stem):
        found = sorted(path for path in folder.glob(f"{stem}*.so*") if path.name[len(stem)] == ".")
        if not found:
            sys.exit(f"{folder}: wanted {stem}.so, got {', '.join(sorted(p.name for p in folder.iterdir())) or 'nothing'}")
        return c.CDLL(str(found[0].resolve()), mode=c.RTLD_GLOBAL)
    find("libggml-base")
    if any(folder.glob("libggml-cpu.so*")):
        find("libggml-cpu")
    ggml = find("libggml")
    ggml.ggml_backend_load_all_from_path(str(folder.resolve()).encode())
    return find("libllama")


def chimere(args, model, ids, exact, folder):
    """Its rows: a generator over the file that it writes."""
    listed, out = folder / "ids", folder / ("exact" if exact else "served")
    listed.write_text(" ".join(map(str, ids)))
    command = [args.chimere, "eval", "logits", "--model", model, "--ids", listed, "--window", args.window, "--threads", args.threads,
               "--out", out, *(["--exact"] if exact else [])]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nended with {done.returncode}: {done.stderr[-2000:]}")
    return out


def rows_of(path, vocab):
    with open(path, "rb") as file:
        while data := file.read(4 * vocab):
            row = array.array("f")
            row.frombytes(data)
            yield row


def best(row):
    return row.index(max(row))


def centred(row):
    middle = math.fsum(row) / len(row)
    return [x - middle for x in row]


class Tally:
    """What is counted over the positions of a file."""

    def __init__(self, clear):
        self.clear_by, self.positions, self.same, self.clear, self.clear_same = clear, 0, 0, 0, 0
        self.right = {"Chimère": 0, "llama.cpp": 0, "neither": 0}
        self.off = {"Chimère": 0.0, "llama.cpp": 0.0, "exact": 0.0}

    def add(self, served, exact, other):
        tops = best(served), best(exact), best(other)
        self.positions += 1
        self.same += tops[0] == tops[2]
        if tops[0] != tops[2]:
            self.right["Chimère" if tops[0] == tops[1] else "llama.cpp" if tops[2] == tops[1] else "neither"] += 1
        base = centred(exact)
        square = sum(x * x for x in base)
        self.off["exact"] += square
        for name, row in (("Chimère", served), ("llama.cpp", other)):
            self.off[name] += sum((a - b) ** 2 for a, b in zip(centred(row), base))
        first = exact[tops[1]]
        second = max(max(exact[:tops[1]], default=-math.inf), max(exact[tops[1] + 1:], default=-math.inf))
        if first - second >= self.clear_by * math.sqrt(square / len(exact)):
            self.clear += 1
            self.clear_same += tops[0] == tops[2]

    def near(self, name):
        return math.sqrt(self.off[name] / self.off["exact"])

    def line(self, name):
        clear = f"{self.clear_same / self.clear:.2%} of {self.clear}" if self.clear else "none"
        return (f"| {name} | {self.positions} | {self.same / self.positions:.2%} | {clear} | {self.near('Chimère'):.1e} | "
                f"{self.near('llama.cpp'):.1e} | {self.right['Chimère']} / {self.right['llama.cpp']} / {self.right['neither']} |")


def compare(args, model):
    llama, tally = Llama(args.llama, model, args.window, args.threads), Tally(args.clear)
    if args.text:
        ids = llama.tokens(args.text.read_text(), args.positions)
    else:
        draw = random.Random(args.seed)
        ids = [draw.randrange(llama.vocab) for _ in range(args.positions)]
    with tempfile.TemporaryDirectory() as folder:
        served, exact = (chimere(args, model, ids, exact, pathlib.Path(folder)) for exact in (False, True))
        ours = zip(rows_of(served, llama.vocab), rows_of(exact, llama.vocab))
        for start in range(0, len(ids), args.window):
            for other in llama.read(ids[start:start + args.window]):
                tally.add(*next(ours), other)
            print(f"{model.name}: {min(start + args.window, len(ids))} of {len(ids)} positions", file=sys.stderr)
    llama.close()
    return tally


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=pathlib.Path, nargs="+", help="GGUF files")
    parser.add_argument("--llama", type=pathlib.Path, required=True, metavar="DIR", help="folder of libllama and libggml")
    parser.add_argument("--chimere", type=pathlib.Path, default=pathlib.Path("target/release/chimere"), help="our binary [%(default)s]")
    parser.add_argument("--positions", type=int, default=2048, help="of each file [%(default)s]")
    parser.add_argument("--window", type=int, default=512, help="positions that are read from nothing [%(default)s]")
    parser.add_argument("--threads", type=int, default=2, help="of both [%(default)s]")
    parser.add_argument("--clear", type=float, default=0.1, metavar="SHARE", help="by how much a top token is clear [%(default)s]")
    parser.add_argument("--aim", type=float, default=0.99, metavar="SHARE", help="of positions with the same top token [%(default)s]")
    parser.add_argument("--seed", type=int, default=1, help="of the tokens [%(default)s]")
    parser.add_argument("--text", type=pathlib.Path, metavar="FILE", help="whose tokens are read instead of random ones")
    args = parser.parse_args()
    print("| file | positions | same top | same where clear | Chimère off | llama.cpp off | right: Chimère / llama.cpp / neither |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    met = True
    for model in args.models:
        tally = compare(args, model)
        met &= tally.same >= args.aim * tally.positions
        print(tally.line(model.name), flush=True)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
