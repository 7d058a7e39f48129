// The parser of Markdown calls itself for what lies in a quotation, an item, emphasis or a link, and a text of some thousand marks
// overflows its stack. Here what lies too deep stays text.

import { Lexer } from "./vendor/marked.js";

/** Constructs that lie within one another, at most; readers of Markdown seldom see four. */
export const NESTING_MAX = 24;

let depth = 0;

/** A method of the parser that gives up at the bound: then `plain` makes the tokens of its text. */
function bounded(method, plain) {
  return function (text, tokens = [], ...rest) {
    if (depth >= NESTING_MAX) {
      if (text) tokens.push(plain(text));
      return tokens;
    }
    depth++;
    try {
      return method.call(this, text, tokens, ...rest);
    } finally {
      depth--;
    }
  };
}

const word = (text) => ({ type: "text", raw: text, text, escaped: false });
const paragraph = (text) => ({ type: "paragraph", raw: text, text, tokens: [word(text)] });
const { blockTokens, inlineTokens } = Lexer.prototype;
Lexer.prototype.blockTokens = bounded(blockTokens, paragraph);
Lexer.prototype.inlineTokens = bounded(inlineTokens, word);
