// Mamba-2 between the in-projections and the out-projection: convolution, SiLU, step sizes, state, gate, grouped norm, int8 form.
//
//   c = silu(bias + conv of the last 4 xbc)     x, B, C = parts of c     dt = softplus(dt + dt_bias)     decay = exp(dt * a)
//   h = decay * h + dt x B^T     y = (h C + d x) * silu(z)     out = y / sqrt(mean of a group's y^2 + eps) * w
//
// A head's values do not depend on one another, so a block has PART of them, with all of their state in registers (state.cuh). One
// token a sequence is one launch (mamba2_decode): the block that is done last with a group's values norms them. A prompt is three:
// mamba2_conv makes c, step sizes and decays of all rows, mamba2_scan goes along a piece's tokens one after another, mamba2_finish
// norms. Both ways do the same operations in the same order, so they give the same bytes.
// Bounds: 8 * P * N * H bytes a row of decode; of a prompt about 150 instructions a warp and token for each 1024 values of state.
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
