// How the next answer is made: what a request says beside its messages, in words. Kept in this browser.

import { html } from "./vendor/preact-htm.js";

const NAME = "chimere.settings";

export const DEFAULTS = { system: "", thinking: "", budget: "", temperature: "", top_p: "", top_k: "", min_p: "", max_tokens: "", seed: "",
  presence_penalty: "", tools: "", tables: "", lambda: "", inspect: false };

export function load() {
  try {
    return { ...DEFAULTS, ...JSON.parse(localStorage.getItem(NAME) || "{}") };
  } catch {
    return { ...DEFAULTS };
  }
}

export const save = (settings) => localStorage.setItem(NAME, JSON.stringify(settings));

const THINKING = { "": "As the model does", none: "Not at all", auto: "Only if unsure", low: "A little", medium: "Some", high: "As long as it likes", budget: "At most so many tokens" };

const NUMBERS = [
  ["temperature", "Temperature", 0, 2, 0.05, "0 always takes the likeliest token; higher is more varied"],
  ["top_p", "Top p", 0, 1, 0.01, "Keep the likeliest tokens up to this much probability"],
  ["top_k", "Top k", 0, 1000, 1, "Keep this many of the likeliest tokens; 0 keeps all"],
  ["min_p", "Min p", 0, 1, 0.01, "Keep tokens at least this likely beside the likeliest"],
  ["presence_penalty", "Presence penalty", -2, 2, 0.1, "Make tokens that were said less likely"],
  ["max_tokens", "Most tokens", 1, 1048576, 1, "The answer ends here at the latest"],
  ["seed", "Seed", 0, 9007199254740991, 1, "The same seed and question give the same answer"],
];

/** The fields of a request. Throws with words if something is not right. */
export function fields(s) {
  const body = {};
  for (const [name] of NUMBERS) if (s[name] !== "") body[name] = Number(s[name]);
  if (s.thinking === "budget") body.reasoning = { max_tokens: Number(s.budget || 0) };
  else if (s.thinking) body.reasoning_effort = s.thinking;
  if (s.tools.trim()) body.tools = parsed(s.tools);
  const engram = {};
  if (s.tables.trim()) engram.tables = s.tables.split(",").map((t) => t.trim()).filter(Boolean);
  if (s.lambda !== "") engram.lambda = Number(s.lambda);
  if (Object.keys(engram).length) body.engram = { ...engram, sources: true };
  if (s.inspect) Object.assign(body, { logprobs: true, top_logprobs: 8, report: true });
  return body;
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

export function Settings({ settings, onChange, onClose }) {
  const set = (name) => (event) => onChange({ ...settings, [name]: event.target.type === "checkbox" ? event.target.checked : event.target.value });
  return html`<aside class="settings" aria-label="Settings">
    <div class="row"><h2>How it answers</h2><button type="button" onClick=${onClose} aria-label="Close settings">✕</button></div>
    <label>What the system says<textarea rows="3" value=${settings.system} onInput=${set("system")} placeholder="Instructions for the whole conversation"></textarea></label>
    <label>Thinking<select value=${settings.thinking} onChange=${set("thinking")}>
      ${Object.entries(THINKING).map(([value, name]) => html`<option value=${value} selected=${value === settings.thinking}>${name}</option>`)}</select></label>
    ${settings.thinking === "budget" && html`<label>Thinking tokens<input type="number" min="0" value=${settings.budget} onInput=${set("budget")} /></label>`}
    <fieldset><legend>Sampling <small>(empty: the model's own)</small></legend>
      ${NUMBERS.map(([name, title, min, max, step, why]) => html`<label title=${why}>${title}
        <input type="number" min=${min} max=${max} step=${step} value=${settings[name]} onInput=${set(name)} /></label>`)}</fieldset>
    <fieldset><legend>Engram</legend>
      <label title="Names, with commas between">Tables<input value=${settings.tables} onInput=${set("tables")} /></label>
      <label title="0 is silent">Strength<input type="number" min="0" max="0.95" step="0.05" value=${settings.lambda} onInput=${set("lambda")} /></label></fieldset>
    <label>Tools <small>(a JSON list of functions)</small><textarea rows="4" spellcheck="false" class="mono" value=${settings.tools} onInput=${set("tools")}></textarea></label>
    <label class="check"><input type="checkbox" checked=${settings.inspect} onChange=${set("inspect")} /> Keep each token's alternatives and what stood behind it, for the inspector</label>
    <button type="button" onClick=${() => onChange({ ...DEFAULTS })}>Back to the defaults</button>
  </aside>`;
}
