// Chooses a token from each row of logits: the token of the definition (reference::sampler), bit for bit.
//
//   w = round(exp((l - best) / temperature) * 2^30): integers, so sums of them are exact in any order and over any blocks.
//
// A group of blocks has a row: each keeps its slice of the logits in shared memory, applies the row's edits there, and the slices
// are not read from global memory again. What the blocks must know of each other goes through exchanges (`Group`). Groups take
// rows in turn, so the grid is no larger than what is resident at once; without that, the exchanges would wait forever.
//
// Bound: 4 * VOCAB bytes a row, read once. Greedy: one exchange; a plain draw: two. Filters find the last element that they keep
// by histograms of a code that orders elements by rank (20 bits of the scaled distance to the best, then the logit's own 32), until
// at most LIST_MAX elements can be it; those are listed in every block. A top-k that fits in the list is finished from it.
//
// A row that is told the log-probabilities of what it is drawn from looks for the end of its filters twice. That takes registers, so
// only a launch with such a row runs code that can do it.
//
// A row with sparse edits is drawn from twice, before them and after them, with the same random bits: its result has both tokens. A
// row without any pays a comparison for them.
//
// logits: [*, VOCAB] f32, 16-byte aligned. history: [slots][VOCAB] u16, bit 15 in the prompt, low bits how often generated.
// lists: words of bias and mixture (id, f32 bits), end ids, mask bits. Scratch: zeros at first, and left so that any later launch may follow.
//
// -D: VOCAB (a multiple of 4); DRAWN (0 or 1: rows may be `processed`).
#include "sampler/report.cuh"

// A draw from the first `k` of the listed elements. Block 0 alone; the list stays as it is.
__device__ void draw_from_list(const Arguments &args, const SampleParams &p, Group &g, u32 n, u32 wmin) {
    Shared &s = g.s;
    u32 tid = threadIdx.x, rank = 0, w = 0;
    u64 own = ALL, ahead = 0;
    if (tid < n) {
        own = s.list.item[tid], w = s.list.weight[tid];
        for (u32 j = 0; j < n; j++)
            if (s.list.item[j] <= own) rank++, ahead += s.list.weight[j];
        ahead -= w;
        if (rank > p.top_k) w = 0;
    }
    u64 total = block_all<SUM>(w, s.part[0]);
    // Kept as long as what is ahead does not reach the target.
    if (p.top_p < 1.0f && ahead >= top_p_target(p.top_p, total)) w = 0;
    if (w < wmin) w = 0;
    if (tid < n) s.list.weight[tid] = w;
    total = block_all<SUM>(w, s.part[0]);
    u64 target = __umul64hi(s.bits, total), sum = 0;
    for (u32 j = 0; j < n; j++)
        if ((u32)s.list.item[j] <= (u32)own) sum += s.list.weight[j];
    if (tid < n && sum > target && sum - w <= target) emit(args, p, s, (Chosen)own);
}

// Temperature, filters and the draw itself. `top`: the row's best element.
__device__ void choose(const Arguments &args, const SampleParams &p, Group &g, const Slice &slice, u64 top) {
    Shared &s = g.s;
    float best = of_rank((u32)(top >> 32));
    if (p.temperature < TEMPERATURE_MIN || !(fabsf(best) <= FINITE) || p.top_k == 1) {
        if (g.block == 0 && threadIdx.x == 0) emit(args, p, s, (Chosen)top);
        return;
    }
    float inverse = __fdiv_rn(1.0f, p.temperature);
    u32 wmin = min(__double2uint_ru(__dmul_rn((double)p.min_p, (double)WEIGHT_ONE)), WEIGHT_ONE);
    u64 kept = ALL;
    if (p.top_k > 0 && p.top_k < VOCAB) {
        Cut cut = select<false>(g, slice, best, inverse, ALL, p.top_k, 1.0f);
        if (cut.listed > 0) {
            if (g.block == 0) draw_from_list(args, p, g, cut.listed, wmin);
            return;
        }
        kept = cut.last;
    }
    if (p.top_p < 1.0f) kept = select<true>(g, slice, best, inverse, kept, 0, p.top_p).last;

    u32 from, to;
    slice.run(from, to);
    auto weigh = [&](u32 i) {
        u32 w = weight(slice.values[i], best, inverse);
        return w < wmin || (kept != ALL && element(slice.values[i], slice.first + i) > kept) ? 0u : w;
    };
    u64 sum = 0, total;
    __syncthreads();
#pragma unroll 4
    for (u32 i = from; i < to; i++) sum += weigh(i);
    u64 before = block_before(sum, s.part[0], total);
    u64 v[1] = {total};
    g.exchange(v);
    total = got_all<SUM>(s.got[0], g.blocks);
    before += got_all<SUM>(s.got[0], g.block);
    u64 target = __umul64hi(s.bits, total);
    u32 mine = __ballot_sync(~0u, target >= before && target - before < sum);
    if (mine == 0) return;
    // One thread of the row has the target in its run; its warp looks through it.
    int lane = threadIdx.x % WARP, owner = __ffs(mine) - 1;
    before = __shfl_sync(~0u, before, owner);
    from = __shfl_sync(~0u, from, owner), to = __shfl_sync(~0u, to, owner);
    for (u32 at = from; at < to; at += WARP) {
        u64 upto = at + lane < to ? weigh(at + lane) : 0;
#pragma unroll
        for (int step = 1; step < WARP; step *= 2) {
            u64 other = __shfl_up_sync(~0u, upto, step);
            if (lane >= step) upto += other;
        }
        u32 past = __ballot_sync(~0u, before + upto > target);
        if (past) {
            if (lane == __ffs(past) - 1) emit(args, p, s, (Chosen)element(slice.values[at + lane], slice.first + at + lane));
            return;
        }
        before += __shfl_sync(~0u, upto, WARP - 1);
    }
}

__device__ void sample_row(const Arguments &args, const SampleParams &p, Group &g, const Slice &slice) {
    Shared &s = g.s;
    bool leads = g.block == 0 && threadIdx.x == 0, reports = p.certainty || (p.logprobs >= 0 && !told_of_draws(p));
    if (threadIdx.x == 0) s.which = p.forced < 0 && (p.edits > 0 || p.mixes > 0) ? PLAIN : ONLY;
    if (p.forced >= 0 && !reports) {
        if (leads) emit(args, p, s, (Chosen)p.forced);
        return;
    }
    bool penalties = p.history >= 0 && (p.repetition_penalty != 1.0f || p.presence_penalty != 0.0f || p.frequency_penalty != 0.0f);
    bool edits = p.biases > 0 || p.ends > 0 || p.mask_at >= 0 || penalties;
    Best own = load(args.logits + (u64)p.row * VOCAB, slice);
    u64 top = ALL;
    if (reports || !edits) top = best_of_row(g, own, p);
    if (reports && top != NOT_FINITE) report(g, slice, of_rank((u32)(top >> 32)), p, args.results);
    if (edits && p.forced < 0 && top != NOT_FINITE) {
        Best edited = edit(args, p, slice, penalties);
        edited.not_finite = own.not_finite;
        top = best_of_row(g, edited, p);
    }
    if (top == NOT_FINITE || p.forced >= 0) {
        if (leads) top == NOT_FINITE ? emit_not_finite(args, p, args.results + s.at) : emit(args, p, s, (Chosen)p.forced);
        return;
    }
    if (threadIdx.x == 0) s.top = top;
    // One place for both draws: the code is long, and most of it runs once a row.
#pragma unroll 1
    for (;;) {
        if (told_of_draws(p) && s.which != PLAIN) {
            g.go_on(report_drawn(g, slice, top, args.results + s.at));
        }
        choose(args, p, g, slice, top);
        if (s.which != PLAIN) return;
        top = edit_sparsely(args, p, g, slice);
    }
}

// Grid: (blocks of a group, groups), all resident at once.
extern "C" __global__ void __launch_bounds__(THREADS, 4) sampler(const __grid_constant__ Arguments args) {
    __shared__ Shared s;
    // All of us are running when the next kernel starts early, so it cannot take a place that one of us waits for.
    let_next_start();
    wait_for_inputs();
    u64 *scratch = args.scratch + (u64)blockIdx.y * GROUP_WORDS;
    u64 state = __ldcg(scratch);
    Group g = {scratch, s, gridDim.x, blockIdx.x, (u32)state, (u32)(state >> 32)};
    u32 first = min(g.block * (u32)args.slice, (u32)VOCAB);
    Slice slice = {s.values, first, min((u32)args.slice, (u32)VOCAB - first)};
    for (u32 r = blockIdx.y; r < (u32)args.rows; r += gridDim.y) {
        __syncthreads();
        if (threadIdx.x == THREADS - 1) s.at = r;
        if (threadIdx.x < sizeof(SampleParams) / 4) {
            u32 word = __ldcg((const u32 *)(args.params + r) + threadIdx.x);
            u32 *to = (u32 *)&s.row + threadIdx.x;
            if (args.ahead && to == &s.row.output_index) word += (u32)__ldcg(args.ahead + r);
            *to = word;
        }
        __syncthreads();
        // The group's next row comes into the cache meanwhile.
        u32 line = threadIdx.x * 32;
        if (r + gridDim.y < (u32)args.rows && line < slice.count) {
            int next = __ldcg(&args.params[r + gridDim.y].row);
            if (next >= 0) asm volatile("prefetch.global.L2 [%0];" ::"l"(args.logits + (u64)next * VOCAB + slice.first + line));
        }
        if (s.row.row >= 0) sample_row(args, s.row, g, slice);
    }
    // The others read it before the first exchange, and without one it is the same.
    if (g.block == 0 && threadIdx.x == 0) *scratch = (u64)g.turn << 32 | g.epoch;
    if (args.tally && blockIdx.x + blockIdx.y == 0 && threadIdx.x == 0) args.results[args.rows].token = (int)atomicExch(args.tally, 0);
}
