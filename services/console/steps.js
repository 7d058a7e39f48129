// What the service did for an answer beside writing it: calls of tools, searches, pages, steps of a pipeline. Each is told as it begins
// and ends, and is kept with the turn.

/** The state of a step that has not ended. */
export const RUNNING = "in_progress";

/** The kinds of steps, in words. */
export const KINDS = { call: "Tool", files: "Documents", web: "Web", page: "Page", step: "Step" };

// A kept step; -1 is an amount that is not known.
const EMPTY = { kind: "", status: "", server: "", name: "", input: "", output: "", outcome: "", approval: "", ms: -1, bytes: -1, tokens: -1, passages: -1 };

const fits = (value, like) => typeof value === typeof like && (typeof like === "string" || Number.isFinite(value));

/** A kept step of a file that may come from anywhere, each field of the kind that the page expects. */
export const cleaned = (of) => Object.fromEntries(Object.entries(EMPTY).map(([name, like]) => [name, fits(of[name], like) ? of[name] : like]));

/** Whether a value can be a kept step. */
export const isStep = (of) => Boolean(of) && Object.hasOwn(KINDS, of.kind);

const queries = (of) => (of?.queries || []).join(" · ");

/** An item of the API as it is kept, or null where it is none that the page knows. */
function kept(item) {
  const { status } = item;
  const step = {
    mcp_call: () => ({ kind: "call", server: item.server_label, name: item.name, input: item.arguments, output: item.error ?? item.output, approval: item.approval_request_id }),
    file_search_call: () => ({ kind: "files", name: queries(item), passages: item.passages }),
    web_search_call: () => (item.action.type === "search" ? { kind: "web", name: queries(item.action), output: (item.action.sources || []).map((of) => of.url).join("\n") }
      : { kind: "page", name: item.action.url }),
    pipeline_step: () => ({ kind: "step", name: item.step, outcome: item.outcome, ms: item.ms, tokens: item.tokens }),
  }[item.type]?.();
  return step ? cleaned({ status, ...step }) : null;
}

/** Takes what a chunk tells of steps; `now` is in milliseconds. */
export function take(turn, { step: item, timings }, now) {
  const step = item && kept(item);
  turn.steps ||= [];
  if (step) {
    const begun = turn.steps.find((of) => of.status === RUNNING && ["kind", "server", "name", "input"].every((field) => of[field] === step[field]));
    if (begun) Object.assign(begun, step, { ms: now - begun.since, since: 0 });
    else turn.steps.push({ ...step, since: now });
  }
  // The service has measured each call itself.
  for (const call of timings?.turn?.calls || []) {
    const made = turn.steps.find((of) => of.kind === "call" && of.bytes < 0 && `${of.server}__${of.name}` === call.tool);
    if (made) Object.assign(made, { ms: call.ms, bytes: call.bytes });
  }
}

/** What an approved call gave, as far as the shown path has it. */
export const resultOf = (path, approval) => path.flatMap((turn) => turn.steps || []).find((of) => of.approval === approval)?.output;
