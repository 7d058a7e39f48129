// An evaluation of one question on chat completions and on responses, run by its own command.
import { spawnSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { assert, model, url } from "./asked.mjs";

const provider = (dialect) => ({ id: `openai:${dialect}:${model}`, label: dialect, config: { apiBaseUrl: url, apiKey: "none", temperature: 0 } });
const settings = {
  prompts: ["{{question}}"],
  providers: [provider("chat"), provider("responses")],
  tests: [{ vars: { question: "What is 17 + 25?" }, assert: [{ type: "contains", value: "42" }] }],
};
mkdirSync("home", { recursive: true });
writeFileSync("evaluated.json", JSON.stringify(settings));
const environment = {
  ...process.env, PROMPTFOO_CONFIG_DIR: `${process.cwd()}/home`, PROMPTFOO_DISABLE_TELEMETRY: "1", PROMPTFOO_DISABLE_UPDATE: "1",
  PROMPTFOO_DISABLE_REMOTE_GENERATION: "1", PROMPTFOO_SELF_HOSTED: "1",
};
const command = ["node_modules/promptfoo/dist/src/entrypoint.js", "eval", "-c", "evaluated.json", "-o", "results.json", "--no-cache", "--no-table"];
const run = spawnSync(process.execPath, command, { env: environment, stdio: "inherit" });
assert.equal(run.status, 0);
const { successes, failures, errors } = JSON.parse(readFileSync("results.json")).results.stats;
assert.deepEqual([successes, failures, errors], [2, 0, 0]);
