// A conversation: a tree of turns, of which one path is shown. An edit or a retry makes a sibling, and nothing is lost.
//
//   {id, title, created, updated, system, leaf, turns: {id: {id, parent, role, content, ...}}}

const id = () => crypto.randomUUID();

/** A conversation without turns. */
export function conversation(system = "") {
  const now = Date.now();
  return { id: id(), title: "", created: now, updated: now, system, leaf: null, turns: {} };
}

/** Adds a turn after `parent` (null: at the beginning) and shows it. Gives the turn. */
export function add(c, parent, turn) {
  const added = { id: id(), parent, at: Date.now(), ...turn };
  c.turns[added.id] = added;
  c.leaf = added.id;
  c.updated = added.at;
  if (!c.title && turn.role === "user") c.title = turn.content.trim().split("\n")[0].slice(0, 80);
  return added;
}

/** The turns that are shown, first to last. */
export function path(c) {
  const found = [];
  for (let at = c.turns[c.leaf]; at; at = c.turns[at.parent]) found.unshift(at);
  return found;
}

/** Turns with the same parent, in the order they were made; the turn itself is one of them. */
export function siblings(c, turn) {
  return Object.values(c.turns)
    .filter((t) => t.parent === turn.parent)
    .sort((a, b) => a.at - b.at || (a.id < b.id ? -1 : 1));
}

/** Shows another sibling, and below it what was made last. */
export function show(c, turn) {
  let leaf = turn;
  for (;;) {
    const below = Object.values(c.turns).filter((t) => t.parent === leaf.id);
    if (!below.length) break;
    leaf = below.reduce((a, b) => (b.at > a.at ? b : a));
  }
  c.leaf = leaf.id;
}

/** The messages of the API that lead to this turn, itself included; `null` gives what the system says alone. */
export function messages(c, turn) {
  const found = [];
  for (let at = turn; at; at = c.turns[at.parent]) found.unshift(message(at));
  return c.system.trim() ? [{ role: "system", content: c.system }, ...found] : found;
}

function message(turn) {
  if (turn.role === "tool") return { role: "tool", tool_call_id: turn.callId, content: turn.content };
  const said = { role: turn.role, content: turn.content };
  if (turn.calls?.length) {
    said.tool_calls = turn.calls.map((c) => ({ id: c.id, type: "function", function: { name: c.name, arguments: c.arguments } }));
  }
  return said;
}

/** What an import found wrong with a conversation, or null. */
export function fault(c) {
  if (!c || typeof c !== "object") return "not a conversation";
  if (typeof c.id !== "string" || typeof c.turns !== "object" || !c.turns) return "has no turns";
  for (const [name, t] of Object.entries(c.turns)) {
    if (t.id !== name || !["user", "assistant", "tool"].includes(t.role) || typeof t.content !== "string") return `turn ${name} is damaged`;
    if (t.parent !== null && !c.turns[t.parent]) return `turn ${name} follows a turn that is not there`;
  }
  if (c.leaf !== null && !c.turns[c.leaf]) return "shows a turn that is not there";
  for (const t of Object.values(c.turns)) {
    const seen = new Set();
    for (let at = t; at; at = c.turns[at.parent]) {
      if (seen.has(at.id)) return `turn ${t.id} follows itself`;
      seen.add(at.id);
    }
  }
  return null;
}
