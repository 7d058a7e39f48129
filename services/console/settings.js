// How the next answers of a conversation are made: what a request says beside its messages, in words. Each conversation has its own;
// new ones begin with the defaults of this browser, and presets are sets of settings with a name.

import { html, useState } from "./vendor/preact-htm.js";
import { later } from "./later.js";

const StoreChoice = later(async () => (await import("./choice.js")).StoreChoice);
const ToolChoice = later(async () => (await import("./tools.js")).ToolChoice);

const NAME = "chimere.settings", PRESETS = "chimere.presets";

export const DEFAULTS = { model: "", system: "", thinking: "", budget: "", temperature: "", top_p: "", top_k: "", min_p: "", max_tokens: "", seed: "",
  presence_penalty: "", tools: "", tables: "", lambda: "", stores: "", passages: "", servers: "", web: false, inspect: false };

function stored(name) {
  try {
    return JSON.parse(localStorage.getItem(name)) || {};
  } catch {
    return {};
  }
}

/** The settings of a new conversation. */
export const load = () => ({ ...DEFAULTS, ...stored(NAME) });

const keep = (name, value) => localStorage.setItem(name, JSON.stringify(value));

const THINKING = { "": "As the model does", none: "Not at all", auto: "Only if unsure", low: "A little", medium: "Some", high: "As long as it likes", budget: "At most so many tokens" };
const VARIETY = { "": "As the model does", 0: "Always the likeliest words", 0.3: "Focused", 0.7: "Balanced", 1: "Varied", 1.3: "Surprising" };
const LENGTHS = { "": "As long as it takes", 256: "A paragraph or two, 256 tokens", 1024: "A page, 1,024 tokens", 4096: "Some pages, 4,096 tokens" };

// Name of the field, words, least, most, step, unit, explanation.
const NUMBERS = [
  ["temperature", "Temperature", 0, 2, 0.1, "", "0 always takes the likeliest token; higher is more varied"],
  ["top_p", "Top p", 0, 1, 0.05, "of the probability", "Only the likeliest tokens, up to this share together"],
  ["top_k", "Top k", 0, 1000, 10, "tokens", "Only this many of the likeliest; 0 keeps all"],
  ["min_p", "Min p", 0, 1, 0.05, "of the likeliest", "Only tokens at least this likely beside the likeliest"],
  ["presence_penalty", "Presence penalty", -2, 2, 0.1, "", "Makes tokens that were said less likely"],
  ["max_tokens", "Longest answer", 1, 1048576, 1, "tokens", "The answer, with its thought, ends here at the latest"],
  ["seed", "Seed", 0, 9007199254740991, 1, "", "The same seed and question give the same answer"],
];

const PASSAGES = 8; // that an answer gets to read

/** Ids of the stores that an answer is from. */
export const chosen = (s) => (s.stores || "").split(",").filter(Boolean);

/** Labels of the servers whose tools the model may call. */
export const chosenServers = (s) => (s.servers || "").split(",").filter(Boolean);

/** The fields of a request. Throws with words if something is not right. */
export function fields(s) {
  const body = {};
  for (const [name] of NUMBERS) if (s[name] !== "") body[name] = Number(s[name]);
  if (s.thinking === "budget") body.reasoning = { max_tokens: Number(s.budget || 0) };
  else if (s.thinking) body.reasoning_effort = s.thinking;
  const tools = [...(s.tools.trim() ? parsed(s.tools) : []), ...serviceTools(s)];
  if (tools.length) body.tools = tools;
  const engram = {};
  if (s.tables.trim()) engram.tables = s.tables.split(",").map((t) => t.trim()).filter(Boolean);
  if (s.lambda !== "") engram.lambda = Number(s.lambda);
  if (Object.keys(engram).length) body.engram = { ...engram, sources: true };
  if (s.inspect) Object.assign(body, { logprobs: true, top_logprobs: 8, report: true });
  return body;
}

/** What the service runs for the model: searches of stores and of the web, tools of servers. */
function serviceTools(s) {
  const stores = chosen(s);
  const search = { type: "file_search", vector_store_ids: stores, max_num_results: Number(s.passages || PASSAGES) };
  const servers = chosenServers(s).map((label) => ({ type: "mcp", server_label: label }));
  return [...(stores.length ? [search] : []), ...(s.web ? [{ type: "web_search" }] : []), ...servers];
}

function parsed(text) {
  let tools;
  try {
    tools = JSON.parse(text);
  } catch (error) {
    throw new Error(`the tools are not JSON: ${error.message}`);
  }
  if (!Array.isArray(tools)) throw new Error("the tools must be a list");
  return tools.map((tool) => (tool.type ? tool : { type: "function", function: tool }));
}

/** A choice in words of a value that may also be another one. */
function Words({ title, words, value, onInput, ...rest }) {
  const other = !Object.keys(words).includes(String(value));
  return html`<label>${title}<select ...${rest} value=${value} onChange=${onInput}>
    ${Object.entries(words).sort(([a], [b]) => Number(a) - Number(b)).map(([v, name]) => html`<option value=${v} selected=${v === String(value)}>${name}</option>`)}
    ${other && html`<option value=${value} selected>${Number(value).toLocaleString("en")}, set below</option>`}</select></label>`;
}

function Amount({ field: [name, title, min, max, step, unit, why], value, onInput }) {
  return html`<label class="amount"><span>${title} <small>${unit}</small></span>
    <input type="number" min=${min} max=${max} step=${step} value=${value} placeholder="the model's own" aria-describedby=${`why-${name}`} onInput=${onInput} />
    <small id=${`why-${name}`}>${why}</small></label>`;
}

/** Sets of settings by name, in this browser. */
function Presets({ settings, onChange }) {
  const [all, setAll] = useState(() => stored(PRESETS));
  const [name, setName] = useState("");
  const put = (next) => {
    keep(PRESETS, next);
    setAll(next);
  };
  const save = (event) => {
    event.preventDefault();
    put({ ...all, [name.trim()]: settings });
  };
  const choose = (event) => {
    const chosen = event.target.value;
    setName(chosen);
    if (Object.hasOwn(all, chosen)) onChange({ ...DEFAULTS, ...all[chosen] });
  };
  const drop = () => {
    const { [name]: _, ...rest } = all;
    put(rest);
    setName("");
  };
  const names = Object.keys(all).sort();
  return html`<form class="presets" onSubmit=${save}>
    ${names.length > 0 && html`<label>Preset<select value=${name} onChange=${choose}><option value="">Choose one</option>
      ${names.map((n) => html`<option value=${n} selected=${n === name}>${n}</option>`)}</select></label>`}
    <label>Keep these settings as a preset<input required maxlength="60" value=${name} placeholder="Name" onInput=${(e) => setName(e.target.value)} /></label>
    <div class="row"><button type="submit">Save preset</button>${Object.hasOwn(all, name) && html`<button type="button" onClick=${drop}>Delete preset</button>`}</div></form>`;
}

export function Settings({ settings, onChange, onClose }) {
  const [said, setSaid] = useState("");
  const set = (name) => (event) => {
    setSaid("");
    onChange({ ...settings, [name]: event.target.type === "checkbox" ? event.target.checked : event.target.value });
  };
  const asDefault = () => {
    keep(NAME, settings);
    setSaid("New conversations begin like this.");
  };
  const pressed = (event) => {
    if (event.key !== "Escape") return;
    // The key would stop the answer as well.
    event.stopPropagation();
    onClose();
  };
  return html`<aside class="settings" tabindex="-1" aria-label="Settings" onKeyDown=${pressed}>
    <div class="row"><h2>How it answers here</h2><button type="button" onClick=${onClose} aria-label="Close settings">✕</button></div>
    <label>System prompt<textarea rows="3" dir="auto" value=${settings.system} onInput=${set("system")} placeholder="Instructions for the whole conversation"></textarea></label>
    <label>Thinking<select value=${settings.thinking} onChange=${set("thinking")}>
      ${Object.entries(THINKING).map(([value, name]) => html`<option value=${value} selected=${value === settings.thinking}>${name}</option>`)}</select></label>
    ${settings.thinking === "budget" && html`<label>Thinking tokens<input type="number" min="0" value=${settings.budget} onInput=${set("budget")} /></label>`}
    <${Words} title="Choice of words" words=${VARIETY} value=${settings.temperature} onInput=${set("temperature")} />
    <${Words} title="Length" words=${LENGTHS} value=${settings.max_tokens} onInput=${set("max_tokens")} />
    <details><summary>Sampling in numbers</summary>
      ${NUMBERS.map((field) => html`<${Amount} field=${field} value=${settings[field[0]]} onInput=${set(field[0])} />`)}</details>
    <details open=${Boolean(settings.stores)}><summary>Documents</summary>
      <${StoreChoice} settings=${settings} onChange=${onChange} />
      <label>Passages to read <small>(of all stores together)</small><input type="number" min="1" max="50" value=${settings.passages} placeholder=${PASSAGES} onInput=${set("passages")} /></label></details>
    <details open=${Boolean(settings.tables || settings.lambda)}><summary>Engram</summary>
      <label>Tables <small>(names, with commas between)</small><input value=${settings.tables} onInput=${set("tables")} /></label>
      <label>Strength <small>(0 is silent, 0.95 the most)</small><input type="number" min="0" max="0.95" step="0.05" value=${settings.lambda} onInput=${set("lambda")} /></label></details>
    <details open=${Boolean(settings.tools || settings.servers || settings.web)}><summary>Tools</summary>
      <${ToolChoice} settings=${settings} onChange=${onChange} />
      <label>A JSON list of functions that you answer yourself<textarea rows="4" spellcheck="false" class="mono" value=${settings.tools} onInput=${set("tools")}></textarea></label></details>
    <label class="check"><input type="checkbox" checked=${settings.inspect} onChange=${set("inspect")} /> Keep each token's alternatives and what stood behind it, for the inspector</label>
    <div class="row"><button type="button" onClick=${asDefault}>Use for new conversations</button>
      <button type="button" onClick=${() => onChange({ ...DEFAULTS })}>Back to the model's own</button></div>
    <p role="status" class="said">${said}</p>
    <${Presets} settings=${settings} onChange=${onChange} />
  </aside>`;
}
