// More and more arrivals, up to RATE a second: where the answers stop keeping up is what the service holds. Beyond that it refuses with a
// time to come back, and fails nobody.
import { ask, completion, number, options as build, summary, vocabulary, SECONDS } from './lib.js';

export const options = build({
  arrivals: {
    executor: 'ramping-arrival-rate', startRate: 1, timeUnit: '1s', preAllocatedVUs: 64, maxVUs: number('USERS', 512), gracefulStop: '120s',
    stages: [{ target: number('RATE', 60), duration: `${SECONDS}s` }],
  },
});
export const handleSummary = summary('ramp');
export const setup = vocabulary;

export default function (words) {
  ask('/v1/completions', completion(words, 128, 64));
}
