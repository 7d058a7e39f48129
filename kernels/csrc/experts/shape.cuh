// Sizes of the launch, and the layouts of its matrices. The options are those of experts/experts.cu.
#pragma once
#include "router/choose.cuh"
#include "weights/layout.cuh"

#define PADDED ((WIDTH + 127) / 128 * 128)
#define SHARED_PADDED ((SHARED_WIDTH + 127) / 128 * 128)
#define NEXT_COLS ((HIDDEN + 127) / 128 * 128)
#define NORM_BLOCKS (HIDDEN / 32)
using GateUp = Weights<A_CODES, A_SCALES, COLS, A_LEVELS0, A_LEVELS1, A_LEVELS2, A_LEVELS3, A_ROW_FACTORS>;
using SharedGateUp = Weights<B_CODES, B_SCALES, COLS, B_LEVELS0, B_LEVELS1, B_LEVELS2, B_LEVELS3, B_ROW_FACTORS>;
using Down = Weights<C_CODES, C_SCALES, PADDED, C_LEVELS0, C_LEVELS1, C_LEVELS2, C_LEVELS3, C_ROW_FACTORS>;
using SharedDown = Weights<D_CODES, D_SCALES, SHARED_PADDED, D_LEVELS0, D_LEVELS1, D_LEVELS2, D_LEVELS3, D_ROW_FACTORS>;

#define WARPS (4 * WK)
#define THREADS (WARPS * WARP)
// Values of h of a group of four tiles.
#define GROUP_VALUES (SQUARED ? 64 : 32)
#define GROUPS (WIDTH / GROUP_VALUES)
#define SHARED_GROUPS (SHARED_WIDTH / GROUP_VALUES)
#define ALL (USED + 1)
#define SCORES ((COUNT + 1 + 7) / 8 * 8)
