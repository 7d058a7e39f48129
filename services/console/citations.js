// Where an answer is from: passages of files or of the conversation that it cites by number, and what Engram's documents and tables
// said.

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

const MARK = /^\[(\d{1,3}(?:[,;] ?\d{1,3}){0,8})\](?![(:]|\[\D)/;

/** How the parser of Markdown finds citations. */
export const citation = {
  name: "citation",
  level: "inline",
  start: (source) => source.match(/\[\d/)?.index,
  tokenizer(source) {
    const match = MARK.exec(source);
    return match && { type: "citation", raw: match[0] };
  },
  renderer: (token) => `<span class="citation">${token.raw}</span>`,
};

/** The tokens in a token, in the order of the text; a picture shows none. */
function within(token) {
  if (token.type === "image") return [];
  if (token.type === "table") return [token.header, ...token.rows].flat().flatMap((cell) => cell.tokens);
  return token.items || token.tokens || [];
}

/** Where the marks of a block stand in its source, first to last; -1 where that cannot be said. */
export function places(block) {
  const found = [];
  let at = 0;
  const walk = (token) => {
    const below = within(token);
    if (below.length) return below.forEach(walk);
    const place = block.raw.indexOf(token.raw, at);
    if (token.type === "citation") found.push(place);
    // What a quotation or an item left out of its lines is not found, and is passed over.
    if (place >= 0) at = place + token.raw.length;
  };
  walk(block);
  return found;
}

/** A mark as a button that asks for what it cites: `key` is a number of a passage, or a place with an `@`. */
function cite(place, key, title, label) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "cite";
  button.textContent = place.textContent;
  button.title = title.slice(0, 300);
  if (label) button.setAttribute("aria-label", label);
  button.addEventListener("click", () => button.dispatchEvent(new CustomEvent("cite", { bubbles: true, detail: key })));
  place.replaceWith(button);
}

/** Makes the citations below a node buttons, where the conversation has such a passage. */
export function link(node, cited) {
  for (const place of node.querySelectorAll(".citation")) {
    const number = place.textContent.slice(1, -1);
    if (cited?.has(number)) cite(place, number, cited.get(number));
  }
}

/** Makes a mark a button if files support the answer there. Gives whether they do. */
export function linkPlace({ node, at }, evidence) {
  const found = evidence.get(at);
  if (!found) return false;
  const names = [...new Set(found.map((of) => of.name))].join(", ");
  cite(node, `@${at}`, `${names}: ${found[0].quote}`, `Source ${node.textContent} ${names}`);
  return true;
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
