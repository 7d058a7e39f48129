// What is served, with which limits, and where the rest is.

import { html, useEffect, useState } from "./vendor/preact-htm.js";
import { call, text } from "./api.js";

/** Samples of a Prometheus page by name: [{labels, value}]. */
export function samples(page) {
  const found = {};
  for (const line of page.split("\n")) {
    const m = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/.exec(line);
    if (!m) continue;
    const labels = Object.fromEntries([...(m[2] || "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map((l) => [l[1], l[2]]));
    (found[m[1]] ||= []).push({ labels, value: Number(m[3]) });
  }
  return found;
}

export const bytes = (n) => {
  const units = ["bytes", "KiB", "MiB", "GiB"];
  let i = 0;
  for (; n >= 1024 && i < 3; i++) n /= 1024;
  return `${n.toLocaleString("en", { maximumFractionDigits: i ? 1 : 0 })} ${units[i]}`;
};

export function System({ model, onClosed }) {
  const [metrics, setMetrics] = useState({});
  const [tables, setTables] = useState(null);
  useEffect(() => {
    let live = true;
    const look = () => text("/metrics").then((page) => live && setMetrics(samples(page)), (e) => live && e.status === 0 && onClosed(e));
    look();
    call("/v1/engram/tables").then((t) => setTables(t.data?.length ?? 0), () => {});
    const timer = setInterval(look, 3000);
    return () => {
      live = false;
      clearInterval(timer);
    };
  }, []);
  const build = metrics.chimere_build_info?.[0]?.labels || {};
  const memory = (metrics.chimere_memory_bytes || []).filter((m) => m.labels.use !== "process")
    // The service tells them in any order.
    .sort((a, b) => b.value - a.value || (a.labels.use < b.labels.use ? -1 : 1));
  const one = (name) => metrics[name]?.[0]?.value;
  const facts = [
    ["Model", model?.id],
    ["Context", model?.max_model_len && `${model.max_model_len.toLocaleString("en")} tokens`],
    ...Object.entries(build).filter(([k]) => k !== "model").sort().map(([k, v]) => [`${k[0].toUpperCase()}${k.slice(1).replace(/_/g, " ")}`, v]),
    ["Requests running", one("chimere_requests_running")],
    ["Requests waiting", one("chimere_requests_waiting")],
    ["Engram tables you may use", tables],
    ["Memory of the process", one("chimere_memory_bytes") !== undefined && bytes((metrics.chimere_memory_bytes.find((m) => m.labels.use === "process") || { value: 0 }).value)],
  ].filter(([, v]) => v !== undefined && v !== null && v !== false);
  const total = memory.reduce((sum, m) => sum + m.value, 0);
  return html`<div class="page"><h1>System</h1>
    <dl>${facts.map(([k, v]) => html`<div><dt>${k}</dt><dd>${String(v)}</dd></div>`)}</dl>
    ${total > 0 && html`<h2>Memory plan</h2><table><thead><tr><th scope="col">Use</th><th scope="col">Size</th><th scope="col">Share</th></tr></thead>
      <tbody>${memory.map((m) => html`<tr><td>${m.labels.use}</td><td>${bytes(m.value)}</td><td><meter min="0" max="1" value=${m.value / total}></meter> ${(100 * m.value / total).toFixed(1)} %</td></tr>`)}</tbody></table>`}
    <h2>Elsewhere</h2>
    <ul><li><a href="/metrics">/metrics</a>: everything that is measured, for Prometheus; dashboards for Grafana come with the repository</li>
      <li><a href="/v1/models">/v1/models</a>: point any OpenAI client at <code>${location.origin}/v1</code></li>
      <li><a href="/health">/health</a> and <a href="/ready">/ready</a>: what probes ask</li></ul></div>`;
}
