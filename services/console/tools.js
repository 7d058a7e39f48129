// What the service can do for a model: its servers of tools, and the web. Chosen at the composer and in the settings, kept with the
// conversation.

import { html, useEffect, useState } from "./vendor/preact-htm.js";
import { plain } from "./annotations.js";
import { call } from "./api.js";
import { closes, left } from "./focus.js";
import { chosenServers } from "./settings.js";

/** The servers and whether the web is offered, null until they are there; `look` asks again. Nothing is asked for unless `wanted`. */
export function useTools(wanted = true) {
  const [found, setFound] = useState(null);
  const [failure, setFailure] = useState(null);
  const look = () => call("/v1/tools").then((answer) => (setFound(answer), setFailure(null)), setFailure);
  useEffect(() => void (wanted && look()), [wanted]);
  return { list: found?.data, web: Boolean(found?.web_search), failure, look };
}

/** Whether models are told of a tool. */
export const offered = (tool) => tool.state === "accepted";

/** A server in few words. */
function standing({ error, tools }) {
  if (error) return "not reached";
  const ready = tools.filter(offered).length;
  return [`${ready} ${ready === 1 ? "tool" : "tools"}`, ready < tools.length && `${tools.length - ready} withheld`].filter(Boolean).join(", ");
}

/** The settings without a server or with one more. */
const switched = (settings, label, on) => ({ ...settings, servers: [...chosenServers(settings).filter((other) => other !== label), ...(on ? [label] : [])].join(",") });

function Checks({ list, web, failure, settings, onChange }) {
  if (failure) return html`<p role="status">There are no tools: ${failure.message}.</p>`;
  if (!list) return html`<p role="status">…</p>`;
  if (!list.length && !web) return html`<p role="status">This service runs no tools for you. <a href="#/tools">How it would</a></p>`;
  const chosen = chosenServers(settings);
  return html`<fieldset><legend>The model may use</legend>
    ${web && html`<label class="check"><input type="checkbox" checked=${settings.web} onChange=${(e) => onChange({ ...settings, web: e.target.checked })} /> Searches of the web</label>`}
    ${list.map((server) => html`<label class="check" key=${server.server_label}><input type="checkbox" checked=${chosen.includes(server.server_label)}
      onChange=${(e) => onChange(switched(settings, server.server_label, e.target.checked))} /> <span><bdi>${plain(server.server_label)}</bdi> <small>${standing(server)}</small></span></label>`)}</fieldset>
    <p><a href="#/tools">What they are</a></p>`;
}

/** Servers and the web, each to be chosen or not. */
export function ToolChoice({ settings, onChange }) {
  return html`<${Checks} ...${useTools()} settings=${settings} onChange=${onChange} />`;
}

/** What was chosen as chips, and the menu that chooses. The service is asked only when the menu is opened. */
export function ChosenTools({ settings, onChange }) {
  const [open, setOpen] = useState(false);
  const found = useTools(open);
  const chips = [...(settings.web ? [["the web", { ...settings, web: false }]] : []), ...chosenServers(settings).map((label) => [label, switched(settings, label, false)])];
  return html`<details class="menu upward" onKeyDown=${closes} onFocusOut=${left} onToggle=${(e) => setOpen(e.currentTarget.open)}>
      <summary class="button">Tools</summary><div>${open && html`<${Checks} ...${found} settings=${settings} onChange=${onChange} />`}</div></details>
    ${chips.map(([name, without]) => html`<button type="button" class="chip" key=${name} aria-label=${`Do not use ${plain(name)}`} onClick=${() => onChange(without)}>
      <bdi>${plain(name)}</bdi> <span aria-hidden="true">✕</span></button>`)}`;
}
