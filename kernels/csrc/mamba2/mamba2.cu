// Mamba-2 between the in-projections and the out-projection: convolution, SiLU, step sizes, state, gate, grouped norm, int8 form.
//
//   c = silu(bias + conv of the last 4 xbc)     x, B, C = parts of c     dt = softplus(dt + dt_bias)     decay = exp(dt * a)
//   h = decay * h + dt x B^T     y = (h C + d x) * silu(z)     out = y / sqrt(mean of a group's y^2 + eps) * w
//
// A head's values do not depend on one another, so a block of decode has PART of them, with all of their state in registers (state.cuh).
// One token a sequence is one launch (mamba2_decode): the block that is done last with a group's values norms them. A prompt is four:
//
//   mamba2_conv    c, step sizes and log decays of all rows
//   mamba2_chunk   for every chunk of 64 tokens: B and C as two bf16 each; G = running sum of log decays and
//                  M_ts = C_t B_s dt_s e^(G_t - G_s) for s <= t of every head; the ring
//   mamba2_scan    chunk after chunk: y_t = e^(G_t) h C_t + sum over s of M_ts x_s + d x_t, h = e^(G_63) h + sum of dt_s e^(G_63 - G_s) x_s B_s^T
//   mamba2_finish  gate, norm, int8 form
//
// Products of chunks run on tensor cores as high * high + high * low + low * high of bf16 parts, which is good to 2^-16; sums, decays and h
// are f32.
// Bounds: 8 * P * N * H bytes a row of decode; of a prompt the scan's (2 * 64 * N + 64 * 40) * P * 3 multiply-adds a chunk and head.
//
// pieces and exports as in gdn/prefill.cu: chunks lie where they always do, so bytes do not depend on how a prompt was cut. A chunk that the
// piece does not fill is as one whose missing tokens have x = B = C = dt = 0.
//
// x: [rows, X_STRIDE] f32, a row is z (H * P), x (H * P), B (G * N), C (G * N), dt (H).
// state: [slots][H][P][N] f32. tail: [slots][4][CHANNELS] f32, a ring: entry p % 4 is position p's x, B, C before the convolution. A
// decode step writes its own entry and reads the three others, so the blocks that share a group's B and C may not race.
// slots[row] < 0: no row. Rows of the outputs lie OUT_STRIDE values apart.
//
// -D: P, N, H, G, PART (a divisor of P, a power of two), X_STRIDE, OUT_STRIDE, NORMED, PLANES.
#define C 64
#define VALUES (H * P)
#define CHANNELS (VALUES + 2 * G * N)
#define X_AT VALUES
#define DT_AT (VALUES + CHANNELS)
#define PARTS (P / PART)
#define THREADS 256

#include "mamba2/decode.cuh"
#include "mamba2/prompt.cuh"
#include "mamba2/scan.cuh"
