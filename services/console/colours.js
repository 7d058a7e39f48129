// Colours of code. A language is a list of rules, each a class and a pattern, and the first that fits where the last one ended counts;
// what none fits stays as it is. However a text is nested or left open, the time is in proportion to its length.

const END = "(?![^])"; // of the whole text
const to = (end) => `[^]*?(?:${end}|${END})`;
const line = (mark) => ["comment", `${mark}[^\\n]*`];
const block = ["comment", `/\\*${to("\\*/")}`];
const quoted = (mark) => ["string", `${mark}(?:\\\\[^]|[^${mark}\\\\\\n])*${mark}?`];
const words = (list) => ["keyword", `\\b(?:${list.replaceAll(" ", "|")})\\b`];
const anyCase = (list) => words(`${list} ${list.toUpperCase()}`);
const number = ["number", "\\b\\d(?:[\\w.]|(?<=[eE])[+-])*"];
const call = ["title", "\\b[A-Za-z_]\\w*(?= ?\\()"];
const type = ["title", "\\b[A-Z]\\w*[a-z]\\w*\\b"];
const character = ["string", "'(?:\\\\[^\\n]{1,10}?|[^'\\\\\\n])'"];
const template = ["string", `\`(?:\\\\[^]|[^\`\\\\])*\`?`];
const curly = (keywords, ...own) => [line("//"), block, ...own, quoted('"'), number, words(keywords), call, type];

const LANGUAGES = {
  bash: [["comment", "(?<=^|\\s)#[^\\n]*"], quoted('"'), ["string", `'${to("'")}`], ["number", "\\$(?:\\w+|\\{[^{}$\\n]*\\}|[#?@*!$])"],
    words("if then else elif fi for while until do done case esac in function return local export set unset exit echo cd source trap read shift")],
  cpp: curly("alignas auto bool break case catch char class const constexpr continue decltype default delete do double else enum explicit extern false final float for friend goto if inline int long mutable namespace new noexcept nullptr operator override private protected public register return short signed sizeof static static_assert struct switch template this throw true try typedef typename union unsigned using virtual void volatile while size_t int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t NULL",
    ["number", "^[ \\t]*#[ \\t]*\\w+"], character),
  css: [block, quoted('"'), quoted("'"), ["keyword", "@[\\w-]+|![ \\t]*important"], ["title", "(?<![\\w-])[\\w-]+(?=[ \\t]*:[^:{}\\n]*[;}\\n])"], ["number", "#[\\da-fA-F]{3,8}\\b|-?\\b\\d[\\d.]*(?:[a-z]+|%)?"]],
  diff: [["title", "^(?:@@|diff |index |--- |\\+\\+\\+ )[^\\n]*"], ["string", "^\\+[^\\n]*"], ["keyword", "^-[^\\n]*"]],
  go: curly("any append bool break byte cap case chan const continue default defer else error fallthrough false float32 float64 for func go goto if import int int32 int64 interface iota len make map new nil package panic range return rune select string struct switch true type uint uint32 uint64 var", template, character),
  java: curly("abstract assert boolean break byte case catch char class const continue default do double else enum extends false final finally float for if implements import instanceof int interface long native new null package private protected public record return sealed short static super switch synchronized this throw throws transient true try var void volatile while yield",
    ["number", "@\\w+"], character),
  javascript: curly("any as async await boolean break case catch class const continue debugger default delete do else enum export extends false finally for from function get if implements import in instanceof interface let new null number of private protected public readonly return set static string super switch this throw true try type typeof undefined var void while yield", template, quoted("'")),
  json: [["title", '"(?:\\\\[^]|[^"\\\\\\n])*"(?=[ \\t]*:)'], quoted('"'), ["number", "-?\\b\\d[\\w.+-]*"], words("true false null")],
  markdown: [["title", "^#{1,6} [^\\n]*"], ["string", `^\`\`\`${to("^```")}|\`[^\`\\n]*\``], ["keyword", "^[ \\t]*(?:[-*+]|\\d+\\.)(?= )|\\*\\*[^*\\n]+\\*\\*"], ["comment", "^>[^\\n]*"], ["number", "\\]\\([^()\\n]*\\)"]],
  python: [line("#"), ["string", `[bfruBFRU]{0,2}(?:"""${to('"""')}|'''${to("'''")})`], quoted('"'), quoted("'"), ["number", "@\\w[\\w.]*"], number,
    words("and as assert async await break case class continue def del elif else except False finally for from global if import in is lambda match None nonlocal not or pass raise return self True try while with yield"), call, type],
  rust: curly("as async await bool box break char const continue crate dyn else enum extern false fn f32 f64 for i8 i16 i32 i64 i128 if impl in isize let loop match mod move mut pub ref return Self self static str struct super trait true type u8 u16 u32 u64 u128 union unsafe use usize where while",
    ["number", "#!?\\[[^\\[\\]\\n]*\\]|'[a-z_]\\w*\\b(?!')"], ["string", `\\br#"${to('"#')}`], character, ["title", "\\b\\w+!(?=[ \\t]?[(\\[{])"]),
  sql: [line("--"), block, ["string", `'(?:''|[^'])*'?`], quoted('"'), number,
    anyCase("add all alter and as asc between by case check column constraint create cross default delete desc distinct drop else end exists foreign from full group having if in index inner insert into is join key left like limit not null offset on or order outer primary references returning right select set table then union unique update using values view when where with"), call],
  xml: [["comment", `<!--${to("-->")}`], ["keyword", "</?[\\w:.-]+|/?>|<[!?][^<>\\n]*>"], ["title", "(?<![\\w:.-])[\\w:.-]+(?==[\"'])"], ["string", "(?<==)(?:\"[^\"]*\"?|'[^']*'?)"], ["number", "&#?\\w+;"]],
  yaml: [["comment", "(?<=^|\\s)#[^\\n]*"], ["title", "^[ \\t]*(?:- +)?[\\w./-]+(?=:(?:\\s|$))"], quoted('"'), quoted("'"), ["number", "[&*]\\w+|\\b\\d[\\w.:-]*"], words("true false null yes no on off")],
};
const made = new Map();

/** The pattern of a language with a group for each rule, and the classes of the groups. */
function rulesOf(language) {
  if (!made.has(language)) {
    const rules = LANGUAGES[language];
    made.set(language, [new RegExp(rules.map(([, pattern]) => `(${pattern})`).join("|"), "gm"), rules.map(([name]) => name)]);
  }
  return made.get(language);
}

/** The parts of a text: `[class, text]`, the class empty where there is none. */
function* parts(text, language) {
  const [pattern, classes] = rulesOf(language);
  let at = 0;
  for (const match of text.matchAll(pattern)) {
    if (match.index > at) yield ["", text.slice(at, match.index)];
    yield [classes[match.slice(1).findIndex((group) => group !== undefined)], match[0]];
    at = match.index + match[0].length;
  }
  yield ["", text.slice(at)];
}

/** The text in its colours, as fragments of so many characters each. */
export function* painted(text, language, lengths) {
  let piece = document.createDocumentFragment(), left = lengths.shift();
  for (let [name, part] of parts(text, language)) {
    while (part) {
      const some = part.slice(0, left);
      const place = name ? piece.appendChild(document.createElement("span")) : piece;
      if (name) place.className = `code-${name}`;
      place.append(some);
      [part, left] = [part.slice(some.length), left - some.length];
      if (left) continue;
      yield piece;
      if (!lengths.length) return;
      piece = document.createDocumentFragment();
      left = lengths.shift();
    }
  }
}
