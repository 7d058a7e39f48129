// Markdown as it comes. A block that is finished is drawn once and for all; only the last one is drawn again, and a long one is
// cut, so an answer of any length stays linear and is drawn in small steps. What a model writes is never trusted: markup is shown
// as text, and DOMPurify lets no script, style, form or remote picture through.

import { marked } from "./vendor/marked.js";
import { citation, link, linkPlace, places } from "./citations.js";
import { Code } from "./code.js";
import { footnotes, linkNotes } from "./footnotes.js";
import { formulas, typeset } from "./formula.js";
import "./nesting.js";
import { Pieces } from "./pieces.js";
import { bySlices } from "./slices.js";
import "./vendor/purify.js";

const purify = window.DOMPurify;

// Characters that the parser gets at once; twice as many when it finds no end in them.
const WINDOW = 2000;
// A paragraph or a table that grows beyond this is cut where a line or a row ends, which can be seen. A piece is at most
// twice the window, so that drawing it and laying it out is a short task.
const BLOCK_MAX = 3000;
// A list is cut where an item ends, which nobody sees.
const LIST_MAX = 1500;
// Anything else (a quotation, one item with all that is in it) is cut here; it is shown as plain text from `BLOCK_MAX` on, until
// it is whole.
const ANY_MAX = 12_000;
// Characters of finished blocks in one step, and the time after which it begins no other block: each costs the purifier a document,
// so many small ones take longer than a long one.
const STEP = 800, STEP_MS = 4;
// Blocks stand in parts of about so many characters; the browser passes over those that are out of sight.
const PART = 3000;
// The growing block may take this share of the time, however often it is drawn anew.
const SHARE = 0.1;

const FENCE = /^(?:(`{3,})([^`\n]*)|(~{3,})([^\n]*))\n/;

const escape = (text) => text.replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);

marked.use({
  gfm: true,
  // Markup that a model writes is shown as text: even a parser that throws it away would meet the page's policy first.
  renderer: { html: (token) => escape(token.text) },
  extensions: [...formulas(escape), ...footnotes(escape), citation],
});

const RULES = {
  ALLOWED_TAGS: ["a", "b", "blockquote", "br", "code", "del", "details", "div", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "i", "img", "input",
    "kbd", "li", "mark", "ol", "p", "pre", "s", "small", "span", "strong", "sub", "summary", "sup", "table", "tbody", "td", "th", "thead", "tr", "u", "ul"],
  ALLOWED_ATTR: ["align", "alt", "checked", "class", "colspan", "data-display", "disabled", "href", "open", "rowspan", "src", "start", "title", "type"],
  ALLOW_DATA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
};

// What reads from its own first letter on, from the left or from the right.
const DIRECTED = "p, li, h1, h2, h3, h4, h5, h6, td, th, blockquote, .footnote";

/** A fragment of safe nodes. */
function clean(html) {
  const fragment = purify.sanitize(html, RULES);
  for (const link of fragment.querySelectorAll("a")) {
    if (!/^(https?:|mailto:|#)/i.test(link.getAttribute("href") || "")) link.removeAttribute("href");
    link.rel = "noopener noreferrer";
    link.target = "_blank";
  }
  for (const block of fragment.querySelectorAll(DIRECTED)) block.dir = "auto";
  for (const image of fragment.querySelectorAll("img")) {
    // A remote picture would tell its server who reads this answer.
    if (!/^data:image\/(png|jpeg|gif|webp);/i.test(image.getAttribute("src") || "")) {
      image.replaceWith(document.createTextNode(image.alt ? `[picture: ${image.alt}]` : "[picture]"));
    }
  }
  for (const input of fragment.querySelectorAll("input")) {
    if (input.type === "checkbox") input.disabled = true;
    else input.remove();
  }
  return fragment;
}

/** Code gets its box, formulas are drawn, citations lead to what they cite. */
function finish(node, cited) {
  if (!(node instanceof Element)) return;
  link(node, cited);
  linkNotes(node);
  for (const pre of node.querySelectorAll("pre")) {
    const info = /language-(\S+)/.exec(pre.firstElementChild?.className)?.[1] || "";
    pre.replaceWith(new Code(info).add(pre.textContent).end().box);
  }
  for (const place of node.matches(".formula") ? [node] : node.querySelectorAll(".formula")) typeset(place).catch(() => {});
}

/** The nodes of a finished block, and its marks: `{node, at}`, where each stands in the whole text. */
function drawn(block, cited) {
  if (block.type === "space") return { nodes: [], marks: [] };
  if (block.type === "code") return { nodes: [new Code(block.lang || "").add(`${block.text}\n`).end().box], marks: [] };
  const fragment = clean(marked.parser([block]));
  const found = [...fragment.querySelectorAll(".citation")];
  const at = found.length ? places(block) : [];
  const marks = found.map((node, i) => ({ node, at: at.length === found.length && at[i] >= block.head ? block.at + at[i] : -1 }));
  const nodes = [...fragment.childNodes];
  nodes.forEach((node) => finish(node, cited));
  return { nodes, marks };
}

// What the parser says of its last line is not what stood there: a space at its end is gone.
const length = (tokens) => tokens.reduce((sum, token) => sum + token.raw.length, 0);

/** Where a block can be cut, so that what is before stands alone. */
function cut({ raw, items }) {
  if (items?.length > 1) return length(items.slice(0, -1));
  return raw.lastIndexOf("\n", raw.length - 2) + 1 || raw.lastIndexOf(" ") + 1 || raw.length;
}

/** Characters from which on a growing block is cut. */
function most({ type, items }) {
  if (items?.length > 1) return LIST_MAX;
  return ["paragraph", "table"].includes(type) ? BLOCK_MAX : ANY_MAX;
}

/** Draws a growing text into `place`; `cited` are the passages of the conversation that it may cite, by number. */
export class Growing {
  constructor(place, cited) {
    this.place = place;
    this.cited = cited;
    this.reset();
  }

  reset() {
    this.place.replaceChildren();
    this.text = "";
    this.done = 0; // characters that are drawn for good, or wait in `blocks`
    this.blocks = []; // finished, to be drawn
    this.tail = []; // nodes of the block that still grows
    this.part = null; // where blocks are appended
    this.room = 0; // characters that it still takes
    this.code = null; // the open fence: its box, and what closes it
    this.window = WINDOW;
    this.cut = null; // what the block that was cut is: it goes on
    this.marks = []; // that are drawn for good and no citations yet
  }

  /**
   * The text as it is now; it goes on from where it was, or everything is drawn anew. `whole`: nothing more will come. `evidence`: what
   * files say, by the places of the marks, where the answer is from files.
   */
  set(text, whole, evidence) {
    text = text.replaceAll("\r\n", "\n");
    if (evidence !== this.evidence) {
      this.evidence = evidence;
      this.link();
    }
    if (text === this.text && whole === this.whole) return;
    if (!text.startsWith(this.text.slice(0, this.done))) this.reset();
    this.text = text;
    this.whole = whole;
    this.go();
  }

  go() {
    if (this.going) return;
    this.going = true;
    bySlices(() => {
      const chars = this.step();
      this.going = chars > 0;
      if (!chars) this.tell();
      return chars;
    });
  }

  /** Makes those marks buttons that are citations by now. */
  link() {
    if (this.evidence) this.marks = this.marks.filter((mark) => !linkPlace(mark, this.evidence));
    this.tell();
  }

  /** Says which marks are none, once nothing more will come. */
  tell() {
    if (!this.evidence || !this.whole || this.going) return;
    this.place.dispatchEvent(new CustomEvent("unproved", { bubbles: true, detail: this.marks.map((mark) => mark.node.textContent).join(" ") }));
  }

  /** The next small thing to do; 0 when there is none. */
  step() {
    if (!this.place.isConnected) return 0;
    if (this.blocks.length) return this.draw();
    return this.code ? this.lines() : this.parse();
  }

  draw() {
    this.clear();
    const end = performance.now() + STEP_MS;
    let chars = 0;
    do {
      const block = this.blocks.shift();
      const { nodes, marks } = drawn(block, this.cited);
      this.append(nodes, block);
      if (this.evidence) this.marks.push(...marks.filter((mark) => !linkPlace(mark, this.evidence)));
      this.room -= block.raw.length;
      chars += block.raw.length;
    } while (this.blocks.length && chars < STEP && performance.now() < end);
    return chars;
  }

  append(nodes, block) {
    if (this.room <= 0) {
      this.part = this.place.appendChild(document.createElement("div"));
      this.part.className = "part";
      this.room = PART;
    }
    if (block?.goesOn) nodes[0]?.classList?.add("goes-on");
    if (block?.isCut) nodes.at(-1)?.classList?.add("cut");
    this.part.append(...nodes);
    return nodes;
  }

  /** Looks at what comes next: finished blocks are queued, an open fence begins, the last block is the tail. */
  parse() {
    const begun = performance.now();
    if (this.tail.length && !this.whole && begun < this.next) return this.later();
    this.done += /^\s*\n|/.exec(this.text.slice(this.done, this.done + WINDOW))[0].length;
    const rest = this.text.slice(this.done, this.done + this.window);
    if (!rest) this.clear();
    if (!rest) return 0;
    if (this.fence(rest)) return 1;
    const blocks = this.lex((this.cut?.head || "") + rest);
    const last = this.done + rest.length === this.text.length;
    if (last && this.whole) return this.queue(blocks, rest.length, null);
    const grows = blocks.pop();
    if (blocks.length) return this.queue(blocks, length(blocks) - this.head(), null);
    return grows ? this.grow(grows, last, begun) : 0;
  }

  /** The blocks of a text; the first may be what goes on after a cut. */
  lex(source) {
    const blocks = marked.lexer(source);
    if (blocks.length > 1 && blocks.at(-1).type === "space") blocks.pop();
    const [first] = blocks;
    if (this.cut && this.cut.type === first?.type) {
      first.goesOn = true;
      if (first.ordered) first.start = this.cut.start;
    }
    return blocks;
  }

  /** Characters that stand before what goes on, so that the parser knows what it is. */
  head() {
    return this.cut?.head?.length || 0;
  }

  /** Takes finished blocks, which end after `chars` more characters; `cut` says how the last of them goes on. */
  queue(blocks, chars, cut) {
    let at = this.done - this.head();
    for (const block of blocks) {
      block.at = at;
      // The heading of a table that goes on stood elsewhere.
      block.head = Math.max(0, this.done - at);
      at += block.raw.length;
    }
    this.blocks = blocks;
    this.done += chars;
    this.window = WINDOW;
    this.cut = cut;
    return 1;
  }

  /** A block that is not finished: drawn as far as it has come, or cut. */
  grow(block, last, begun) {
    const head = this.head();
    if (block.raw.length - head >= most(block)) {
      const at = cut(block);
      const goesOn = { type: block.type };
      if (block.type === "table") goesOn.head = `${block.raw.split("\n", 2).join("\n")}\n`;
      if (block.ordered) goesOn.start = Number(block.start) + block.items.length - 1;
      const blocks = this.lex(block.raw.slice(0, at));
      blocks.at(-1).isCut = true;
      return this.queue(blocks, at - head, goesOn);
    }
    if (last) return this.sketch(block, begun);
    this.window *= 2;
    return 1;
  }

  /** Draws the tail. */
  sketch(block, begun) {
    if (block.raw.length > BLOCK_MAX) this.plain(block.raw);
    else {
      this.clear();
      this.tail = this.append([...clean(marked.parser([block])).childNodes], block);
    }
    const now = performance.now();
    this.next = now + (now - begun) / SHARE;
    return 0;
  }

  later() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.go(), this.next - performance.now());
    return 0;
  }

  clear() {
    for (const node of this.tail) node.remove();
    this.tail = [];
    this.shown = null;
  }

  /** A long tail, as it is. */
  plain(text) {
    if (!this.shown || !text.startsWith(this.shown.text)) {
      this.clear();
      const place = document.createElement("div");
      this.shown = { text: "", pieces: new Pieces(place) };
      place.className = "plain";
      this.tail = this.append([place]);
    }
    this.shown.pieces.add(text.slice(this.shown.text.length));
    this.shown.text = text;
  }

  /** Begins a box of code if `rest` does. */
  fence(rest) {
    const [line, ticks, ticksInfo, tildes, tildesInfo] = FENCE.exec(rest) || [];
    if (!line) return false;
    const mark = ticks || tildes;
    this.clear();
    this.code = { box: new Code(ticksInfo ?? tildesInfo), end: new RegExp(`^ {0,3}${mark[0]}{${mark.length},}[ \\t]*$`, "m") };
    this.append([this.code.box.box]);
    this.done += line.length;
    this.cut = null;
    return true;
  }

  /** The next lines of an open fence; no parser looks at them. */
  lines() {
    const { box, end } = this.code;
    const rest = this.text.slice(this.done, this.done + WINDOW);
    const whole = this.whole && this.done + rest.length === this.text.length;
    const found = end.exec(rest);
    const after = found ? found.index + found[0].length : 0;
    // The line that closes it is known as such by its end.
    if (found && (whole || rest[after] === "\n")) {
      box.add(rest.slice(0, found.index)).end();
      this.room -= box.code.textContent.length;
      this.code = null;
      this.done += Math.min(after + 1, rest.length);
      return after;
    }
    const lines = rest.lastIndexOf("\n", found ? found.index : rest.length) + 1;
    const chars = whole || (!lines && rest.length === WINDOW) ? rest.length : lines;
    if (chars) box.add(rest.slice(0, chars));
    this.done += chars;
    if (!whole) box.show(rest.slice(chars));
    if (!whole) return chars;
    box.end();
    this.code = null;
    return 1;
  }
}
