// Code with its language, a button that copies it, and colours once it is whole.

import { copied, copy } from "./clipboard.js";
import { Pieces } from "./pieces.js";
import { bySlices } from "./slices.js";

// Longer code keeps one colour: the highlighter takes a text as a whole, in one task.
const COLOURED_MAX = 20_000;
const LANGUAGES = ["bash", "cpp", "css", "diff", "go", "java", "javascript", "json", "markdown", "python", "rust", "sql", "xml", "yaml"];
// C and TypeScript read well by the rules of a larger and a smaller relative, which are here anyway.
const ALIASES = { sh: "bash", shell: "bash", c: "cpp", h: "cpp", js: "javascript", ts: "javascript", typescript: "javascript", py: "python", rs: "rust", html: "xml", yml: "yaml", "c++": "cpp", md: "markdown" };

function element(tag, className, ...children) {
  const made = document.createElement(tag);
  made.className = className;
  made.append(...children);
  return made;
}

export class Code {
  /** `info` is what stands behind the opening fence. */
  constructor(info) {
    const language = info.trim().split(/\s/)[0];
    this.language = ALIASES[language.toLowerCase()] || language.toLowerCase();
    this.code = element("code", "");
    this.pieces = new Pieces(this.code);
    const pre = element("pre", "", this.code);
    pre.tabIndex = 0;
    this.box = element("div", "code", element("div", "code-bar", element("span", "", language), this.button()), pre);
  }

  button() {
    const button = element("button", "", "Copy");
    button.type = "button";
    button.addEventListener("click", async () => {
      button.textContent = copied(await copy(this.code.textContent));
      setTimeout(() => (button.textContent = "Copy"), 2500);
    });
    return button;
  }

  /** Adds what is certain: whole lines, and what is left at the end. */
  add(text) {
    this.partial?.remove();
    this.partial = null;
    this.pieces.add(text);
    return this;
  }

  /** Shows a line that is still being written, unless it may be what closes the fence. */
  show(line) {
    if (/^ {0,3}[`~]*\s*$/.test(line)) return this.add("");
    this.partial ||= this.code.appendChild(element("span", "piece"));
    this.partial.textContent = line;
  }

  /** Nothing more comes. */
  end() {
    this.add("");
    if (LANGUAGES.includes(this.language)) this.colour().catch(() => {});
    return this;
  }

  async colour() {
    const text = this.code.textContent;
    if (text.length > COLOURED_MAX) return;
    const [hljs, rules] = await Promise.all([import("./vendor/hljs/core.js"), import(`./vendor/hljs/${this.language}.js`)]).then((all) => all.map((m) => m.default));
    if (!hljs.getLanguage(this.language)) hljs.registerLanguage(this.language, rules);
    let pieces;
    const left = [...this.code.children];
    bySlices(() => {
      if (!pieces) {
        pieces = painted(hljs.highlight(text, { language: this.language, ignoreIllegals: true }).value, left.map((piece) => piece.textContent.length));
        return text.length;
      }
      const { value } = pieces.next();
      if (!value) return 0;
      left.shift().replaceChildren(value);
      return value.textContent.length;
    });
  }
}

const ENTITIES = { "&amp;": "&", "&lt;": "<", "&gt;": ">", "&quot;": '"', "&#x27;": "'" };

/** What the highlighter wrote, as fragments of so many characters each: text and spans with a class, and nothing else is made of it. */
export function* painted(markup, lengths) {
  const classes = [];
  let place, left, piece;
  const begin = () => {
    piece = place = document.createDocumentFragment();
    for (const name of classes) place = place.appendChild(element("span", name));
    left = lengths.shift();
  };
  begin();
  for (const [, open, close, encoded] of markup.matchAll(/<span class="([^"]*)">|(<\/span>)|([^<]+)/g)) {
    if (open !== undefined) {
      classes.push(open);
      place = place.appendChild(element("span", open));
    } else if (close) {
      classes.pop();
      place = place.parentNode;
    } else {
      let text = encoded.replace(/&(?:amp|lt|gt|quot|#x27);/g, (entity) => ENTITIES[entity]);
      while (text) {
        place.append(text.slice(0, left));
        [text, left] = [text.slice(left), left - Math.min(left, text.length)];
        if (left) continue;
        yield piece;
        if (!lengths.length) return;
        begin();
      }
    }
  }
}
