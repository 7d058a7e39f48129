// A quiet service, for a twelfth of the time RATE arrivals a second, and quiet again: nobody fails, and afterwards it is as quick as
// before.
import { ask, completion, number, options as build, summary, vocabulary, ITL_MS, SECONDS, TTFT_MS } from './lib.js';
import exec from 'k6/execution';

const QUIET = number('QUIET', 2);
const [BEFORE, DURING] = [SECONDS / 3, SECONDS / 12];
/** Seconds after the spike in which its queue may still empty. */
const SETTLE = SECONDS / 4;

export const options = build({
  arrivals: {
    executor: 'ramping-arrival-rate', startRate: QUIET, timeUnit: '1s', preAllocatedVUs: 64, maxVUs: number('USERS', 512),
    gracefulStop: '120s',
    stages: [
      { target: QUIET, duration: `${BEFORE}s` },
      { target: number('RATE', 30), duration: '0s' },
      { target: number('RATE', 30), duration: `${DURING}s` },
      { target: QUIET, duration: '0s' },
      { target: QUIET, duration: `${SECONDS - BEFORE - DURING}s` },
    ],
  },
}, { 'ttft{phase:after}': [`p(95)<${TTFT_MS}`], 'itl{phase:after}': [`p(95)<${ITL_MS}`] });
export const handleSummary = summary('spike');
export const setup = () => ({ words: vocabulary(), begin: Date.now() });

export default function ({ words, begin }) {
  const at = (Date.now() - begin) / 1000;
  const phase = at < BEFORE ? 'before' : at < BEFORE + DURING + SETTLE ? 'during' : 'after';
  exec.vu.metrics.tags.phase = phase;
  ask('/v1/completions', completion(words, 128, 64), { tags: { phase } });
}
