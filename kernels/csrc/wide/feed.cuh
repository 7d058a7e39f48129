// How the stages of wide/warpgroup.cu are filled where columns lie beside one another: by a warpgroup that does nothing else.
//
// Registers are handed over by whole warpgroups, so the block has four warps more. A stage has three parts (`FedCodes`, `FedScales`,
// `FedColumns`), and each part has a warp that feeds it. A warp that has no part waits for no stage.
//
// A stage has two barriers: `full` ends a phase when all its bytes are there, `empty` when every multiplying warp is done with them.
#pragma once
#include "common/mbarrier.cuh"
#include "wide/columns.cuh"

// Warps of the feeding warpgroup.
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

// What every feeding warp knows of the block's columns.
struct Feeding {
    const Arguments &args;
    const Block &block;
    int first, columns;
};

// By a warp: what each of the block's tiles has of it in a unit, EACH units sharing one.
template <int BYTES, int EACH> __device__ __forceinline__ void feed_tiles(const Block &block, u32 at, u32 to, int unit, u32 full) {
    static_assert(BT <= WARP, "a lane has a tile");
    if constexpr (BYTES > 0) {
        const int lane = threadIdx.x % WARP;
        const u8 *from = block.matrix + at + (u64)(u32)(unit / EACH) * BYTES;
        if (lane < BT) copy_bulk(to + lane * UNIT_BYTES, from + (u64)(u32)min(block.tile0 + lane, TILES - 1) * W::TILE_BYTES, BYTES, full);
    }
}

// The parts of a stage. BYTES_A_TILE: of a tile's unit; no kernel before this one writes weights, so those who feed them need not wait for it.
struct FedCodes {
    static constexpr int BYTES_A_TILE = W::CODE_BYTES;
    static constexpr bool WEIGHTS = true;

    // Also says how many bytes the stage will have.
    static __device__ __forceinline__ void feed(const Feeding &f, u32 stage, u32 full, int unit) {
        if (threadIdx.x % WARP == 0) barrier_arrive_for(full, BT * UNIT_BYTES + f.columns * 256);
        __syncwarp();
        feed_tiles<W::CODE_BYTES, 1>(f.block, 0, stage + WEIGHTS_IN, unit, full);
    }
};
struct FedScales {
    static constexpr int BYTES_A_TILE = W::PLANE_BYTES + W::SCALE_BYTES + W::GROUP_BYTES;
    static constexpr bool WEIGHTS = true;

    static __device__ __forceinline__ void feed(const Feeding &f, u32 stage, u32 full, int unit) {
        const u32 to = stage + WEIGHTS_IN;
        feed_tiles<W::PLANE_BYTES, 1>(f.block, W::PLANES_AT, to + W::CODE_BYTES, unit, full);
        feed_tiles<W::SCALE_BYTES, 1>(f.block, W::SCALES_AT, to + SCALES_IN, unit, full);
        feed_tiles<W::GROUP_BYTES, 2>(f.block, W::GROUPS_AT, to + GROUP_IN, unit, full);
    }
};

static_assert(FedCodes::BYTES_A_TILE > 0 && FedScales::BYTES_A_TILE > 0, "a warp that feeds nothing is needed for no phase, and must not wait for one");
static_assert(FedCodes::BYTES_A_TILE + FedScales::BYTES_A_TILE == UNIT_BYTES, "a stage is full when all of its parts are there");

// As the stage wants them (rows/halves.cu): by one thread, two rows of 64 values each.
struct FedColumns {
    static constexpr bool WEIGHTS = false;

    static __device__ __forceinline__ void feed(const Feeding &f, u32 stage, u32 full, int unit) {
        if (threadIdx.x % WARP != 0) return;
        const u16 *from = f.args.halves + ((u64)(u32)unit * 2 * (u32)f.args.half_rows + f.first) * 64;
#pragma unroll
        for (int i = 0; i < 2; i++) copy_bulk(stage + i * (C * 128), from + (u64)(u32)(i * f.args.half_rows) * 64, f.columns * 128, full);
    }
};

// By one warp: its part of all stages, one after another.
template <class PART> __device__ __forceinline__ void feed_part(const Feeding &f) {
    if (!PART::WEIGHTS) wait_for_inputs();
    Turn turn;
#pragma unroll 1
    for (int unit = 0; unit < W::UNITS; unit++, turn.next()) {
        // Ends when each multiplying warp has arrived, which it does behind the unit that the stage held: the multiplying warps wait for nothing but
        // that unit, whose part this warp has fed. The stage is not full again, and so not emptied again, without the bytes that this warp
        // feeds after the wait, and no lane feeds before all lanes are here: no thread can be two phases behind.
        barrier_wait<WIDE_STAGE_EMPTY>(f.block.empty(turn.stage), turn.parity ^ 1);
        __syncwarp();
        PART::feed(f, f.block.stage(turn.stage), f.block.full(turn.stage), unit);
    }
}

// By the feeding warpgroup: its first warp feeds the first of FED, and so on.
template <class... FED> __device__ __forceinline__ void feed_parts(const Feeding &f) {
    static_assert(sizeof...(FED) <= FEEDERS, "a warp a part");
    int feeder = WARPS;
    ((threadIdx.x / WARP == feeder++ ? feed_part<FED>(f) : void()), ...);
}

// The units of the stages, as those see them that multiply.
struct FedUnits {
    const Block &block;
    Turn turn;

    __device__ __forceinline__ u32 next(int unit) {
        if (unit > 0) turn.next();
        // Ends when the feeding warps have brought their parts, for which they wait only until the stage is empty. Each multiplying warp says that it
        // is, of every unit, while it multiplies the next one; so before it waits for the unit that comes into that stage. The stage's next phase
        // needs this warp's arrival on `empty`, which comes behind the unit's instructions, and those keep the lanes together.
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
