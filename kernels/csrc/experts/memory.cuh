// The dynamic shared memory of a block.
#pragma once
#include "experts/chosen.cuh"
#include "experts/staged.cuh"

// Where things lie in dynamic shared memory: the rings; then, first for gate and up, then for down in the same place, the rest.
template <int ROWS> struct Memory {
    static constexpr int PAIRS = ROWS * USED;
    static constexpr int NC = ROWS == 1 ? 1 : (ROWS + 7) / 8 * 8;
    // Whether rows, and rows of h, are there as f16 too.
    static constexpr int HALVED_PARTS = ROWS == 1 ? HALVED_1 : ROWS == ROWS_FEW ? HALVED_FEW : HALVED_MOST;
    static constexpr bool HALVED = HALVED_PARTS > 0, HALVED_H = HALVED_PARTS > 1;
    // Blocks that share 32 outputs of down, and tiles that each has of their two. One row's weights are few: half of the blocks, which
    // then need no exchange, are enough, and the next kernel's may start on the others' multiprocessors.
    static constexpr int CLUSTER_OF = CL;
    static constexpr int TILES = 2 / CLUSTER_OF, DOWN_WARPS = WARPS - TILES;
    static constexpr int RING = ROWS == 1 ? RING_1 : ROWS == ROWS_FEW ? RING_FEW : RING_MOST;
    static constexpr int CHOSEN_AT = WARPS * RING;
    static constexpr int GRID_AT = CHOSEN_AT + (sizeof(Chosen<ROWS>) + 15) / 16 * 16;
    static constexpr int NORMS_AT = GRID_AT + (WITH_GRID ? GRID_WORDS * 4 : 0);
    static constexpr int BEGIN = NORMS_AT + 64;
    // [2][WARPS][columns][16], then rows of activations.
    static constexpr int SUMS = WARPS * NC * 16;
    static constexpr int ROWS_AT = BEGIN + 2 * SUMS * 4;
    static constexpr int GATE_UP_END = ROWS_AT + ROWS * Staged<COLS, HALVED>::STRIDE;
    // [2][pairs, rows][16], then rows of h, of routed and of shared experts.
    static constexpr int PARTS = PAIRS + ROWS;
    static constexpr int H_AT = BEGIN + 2 * PARTS * 16 * 4;
    static constexpr int SHARED_H_AT = H_AT + PAIRS * Staged<PADDED, HALVED_H>::STRIDE;
    static constexpr int DOWN_END = SHARED_H_AT + ROWS * Staged<SHARED_PADDED, HALVED_H>::STRIDE;
    static constexpr int BYTES = GATE_UP_END > DOWN_END ? GATE_UP_END : DOWN_END;
    static_assert(BYTES <= (ROWS == 1 ? BYTES_1 : ROWS == ROWS_FEW ? BYTES_FEW : BYTES_MOST), "the launcher knows how much");
    static_assert(RING % STAGED_AT == 0, "a ring begins where a unit may");
    static_assert(H_AT % 16 == 0 && ROWS_AT % 16 == 0, "copies are of 16 bytes");
};
