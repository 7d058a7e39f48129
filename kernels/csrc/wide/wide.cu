// y[c][r] = sum_k w[r][k] x[c][k] for many columns c     w: [ROWS, COLS] as in weights.cuh, x: int8 rows (common/int8_rows.cuh)
//
// A block owns R = 16 TW WR rows by C = 8 NW WN columns. Weights and activations of SU = KG KU units of 128 inputs are one stage, copied
// to shared memory STAGES - 1 ahead. Group j of the block's KG groups of warps takes the units [j, j + 1) * KU of each stage; within a
// group, WR x WN warps have TW tiles of 16 rows and NW tiles of 8 columns each. A cluster of SPLIT blocks shares the inputs: block i takes the units
// [i, i + 1) * UNITS / SPLIT. An output is the sum over its units in order, groups added in order, then blocks in order: it depends on
// the tiling and never on the columns beside it.
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
// 2 gated: rows come as 8 of gate, 8 of up; out = int8 form of silu(gate) * up, R / 2 values.
// `factor` is args.factor, times row_factor of the column's NORM_BLOCKS `squares` where those are not 0.
//
// -D: ROWS, COLS, the layout's (weights.cuh), TW, WR, NW, WN, KG, KU, SPLIT, STAGES, EPILOGUE, NORM_BLOCKS, PLANES.
#include "weights/layout.cuh"
#include "arguments.cuh"

using W = Weights<CODES, SCALES, COLS, LEVELS0, LEVELS1, LEVELS2, LEVELS3>;
#define TILES ((ROWS + 15) / 16)
#define WARPS (WR * WN * KG)
#define THREADS (WARPS * WARP)
#define SU (KG * KU)
#define BT (TW * WR)
#define R (BT * 16)
#define CT (NW * WN)
#define C (CT * 8)
// Whether every stage is full.
#define WHOLE (W::UNITS % (SU * SPLIT) == 0)
#define RESIDENT (512 / THREADS > 0 ? 512 / THREADS : 1)
#define PLAIN 0
#define RESIDUAL 1
#define GATED 2

// A stage: weights [SU][BT] {codes, planes, scales, group}, then codes of activations [SU][C][COLUMN_BYTES], then of them d
// [SU][BLOCKS][C] and, where the layout has minima, sum [SU][BLOCKS][C].
// Columns lie 32 bytes off a multiple of 128 apart, so that the 8 bytes that 16 lanes read of four columns fall into different banks.
#define SCALES_IN (W::CODE_BYTES + W::PLANE_BYTES)
#define GROUP_IN (SCALES_IN + W::SCALE_BYTES)
#define UNIT_BYTES (GROUP_IN + W::GROUP_BYTES)
#define COLUMN_BYTES (UNIT_CODES + 32)
// Of a unit of activations: blocks of 32 codes, each with its {d, sum}.
#define BLOCKS (4 * PLANES)
#define UNIT_CODES (BLOCKS * 32)
#define CODES_IN (SU * BT * UNIT_BYTES)
#define META_IN (CODES_IN + SU * C * COLUMN_BYTES)
#define SUMS_IN (META_IN + SU * C * BLOCKS * 4)
#define STAGE_BYTES (SUMS_IN + (SCALES == S_MIN ? SU * C * BLOCKS * 4 : 0))
// Sums of the block, over the stages: [C][R + 4], where the 4 spreads the columns over the banks.
#define SUM_STRIDE (R + 4)
// The rest of shared memory: the columns' rows, factors, and the grid of a layout that has one.
#define LISTS_AT (STAGES * STAGE_BYTES > C * SUM_STRIDE * 4 ? STAGES * STAGE_BYTES : C * SUM_STRIDE * 4)
#define GRID_AT (LISTS_AT + 3 * 4 * C)
static_assert(UNIT_BYTES % 16 == 0 && (ROWS % 32 == 0 || EPILOGUE == PLAIN), "copies are of 16 bytes, int8 blocks of 32 rows");
static_assert(BT % (EPILOGUE == GATED ? 4 : EPILOGUE == RESIDUAL ? 2 : 1) == 0, "a block of the int8 form belongs to one block");

__device__ __forceinline__ void copy16_of_line(u32 to, const void *from) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ void copy4(u32 to, const void *from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}
// Loads that stay where they are written, behind barriers and near their use: hoisted by the compiler, they would take registers.
__device__ __forceinline__ uint4 read16(u32 at) {
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(at));
    return v;
}
__device__ __forceinline__ uint2 read8(u32 at) {
    uint2 v;
    asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(at));
    return v;
}
__device__ __forceinline__ u32 read4(u32 at) {
    u32 v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(at));
    return v;
}

// What this block multiplies: columns `first + base`, up to `end`, of a matrix.
struct Work {
    int matrix, first, base, end;
};

// With `spread`, slot s owns the blocks from floor(first / C) + s on: at least as many as it has tiles of columns, because slots come
// in ascending order of `first`. Blocks beyond its columns have nothing to do.
__device__ __forceinline__ Work find_work(const Arguments &args, int *found) {
    int y = blockIdx.y;
    if (!args.slots) return {0, 0, y * C, min(args.count, y * C + C)};
    wait_for_inputs();
    if (!args.spread) {
        int4 slot = __ldcg(args.slots + y);
        return {slot.x, slot.y, 0, slot.z};
    }
    if (threadIdx.x == 0) *found = -1;
    __syncthreads();
    int last = -1;
    for (int s = threadIdx.x; s < args.slot_count; s += THREADS) {
        int4 slot = __ldcg(args.slots + s);
        if (slot.z > 0 && slot.y / C + s <= y) last = s;
    }
    if (last >= 0) atomicMax(found, last);
    __syncthreads();
    int s = *found;
    __syncthreads();
    if (s < 0) return {0, 0, 0, 0};
    int4 slot = __ldcg(args.slots + s);
    int base = (y - slot.y / C - s) * C;
    return {slot.x, slot.y, base, min(slot.z, base + C)};
}

// A part of a tile's units, BYTES each, EACH units sharing one: what a thread copies of it. A stage's copies lie at fixed distances
// wherever threads and tiles come out even, so that they share an address.
template <int BYTES, int EACH> struct Part {
    static constexpr int CHUNKS = BYTES > 0 ? BYTES / 16 : 1, ALL = BYTES > 0 ? BT * CHUNKS : 0, TIMES = (ALL + THREADS - 1) / THREADS;
    static constexpr bool EVEN = THREADS % CHUNKS == 0 && TILES >= BT;
    static constexpr int KEPT = EVEN || TIMES == 0 ? 1 : TIMES;
    const u8 *from[KEPT];
    u32 to[KEPT];

    __device__ __forceinline__ void set(const u8 *matrix, int tile0, u32 at, u32 in_unit) {
#pragma unroll
        for (int k = 0; k < KEPT; k++) {
            int i = k * THREADS + threadIdx.x, chunk = i % CHUNKS, tile = i / CHUNKS;
            from[k] = matrix + (u64)min(tile0 + tile, TILES - 1) * W::TILE_BYTES + at + chunk * 16;
            to[k] = tile * UNIT_BYTES + in_unit + chunk * 16;
        }
    }
    __device__ __forceinline__ void copy(u32 stage, int unit) const {
#pragma unroll
        for (int k = 0; k < TIMES; k++) {
            if ((k + 1) * THREADS > ALL && (int)(k * THREADS + threadIdx.x) >= ALL) break;
            constexpr int TILES_A_TIME = THREADS / CHUNKS;
#pragma unroll
            for (int j = 0; j < SU; j++) {
                // Past its last unit a block copies some other; what comes of it is not used.
                const u8 *of_unit = from[EVEN ? 0 : k] + (u64)(u32)((WHOLE ? unit + j : min(unit + j, W::UNITS - 1)) / EACH) * BYTES;
                copy16_of_line(stage + to[EVEN ? 0 : k] + j * (BT * UNIT_BYTES) + (EVEN ? k * TILES_A_TIME * UNIT_BYTES : 0),
                       of_unit + (EVEN ? k * TILES_A_TIME * W::TILE_BYTES : 0));
            }
        }
    }
};

// What a thread copies of the weights.
struct WeightCopies {
    Part<W::CODE_BYTES, 1> codes;
    Part<W::PLANE_BYTES, 1> planes;
    Part<W::SCALE_BYTES, 1> scales;
    Part<W::GROUP_BYTES, 2> groups;

    __device__ __forceinline__ void set(const u8 *matrix, int tile0) {
        codes.set(matrix, tile0, 0, 0);
        planes.set(matrix, tile0, W::PLANES_AT, W::CODE_BYTES);
        scales.set(matrix, tile0, W::SCALES_AT, SCALES_IN);
        groups.set(matrix, tile0, W::GROUPS_AT, GROUP_IN);
    }
    __device__ __forceinline__ void copy(u32 stage, int unit) const {
        codes.copy(stage, unit);
        planes.copy(stage, unit);
        scales.copy(stage, unit);
        groups.copy(stage, unit);
    }
};

// What a thread copies of the activations, by place within their arrays, which are below 2^32 elements.
struct ActivationCopies {
    // Pieces of 16 bytes of a unit's codes.
    static constexpr int PIECES = UNIT_CODES / 16;
    static constexpr int TIMES = (C * PIECES + THREADS - 1) / THREADS, META_TIMES = (C * BLOCKS + THREADS - 1) / THREADS;
    u32 codes[TIMES], meta[META_TIMES];

    __device__ __forceinline__ void set(const int *in_row) {
#pragma unroll
        for (int k = 0; k < TIMES; k++) {
            int i = k * THREADS + threadIdx.x;
            codes[k] = i < C * PIECES ? (u32)in_row[i / PIECES] * (COLS * PLANES) + i % PIECES * 16 : 0;
        }
#pragma unroll
        for (int k = 0; k < META_TIMES; k++) {
            int i = k * THREADS + threadIdx.x;
            meta[k] = i < C * BLOCKS ? (u32)in_row[i / BLOCKS] * (COLS / 32 * PLANES) + i % BLOCKS : 0;
        }
    }
    __device__ __forceinline__ void copy(u32 stage, const Arguments &args, int unit) const {
        u32 to = stage + CODES_IN + threadIdx.x / PIECES * COLUMN_BYTES + threadIdx.x % PIECES * 16;
        u32 meta_to = stage + META_IN + (threadIdx.x % BLOCKS * C + threadIdx.x / BLOCKS) * 4;
#pragma unroll
        for (int j = 0; j < SU; j++) {
            int u = WHOLE ? unit + j : min(unit + j, W::UNITS - 1);
#pragma unroll
            for (int k = 0; k < TIMES; k++) {
                if ((k + 1) * THREADS > C * PIECES && k * THREADS + threadIdx.x >= C * PIECES) break;
                copy16_of_line(to + (j * C + k * (THREADS / PIECES)) * COLUMN_BYTES, args.codes + (codes[k] + u * UNIT_CODES));
            }
#pragma unroll
            for (int k = 0; k < META_TIMES; k++) {
                if ((k + 1) * THREADS > C * BLOCKS && k * THREADS + threadIdx.x >= C * BLOCKS) break;
                const float2 *from = args.meta + (meta[k] + u * BLOCKS);
                u32 to = meta_to + (j * BLOCKS * C + k * (THREADS / BLOCKS)) * 4;
                copy4(to, &from->x);
                if constexpr (SCALES == S_MIN) copy4(to + SU * C * BLOCKS * 4, &from->y);
            }
        }
    }
};

// What block b needs of a unit and earlier blocks have not read.
__device__ __forceinline__ void load_block(W::Unit &w, u32 unit, int b) {
    int lane = threadIdx.x % WARP, g = lane / 4;
#pragma unroll
    for (int v = 0; v < W::VECTORS; v++)
        if (CODES == BYTE || CODES == WORD ? v % 4 == b : v * 4 / W::VECTORS == b) w.codes[v] = read16(unit + v * 512 + lane * 16);
    if (b > 0) return;
    u32 planes = unit + W::CODE_BYTES;
    if constexpr (CODES == SIX) w.plane = read16(planes + lane * 16);
    if constexpr (CODES == FIVE || CODES == GRID) {
        uint2 two = read8(planes + lane * 8);
        w.plane = make_uint4(two.x, two.y, 0, 0);
    }
    if constexpr (CODES == GRID) w.high = read4(planes + 256 + lane / 2 * 4) >> lane % 2 * 16;
    if constexpr (SCALES == S_NIBBLE) {
        w.scales.x = read4(unit + SCALES_IN + g * 4);
    } else if constexpr (SCALES == S_BYTE) {
        uint2 two = read8(unit + SCALES_IN + g * 8);
        w.scales = make_uint4(two.x, two.y, 0, 0);
    } else {
        w.scales = read16(unit + SCALES_IN + g * 16);
    }
    if constexpr (SCALES == S_MIN) w.group = read8(unit + GROUP_IN + g * 8);
    else if constexpr (W::GROUP_BYTES > 0) w.group.x = read4(unit + GROUP_IN + g * 4);
}

// One block of 32 inputs: 16 rows times 8 columns. `d`: of columns 2t and 2t + 1.
__device__ __forceinline__ void multiply(float (&acc)[4], const W::Operand &o, const W::Scale &s, const float (&ms)[2], uint2 x, float2 d) {
    int c[4], c1[4];
    if constexpr (SCALES == S_HALVES) {
        mma_k16(c, o.a[0][0], o.a[0][1], x.x);
        mma_k16(c1, o.a[0][2], o.a[0][3], x.y);
    } else {
        mma_k32(c, o.a[0], x);
        if constexpr (CODES == WORD) mma_k32(c1, o.a[1], x);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int r = i / 2;
        float t;
        if constexpr (CODES == WORD) t = __fmul_rn(__fmaf_rn(exact(c[i]), 256.0f, exact(c1[i])), s.s[r]);
        else t = __fmaf_rn(__int_as_float(c[i]), s.s[r], ms[r]);
        if constexpr (SCALES == S_HALVES) t = __fmaf_rn(exact(c1[i]), s.s1[r], t);
        acc[i] = __fmaf_rn(t, i % 2 ? d.y : d.x, acc[i]);
    }
}

// As of weights.cuh, without minima.
__device__ __forceinline__ W::Scale scale_of(const W::Unit &w, int b) {
    if constexpr (SCALES != S_MIN) return W::scale_of(w, b);
    W::Scale s;
    u32 x = word(w.scales, b);
    s.s[0] = low_half(w.group.x) * plain_byte_at(x, 0), s.s[1] = low_half(w.group.y) * plain_byte_at(x, 2);
    return s;
}

// D[16,8] += A[16,4] B[4,8]. Lane (g, t): a0 row g, a1 row g + 8, b column g, of k = t; D as of mma_k32.
__device__ __forceinline__ void mma_tf32(float (&d)[4], u32 a0, u32 a1, u32 b) {
    asm("mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(b));
}
// A unit's minima are themselves a product, of the four blocks' factors and d * sum over the planes: a factor has six bits, and d * sum
// is, to f32's own precision, the sum of two numbers of eleven.
__device__ __forceinline__ void subtract_minima(float (&acc)[TW][NW][4], u32 weights, u32 d_of, u32 sum_of) {
    int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    u32 m[TW][2];
    float group[TW][2];
#pragma unroll
    for (int i = 0; i < TW; i++) {
        u32 x = read4(weights + i * UNIT_BYTES + SCALES_IN + g * 16 + t * 4);
        uint2 halves = read8(weights + i * UNIT_BYTES + GROUP_IN + g * 8);
        m[i][0] = __float_as_uint(plain_byte_at(x, 1)), m[i][1] = __float_as_uint(plain_byte_at(x, 3));
        group[i][0] = -high_half(halves.x), group[i][1] = -high_half(halves.y);
    }
#pragma unroll
    for (int n = 0; n < NW; n++) {
        float x = __uint_as_float(read4(d_of + n * 32)) * __uint_as_float(read4(sum_of + n * 32));
        if constexpr (PLANES > 1)
            x = __fmaf_rn(__uint_as_float(read4(d_of + C * 4 + n * 32)), __uint_as_float(read4(sum_of + C * 4 + n * 32)), x);
        // To the nearest of eleven bits; of what is left the instruction ignores what exceeds eleven.
        u32 high = __float_as_uint(x) + 0x1000 & 0xffffe000, low = __float_as_uint(x - __uint_as_float(high));
#pragma unroll
        for (int i = 0; i < TW; i++) {
            float sum[4] = {};
            mma_tf32(sum, m[i][0], m[i][1], high);
            mma_tf32(sum, m[i][0], m[i][1], low);
#pragma unroll
            for (int k = 0; k < 4; k++) acc[i][n][k] = __fmaf_rn(group[i][k / 2], sum[k], acc[i][n][k]);
        }
    }
}

// One unit: TW tiles times NW tiles of columns.
__device__ __forceinline__ void multiply_unit(float (&acc)[TW][NW][4], u32 weights, u32 codes, u32 meta, const u32 *grid) {
    int g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
    u32 d_of = meta + t * 8;
    W::Unit w[TW];
#pragma unroll
    for (int b = 0; b < 4; b++) {
        W::Operand a[TW];
        W::Scale s[TW];
        float ms[TW][2];
#pragma unroll
        for (int i = 0; i < TW; i++) {
            load_block(w[i], weights + i * UNIT_BYTES, b);
            a[i] = W::expand(w[i], b, grid);
            s[i] = scale_of(w[i], b);
            ms[i][0] = -MAGIC * s[i].s[0], ms[i][1] = -MAGIC * s[i].s[1];
        }
#pragma unroll
        for (int n = 0; n < NW; n++)
#pragma unroll
            for (int p = 0; p < PLANES; p++) {
                uint2 x = read8(codes + n * 8 * COLUMN_BYTES + (b * PLANES + p) * 32);
                uint2 two = read8(d_of + ((b * PLANES + p) * C + n * 8) * 4);
                float2 d = make_float2(__uint_as_float(two.x), __uint_as_float(two.y));
#pragma unroll
                for (int i = 0; i < TW; i++) multiply(acc[i][n], a[i], s[i], ms[i], x, d);
            }
    }
    u32 mine = meta + (t * PLANES * C + g) * 4;
    if constexpr (SCALES == S_MIN) subtract_minima(acc, weights, mine, mine + SU * C * BLOCKS * 4);
}

#if SPLIT > 1
__device__ __forceinline__ void cluster_barrier() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// Four sums at `address` of this block's shared memory over the blocks of the cluster, in order.
__device__ __forceinline__ float4 cluster_sum(u32 address) {
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
    for (u32 rank = 0; rank < SPLIT; rank++) {
        float4 v;
        asm volatile("{.reg .u32 a; mapa.shared::cluster.u32 a, %4, %5; ld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [a];}"
                     : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                     : "r"(address), "r"(rank)
                     : "memory");
        sum = rank == 0 ? v : make_float4(sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w);
    }
    return sum;
}
#else
__device__ __forceinline__ void cluster_barrier() {}
#endif

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
#if SPLIT > 1
    __cluster_dims__(SPLIT, 1, 1)
#endif
        wide(const Arguments args) {
    extern __shared__ __align__(128) u8 shared[];
    float *sums = (float *)shared;
    int *in_row = (int *)(shared + LISTS_AT), *out_row = in_row + C;
    float *factor = (float *)(out_row + C);
    u32 *grid = (u32 *)(shared + GRID_AT);
    let_next_start();
    fetch_grid(grid);
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, g = lane / 4, t = lane % 4;
    int group = warp / (WR * WN), wr = warp % (WR * WN) / WN, wn = warp % WN;
    const int rank = blockIdx.x % SPLIT, row_block = blockIdx.x / SPLIT, begin = rank * W::UNITS / SPLIT, end = (rank + 1) * W::UNITS / SPLIT;
    Work work = find_work(args, in_row);
    const u8 *matrix = args.weights + work.matrix * args.matrix_bytes;
    u32 stages = shared_address(shared);
    // The last rows' block goes back to have whole tiles, and leaves alone what the one before it does.
    int tile0 = TILES >= BT ? min(row_block * BT, TILES - BT) : 0, skip = (row_block * BT - tile0) * 16;
    WeightCopies weights;
    weights.set(matrix, tile0);

    // All blocks of a cluster have the same work, so all of them leave here or none.
    for (int base = work.base; base < work.end; base += C) {
#pragma unroll
        for (int s = 0; s < STAGES - 1; s++)
            if (begin + s * SU < end) weights.copy(stages + s * STAGE_BYTES, begin + s * SU);
        if (!args.slots) wait_for_inputs();
        // Columns past the last one repeat it; their outputs are not stored.
        int left = min(work.end - base, C);
        if (threadIdx.x < C) {
            int column = work.first + base + min((int)threadIdx.x, left - 1);
            in_row[threadIdx.x] = args.slots ? __ldcg(args.in_rows + column) : column;
            out_row[threadIdx.x] = args.slots ? __ldcg(args.out_rows + column) : column;
        }
        static_assert(C <= THREADS, "a column's row is read by its own thread");
        __syncthreads();
        ActivationCopies activations;
        activations.set(in_row);
#pragma unroll
        for (int s = 0; s < STAGES - 1; s++) {
            if (begin + s * SU < end) activations.copy(stages + s * STAGE_BYTES, args, begin + s * SU);
            copies_end();
        }
        for (int c = warp; c < C; c += WARPS) {
            float f = args.factor;
            if constexpr (NORM_BLOCKS > 0) f *= row_factor<NORM_BLOCKS>(args.squares + (u64)(u32)in_row[c] * NORM_BLOCKS, args.eps);
            if (lane == 0) factor[c] = f;
        }

        float acc[TW][NW][4] = {};
        int stage = 0;
        for (int unit = begin; unit < end; unit += SU) {
            copies_wait<STAGES - 2>();
            __syncthreads();
            int next = unit + (STAGES - 1) * SU, to = stage == 0 ? STAGES - 1 : stage - 1;
            if (next < end) {
                weights.copy(stages + to * STAGE_BYTES, next);
                activations.copy(stages + to * STAGE_BYTES, args, next);
            }
            copies_end();
            u32 at = stages + stage * STAGE_BYTES, column = wn * NW * 8;
#pragma unroll
            for (int k = 0; k < KU; k++) {
                int j = group * KU + k;
                if (!WHOLE && unit + j >= end) break;
                multiply_unit(acc, at + (j * BT + wr * TW) * UNIT_BYTES, at + CODES_IN + (j * C + column + g) * COLUMN_BYTES + t * 8,
                              at + META_IN + (j * BLOCKS * C + column) * 4, grid);
            }
            stage = stage + 1 == STAGES ? 0 : stage + 1;
        }

        copies_wait<0>();
#pragma unroll
        for (int j = 0; j < KG; j++) {
            __syncthreads();
            if (group != j) continue;
#pragma unroll
            for (int i = 0; i < TW; i++)
#pragma unroll
                for (int n = 0; n < NW; n++)
#pragma unroll
                    for (int k = 0; k < 4; k++) {
                        float *sum = sums + ((wn * NW + n) * 8 + 2 * t + k % 2) * SUM_STRIDE + (wr * TW + i) * 16 + g + k / 2 * 8;
                        *sum = j == 0 ? acc[i][n][k] : *sum + acc[i][n][k];
                    }
        }
        __syncthreads();
        cluster_barrier();
        // Lane (g, t) finishes outputs 4t.. and 16 + 4t.. of column g of eight, which is how an int8 block is made (quantize_quads);
        // the blocks of a cluster share the work.
        constexpr int PIECES = (R / (EPILOGUE == GATED ? 2 : 1) + 31) / 32;
        for (int i = warp * SPLIT + rank; i < (left + 7) / 8 * PIECES; i += WARPS * SPLIT) {
            int c = i / PIECES * 8 + g, piece = i % PIECES;
            bool store = c < left;
            u64 row = (u32)out_row[c];
            float f = factor[c];
            auto sum_at = [&](int r) {
#if SPLIT > 1
                float4 v = cluster_sum(shared_address(sums + c * SUM_STRIDE + r));
#else
                float4 v = *(const float4 *)(sums + c * SUM_STRIDE + r);
#endif
                return make_float4(v.x * f, v.y * f, v.z * f, v.w * f);
            };
#if EPILOGUE == PLAIN
#pragma unroll
            for (int half = 0; half < 2; half++) {
                int in_block = piece * 32 + half * 16 + 4 * t, r = tile0 * 16 + in_block;
                if (in_block >= R || in_block < skip) continue;
                float4 v = sum_at(in_block);
                float *out = args.out + row * args.out_stride + r;
                if (!store) continue;
                if (ROWS % 4 == 0 && args.aligned) {
                    if (r < ROWS) *(float4 *)out = v;
                } else {
                    if (r < ROWS) out[0] = v.x;
                    if (r + 1 < ROWS) out[1] = v.y;
                    if (r + 2 < ROWS) out[2] = v.z;
                    if (r + 3 < ROWS) out[3] = v.w;
                }
            }
#elif EPILOGUE == RESIDUAL
            int r = tile0 * 16 + piece * 32;
            if (piece * 32 < skip || r >= ROWS) continue;
            float4 v[2], w[2];
#pragma unroll
            for (int half = 0; half < 2; half++) {
                int at = half * 16 + 4 * t;
                float4 sum = sum_at(piece * 32 + at), *x = (float4 *)(args.out + row * args.out_stride + r + at);
                float4 old = store ? *x : make_float4(0, 0, 0, 0), norm = __ldg((const float4 *)(args.weight + r + at));
                v[half] = make_float4(old.x + sum.x, old.y + sum.y, old.z + sum.z, old.w + sum.w);
                w[half] = make_float4(v[half].x * norm.x, v[half].y * norm.y, v[half].z * norm.z, v[half].w * norm.w);
                if (store) *x = v[half];
            }
            u64 block = (row * args.code_stride + r) / 32;
            quantize_quads(w[0], w[1], args.out_codes + block * (32 * PLANES), args.out_meta + block * PLANES, store);
            float squares = quads_squares(v[0], v[1]);
            if (store && t == 0) args.out_squares[row * (ROWS / 32) + r / 32] = squares;
#else
            int r = tile0 * 8 + piece * 32;
            if (piece * 64 < skip || r >= ROWS / 2) continue;
            float4 v[2];
#pragma unroll
            for (int half = 0; half < 2; half++) {
                // Eight values are a tile: 4t.. of 16 are the first or second four of tile t / 2.
                int at = piece * 64 + half * 32 + t / 2 * 16 + t % 2 * 4;
                float4 gate = sum_at(at), up = sum_at(at + 8);
                v[half] = make_float4(silu(gate.x) * up.x, silu(gate.y) * up.y, silu(gate.z) * up.z, silu(gate.w) * up.w);
            }
            u64 block = (row * args.code_stride + r) / 32;
            quantize_quads(v[0], v[1], args.out_codes + block * (32 * PLANES), args.out_meta + block * PLANES, store);
#endif
        }
        // The next columns overwrite what was just read, here or from another block.
        cluster_barrier();
        __syncthreads();
    }
}
