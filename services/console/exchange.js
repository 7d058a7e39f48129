// Conversations as files: what is exported, and what an import takes. A file may come from anywhere, so each field is looked at.

import { cleaned as cleanedCitation } from "./annotations.js";
import { DEFAULTS } from "./settings.js";
import { inWords } from "./steplist.js";
import { cleaned as cleanedStep, isStep } from "./steps.js";
import { speaker } from "./tree.js";

const ROLES = ["user", "assistant", "tool"];
const NAME = /^[\w-]{1,80}$/;

/** The conversations of a file. Throws with words if there is none or one of them is damaged. */
export function parse(text) {
  let found;
  try {
    found = JSON.parse(text);
  } catch {
    throw new Error("it is not JSON, or it is cut off");
  }
  const all = Array.isArray(found) ? found : [found];
  if (!all.length) throw new Error("it holds no conversation");
  for (const c of all) {
    const wrong = fault(c);
    if (wrong) throw new Error(`${typeof c?.title === "string" && c.title ? `“${c.title}”` : "a conversation"} ${wrong}`);
  }
  return all.map(cleaned);
}

const named = (value) => typeof value === "string" && NAME.test(value) && value !== "__proto__";

/** What is wrong with a conversation, or null. */
function fault(c) {
  if (!c || typeof c !== "object" || Array.isArray(c)) return "is none: it must be an object with turns";
  if (!named(c.id) || typeof c.turns !== "object" || !c.turns || Array.isArray(c.turns)) return "has no turns";
  for (const [name, t] of Object.entries(c.turns)) {
    if (!named(name) || t?.id !== name || !ROLES.includes(t.role) || typeof t.content !== "string") return `is damaged at turn ${name.slice(0, 80)}`;
    if (t.parent !== null && !Object.hasOwn(c.turns, t.parent)) return `has a turn, ${name}, that follows a turn which is not there`;
  }
  if (c.leaf !== null && !Object.hasOwn(c.turns, c.leaf)) return "shows a turn that is not there";
  return circle(c.turns);
}

function circle(turns) {
  for (const t of Object.values(turns)) {
    const seen = new Set();
    for (let at = t; at; at = turns[at.parent]) {
      if (seen.has(at.id)) return `has a turn, ${t.id}, that follows itself`;
      seen.add(at.id);
    }
  }
  return null;
}

const number = (value, otherwise) => (Number.isFinite(value) ? value : otherwise);
const words = (value) => (typeof value === "string" ? value : "");
const list = (value, wanted) => (Array.isArray(value) ? value.filter(wanted) : []);

/** A conversation with the fields that the page reads, each of the kind that it expects. */
function cleaned(c) {
  const now = Date.now();
  const settings = { ...DEFAULTS, system: words(c.system) };
  for (const [name, value] of Object.entries(DEFAULTS)) if (typeof c.settings?.[name] === typeof value) settings[name] = c.settings[name];
  const turns = Object.fromEntries(Object.entries(c.turns).map(([name, t]) => [name, cleanedTurn(t, now)]));
  return { id: c.id, title: words(c.title).slice(0, 200), created: number(c.created, now), updated: number(c.updated, now), settings, leaf: c.leaf, turns };
}

function cleanedTurn(t, now) {
  const turn = { id: t.id, parent: t.parent, role: t.role, content: t.content, at: number(t.at, now) };
  if (t.role === "tool") return { ...turn, callId: words(t.callId), name: words(t.name), ...(typeof t.approve === "boolean" ? { approve: t.approve } : {}) };
  if (t.role === "user") return turn;
  Object.assign(turn, { reasoning: words(t.reasoning), error: words(t.error), finish: words(t.finish),
    calls: list(t.calls, (call) => call && typeof call === "object").map((call) => ({ id: words(call.id), name: words(call.name), arguments: words(call.arguments) })),
    tokens: list(t.tokens, readable), steps: list(t.steps, isStep).map(cleanedStep), annotations: list(t.annotations, cleanedCitation).map(cleanedCitation),
    stores: list(t.stores, (id) => typeof id === "string") });
  if (Number.isFinite(t.usage?.prompt_tokens) && Number.isFinite(t.usage.completion_tokens)) turn.usage = t.usage;
  if (t.timings && typeof t.timings === "object" && usable(t.timings)) turn.timings = t.timings;
  return turn;
}

const usable = ({ ttft_ms: first, decode_ms: decode, engram }) =>
  [first, decode].every((ms) => ms === undefined || Number.isFinite(ms)) && (engram === undefined || (Number.isFinite(engram?.changed_tokens) && Number.isFinite(engram.lookups)));

/** Whether the inspector can show a kept token. */
function readable(kept) {
  try {
    const token = typeof kept === "string" ? JSON.parse(kept) : kept;
    return typeof token.text === "string" && Number.isFinite(token.logprob) && Array.isArray(token.top);
  } catch {
    return false;
  }
}

/** What an answer's files say, each mark with its words. */
function cited({ content, annotations }) {
  const all = annotations?.length ? [...content] : [];
  const mark = (start) => all.slice(start, all.indexOf("]", start) + 1).join("");
  const lines = (annotations || []).map((of) => `- ${mark(of.start)} ${of.name}${of.page === null ? "" : `, page ${of.page}`}: ${JSON.stringify(of.quote)}`);
  return lines.length ? `\n\n${lines.join("\n")}` : "";
}

/** The shown path of a conversation as Markdown. */
export function markdown(title, path) {
  const parts = path.map((turn) => {
    const thought = turn.reasoning ? `${turn.reasoning.trim().replace(/^/gm, "> ")}\n\n` : "";
    const steps = (turn.steps || []).map((step) => `- ${inWords(step)}\n`).join("");
    const calls = (turn.calls || []).map((call) => `\n\n\`${call.name}\` is called with\n\n\`\`\`json\n${call.arguments}\n\`\`\``).join("");
    return `## ${speaker(turn)}\n\n${thought}${steps && `${steps}\n`}${turn.approve === undefined ? "" : turn.approve ? "Approved. " : "Refused. "}${turn.content.trim()}${calls}${cited(turn)}\n`;
  });
  return [`# ${title || "Conversation"}\n`, ...parts].join("\n");
}

/** Hands a file to whoever looks at the page. */
export function download(name, text, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name.replace(/[^\p{L}\p{N} _.-]+/gu, "_");
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
