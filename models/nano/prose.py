#!/usr/bin/env python3
"""Extracts paragraphs of prose from the documentation of Debian packages: what the generators ask questions about.

    apt-get download PACKAGES; dpkg -x each into ROOT          # the packages of SOURCES, or install them and use --root /
    python3 prose.py --root ROOT --out prose.txt.xz

Nothing of it is committed; the card names the packages. Documents are separated by NUL; each has a line `source<TAB>title`, then paragraphs, one a line.
"""
import argparse
import collections
import gzip
import html
import lzma
import pathlib
import random
import re

from docs import to_text

# source: how it is read, where its files are, most characters. The sources of HELD_OUT are not read by the generators of training.
SOURCES = {
    "gnome-user-docs": ("mallard", "usr/share/help/C/*/*.page", 9e5),
    "python3.11-doc": ("html", "usr/share/doc/python3.11/html/[tfhluwridec]*/*.html", 2.4e6),
    "debian-policy": ("html", "usr/share/doc/debian-policy/*.html/*.html", 7e5),
    "debian-history": ("html", "usr/share/doc/debian-history/docs/*.en.html", 2e5),
    "debian-reference-en": ("html", "usr/share/debian-reference/*.en.html", 6e5),
    "maint-guide": ("html", "usr/share/doc/maint-guide/html/*.en.html", 2e5),
    "postgresql-doc-15": ("html", "usr/share/doc/postgresql-doc-15/html/*.html", 1.8e6),
    "sqlite3-doc": ("html", "usr/share/doc/sqlite3/*.html", 1.6e6),
    "perl-doc": ("pod", "usr/share/perl/5.*/pod/*.pod", 1.8e6),
    "dict-foldoc": ("dictionary", "usr/share/dictd/foldoc.dict.dz", 1.8e6),
    "dict-jargon": ("dictionary", "usr/share/dictd/jargon.dict.dz", 7e5),
    "dict-elements": ("dictionary", "usr/share/dictd/elements.dict.dz", 1e5),
    "debian-faq": ("html", "usr/share/doc/debian/FAQ/*.en.html", 3e5),
    "developers-reference": ("html", "usr/share/developers-reference/*.html", 4e5),
    "coreutils": ("info", "usr/share/info/coreutils.info.gz", 5e5),
}
HELD_OUT = ("debian-faq", "developers-reference", "coreutils")
WORDS_MIN, WORDS_MAX = 9, 160
ENTITIES = re.compile(r"&(?!lt;|gt;|amp;|quot;|apos;|#)\w+;")
TITLE = re.compile(r"<title>(.*?)</title>", re.S)


def joined(text):
    return re.sub(r"\s+", " ", text).strip()


def from_html(text):
    title = TITLE.search(text)
    body = re.search(r'<(?:div class="body"|main|body)[^>]*>(.*)', text, re.S)
    found = [re.sub(r"<[^>]*>", "", line) for line in to_text(body.group(1) if body else text).split("\n\n") if "```" not in line]
    yield html.unescape(title.group(1)) if title else "", found


def from_mallard(text):
    text = ENTITIES.sub("", text)
    title = TITLE.search(text)
    paragraphs = re.findall(r"<p[ >](.*?)</p>", text, re.S)
    yield re.sub(r"<[^>]*>", "", title.group(1)) if title else "", [html.unescape(re.sub(r"<[^>]*>", "", p)) for p in paragraphs]


def from_pod(text):
    plain = re.sub(r"[BICFLSX]<+\s?([^<>|]*\|)?([^<>]*?)\s?>+", r"\2", text)
    plain = re.sub(r"E<(\w+)>", lambda m: {"lt": "<", "gt": ">"}.get(m.group(1), ""), plain)
    title = re.search(r"^=head1 NAME\s+(.*)", plain)
    yield title.group(1) if title else "", [p for p in plain.split("\n\n") if p[:1] not in (" ", "\t", "=", "")]


def from_dictionary(text):
    for entry in re.split(r"\n(?=\S[^\n]*\n\n?\s*\S)", text):
        head, _, body = entry.partition("\n")
        body = re.sub(r"<[\w, ]+>|\{|\}|/[^/\n]{2,30}/", "", body)
        if 80 < len(body) and len(head) < 50:
            yield head.strip(), body.split("\n\n")


def from_info(text):
    for node in text.split("\x1f")[1:]:
        title = re.search(r"Node: ([^,\n]+)", node)
        if title:
            yield title.group(1), [p for p in node.split("\n\n") if not p.startswith("  ")]


READERS = {"html": from_html, "mallard": from_mallard, "pod": from_pod, "dictionary": from_dictionary, "info": from_info}


def is_prose(paragraph):
    """Sentences rather than code, tables or lists of links."""
    words = paragraph.split()
    letters = sum(c.isalpha() or c == " " for c in paragraph)
    return (WORDS_MIN <= len(words) <= WORDS_MAX and letters > 0.86 * len(paragraph) and paragraph[0].isupper() and paragraph[-1] in ".!?"
            and sum(w.isalpha() and w.islower() for w in words) > 0.55 * len(words))


def cleaned(paragraph):
    text = joined(html.unescape(paragraph)).replace("`", "").replace("“", '"').replace("”", '"').replace("’", "'").replace("‘", "'").replace("¶", "")
    return text.encode("ascii", "ignore").decode()


def read(path):
    raw = gzip.decompress(path.read_bytes()) if path.suffix in (".gz", ".dz") else path.read_bytes()
    return raw.decode("utf-8", "replace")


def documents(root, source, seen):
    kind, pattern, most = SOURCES[source]
    found = []
    for path in sorted(root.glob(pattern)):
        for title, paragraphs in READERS[kind](read(path)):
            kept = []
            for paragraph in map(cleaned, filter(None, paragraphs)):
                if paragraph and is_prose(paragraph) and paragraph not in seen:
                    seen.add(paragraph)
                    kept.append(paragraph)
            if kept:
                found.append((joined(re.sub(r"<[^>]*>", "", title))[:80], kept))
    random.Random(source).shuffle(found)
    for title, kept in found:
        if most > 0:
            most -= sum(map(len, kept))
            yield title.replace("\t", " "), kept


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--root", type=pathlib.Path, default=pathlib.Path("/"))
    ap.add_argument("--out", required=True)
    args = ap.parse_args()
    seen, out, counts = set(), [], collections.Counter()
    for source in SOURCES:
        root = args.root if list(args.root.glob(SOURCES[source][1])) else pathlib.Path("/")
        for title, paragraphs in documents(root, source, seen):
            out.append(f"{source}\t{title}\n" + "\n".join(paragraphs))
            counts[source] += sum(map(len, paragraphs))
    with lzma.open(args.out, "wt", preset=9) as f:
        f.write("\x00".join(out))
    print(f"{len(out)} documents, {sum(counts.values()) / 1e6:.1f} M characters: " + ", ".join(f"{k} {v / 1e3:.0f} k" for k, v in counts.items()))


if __name__ == "__main__":
    main()
