// Markdown as it comes. A block that is finished is drawn once; only the last one is drawn again, so a long answer stays
// linear. What a model writes is never trusted: markup is shown as text, and DOMPurify lets no script, style, form or remote
// picture through.

import { marked } from "./vendor/marked.js";

const purify = window.DOMPurify;
// A tail longer than this is shown as plain text until it is whole: drawing it again and again would stall the page.
const TAIL_MAX = 6000;
// Code longer than this keeps one colour.
const CODE_MAX = 20000;

const LANGUAGES = ["bash", "c", "cpp", "css", "diff", "go", "java", "javascript", "json", "markdown", "python", "rust", "sql", "typescript", "xml", "yaml"];
const ALIASES = { sh: "bash", shell: "bash", js: "javascript", ts: "typescript", py: "python", rs: "rust", html: "xml", yml: "yaml", "c++": "cpp", md: "markdown" };

marked.use({
  gfm: true,
  // Markup that a model writes is shown as text: even a parser that throws it away would meet the page's policy first.
  renderer: { html: (token) => escape(token.text) },
  extensions: [formula("blockFormula", "block", /^\$\$([\s\S]+?)\$\$(?:\n|$)|^\\\[([\s\S]+?)\\\](?:\n|$)/, /\$\$|\\\[/, true),
    formula("formula", "inline", /^\\\((.+?)\\\)|^\$(?![\s\d])([^$\n]*[^$\s\\])\$(?!\d)/, /\\\(|\$/, false)],
});

function formula(name, level, rule, start, display) {
  return {
    name,
    level,
    start: (source) => source.match(start)?.index,
    tokenizer(source) {
      const found = rule.exec(source);
      return found && { type: name, raw: found[0], text: (found[1] ?? found[2]).trim() };
    },
    renderer: (token) => `<span class="formula" data-display="${display}">${escape(token.text)}</span>`,
  };
}

const escape = (text) => text.replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);

const RULES = {
  ALLOWED_TAGS: ["a", "b", "blockquote", "br", "code", "del", "details", "div", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "i", "img", "input",
    "kbd", "li", "mark", "ol", "p", "pre", "s", "small", "span", "strong", "sub", "summary", "sup", "table", "tbody", "td", "th", "thead", "tr", "u", "ul"],
  ALLOWED_ATTR: ["align", "alt", "checked", "class", "colspan", "data-display", "disabled", "href", "open", "rowspan", "src", "start", "title", "type"],
  ALLOW_DATA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
};

/** A fragment of safe nodes. */
function clean(html) {
  const fragment = purify.sanitize(html, RULES);
  for (const link of fragment.querySelectorAll("a")) {
    if (!/^(https?:|mailto:|#)/i.test(link.getAttribute("href") || "")) link.removeAttribute("href");
    link.rel = "noopener noreferrer";
    link.target = "_blank";
  }
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

let highlighter;

async function colour(code, language) {
  const name = ALIASES[language] || language;
  if (!LANGUAGES.includes(name) || code.textContent.length > CODE_MAX) return;
  highlighter ||= import("./vendor/hljs/core.js").then((m) => m.default);
  const [hljs, rules] = await Promise.all([highlighter, import(`./vendor/hljs/${name}.js`)]);
  if (!hljs.getLanguage(name)) hljs.registerLanguage(name, rules.default);
  code.replaceChildren(purify.sanitize(hljs.highlight(code.textContent, { language: name, ignoreIllegals: true }).value,
    { ALLOWED_TAGS: ["span"], ALLOWED_ATTR: ["class"], RETURN_DOM_FRAGMENT: true }));
}

let temml;

async function typeset(place) {
  temml ||= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = "/console/vendor/temml.js";
    script.onload = () => resolve(window.temml);
    script.onerror = reject;
    document.head.append(script);
  });
  const source = place.textContent;
  const drawn = (await temml).renderToString(source, { displayMode: place.dataset.display === "true", throwOnError: false, trust: false });
  // Inline styles would break the page's policy; MathML reads well without them.
  const math = drawn.replace(/ style="[^"]*"/g, "");
  place.replaceChildren(purify.sanitize(math, { USE_PROFILES: { mathMl: true }, FORBID_ATTR: ["style", "href"], RETURN_DOM_FRAGMENT: true }));
  place.title = source;
}

/** Colours, formulas and copy buttons of nodes that are finished. */
function finish(nodes) {
  for (const node of nodes) {
    if (!(node instanceof Element)) continue;
    for (const pre of node.matches("pre") ? [node] : node.querySelectorAll("pre")) dress(pre);
    for (const place of node.matches(".formula") ? [node] : node.querySelectorAll(".formula")) typeset(place).catch(() => {});
  }
}

function dress(pre) {
  const code = pre.querySelector("code") || pre;
  const language = /language-(\S+)/.exec(code.className)?.[1] || "";
  const bar = document.createElement("div");
  bar.className = "code-bar";
  const copy = document.createElement("button");
  copy.type = "button";
  copy.textContent = "Copy";
  copy.addEventListener("click", async () => {
    await navigator.clipboard.writeText(code.textContent);
    copy.textContent = "Copied";
    setTimeout(() => (copy.textContent = "Copy"), 1500);
  });
  const name = document.createElement("span");
  name.textContent = language;
  bar.append(name, copy);
  const box = document.createElement("div");
  box.className = "code";
  pre.tabIndex = 0;
  pre.replaceWith(box);
  box.append(bar, pre);
  colour(code, language.toLowerCase()).catch(() => {});
}

/** Draws a growing text into `place`. */
export class Growing {
  constructor(place) {
    this.place = place;
    this.reset();
  }

  reset() {
    this.place.replaceChildren();
    this.done = 0; // characters that are drawn for good
    this.tail = []; // nodes of the block that still grows
    this.text = "";
  }

  /** The text as it is now; it goes on from where it was, or everything is drawn anew. `whole`: nothing more will come. */
  set(text, whole) {
    if (text === this.text && !whole) return;
    if (!text.startsWith(this.text.slice(0, this.done))) this.reset();
    this.text = text;
    const rest = text.slice(this.done);
    const open = /^(`{3,}|~{3,})([^\n]*)\n/.exec(rest);
    // The body of an open fence needs no parser until it closes.
    if (!whole && open && !rest.slice(open[0].length).includes(`\n${open[1]}`)) return this.plain(rest.slice(open[0].length), "pre");
    const blocks = marked.lexer(rest);
    while (blocks.length && blocks.at(-1).type === "space") blocks.pop();
    const grows = whole ? null : blocks.pop();
    this.clear();
    for (const block of blocks) this.draw(block);
    if (!grows) {
      this.done = text.length;
      return;
    }
    this.done = text.length - (rest.length - rest.lastIndexOf(grows.raw));
    if (grows.raw.length > TAIL_MAX) return this.plain(grows.raw, "p");
    this.tail = [...clean(marked.parser([grows])).childNodes];
    this.place.append(...this.tail);
  }

  clear() {
    for (const node of this.tail) node.remove();
    this.tail = [];
  }

  draw(block) {
    const nodes = [...clean(marked.parser([block])).childNodes];
    this.place.append(...nodes);
    finish(nodes);
  }

  /** Text that still grows, as it is. */
  plain(text, tag) {
    const shown = this.tail.length === 1 && this.tail[0].dataset?.plain === tag ? this.tail[0] : null;
    if (shown) {
      const had = shown.firstChild.data.length;
      if (text.startsWith(shown.firstChild.data)) return shown.firstChild.appendData(text.slice(had));
    }
    this.clear();
    const node = document.createElement(tag);
    node.className = "plain";
    node.dataset.plain = tag;
    node.append(document.createTextNode(text));
    this.tail = [node];
    this.place.append(node);
  }
}
