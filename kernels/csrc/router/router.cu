// Which experts a row goes to, with what weight; and the same by expert, for products that take rows together.
//
//   score[row][e] = factor(row) * sum over k of (x * w)[k] * weights[e][k]      x: [rows, COLS] f32, weights: [E, COLS] f32
//   experts[row]: the USED largest, ties to the lower id     gates[row]: softmax over those, then sigmoid(score of the shared gate)
//   SIGMOID: the USED largest of sigmoid(score) + bias       their sigmoids as shares of 1, then the same
//   groups: {expert, first, count, 0} for each expert; in_rows, out_rows: its rows and pairs (row * USED + k), in order of pairs
//   (first is the count of those before, or, with a pitch, the expert times that)
//
// Everything is f32 or as good. factor(row) is common.cuh's row_factor. slots[row] < 0: no row, experts -1 and gates 0. A row with a
// cut keeps the first of its experts, as many as reference::ExpertCut says; the others are -1 with gates 0, and in no group.
// Four ways to the sums over k, each with one order for every row, whatever stands beside it; `few` and `ordered` have the same:
//
// few: a block holds the weights of two columns (experts, or the shared gate) in registers, read before its wait, and goes over the
//   rows. A thread adds its k in order, then the lanes, then the warps. The last blocks wait for all scores of some rows and choose; the
//   last of those may group: one launch.
//   Bound: the weights, 4 * COLS * (E + 1) bytes; each block reads every row of x.
// tiled: 32 or 64 rows by as many experts on tensor cores, operands split into two tf32 (a product of the two small parts is left out), 32 k
//   at a time into an accumulator of their own. k comes in up to 16 segments, by a block each if there are few rows, and their sums
//   are added in order, by whoever chooses or by the one block.
//
// prompts: the same by warpgroups, with operands of two halves: prompts.cuh. An arithmetic of its own.
//
// ordered: the order of `few` for many rows: tiles of rows by experts, a block a part of k, plain multiply-adds.
//
// Of decode rows, blocks behind those that score choose in the same launch: ordered.cuh. They list a row's pairs themselves, in any order.
// choose: after tiled and ordered of other rows: adds the parts, takes the shared gate's score, chooses. With a block a row the last may group.
//
// count, place: grouping of more rows than one block takes. A chunk of pairs a block; the last block of count adds up.
//
// -D: COLS (a multiple of 32), E (at most 512), USED, SIGMOID.
#include "router/few.cuh"
#include "router/many.cuh"
#include "router/ordered.cuh"
#include "router/tiled.cuh"
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#include "router/prompts.cuh"
#endif
