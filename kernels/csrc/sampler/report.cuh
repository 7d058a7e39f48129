// What is told of a row beside its token: entropy of its unedited logits; log-probabilities and alternatives of these, or of what
// the token is drawn from.
#pragma once
#include "sampler/select.cuh"

__device__ __forceinline__ float logprob(const Raw &raw, float l) {
    if (l == LOWEST || raw.total == 0) return LOWEST;
    return (float)((double)l - (double)raw.best - log((double)raw.total * (1.0 / WEIGHT_ONE)));
}

// The best `n` elements, without order: `s.list` has them in every block, and how many more of them is returned.
__device__ __forceinline__ u32 list_best(Group &g, const Slice &slice, float best, u32 n) {
    Cut cut = select<false>(g, slice, best, 1.0f, ALL, n, 1.0f);
    if (cut.listed > 0) return cut.listed;
    // Too many equals at its end to be listed with it.
    u64 counts = 0;
    for (u32 i = threadIdx.x; i < slice.count; i += THREADS) counts += element(slice.values[i], slice.first + i) <= cut.last;
    u64 v[1] = {block_all<SUM>(counts, g.s.part[0])};
    g.exchange(v);
    u32 ahead = (u32)got_all<SUM>(g.s.got[0], g.block);
    list(g, slice, best, 1.0f, n, ahead, [&](float, u64 e) { return e <= cut.last; });
    return n;
}
// How many of the `n` listed elements are better.
__device__ __forceinline__ u32 rank_in_list(const Shared &s, u32 n, u64 own) {
    u32 rank = 0;
    for (u32 j = 0; j < n; j++) rank += s.list.item[j] < own;
    return rank;
}

__device__ void report(Group &g, const Slice &slice, float best, const SampleParams &p, SampleResult *results) {
    Shared &s = g.s;
    SampleResult *out = results + s.at;
    // Entropy from sums in units of 2^-40: integers too, so that it does not depend on how a row is shared.
    u64 sums[3] = {0, 0, 0};
    for (u32 i = threadIdx.x; i < slice.count; i += THREADS) {
        sums[0] += weight(slice.values[i], best, 1.0f);
        if (p.certainty) {
            float x = fmaxf(scaled_distance(slice.values[i], best, 1.0f), -40.0f), e = exp_scaled(x, 40);
            sums[1] += __float2ull_rn(e), sums[2] += __float2ull_rn(__fmul_rn(e, -x));
        }
    }
    block_all<SUM, SUM, SUM>(sums, s.part);
    g.exchange(sums);
#pragma unroll
    for (int k = 0; k < 3; k++) sums[k] = got_all<SUM>(s.got[k], g.blocks);
    Raw raw = {best, sums[0]};
    if (threadIdx.x == 0) s.raw = raw;
    if (p.certainty && g.block == 0 && threadIdx.x == 0) {
        double sum = (double)sums[1] * 0x1p-40, weighted = (double)sums[2] * 0x1p-40;
        out->entropy = (float)(log(sum) + weighted / sum), out->top_prob = (float)(1.0 / sum);
    }
    u32 n = (u32)min(p.logprobs, TOP_MAX);
    if (p.logprobs <= 0 || told_of_draws(p)) return;
    u32 listed = list_best(g, slice, best, n);
    if (g.block == 0 && threadIdx.x < listed) {
        u64 own = s.list.item[threadIdx.x];
        u32 rank = rank_in_list(s, listed, own);
        if (rank < n) out->top_ids[rank] = (int)(u32)own, out->top_logprobs[rank] = logprob(raw, of_rank((u32)(own >> 32)));
    }
}

// Of what the row is drawn from, after its temperature; without a temperature, of the edited logits as they are.
__device__ __forceinline__ float drawn_logprob(const Raw &raw, const SampleParams &p, float l) {
    double temperature = p.temperature < TEMPERATURE_MIN ? 1.0 : (double)p.temperature;
    return (float)(((double)l - (double)raw.best) / temperature - log((double)raw.total * (1.0 / WEIGHT_ONE)));
}

// Before the draw that the row's token comes from: `s.raw` of what is drawn from, and its best elements; an id below 0 is none. Finds
// anew where the filters end, for rows that are not told of this would pay for what their draws hand on. By value, so that a group
// stays in registers elsewhere.
__device__ __noinline__ Turn report_drawn(Group g, Slice slice, u64 top, SampleResult *out) {
    Shared &s = g.s;
    const SampleParams &p = s.row;
    float best = of_rank((u32)(top >> 32));
    if (!(fabsf(best) <= FINITE)) {
        if (threadIdx.x == 0) s.raw.total = 0;
        return {g.epoch, g.turn};
    }
    bool draws = p.temperature >= TEMPERATURE_MIN;
    float inverse = draws ? __fdiv_rn(1.0f, p.temperature) : 1.0f;
    // What rounds to nothing is never drawn.
    u32 wmin = draws ? max(min(__double2uint_ru(__dmul_rn((double)p.min_p, (double)WEIGHT_ONE)), WEIGHT_ONE), 1u) : 0;
    u64 kept = ALL;
    if (draws && p.top_k > 0 && p.top_k < VOCAB) kept = select<false>(g, slice, best, inverse, ALL, p.top_k, 1.0f).last;
    if (draws && p.top_p < 1.0f) kept = select<true>(g, slice, best, inverse, kept, 0, p.top_p).last;
    u64 sum = 0;
    __syncthreads();
    for (u32 i = threadIdx.x; i < slice.count; i += THREADS) {
        u32 w = weight(slice.values[i], best, inverse);
        if (w >= wmin && element(slice.values[i], slice.first + i) <= kept) sum += w;
    }
    u64 v[1] = {block_all<SUM>(sum, s.part[0])};
    g.exchange(v);
    Raw raw = {best, got_all<SUM>(s.got[0], g.blocks)};
    if (threadIdx.x == 0) s.raw = raw;
    u32 n = (u32)min(p.logprobs, TOP_MAX);
    if (n > 0) {
        u32 listed = list_best(g, slice, best, n);
        if (g.block == 0 && threadIdx.x < listed) {
            u64 own = s.list.item[threadIdx.x];
            u32 rank = rank_in_list(s, listed, own);
            float l = of_rank((u32)(own >> 32));
            bool may_come = l > LOWEST && own <= kept && weight(l, best, inverse) >= wmin;
            if (rank < n) out->top_ids[rank] = may_come ? (int)(u32)own : -1, out->top_logprobs[rank] = drawn_logprob(raw, p, l);
        }
    }
    __syncthreads();
    return {g.epoch, g.turn};
}

// The log-probability of the token of a row that is told what it is drawn from.
__device__ __noinline__ void emit_drawn(SampleResult *out, const SampleParams &p, const Raw &raw, u64 chosen) {
    bool alone = p.forced >= 0 || raw.total == 0;
    out->logprob = alone ? 0.0f : drawn_logprob(raw, p, of_rank((u32)(chosen >> 32)));
    for (int i = 0; alone && i < min(p.logprobs, TOP_MAX); i++) out->top_ids[i] = i == 0 ? (int)(u32)chosen : -1, out->top_logprobs[i] = 0.0f;
}

// One thread of the group calls this, for a row of which some logit is no finite number: nothing is drawn from it, and token 0 stands for it.
__device__ __noinline__ void emit_not_finite(const Arguments &args, const SampleParams &p, SampleResult *out) {
    out->token = out->plain = 0, out->not_finite = 1;
    if (p.slot >= 0) args.sampled[p.slot] = 0;
}

// One thread of the group calls this. Of a forced token the id alone counts.
__device__ __noinline__ void emit(const Arguments &args, const SampleParams &p, const Shared &s, Chosen chosen) {
    SampleResult *out = args.results + s.at;
    Draw which = s.which;
    u32 token = (u32)chosen;
    if (which != EDITED) out->plain = (int)token;
    if (which == PLAIN) return;
    out->token = (int)token, out->not_finite = 0;
    if (p.slot >= 0) args.sampled[p.slot] = (int)token;
    if (p.logprobs < 0) return;
    if (told_of_draws(p)) {
        emit_drawn(out, p, s.raw, chosen);
    } else {
        out->logprob = token < VOCAB ? logprob(s.raw, numbers(__ldcg(args.logits + (u64)p.row * VOCAB + token))) : LOWEST;
    }
}
