// Footnotes: `[^name]` in a text, and `[^name]: words` where the note stands. A note stays where it was written.

const NAME = "[^\\]\\s]{1,40}";
const MARK = new RegExp(`^\\[\\^(${NAME})\\](?!:)`);
const NOTE = new RegExp(`^\\[\\^(${NAME})\\]:[ \\t]*([^\\n]*(?:\\n(?:[ ]{2,}|\\t)[^\\n]+)*)(?:\\n|$)`);

/** How the parser of Markdown finds notes; `escape` makes text of what might be markup. */
export const footnotes = (escape) => [
  {
    name: "footnote",
    level: "block",
    start: (source) => source.match(/^\[\^/m)?.index,
    tokenizer(source) {
      const match = NOTE.exec(source);
      return match && { type: "footnote", raw: match[0], mark: match[1], tokens: this.lexer.inlineTokens(match[2].replace(/\n[ \t]+/g, " "), []) };
    },
    renderer(token) {
      return `<div class="footnote" title="${escape(token.mark)}"><sup>${escape(token.mark)}</sup> ${this.parser.parseInline(token.tokens)}</div>`;
    },
  },
  {
    name: "note",
    level: "inline",
    start: (source) => source.match(/\[\^/)?.index,
    tokenizer(source) {
      const match = MARK.exec(source);
      return match && { type: "note", raw: match[0], mark: match[1] };
    },
    renderer: (token) => `<sup class="note">${escape(token.mark)}</sup>`,
  },
];

/** Makes the marks below a node buttons that lead to their notes. */
export function linkNotes(node) {
  for (const place of node.querySelectorAll(".note")) {
    const mark = place.textContent;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = mark;
    button.setAttribute("aria-label", `Note ${mark}`);
    button.addEventListener("click", () => go(button, mark));
    place.replaceChildren(button);
    hold(place);
  }
}

/** Keeps a mark on the line of its word: a browser may break a line before any button. */
function hold(place) {
  const before = place.previousSibling;
  const word = before?.nodeType === Node.TEXT_NODE && /\S{1,40}$/.exec(before.data);
  if (!word) return;
  const held = document.createElement("span");
  held.className = "held";
  place.replaceWith(held);
  held.append(before.splitText(word.index), place);
}

/** The notes come last, so they are looked for when they are wanted. */
function go(button, mark) {
  const note = [...button.closest(".text").querySelectorAll(".footnote")].find((note) => note.title === mark);
  if (!note) return;
  note.tabIndex = -1;
  note.focus();
}
