// What becomes of a product's sums, as the launchers number it.
#pragma once

#define PLAIN 0
#define RESIDUAL 1
#define GATED 2
#define SQUARED 3
#define ROUNDED 4
