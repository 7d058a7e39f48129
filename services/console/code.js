// Code with its language, a button that copies it, and colours once it is whole.

import { copied, copy } from "./clipboard.js";
import { Pieces } from "./pieces.js";
import { bySlices } from "./slices.js";

// Longer code keeps one colour.
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
    const { painted } = await import("./colours.js");
    let pieces;
    const left = [...this.code.children];
    bySlices(() => {
      if (!pieces) {
        pieces = painted(text, this.language, left.map((piece) => piece.textContent.length));
        return text.length;
      }
      const { value } = pieces.next();
      if (!value) return 0;
      left.shift().replaceChildren(value);
      return value.textContent.length;
    });
  }
}
