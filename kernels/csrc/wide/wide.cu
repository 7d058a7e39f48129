// y[c][r] = sum_k w[r][k] x[c][k] for many columns c     w: [ROWS, COLS] as in weights.cuh, x: int8 rows (common/int8_rows.cuh)
//
// A block owns R = 16 TW WR rows by C = 8 NW WN columns. Weights and activations of SU = KG KU units of 128 inputs are one stage, copied
// to shared memory STAGES - 1 ahead. Group j of the block's KG groups of warps takes the units [j, j + 1) * KU of each stage; within a
// group, WR x WN warps have TW tiles of 16 rows and NW tiles of 8 columns each. A cluster of SPLIT blocks shares the inputs: block i takes the units
// [i, i + 1) * UNITS / SPLIT. An output is the sum over its units in order, groups added in order, then blocks, neighbours first: it
// depends on the tiling and never on the columns beside it.
//
// With SEGMENTS it does not depend on the tiling either, and has the bytes that the kernels for few rows give (product.cu with WK segments,
// experts.cu with BY_HALVES): segment i is the units [i, i + 1) * UNITS / SEGMENTS in order, every group has one or more in a row, and
// segments are added as a tree, neighbours first; with BY_HALVES one after another.
//
// In f32, with an integer i that is exact, M = MAGIC, s and m of the weights, d and sum of the activations; f = float(M + i) is what
// the matrix instruction leaves, and since s * M is exact too, one fma gives the rounded i * s:
//   scale only        t = fma(f, s, -M s)                                acc = fma(t, d, acc)
//   with a minimum    the same, and for each unit acc = fma(-dmin, sum over blocks of s[1] * (d * sum), acc)
//   a scale per half  t = fma(f1 - M, s1, fma(f0, s0, -M s0))            the same
//   16 bits           t = fma(f1 - M, 256, f0 - M) * s                   the same
//
// Bounds: the bytes of w once for every C columns; C PLANES (128 + 32) bytes of activations a unit for every R rows, from the cache; about
// 12 PLANES instructions for each 4096 products (16 x 8 x 32), whichever is largest.
//
// EPILOGUE: 0 plain: out[row][r] = sum * factor; 1 residual: x[row][r] += sum, its int8 form times `weight` and its sums of squares;
// 2 gated: rows come as 8 of gate, 8 of up; out = int8 form of silu(gate) * up, R / 2 values; 3 squared: out = int8 form of relu(sum)^2;
// 4 rounded: out = int8 form of sum.
// `factor` is args.factor, times row_factor of the column's NORM_BLOCKS `squares` where those are not 0.
//
// -D: ROWS, COLS, the layout's (weights.cuh), LISTED: whether columns are, TW, WR, NW, WN, KG, KU, SPLIT, STAGES, EPILOGUE, NORM_BLOCKS, PLACED, PLANES; SEGMENTS, a power of
// two, or 0 for whatever order the tiling gives, and BY_HALVES: whether the first two and the last two blocks of units have sums of their own
// in a segment, of which the first has the minima; LORA: whether adapters add to the sums (common/lora.cuh).
#include "wide/columns.cuh"
#include "wide/multiply.cuh"

// Whether columns of which there are 8 at most are done by themselves: where they are listed.
#define HALVED (LISTED && NW == 2 && WN == 1)
// Units from one stage to the next.
#define STRIDE (SEGMENTS && KG > 1 ? KU : SU)

// All units of the block, those of the first stages on their way, times the first OCTETS of each warp's.
template <int OCTETS>
__device__ __forceinline__ void multiply_stages(const Thread &me, Accumulators &acc, const Arguments &args, const Place &p, u32 stages,
                                                const WeightCopies &weights, const ActivationCopies &activations, const u32 *grid) {
    int stage = 0;
    // The stage of these units, when it is there and the one behind those under way has been asked for.
    auto next_stage = [&](int unit) {
        copies_wait<STAGES - 2>();
        __syncthreads();
        int next = unit + (STAGES - 1) * STRIDE, to = stage == 0 ? STAGES - 1 : stage - 1;
        if (next < p.end) {
            weights.copy(stages + to * STAGE_BYTES, next);
            activations.copy(stages + to * STAGE_BYTES, args, next);
        }
        copies_end();
        u32 at = stages + stage * STAGE_BYTES;
        stage = stage + 1 == STAGES ? 0 : stage + 1;
        return at;
    };
    auto multiply = [&](u32 at, int j) {
        u32 column = p.wn * NW * 8;
        multiply_unit<OCTETS>(acc, at + (j * BT + p.wr * TW) * UNIT_BYTES, at + CODES_IN + (j * C + column + me.g) * COLUMN_BYTES + me.t * 8,
                              at + META_IN + (j * BLOCKS * C + column) * 4, grid);
    };
#if SEGMENTS
    Segments segments;
    const int first_segment = (p.rank * KG + p.group) * GROUP_SEGMENTS;
    int segment = 0, segment_end = (first_segment + 1) * W::UNITS / SEGMENTS;
    auto end_segment = [&] {
        segments.end(acc, segment++);
        segment_end = (first_segment + segment + 1) * W::UNITS / SEGMENTS;
    };
#endif
#if SEGMENTS && SU == 1
    // A loop of its own for each segment: where one ends is then no question behind every unit, nor are its sums.
    int unit = p.begin;
#pragma unroll 1
    while (segment < GROUP_SEGMENTS) {
#pragma unroll 1
        for (; unit < segment_end; unit++) multiply(next_stage(unit), 0);
        end_segment();
    }
#else
    for (int unit = p.begin; unit < p.end; unit += STRIDE) {
        u32 at = next_stage(unit);
#pragma unroll
        for (int k = 0; k < KU; k++) {
            int j = p.group * KU + k;
#if SEGMENTS
            // A group that has fewer units than others is done with the last of them all the same.
            const int end = KG > 1 ? (first_segment + GROUP_SEGMENTS) * W::UNITS / SEGMENTS : p.end;
            int now = unit_of(unit, j);
            if (!WHOLE && now >= end) break;
            multiply(at, j);
            if (now + 1 == segment_end) end_segment();
#else
            if (!WHOLE && unit + j >= p.end) break;
            multiply(at, j);
#endif
        }
    }
#endif
    copies_wait<0>();
}

// Sums of all groups, in their order, to shared memory, where the stages were. Ends with a barrier.
__device__ __forceinline__ void put_sums(const Thread &me, float *sums, const Accumulators &all, const Place &p) {
    const float(&acc)[TW][NW][4] = all[0];
    // In a place each two groups are added, so that the first of several is the even one.
    constexpr int TURNS = PLACES > 1 ? 2 : KG;
#pragma unroll
    for (int j = 0; j < TURNS; j++) {
        __syncthreads();
        if ((PLACES > 1 ? p.group % 2 : p.group) != j) continue;
        float *place = sums + (PLACES > 1 ? p.group / 2 * (C * SUM_STRIDE) : 0);
#pragma unroll
        for (int i = 0; i < TW; i++)
#pragma unroll
            for (int n = 0; n < NW; n++)
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    float *sum = place + ((p.wn * NW + n) * 8 + 2 * me.t + k % 2) * SUM_STRIDE + (p.wr * TW + i) * 16 + me.g + k / 2 * 8;
                    *sum = j == 0 ? acc[i][n][k] : *sum + acc[i][n][k];
                }
    }
    __syncthreads();
    if constexpr (PLACES > 1) {
        for (int i = threadIdx.x; i < C * SUM_STRIDE; i += THREADS) sums[i] += sums[C * SUM_STRIDE + i];
        __syncthreads();
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
#if SPLIT > 1
    __cluster_dims__(SPLIT, 1, 1)
#endif
        wide(const Arguments args) {
    extern __shared__ __align__(128) u8 shared[];
    float *sums = (float *)shared;
    u32 *grid = (u32 *)(shared + GRID_AT);
    Lists lists(shared);
    if (!LISTED) let_next_start();
    fetch_grid(grid);
    // Divided as unsigned numbers, unlike `this_thread`: with signed ones the compiler unrolls the loop over factors, which is half of a kernel.
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const Thread me = {(int)threadIdx.x, warp, lane, lane / 4, lane % 4};
    const Place p = place_of(me);
    Work work = find_work(args, lists.in_row);
    // Not before: the next launch may read the lists before its wait (`early`).
    if (LISTED) let_next_start();
    u32 stages = shared_address(shared);
    WeightCopies weights;
    weights.set(matrix_of(args, work.matrix), p.tile0);

    // All blocks of a cluster have the same work, so all of them leave here or none.
    for (int base = work.base; base < work.end; base += C) {
#pragma unroll
        for (int s = 0; s < STAGES - 1; s++)
            if (p.begin + s * STRIDE < p.end) weights.copy(stages + s * STAGE_BYTES, p.begin + s * STRIDE);
        if (!args.slots || (LISTED && args.early)) wait_for_inputs();
        int left = min(work.end - base, C);
        lists.put_rows(args, work, base);
        __syncthreads();
        ActivationCopies activations;
        activations.set(lists.in_row);
#pragma unroll
        for (int s = 0; s < STAGES - 1; s++) {
            if (p.begin + s * STRIDE < p.end) activations.copy(stages + s * STAGE_BYTES, args, p.begin + s * STRIDE);
            copies_end();
        }
        lists.put_factors(me, args);
        Accumulators acc = {};
        // Instructions bound products of few columns, and most of 9 to 16 rows' experts have 8 at most.
        if (HALVED && left <= 8) multiply_stages<1>(me, acc, args, p, stages, weights, activations, grid);
        else multiply_stages<NW>(me, acc, args, p, stages, weights, activations, grid);
        put_sums(me, sums, acc, p);
        cluster_barrier();
        finish(me, args, sums, lists, p, matrix_of(args, work.matrix), left);
        // The next columns overwrite what was just read, here or from another block.
        cluster_barrier();
        __syncthreads();
    }
    if (LISTED) ends_behind_inputs(args);
}
