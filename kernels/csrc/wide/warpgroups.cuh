// Blocks of GROUPS whole warpgroups in f16, as wide/stages.cuh wants to be told of them: all warps have rows, each all of the block's columns
// and inputs.
#pragma once
#define HALVES 1
#define WR (4 * GROUPS)
#define NW C8
#define WN 1
#define KG 1
#define KU 1
#define SPLIT 1
#define SEGMENTS 0
#define BY_HALVES 0
#define PLANES 1
