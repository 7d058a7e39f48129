// How the stages of wide/warpgroup.cu are filled where columns lie beside one another: by four warps that do nothing else, each with its
// part.
//
// A stage has two barriers: `full` ends a phase when all its bytes are there, `empty` when every multiplying warp is done with them.
#pragma once
#include "common/mbarrier.cuh"
#include "wide/columns.cuh"

#define FEEDERS 4

// Which stage comes next, and the parity of its barriers' phases.
struct Turn {
    int stage = 0;
    u32 parity = 0;

    __device__ __forceinline__ void next() {
        if (++stage == STAGES) stage = 0, parity ^= 1;
    }
    __device__ __forceinline__ int stage_before() const { return stage == 0 ? STAGES - 1 : stage - 1; }
};

// What all warps know of the block's work.
struct Block {
    const u8 *matrix;
    int tile0;
    u32 stages, barriers;

    __device__ __forceinline__ u32 stage(int i) const { return stages + i * STAGE_BYTES; }
    __device__ __forceinline__ u32 full(int i) const { return barriers + i * 16; }
    __device__ __forceinline__ u32 empty(int i) const { return barriers + i * 16 + 8; }
    // By one thread.
    __device__ __forceinline__ void make_barriers() const {
        // On a full one arrives who says how many bytes will come.
        for (int i = 0; i < STAGES; i++) barrier_make(full(i), 1), barrier_make(empty(i), WARPS);
        barriers_made();
    }
};

// By a warp: a part of each of the block's tiles' units, EACH units sharing one.
template <int BYTES, int EACH> __device__ __forceinline__ void feed_part(const Block &block, u32 at, u32 to, int unit, u32 full) {
    if constexpr (BYTES > 0) {
        const int lane = threadIdx.x % WARP;
        const u8 *from = block.matrix + at + (u64)(u32)(unit / EACH) * BYTES;
        if (lane < BT) copy_bulk(to + lane * UNIT_BYTES, from + (u64)(u32)min(block.tile0 + lane, TILES - 1) * W::TILE_BYTES, BYTES, full);
    }
}
static_assert(BT <= WARP, "a lane has a tile");

// Columns, as the stage wants them (rows/halves.cu): by one thread, two rows of 64 values each.
__device__ __forceinline__ void feed_columns(const Arguments &args, int first, int columns, u32 stage, int unit, u32 full) {
    const u16 *from = args.halves + ((u64)(u32)unit * 2 * (u32)args.half_rows + first) * 64;
#pragma unroll
    for (int i = 0; i < 2; i++) copy_bulk(stage + i * (C * 128), from + (u64)(u32)(i * args.half_rows) * 64, columns * 128, full);
}

// The part of warp `warp` of a stage: codes, the rest of the weights, columns.
__device__ __forceinline__ void feed_unit(const Arguments &args, const Block &block, int warp, int first, int columns, int stage, int unit) {
    const u32 to = block.stage(stage), full = block.full(stage);
    if (warp == 0) {
        if (threadIdx.x % WARP == 0) barrier_arrive_for(full, BT * UNIT_BYTES + columns * 256);
        __syncwarp();
        feed_part<W::CODE_BYTES, 1>(block, 0, to + WEIGHTS_IN, unit, full);
    } else if (warp == 1) {
        feed_part<W::PLANE_BYTES, 1>(block, W::PLANES_AT, to + WEIGHTS_IN + W::CODE_BYTES, unit, full);
        feed_part<W::SCALE_BYTES, 1>(block, W::SCALES_AT, to + WEIGHTS_IN + SCALES_IN, unit, full);
        feed_part<W::GROUP_BYTES, 2>(block, W::GROUPS_AT, to + WEIGHTS_IN + GROUP_IN, unit, full);
    } else if (warp == 2 && threadIdx.x % WARP == 0) {
        feed_columns(args, first, columns, to, unit, full);
    }
}

// All stages of the block's columns from `first` on.
__device__ __forceinline__ void feed(const Arguments &args, const Block &block, Turn &turn, int first, int columns) {
    const int warp = threadIdx.x / WARP - WARPS;
    // Weights are what no kernel before this one writes.
    if (warp >= 2) wait_for_inputs();
    for (int unit = 0; unit < W::UNITS; unit++, turn.next()) {
        barrier_wait<WIDE_STAGE_EMPTY>(block.empty(turn.stage), turn.parity ^ 1);
        feed_unit(args, block, warp, first, columns, turn.stage, unit);
        __syncwarp();
    }
}

// The units of the stages, as those see them that multiply.
struct FedUnits {
    const Block &block;
    Turn turn;

    __device__ __forceinline__ u32 next(int unit) {
        if (unit > 0) turn.next();
        barrier_wait<WIDE_STAGE_FULL>(block.full(turn.stage), turn.parity);
        return block.stage(turn.stage);
    }
    // Who multiplies is done with what came before `unit`.
    __device__ __forceinline__ void free_before(int unit) const {
        if (unit > 0 && threadIdx.x % WARP == 0) barrier_arrive(block.empty(turn.stage_before()));
    }
    __device__ __forceinline__ void end() const {
        if (threadIdx.x % WARP == 0) barrier_arrive(block.empty(turn.stage));
    }
};
