// Where an answer is from: passages of the conversation that it cites by number, and what Engram's documents and tables said.

/** Passages that a turn can cite: those that turns above it number, each `[n]` at the beginning of a line up to the next or to an empty line. */
export function passages(conversation, turn) {
  const found = new Map();
  for (let at = conversation.turns[turn.parent]; at; at = conversation.turns[at.parent]) {
    if (at.role === "assistant") continue;
    const numbered = /^[ \t]*\[(\d{1,3})\]:?[ \t]*(\S[^\n]*(?:\n(?![ \t]*(?:\[\d{1,3}\]|\n|$))[^\n]+)*)/gm;
    // The nearest turn says what a number means.
    const own = new Map([...at.content.matchAll(numbered)].map((m) => [m[1], m[2].trim()]));
    for (const [number, text] of own) if (!found.has(number)) found.set(number, text);
  }
  return found;
}

/** How the parser of Markdown finds citations. */
export const citation = {
  name: "citation",
  level: "inline",
  start: (source) => source.match(/\[\d/)?.index,
  tokenizer(source) {
    const match = /^\[(\d{1,3})\](?![(:]|\[\D)/.exec(source);
    return match && { type: "citation", raw: match[0], number: match[1] };
  },
  renderer: (token) => `<span class="citation">[${token.number}]</span>`,
};

/** Makes the citations below a node buttons, where there is such a passage. */
export function link(node, cited) {
  for (const place of node.querySelectorAll(".citation")) {
    const number = place.textContent.slice(1, -1);
    if (!cited?.has(number)) continue;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "cite";
    button.textContent = place.textContent;
    button.title = cited.get(number).slice(0, 300);
    button.addEventListener("click", () => button.dispatchEvent(new CustomEvent("cite", { bubbles: true, detail: number })));
    place.replaceWith(button);
  }
}

/** Documents and tables that changed tokens of an answer: `[name, tokens]`, the most used first. */
export function sources(engram) {
  const counts = new Map();
  for (const s of engram?.sources || []) {
    const name = s.document === undefined ? "tables" : String(s.title ?? s.document);
    counts.set(name, (counts.get(name) || 0) + 1);
  }
  return [...counts].sort((a, b) => b[1] - a[1]);
}
