#!/usr/bin/env python3
"""Makes the console's font of formulas: a part of Noto Sans Math (OFL) that keeps what MathML asks of a font.

    scripts/math_font.py noto-sans-math-latin-400-normal.woff2 services/console/vendor/math.woff2

The source is the file of the npm package @fontsource/noto-sans-math, whose version stands in `vendor/README.md`. Needs `pip install fonttools brotli`.
Without a font that has a MATH table, Chromium draws a root without its sign and brackets that do not grow.
"""
import sys

from fontTools import subset
from fontTools.ttLib import TTFont

SIZES = 3  # of the sizes that a bracket or a root has in the source; between them glyphs are put together of parts


def span(first, last):
    return range(first, last + 1)


CHARACTERS = [
    *span(0x20, 0x7E), *(0xA0, 0xA8, 0xAC, 0xAF, 0xB0, 0xB1, 0xB4, 0xB7, 0xD7, 0xF7, 0x131, 0x237),
    *span(0x391, 0x3A9), *span(0x3B1, 0x3C9), *(0x3D1, 0x3D5, 0x3D6, 0x3F0, 0x3F1, 0x3F5),  # Greek
    *(0x2C6, 0x2C7), *span(0x2D8, 0x2DC), *span(0x302, 0x308), *(0x30A, 0x30C, 0x20D7),  # accents
    *(0x2016, 0x2020, 0x2021, 0x2022, 0x2026, 0x203E, 0x2044), *span(0x2032, 0x2034), 0x2057, *span(0x2061, 0x2063),
    *(0x2102, 0x210B, 0x210C, 0x210D, 0x210E, 0x210F, 0x2110, 0x2111, 0x2112, 0x2113, 0x2115, 0x2118, 0x2119, 0x211A, 0x211B, 0x211C, 0x211D, 0x2124,
      0x2128, 0x212C, 0x212D, 0x2130, 0x2131, 0x2133, 0x2135),  # letters that stand alone
    *span(0x2190, 0x2199), *(0x21A6, 0x21A9, 0x21AA, 0x21BC, 0x21C0, 0x21CC), *span(0x21D0, 0x21D5), *span(0x27F5, 0x27FA), 0x27FC,  # arrows
    *span(0x2200, 0x2213), *span(0x2216, 0x221A), *span(0x221D, 0x221E), 0x2220, *span(0x2223, 0x222E), 0x2234, 0x2235, 0x223C, 0x2243, 0x2245, 0x2248,
    *(0x2250, 0x2254, 0x2260, 0x2261, 0x2264, 0x2265, 0x226A, 0x226B, 0x227A, 0x227B), *span(0x2282, 0x2288), *(0x228A, 0x2291, 0x2293, 0x2294),
    *span(0x2295, 0x2299), *(0x22A2, 0x22A4, 0x22A5, 0x22A8), *span(0x22C0, 0x22C3), *(0x22C5, 0x22C6), *span(0x22EE, 0x22F1),
    *span(0x2308, 0x230B), *(0x23B4, 0x23B5), *span(0x23DC, 0x23DF), *(0x25A0, 0x25A1, 0x25B3, 0x25C7, 0x27E8, 0x27E9),
    *(0x2A00, 0x2A01, 0x2A02, 0x2A04, 0x2A06, 0x2A7D, 0x2A7E, 0x2AAF, 0x2AB0),
    *span(0x1D434, 0x1D467), *span(0x1D6E2, 0x1D71B),  # italic, which variables are
    *span(0x1D400, 0x1D433),  # bold
]


def thin(font):
    """Keeps some of the sizes of each glyph that grows, the smallest and the largest with them."""
    variants = font["MATH"].table.MathVariants
    for glyph in [*variants.VertGlyphConstruction, *variants.HorizGlyphConstruction]:
        sizes = glyph.MathGlyphVariantRecord
        if len(sizes) > SIZES:
            glyph.MathGlyphVariantRecord = [sizes[round(i * (len(sizes) - 1) / (SIZES - 1))] for i in range(SIZES)]
            glyph.VariantCount = SIZES


def main():
    source, target = sys.argv[1:]
    font = TTFont(source, recalcTimestamp=False)
    thin(font)
    options = subset.Options()
    options.flavor, options.hinting, options.layout_features, options.notdef_outline = "woff2", False, [], True
    options.name_IDs = [0, 1, 2, 4, 13, 14]
    options.drop_tables += ["GPOS", "GDEF", "GSUB"]
    subsetter = subset.Subsetter(options)
    subsetter.populate(unicodes=CHARACTERS)
    subsetter.subset(font)
    font.flavor = "woff2"
    font.save(target)


if __name__ == "__main__":
    main()
