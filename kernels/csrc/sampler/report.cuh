// What is told of a row beside its token: log-probabilities, entropy, alternatives.
#pragma once
#include "sampler/select.cuh"

__device__ __forceinline__ float logprob(const Raw &raw, float l) {
    if (l == LOWEST || raw.total == 0) return LOWEST;
    return (float)((double)l - (double)raw.best - log((double)raw.total * (1.0 / WEIGHT_ONE)));
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
    if (p.logprobs <= 0) return;
    Cut cut = select<false>(g, slice, best, 1.0f, ALL, n, 1.0f);
    if (cut.listed == 0) {
        // Too many equals at its end to be listed with it.
        u64 counts = 0;
        for (u32 i = threadIdx.x; i < slice.count; i += THREADS) counts += element(slice.values[i], slice.first + i) <= cut.last;
        u64 v[1] = {block_all<SUM>(counts, s.part[0])};
        g.exchange(v);
        u32 ahead = (u32)got_all<SUM>(s.got[0], g.block);
        list(g, slice, best, 1.0f, n, ahead, [&](float, u64 e) { return e <= cut.last; });
        cut.listed = n;
    }
    if (g.block == 0 && threadIdx.x < cut.listed) {
        u64 own = s.list.item[threadIdx.x];
        u32 rank = 0;
        for (u32 j = 0; j < cut.listed; j++) rank += s.list.item[j] < own;
        if (rank < n) out->top_ids[rank] = (int)(u32)own, out->top_logprobs[rank] = logprob(raw, of_rank((u32)(own >> 32)));
    }
}

// One thread of the group calls this.
__device__ __noinline__ void emit(const Arguments &args, const SampleParams &p, const Shared &s, u32 token) {
    SampleResult *out = args.results + s.at;
    Draw which = s.which;
    if (which != EDITED) out->plain = (int)token;
    if (which == PLAIN) return;
    out->token = (int)token;
    if (p.slot >= 0) args.sampled[p.slot] = (int)token;
    if (p.logprobs >= 0) out->logprob = token < VOCAB ? logprob(s.raw, numbers(__ldcg(args.logits + (u64)p.row * VOCAB + token))) : LOWEST;
}
