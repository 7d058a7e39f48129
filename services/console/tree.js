// A conversation: a tree of turns, of which one path is shown. An edit or a retry makes a sibling, and nothing is lost.
//
//   {id, title, created, updated, settings, leaf, turns: {id: {id, parent, role, content, ...}}}

import { identity } from "./identity.js";
import { resultOf } from "./steps.js";

/** A conversation without turns. */
export function conversation(settings) {
  const now = Date.now();
  return { id: identity(), title: "", created: now, updated: now, settings, leaf: null, turns: {} };
}

/** Adds a turn after `parent` (null: at the beginning) and shows it. Gives the turn. */
export function add(c, parent, turn) {
  const added = { id: identity(), parent, at: Date.now(), ...turn };
  c.turns[added.id] = added;
  c.leaf = added.id;
  c.updated = added.at;
  if (!c.title && turn.role === "user") c.title = turn.content.trim().split("\n")[0].slice(0, 80);
  return added;
}

const SPEAKERS = { user: "You", assistant: "Chimère" };

/** The name that a turn is shown under. */
export const speaker = (turn) => (turn.approve === undefined ? SPEAKERS[turn.role] || turn.name || "Tool" : SPEAKERS.user);

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

const later = (a, b) => (b.at > a.at ? b : a);

/** Shows another sibling, and below it what was made last. */
export function show(c, turn) {
  let leaf = turn;
  for (;;) {
    const below = Object.values(c.turns).filter((t) => t.parent === leaf.id);
    if (!below.length) break;
    leaf = below.reduce(later);
  }
  c.leaf = leaf.id;
}

/** Shows what was made last, if the turn that was shown is not there. */
export function mend(c) {
  const all = Object.values(c.turns);
  if (!c.turns[c.leaf]) c.leaf = all.length ? all.reduce(later).id : null;
}

/** Takes a turn that another tab made or changed, and shows it if it goes on from what is shown. */
export function adopt(c, turn) {
  const own = c.turns[turn.id];
  if (own) return void Object.assign(own, turn);
  c.turns[turn.id] = turn;
  if (turn.parent === c.leaf) c.leaf = turn.id;
}

/** Removes a turn with all that follows it. Gives the names of the turns that went. */
export function prune(c, turn) {
  const others = siblings(c, turn).filter((t) => t !== turn);
  const shown = path(c).includes(turn);
  const gone = below(c, turn);
  for (const name of gone) delete c.turns[name];
  if (shown && others.length) show(c, others.at(-1));
  else if (shown) c.leaf = turn.parent;
  return gone;
}

/** The names of a turn and of all that follows it. */
export function below(c, turn) {
  const found = [turn.id];
  for (let i = 0; i < found.length; i++) for (const t of Object.values(c.turns)) if (t.parent === found[i]) found.push(t.id);
  return found;
}

/** The messages of the API that lead to this turn, itself included, for a request that names servers of tools or none. */
export function messages(c, turn, runsTools) {
  const path = [];
  for (let at = turn; at; at = c.turns[at.parent]) path.unshift(at);
  // What was answered just now is for the service to run or to refuse.
  const asked = path.findLastIndex((at) => at.role !== "tool");
  const found = path.map((at, i) => message(at, runsTools || i > asked, path));
  return c.settings.system.trim() ? [{ role: "system", content: c.settings.system }, ...found] : found;
}

const APPROVED = "The call was approved. Its result is not kept.";

/** What answers a call. A request that could run nothing has the result of an earlier one in words. */
function answer({ callId, content, approve }, runsTools, path) {
  const of = { role: "tool", tool_call_id: callId };
  if (approve === undefined) return { ...of, content };
  if (approve && !runsTools) return { ...of, content: resultOf(path, callId) || APPROVED };
  return { ...of, approve, ...(content ? { content } : {}) };
}

function message(turn, runsTools, path) {
  if (turn.role === "tool") return answer(turn, runsTools, path);
  const said = { role: turn.role, content: turn.content };
  if (turn.calls?.length) {
    said.tool_calls = turn.calls.map((c) => ({ id: c.id, type: "function", function: { name: c.name, arguments: c.arguments } }));
  }
  return said;
}

/** The tokens of the context that the shown path took when it was last asked about, or null. */
export function used(c) {
  const usage = path(c).findLast((turn) => turn.usage)?.usage;
  return usage ? usage.prompt_tokens + usage.completion_tokens : null;
}
