// The console: which view is shown, the key, the theme. Each view is a file of its own.

import { html, render, useEffect, useState } from "./vendor/preact-htm.js";
import { ApiError, call, key } from "./api.js";
import { Chat } from "./chat.js";
import { complete, later, preload } from "./later.js";
import { library } from "./library.js";
import { MESSAGE_FILES } from "./turns.js";

const VIEWS = {
  chat: ["Chat", Chat],
  documents: ["Documents", later(async () => (await import("./documents.js")).DocumentsView)],
  live: ["Live", later(async () => (await import("./live.js")).Live)],
  tools: ["Tools", later(async () => (await import("./toolview.js")).ToolView)],
  memory: ["Memory", later(async () => (await import("./memory.js")).Memory)],
  learning: ["Learning", later(async () => (await import("./learnview.js")).LearnView)],
  system: ["System", later(async () => (await import("./system.js")).System)],
};
const THEME = "chimere.theme";
const THEMES = { auto: ["◐", "System colours"], light: ["☀", "Light"], dark: ["☾", "Dark"] };

function here() {
  const name = location.hash.replace(/^#\/?/, "").split("/")[0];
  return VIEWS[name] ? name : "chat";
}

function wear(theme) {
  if (theme === "auto") document.documentElement.removeAttribute("data-theme");
  else document.documentElement.dataset.theme = theme;
}

/** A press takes the next of the three. */
function Theme() {
  const [theme, set] = useState(THEMES[localStorage.getItem(THEME)] ? localStorage.getItem(THEME) : "auto");
  useEffect(() => {
    wear(theme);
    localStorage.setItem(THEME, theme);
  }, [theme]);
  const names = Object.keys(THEMES);
  const next = names[(names.indexOf(theme) + 1) % names.length];
  const [mark, name] = THEMES[theme];
  return html`<button type="button" class="theme" title=${`Colours: ${name}`} onClick=${() => set(next)}><span aria-hidden="true">${mark}</span><span class="words">${name}</span></button>`;
}

function KeyDialog({ wrong, onDone, onLeave }) {
  const [value, set] = useState(key.get());
  const done = (event) => {
    event.preventDefault();
    key.set(value.trim());
    onDone();
  };
  return html`<form class="key" onSubmit=${done} aria-label="API key">
    <h2>This service wants a key</h2>
    <p>${wrong ? "The key was not accepted. " : ""}It stays in this tab and is forgotten when the tab is closed.</p>
    <label>API key <input type="password" autocomplete="off" value=${value} onInput=${(e) => set(e.target.value)} autofocus /></label>
    <div class="row"><button type="submit" class="first">Use it</button>${onLeave && html`<button type="button" onClick=${onLeave}>Leave it</button>`}</div>
  </form>`;
}

function App() {
  const [view, setView] = useState(here());
  const [model, setModel] = useState(null);
  const [trouble, setTrouble] = useState(null);
  const [changesKey, setChangesKey] = useState(false);
  const ask = () => call("/v1/models").then((found) => {
    library.models = found.data.filter((of) => of.type !== "embeddings");
    setModel(found.data[0]);
    setTrouble(null);
  }, (error) => setTrouble(error));
  useEffect(() => {
    const moved = () => setView(here());
    addEventListener("hashchange", moved);
    library.onClosed = setTrouble;
    ask();
    return () => removeEventListener("hashchange", moved);
  }, []);
  // A service that went away is asked again until it is back.
  useEffect(() => {
    if (!(trouble instanceof ApiError) || (trouble.status !== 0 && trouble.status !== 503)) return;
    const timer = setInterval(ask, 2000);
    return () => clearInterval(timer);
  }, [trouble]);
  const [, View] = VIEWS[view];
  // Other refusals (a name that the service does not answer to, a page of elsewhere) are not mended by a key.
  const closed = trouble?.status === 401;
  const withKey = () => {
    setChangesKey(false);
    ask();
  };
  return html`<div class="frame">
    <header>
      <a class="brand" href="#/chat" aria-label="Chimère"><img src="/console/icon.svg" alt="" width="24" height="24" /><span>Chimère</span></a>
      <nav aria-label="Views">${Object.entries(VIEWS).map(([name, [title]]) =>
        html`<a href=${`#/${name}`} aria-current=${view === name ? "page" : undefined}>${title}</a>`)}</nav>
      <span class="model" title="The model that is served">${model?.id || ""}</span>
      <${Theme} />
    </header>
    ${trouble && !closed && html`<p class="trouble" role="alert">${sentence(trouble)}</p>`}
    <main>${closed || changesKey
      ? html`<${KeyDialog} wrong=${closed && Boolean(key.get())} onDone=${withKey} onLeave=${!closed && (() => setChangesKey(false))} />`
      : model || view === "chat" ? html`<${View} model=${model} onClosed=${setTrouble} onKey=${() => setChangesKey(true)} />` : html`<p class="empty">Waiting for the service…</p>`}</main>
  </div>`;
}

function sentence(error) {
  if (error.status === 0) return "The service cannot be reached. The console asks again until it is back; conversations are safe in this browser.";
  return error.message;
}

wear(localStorage.getItem(THEME) || "auto");
const place = document.getElementById("app");
library.onKept = () => preload(MESSAGE_FILES);
// Taking the files in is a task, and drawing is another one.
setTimeout(() => {
  place.replaceChildren();
  render(html`<${App} />`, place);
  requestAnimationFrame(() => setTimeout(complete));
});
