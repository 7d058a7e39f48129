// What the operator has set up for models: servers of tools with what was accepted of them, and pipelines.

import { html, useEffect, useState } from "./vendor/preact-htm.js";
import { plain } from "./annotations.js";
import { call } from "./api.js";
import { offered, useTools } from "./tools.js";

const RULES = { writes: "calls that write wait for an approval", always: "every call waits for an approval", never: "calls wait for nobody" };
const STATES = { accepted: "accepted", new: "new, withheld", changed: "changed since it was accepted, withheld", unfit: "cannot be offered" };

function Tool({ tool }) {
  const asks = tool.asks ? "waits for an approval" : tool.read_only ? "only reads" : "runs at once";
  return html`<li class=${offered(tool) ? "" : "withheld"}><strong><bdi>${plain(tool.name)}</bdi></strong>${" "}
    <span class="facts"><span class=${offered(tool) ? "" : "reason"}>${STATES[tool.state] || tool.state}</span> ${offered(tool) && html`<span>${asks}</span>`} ${tool.why && html`<span>${plain(tool.why)}</span>`}</span>
    ${tool.description && html`<p class="plain" dir="auto">${plain(tool.description)}</p>`}</li>`;
}

function ToolServer({ server }) {
  const { server_label: label, approval, error, tools } = server;
  const waits = tools.some((tool) => tool.state === "new" || tool.state === "changed");
  return html`<li><h3><bdi>${plain(label)}</bdi></h3><p class="facts"><span>${RULES[approval] || approval}</span></p>
    ${error && html`<p class="reason">It is not reached: ${plain(error)}</p>`}
    ${waits && html`<p role="note">What is withheld is offered to no model until somebody who runs this service has read it and says so there:</p><pre tabindex="0">chimere mcp accept ${label}</pre>`}
    <ul class="pins" aria-label=${`Tools of ${plain(label)}`}>${tools.map((tool) => html`<${Tool} tool=${tool} />`)}</ul></li>`;
}

const NONE = `[mcp.files]
argv = ["/usr/local/bin/mcp-files", "/srv/shared"]
read_only = ["list", "read"]
approval = "writes"`;

function Servers({ list, web, failure }) {
  if (failure) return html`<p class="trouble" role="alert">${failure.message}</p>`;
  if (!list) return html`<p class="empty">…</p>`;
  return html`<p>${web ? "Models may search the web, where a conversation allows it." : "The web is not offered."}</p>
    ${list.length ? html`<ul class="cards">${list.map((server) => html`<${ToolServer} key=${server.server_label} server=${server} />`)}</ul>`
      : html`<p role="status">There is no server of tools for this key. Who runs this service adds one with four lines in the file that <code>tools.file</code> of its configuration names:</p><pre tabindex="0">${NONE}</pre>`}`;
}

/** Steps within steps, as the file of a pipeline has them. */
const Row = ({ steps }) => html`<ol>${steps.map(({ step, name, then, else: otherwise }) => html`<li>${step}${name !== step && html` <bdi>${plain(name)}</bdi>`}
  ${then?.length > 0 && html`<div>then<${Row} steps=${then} /></div>`}${otherwise?.length > 0 && html`<div>else<${Row} steps=${otherwise} /></div>`}</li>`)}</ol>`;

/** The budget of a pipeline in words. */
const budget = (of) => [of?.tokens && `${of.tokens.toLocaleString("en")} tokens`, of?.milliseconds && `${(of.milliseconds / 1000).toLocaleString("en")} s`].filter(Boolean).join(" and ");

function Pipeline({ of }) {
  return html`<li><h3><bdi>${plain(of.id)}</bdi></h3>
    <p class="facts"><span>${of.served ? "served" : "not served"}</span> ${of.experimental && html`<span>experimental</span>`} ${budget(of.budget) && html`<span>at most ${budget(of.budget)}</span>`}</p>
    ${of.error && html`<p class="reason">${of.served ? "The file has a mistake, and the version before it is served: " : ""}${plain(of.error)}</p>`}
    ${of.description && html`<p dir="auto">${plain(of.description)}</p>`}${of.steps && html`<${Row} steps=${of.steps} />`}</li>`;
}

/** What `path` lists, null until it is there. */
function useList(path) {
  const [list, setList] = useState(null);
  const [failure, setFailure] = useState(null);
  const look = () => call(path).then(({ data }) => (setList(data), setFailure(null)), setFailure);
  useEffect(() => void look(), []);
  return { list, failure, look };
}

function Pipelines({ list, failure }) {
  if (failure) return html`<p class="trouble" role="alert">${failure.message}</p>`;
  if (!list) return html`<p class="empty">…</p>`;
  return list.length ? html`<ul class="cards">${list.map((of) => html`<${Pipeline} key=${of.id} of=${of} />`)}</ul>`
    : html`<p role="status">There is no pipeline. Who runs this service writes them as files into <code>pipelines.directory</code> of its configuration.</p>`;
}

export function ToolView({ onClosed }) {
  const tools = useTools();
  const pipelines = useList("/v1/pipelines");
  const failure = tools.failure || pipelines.failure;
  useEffect(() => void ([0, 401].includes(failure?.status) && onClosed(failure)), [failure]);
  const again = () => (tools.look(), pipelines.look());
  return html`<div class="page"><div class="row"><h1>Tools and pipelines</h1><span class="grow"></span><button type="button" onClick=${again}>Look again</button></div>
    <p>Tools are chosen beside the field for a message, pipelines as the model of a conversation.</p>
    <h2>Servers of tools</h2><${Servers} ...${tools} /><h2>Pipelines</h2><${Pipelines} ...${pipelines} /></div>`;
}
