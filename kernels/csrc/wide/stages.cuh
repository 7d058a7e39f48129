// Weights and activations on their way to shared memory: which columns a block has, and what a thread copies of a stage.
#pragma once
#include "arguments.cuh"
#include "common/epilogues.cuh"
#include "weights/layout.cuh"

using W = Weights<CODES, SCALES, COLS, LEVELS0, LEVELS1, LEVELS2, LEVELS3, ROW_FACTORS>;
#define TILES ((ROWS + 15) / 16)
#define WARPS (WR * WN * KG)
#define THREADS (WARPS * WARP)
#define SU (KG * KU)
#define BT (TW * WR)
#define R (BT * 16)
#define CT (NW * WN)
#define C (CT * 8)
#if SEGMENTS
// Segments of a group; its share of the inputs begins with its first one.
#define GROUP_SEGMENTS (SEGMENTS / (KG * SPLIT))
static_assert(GROUP_SEGMENTS * KG * SPLIT == SEGMENTS && (SEGMENTS & SEGMENTS - 1) == 0, "a group has whole segments, which are summed in pairs");
// Whether every stage is full.
#define WHOLE (W::UNITS % (SU * SPLIT * GROUP_SEGMENTS) == 0)
#else
#define GROUP_SEGMENTS 1
#define WHOLE (W::UNITS % (SU * SPLIT) == 0)
#endif
// Partial sums of an output: with BY_HALVES, one for the first two blocks of units, one for the others.
#define PARTS (BY_HALVES ? 2 : 1)
static_assert(!BY_HALVES || GROUP_SEGMENTS == SEGMENTS || (GROUP_SEGMENTS == 1 && SPLIT == 1), "segments are added one after another");
// Places for sums of groups in shared memory.
#define PLACES (SEGMENTS && !BY_HALVES && KG > 2 ? KG / 2 : 1)
static_assert(!SEGMENTS || KG <= 4, "more groups would want more places");
#define RESIDENT (512 / THREADS > 0 ? 512 / THREADS : 1)

// A stage: weights [SU][BT] {codes, planes, scales, group}, then codes of activations [SU][C][COLUMN_BYTES], then of them d
// [SU][BLOCKS][C] and, where the layout has minima, sum [SU][BLOCKS][C].
// Columns lie 32 bytes off a multiple of 128 apart, so that the 8 bytes that 16 lanes read of four columns fall into different banks.
// With HALVES, activations are f16 and come first, [2][C] rows of 64 values (rows/halves.cu); a stage begins at a multiple of 1024.
#define SCALES_IN (W::CODE_BYTES + W::PLANE_BYTES)
#define GROUP_IN (SCALES_IN + W::SCALE_BYTES)
#define UNIT_BYTES (GROUP_IN + W::GROUP_BYTES)
#if HALVES && KEEP
// All units' columns come first, then stages of weights alone.
#define STAGES_AT (W::UNITS * C * 256)
#define WEIGHTS_IN 0
#define STAGE_BYTES ((BT * UNIT_BYTES + 127) / 128 * 128)
#elif HALVES
#define STAGES_AT 0
#define WEIGHTS_IN (C * 256)
#define STAGE_BYTES ((WEIGHTS_IN + BT * UNIT_BYTES + 1023) / 1024 * 1024)
#else
#define COLUMN_BYTES (UNIT_CODES + 32)
// Of a unit of activations: blocks of 32 codes, each with its {d, sum}.
#define BLOCKS (4 * PLANES)
#define UNIT_CODES (BLOCKS * 32)
#define CODES_IN (SU * BT * UNIT_BYTES)
#define META_IN (CODES_IN + SU * C * COLUMN_BYTES)
#define SUMS_IN (META_IN + SU * C * BLOCKS * 4)
#define STAGE_BYTES (SUMS_IN + (SCALES == S_MIN ? SU * C * BLOCKS * 4 : 0))
#endif
// Sums of the block, over the stages: [PLACES][C][R + 4], where the 4 spreads the columns over the banks.
#define SUM_STRIDE (R + 4)
#define SUM_BYTES (PLACES * C * SUM_STRIDE * 4)
// The rest of shared memory: the columns' rows, factors, and the grid of a layout that has one.
#if TURNS
#define LISTS_AT (STAGES_AT + STAGES * STAGE_BYTES)
#else
#define LISTS_AT (STAGES * STAGE_BYTES > SUM_BYTES ? STAGES * STAGE_BYTES : SUM_BYTES)
#endif
#define GRID_AT (LISTS_AT + 3 * 4 * C)
#if HALVES
#define BARRIERS_AT (GRID_AT + (WITH_GRID ? 4 * GRID_WORDS : 0))
#endif
static_assert(UNIT_BYTES % 16 == 0 && (ROWS % 32 == 0 || EPILOGUE == PLAIN), "copies are of 16 bytes, int8 blocks of 32 rows");
static_assert(BT % (EPILOGUE == GATED ? 4 : EPILOGUE == PLAIN ? 1 : 2) == 0, "a block of the int8 form belongs to one block");

__device__ __forceinline__ void copy16_of_line(u32 to, const void *from) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ void copy4(u32 to, const void *from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}
// Which unit is the j-th of a stage: `base` is where the block's share begins, or, where each group has a share of its own that is all of
// its segments, how far into them the stage is.
#if SEGMENTS && KG > 1
__device__ __forceinline__ int first_unit(int group) { return (int)(blockIdx.x % SPLIT * KG + group) * W::UNITS / (KG * SPLIT); }
__device__ __forceinline__ int unit_of(int base, int j) { return first_unit(j / KU) + base + j % KU; }
#else
__device__ __forceinline__ int unit_of(int base, int j) { return base + j; }
#endif
// Past its last unit a block copies some other; what comes of it is not used.
__device__ __forceinline__ int copied_unit(int base, int j) { return WHOLE ? unit_of(base, j) : min(unit_of(base, j), W::UNITS - 1); }

// A block's place among those of the rows (SPLIT share one), and of the columns. Neighbours run at a time: with HALVES, where there are very
// many columns, they have the same weights.
#if HALVES && !LISTED
#define ROW_BLOCK blockIdx.y
#define COLUMN_BLOCK blockIdx.x
#else
#define ROW_BLOCK blockIdx.x
#define COLUMN_BLOCK blockIdx.y
#endif

// Where a matrix begins.
__device__ __forceinline__ const u8 *matrix_of(const Arguments &args, int matrix) {
#if PLACED
    return (const u8 *)(__ldcg(args.places + matrix) + args.matrix_bytes);
#else
    return args.weights + matrix * args.matrix_bytes;
#endif
}

// What this block multiplies: columns `first + base`, up to `end`, of a matrix. With a pitch also what the thread knows of the first C.
struct Work {
    int matrix, first, base, end;
    int in_row, out_row;
};

// With `spread`, slot s owns the blocks from floor(first / C) + s on: at least as many as it has tiles of columns, because slots come
// in ascending order of `first`. Blocks beyond its columns have nothing to do.
__device__ __forceinline__ Work find_work(const Arguments &args, int *found) {
    int y = COLUMN_BLOCK;
    if (!args.slots) return {0, 0, y * C, min(args.count, y * C + C), 0, 0};
    if (!LISTED || !args.early) wait_for_inputs();
    if (!args.spread) {
        Work work = {};
        if (args.pitch && threadIdx.x < C) {
            int at = y * args.pitch + min((int)threadIdx.x, args.pitch - 1);
            work.in_row = __ldcg(args.in_rows + at), work.out_row = __ldcg(args.out_rows + at);
        }
        int4 slot = __ldcg(args.slots + y);
        work.matrix = slot.x, work.first = slot.y, work.end = slot.z;
        return work;
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
    if (s < 0) return {};
    int4 slot = __ldcg(args.slots + s);
    int base = (y - slot.y / C - s) * C;
    return {slot.x, slot.y, base, min(slot.z, base + C), 0, 0};
}

// A launch must not end before the one ahead of it, though all of its blocks may have nothing to do.
__device__ __forceinline__ void ends_behind_inputs(const Arguments &args) {
    if (args.early && blockIdx.x == 0 && blockIdx.y == 0) wait_for_inputs();
}

// Threads that copy a stage's weights together, and their tiles: the block's, or those of each warpgroup where it brings its own.
#if HALVES && KEEP
#define COPIERS (4 * WARP)
#define COPIED_TILES (4 * TW)
#else
#define COPIERS THREADS
#define COPIED_TILES BT
#endif

// A part of a tile's units, BYTES each, EACH units sharing one: what a thread copies of it. A stage's copies lie at fixed distances
// wherever threads and tiles come out even, so that they share an address.
template <int BYTES, int EACH> struct Part {
    static constexpr int CHUNKS = BYTES > 0 ? BYTES / 16 : 1, ALL = BYTES > 0 ? COPIED_TILES * CHUNKS : 0, TIMES = (ALL + COPIERS - 1) / COPIERS;
    static constexpr bool EVEN = COPIERS % CHUNKS == 0 && TILES >= BT;
    static constexpr int KEPT = EVEN || TIMES == 0 ? 1 : TIMES;
    const u8 *from[KEPT];
    u32 to[KEPT];

    __device__ __forceinline__ void set(const u8 *matrix, int tile0, u32 at, u32 in_unit) {
#pragma unroll
        for (int k = 0; k < KEPT; k++) {
            int i = k * COPIERS + threadIdx.x % COPIERS, chunk = i % CHUNKS, tile = i / CHUNKS;
            from[k] = matrix + (u64)min(tile0 + tile, TILES - 1) * W::TILE_BYTES + at + chunk * 16;
            to[k] = tile * UNIT_BYTES + in_unit + chunk * 16;
        }
    }
    __device__ __forceinline__ void copy(u32 stage, int unit) const {
#pragma unroll
        for (int k = 0; k < TIMES; k++) {
            if ((k + 1) * COPIERS > ALL && (int)(k * COPIERS + threadIdx.x % COPIERS) >= ALL) break;
            constexpr int TILES_A_TIME = COPIERS / CHUNKS;
#pragma unroll
            for (int j = 0; j < SU; j++) {
                const u8 *of_unit = from[EVEN ? 0 : k] + (u64)(u32)(copied_unit(unit, j) / EACH) * BYTES;
                copy16_of_line(stage + to[EVEN ? 0 : k] + j * (COPIED_TILES * UNIT_BYTES) + (EVEN ? k * TILES_A_TIME * UNIT_BYTES : 0),
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
