// What is said where the service has no directory for something, with the name of the setting.

import { html } from "./vendor/preact-htm.js";

/** `what` are the things that are not kept, `section` the part of the configuration. */
export const Unset = ({ what, section }) => html`<p role="status">This service keeps no ${what}, because it has no directory for them. Who runs it sets
    <code>${section}.directory</code> in its configuration and starts it anew:</p>
  <pre tabindex="0">${`[${section}]\ndirectory = "/var/lib/chimere/${section}"`}</pre>`;
