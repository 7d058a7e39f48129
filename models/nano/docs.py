#!/usr/bin/env python3
"""Extracts plain text from the Rust documentation that a toolchain carries (rustup component `rust-docs`).

The books, the reference, the error codes, the prose of the standard library and its source are all under MIT or Apache-2.0.
The embedded book is left out: its prose is under CC-BY-SA.

    python3 docs.py --out docs.txt.xz --heldout heldout.txt
"""
import argparse
import html
import lzma
import pathlib
import re
import subprocess
import zlib

BOOKS = ["book", "reference", "rust-by-example", "nomicon", "cargo", "edition-guide", "rustc", "rustdoc", "clippy",
         "style-guide", "error_codes", "unstable-book"]
API = ["std", "alloc", "test", "proc_macro"]
SEPARATOR = "\x00"          # between pages: no page contains it
HELDOUT_ONE_IN = 40
HELDOUT_BYTES_MAX = 96 * 1024

DIV = re.compile(r"<div\b|</div>")
DOCBLOCK = re.compile(r'<div class="docblock[^"]*">')
DROP = re.compile(r"<(script|style|nav|button|svg|summary)\b.*?</\1>|<!--.*?-->", re.S)
PRE = re.compile(r"<pre\b[^>]*>(.*?)</pre>", re.S)
BLOCK = re.compile(r"</?(p|div|section|article|details|blockquote|table|tr|ul|ol|dl|dd|dt|hr|br)\b[^>]*>")
HEADING = re.compile(r"<h([1-6])\b[^>]*>(.*?)</h\1>", re.S)
HIDDEN_LINE = re.compile(r'<span class="boring">.*?</span>', re.S)
TAG = re.compile(r"<[^>]*>")


def to_text(page):
    """HTML fragment to text: headings as `#`, code blocks fenced, everything else one paragraph a line."""
    page = HIDDEN_LINE.sub("", DROP.sub("", page))
    blocks = []

    def keep_code(match):
        blocks.append(html.unescape(TAG.sub("", match.group(1))).strip("\n"))
        return f"<p>\x01{len(blocks) - 1}\x01</p>"

    page = PRE.sub(keep_code, page)
    page = page.replace("\n", " ")
    page = HEADING.sub(lambda m: f"<p>{'#' * int(m.group(1))} {m.group(2)}</p>", page)
    page = re.sub(r"<li\b[^>]*>", "<p>- ", page)
    page = re.sub(r"</?code\b[^>]*>", "`", page)
    page = BLOCK.sub("\n", page)
    page = html.unescape(TAG.sub("", page)).replace("§", "").replace("\xa0", " ")
    lines = (re.sub(r"[ \t]+", " ", line).strip() for line in page.split("\n"))
    text = "\n\n".join(line for line in lines if line and line not in ("-", "`", "ⓘ"))
    return re.sub("\x01(\\d+)\x01", lambda m: "```\n" + blocks[int(m.group(1))] + "\n```", text)


def docblocks(page):
    """The prose blocks of an API page: balanced <div class="docblock"> elements."""
    at = 0
    while match := DOCBLOCK.search(page, at):
        depth, end = 1, match.end()
        while depth:
            tag = DIV.search(page, end)
            if tag is None:
                return
            depth += 1 if tag.group().startswith("<div") else -1
            end = tag.end()
        yield page[match.end():end]
        at = end


def pages(root):
    for book in BOOKS:
        for path in sorted((root / book).rglob("*.html")):
            if path.name in ("print.html", "toc.html", "SUMMARY.html", "404.html"):
                continue
            if any(len(part) == 2 for part in path.relative_to(root).parts[:-1]):     # es, ja, ko, zh translations
                continue
            match = re.search(r"<main>(.*?)</main>", path.read_text(errors="replace"), re.S)
            if match:
                yield f"{book}/{path.stem}", to_text(match.group(1))
    for crate in API:
        for path in sorted((root / crate).rglob("*.html")):
            if re.search(r"/(arch|simd)/", str(path)):       # thousands of near-identical intrinsics
                continue
            prose = [to_text(block) for block in docblocks(path.read_text(errors="replace"))]
            name = path.stem.split(".", 1)[-1]
            yield f"{crate}/{path.stem}", f"# {name}\n\n" + "\n\n".join(prose)


def sources(root):
    """The library's own source pages, line numbers dropped."""
    for crate in ("std", "alloc", "core", "proc_macro", "test"):
        for path in sorted((root / "src" / crate).rglob("*.rs.html")):
            if re.search(r"/(core_arch|stdarch|simd|unicode|flt2dec|dec2flt)/", str(path)):    # generated tables and intrinsics
                continue
            match = re.search(r'<pre class="rust">(.*?)</pre>', path.read_text(errors="replace"), re.S)
            if match:
                code = re.sub(r"<a href=#\d+ id=\d+[^>]*>\d+</a>", "", match.group(1))
                yield html.unescape(TAG.sub("", code)).strip() + "\n"


def without(text, forbidden):
    """Drops the lines of a source whose comment is a line of a held-out page."""
    return "\n".join(line for line in text.split("\n") if line.strip(" /!*") not in forbidden)


def unique_paragraphs(found, seen):
    """Trait documentation is repeated on every implementing type; each paragraph is kept once."""
    kept = []
    for paragraph in found.split("\n\n"):
        key = zlib.crc32(paragraph.encode()) if len(paragraph) > 60 else None
        if key is None or key not in seen:
            kept.append(paragraph)
            seen.add(key)
    return "\n\n".join(kept)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--html", type=pathlib.Path, help="share/doc/rust/html (default: of the active toolchain)")
    ap.add_argument("--out", required=True, help="training text, xz, pages separated by NUL")
    ap.add_argument("--heldout", required=True, help="held-out pages, plain text, for the perplexity of eval.py")
    args = ap.parse_args()
    root = args.html
    if root is None:
        sysroot = subprocess.check_output(["rustc", "--print", "sysroot"], text=True).strip()
        root = pathlib.Path(sysroot, "share/doc/rust/html")
    train, heldout, seen, heldout_bytes = [], [], set(), 0
    for name, text in pages(root):
        text = unique_paragraphs(text, seen)
        if len(text) < 200:
            continue
        if zlib.crc32(name.encode()) % HELDOUT_ONE_IN == 0:
            if 1500 < len(text) < 12000 and heldout_bytes + len(text.encode()) < HELDOUT_BYTES_MAX:
                heldout.append(text)
                heldout_bytes += len(text.encode())
        else:
            train.append(text)
    forbidden = {line.strip() for page in heldout for line in page.split("\n") if len(line.strip()) > 30}
    train += [without(text, forbidden) for text in sources(root)]
    with lzma.open(args.out, "wt", preset=6) as f:
        f.write(SEPARATOR.join(train))
    pathlib.Path(args.heldout).write_text(("\n" + "=" * 72 + "\n").join(heldout))
    print(f"{len(train)} pages, {sum(map(len, train)) / 1e6:.1f} M characters for training; "
          f"{len(heldout)} pages, {heldout_bytes} bytes held out")


if __name__ == "__main__":
    main()
