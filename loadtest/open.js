// The load that `chimere bench serve` makes by default, so that both can be compared: arrivals whether or not earlier requests are done.
import { ask, completion, number, options as build, summary, vocabulary, SECONDS } from './lib.js';

export const options = build({
  arrivals: {
    executor: 'constant-arrival-rate', rate: number('RATE', 4), timeUnit: '1s', duration: `${SECONDS}s`, preAllocatedVUs: 64, maxVUs: 512,
    gracefulStop: '120s',
  },
});
export const handleSummary = summary('open');
export const setup = vocabulary;

export default function (words) {
  ask('/v1/completions', completion(words, 128, 64));
}
