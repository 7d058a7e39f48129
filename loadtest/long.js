// Long prompts among short chats: while prompts of LONG tokens arrive, those who are being answered must go on being answered.
import { ask, completion, number, options as build, summary, vocabulary, ITL_MS, SECONDS } from './lib.js';

const LONG = number('LONG', 3000);

export const options = build({
  chats: { executor: 'constant-vus', vus: number('USERS', 4), duration: `${SECONDS}s`, gracefulStop: '60s', exec: 'chat' },
  prompts: {
    executor: 'constant-arrival-rate', rate: 1, timeUnit: `${number('EVERY', 2)}s`, duration: `${SECONDS}s`, preAllocatedVUs: 8, maxVUs: 64,
    gracefulStop: '60s', exec: 'prompt',
  },
}, { 'itl{kind:chat}': [`p(95)<${1.5 * ITL_MS}`], 'ttft{kind:prompt}': ['p(95)<60000'] });
export const handleSummary = summary('long');
export const setup = vocabulary;

export function chat(words) {
  ask('/v1/completions', completion(words, 32, 128), { tags: { kind: 'chat' } });
}

export function prompt(words) {
  ask('/v1/completions', completion(words, LONG, 8), { tags: { kind: 'prompt' } });
}
