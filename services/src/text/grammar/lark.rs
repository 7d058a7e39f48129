//! How much the library would have to do for a grammar in Lark's notation, known before it sees one. It calls itself
//! for each rule and each bracket on the way from the first rule, and a full stack ends the process; and it writes
//! terminals out, each in the place of its name, so that a few lines may stand for more than there is time for.

use super::check::{FormError, at_most};
use crate::limits;
use std::collections::HashMap;

/// The rule that the library begins to read with.
const START: &str = "start";

/// Refuses what would take longer to compile than its length says, or more of the stack.
pub(super) fn within_limits(lark: &str) -> Result<(), FormError> {
    let outline = Outline::of(lark);
    at_most("levels of brackets", outline.brackets, limits::LARK_BRACKETS_MAX)?;
    at_most("`&`", outline.conjunctions, limits::GRAMMAR_CONDITIONS_MAX)?;
    let size = outline.size();
    at_most("levels of rules within rules", size.levels, limits::LARK_LEVELS_MAX)?;
    at_most("bytes in its terminals, written out", size.written.bytes, limits::LARK_WRITTEN_MAX)?;
    at_most("optional parts in its terminals, written out", size.written.optional, limits::GRAMMAR_OPTIONAL_MAX)
}

/// Parts of an expression that may be left out, by their signs. What the library looks at for one byte grows with the
/// square of these, where they follow each other.
pub(super) fn optional_parts(expression: &str) -> usize {
    let (mut count, mut before) = (0, ' ');
    for c in expression.chars() {
        count += usize::from(before != '\\' && matches!(c, '?' | '*' | '{') && !(before == '(' && c == '?'));
        // An escaped stroke escapes nothing.
        before = if before == '\\' && c == '\\' { ' ' } else { c };
    }
    count
}

/// A piece of the notation, as the library cuts it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum LarkToken<'a> {
    Name(&'a str),
    /// A text, an expression, a number or a directive.
    Literal(&'a str),
    Open(char),
    Close,
    Colon,
    And,
    Bar,
    /// What stands before it may be left out.
    Optional,
    /// Nothing to the library.
    Blank,
    Other,
}

/// The definitions of a grammar, without the order of what they are made of.
#[derive(Default)]
struct Outline<'a> {
    definitions: Vec<Definition<'a>>,
    /// Depth of the deepest bracket so far.
    brackets: usize,
    /// Signs for what has to hold at once.
    conjunctions: usize,
}

/// A rule or a terminal; the first one is what stands before any of them.
#[derive(Default)]
struct Definition<'a> {
    name: &'a str,
    names: Vec<Named<'a>>,
    /// All that is no name, and its name's own parts.
    own: ExpandedSize,
    /// The deepest bracket in it.
    brackets: usize,
    /// It is an expression as a whole: a terminal, or a rule that says where it stops.
    whole: bool,
}

/// A name in a definition.
#[derive(Clone, Copy)]
struct Named<'a> {
    name: &'a str,
    /// Brackets that stand around the definition.
    brackets: usize,
    /// Right behind the sign between alternatives: if it begins another definition, nothing is the last one here.
    after_bar: bool,
}

/// What a grammar asks of the library.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Size {
    /// Calls within calls: definitions and brackets.
    levels: usize,
    /// Count of all expressions so far.
    written: ExpandedSize,
}

/// An expression, written out in every place of its name.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct ExpandedSize {
    bytes: usize,
    /// Parts that may be left out.
    optional: usize,
}

impl ExpandedSize {
    fn and(self, other: Self) -> Self {
        let (bytes, optional) = (self.bytes.saturating_add(other.bytes), self.optional.saturating_add(other.optional));
        Self { bytes, optional }
    }
}

impl<'a> Outline<'a> {
    fn of(lark: &'a str) -> Self {
        let mut outline = Self { definitions: vec![Definition::default()], ..Self::default() };
        let (mut rest, mut level, mut before) = (lark, 0_usize, LarkToken::Colon);
        while let Some((piece, bytes)) = next_piece(rest) {
            rest = &rest[bytes..];
            match piece {
                LarkToken::Open(_) => level += 1,
                LarkToken::Close => level = level.saturating_sub(1),
                LarkToken::Colon if level == 0 => outline.begin(),
                LarkToken::And => outline.conjunctions += 1,
                LarkToken::Name(name) => {
                    let named = Named { name, brackets: level, after_bar: before == LarkToken::Bar };
                    outline.last().names.push(named);
                }
                _ => {}
            }
            outline.brackets = outline.brackets.max(level);
            outline.last().brackets = outline.last().brackets.max(level);
            outline.last().add(piece, before);
            if piece != LarkToken::Blank {
                before = piece;
            }
        }
        outline.last().own.optional += usize::from(before == LarkToken::Bar);
        outline
    }

    fn last(&mut self) -> &mut Definition<'a> {
        self.definitions.last_mut().expect("there is one from the beginning")
    }

    /// A colon: the name before it, behind which only its attributes may stand, is that of a definition.
    fn begin(&mut self) {
        let before = self.last();
        let Some(at) = before.names.iter().rposition(|named| named.brackets == 0) else { return };
        let names = before.names.split_off(at);
        let Some((Named { name, after_bar, .. }, attributes)) = names.split_first() else { return };
        before.own.optional += usize::from(*after_bar);
        let name = name.trim_start_matches(['!', '?']);
        let whole = !attributes.is_empty() || is_terminal(name);
        self.definitions.push(Definition { name, names: attributes.to_vec(), whole, ..Definition::default() });
    }

    /// Of all that the library looks at, in its order: it goes down where a name comes for the first time.
    fn size(&self) -> Size {
        let numbers: HashMap<&str, usize> =
            self.definitions.iter().enumerate().skip(1).map(|(i, definition)| (definition.name, i)).collect();
        let mut walk =
            Walk { outline: self, numbers, written: vec![None; self.definitions.len()], size: Size::default() };
        walk.down(0);
        if let Some(start) = walk.numbers.get(START).copied() {
            walk.down(start);
        }
        walk.size
    }
}

impl<'a> Definition<'a> {
    /// Counts a piece and, of the sign that it is, whether it leaves nothing as an alternative behind `before`.
    fn add(&mut self, piece: LarkToken<'a>, before: LarkToken<'a>) {
        let begins = matches!(before, LarkToken::Open(_) | LarkToken::Colon | LarkToken::Bar);
        let optional = match piece {
            LarkToken::Literal("\"\"") | LarkToken::Optional | LarkToken::Open('[' | '{') => self.whole.into(),
            LarkToken::Bar | LarkToken::Close => (self.whole && begins).into(),
            LarkToken::Literal(text) if text.starts_with('/') => optional_parts(text),
            _ => 0,
        };
        let bytes = if let LarkToken::Literal(text) = piece { text.len() } else { 0 };
        self.own = self.own.and(ExpandedSize { bytes, optional });
    }
}

/// A walk through the definitions. It keeps its own stack, or it would need what it is to save.
struct Walk<'o, 'a> {
    outline: &'o Outline<'a>,
    numbers: HashMap<&'a str, usize>,
    /// Each expression, written out; nothing before it was come to, and an empty one on the way through it.
    written: Vec<Option<ExpandedSize>>,
    size: Size,
}

impl Walk<'_, '_> {
    fn down(&mut self, from: usize) {
        // A definition, the next of its names, and the levels above it.
        let mut open = vec![(from, 0, 0)];
        self.written[from].get_or_insert_default();
        while let Some((at, next, above)) = open.last_mut() {
            let (at, above) = (*at, *above);
            let definition = &self.outline.definitions[at];
            let Some(named) = definition.names.get(*next) else {
                self.leave(at, above);
                open.pop();
                continue;
            };
            *next += 1;
            if let Some(of) = self.numbers.get(named.name).copied().filter(|of| self.written[*of].is_none()) {
                self.written[of] = Some(ExpandedSize::default());
                open.push((of, 0, above + 1 + named.brackets));
            }
        }
    }

    fn leave(&mut self, at: usize, above: usize) {
        let definition = &self.outline.definitions[at];
        self.size.levels = self.size.levels.max(above + 1 + definition.brackets);
        let of_name = |named: &Named<'_>| match self.numbers.get(named.name) {
            Some(of) if definition.whole && is_terminal(named.name) => {
                self.written[*of].unwrap_or_default().and(ExpandedSize { bytes: 1, optional: 0 })
            }
            _ => ExpandedSize { bytes: 1, optional: 0 },
        };
        let written = definition.names.iter().map(of_name).fold(definition.own, ExpandedSize::and);
        self.written[at] = Some(written);
        self.size.written = self.size.written.and(written);
    }
}

/// Terminals are written in capitals.
fn is_terminal(name: &str) -> bool {
    name.trim_start_matches('_').starts_with(|c: char| c.is_ascii_uppercase())
}

/// The piece that a text begins with, and its bytes. Nothing is left out: blanks and comments are pieces too.
fn next_piece(text: &str) -> Option<(LarkToken<'_>, usize)> {
    let first = text.chars().next()?;
    let until = |end: &dyn Fn(char) -> bool| text.find(end).unwrap_or(text.len());
    let literal = |bytes| (LarkToken::Literal(&text[..bytes]), bytes);
    Some(match first {
        '#' => (LarkToken::Blank, until(&|c| c == '\n')),
        '/' if text.starts_with("//") => (LarkToken::Blank, until(&|c| c == '\n')),
        ' ' | '\t' | '\r' | '\n' => (LarkToken::Blank, 1),
        '"' | '/' => literal(quoted(text, first)),
        '<' => literal(until(&|c| c == '>' || c.is_whitespace()).max(1)),
        '@' | '%' => literal(1 + name_like(&text[1..], |c| c.is_ascii_alphanumeric())),
        '0'..='9' => literal(number(text)),
        '(' | '[' | '{' => (LarkToken::Open(first), 1),
        ')' | ']' | '}' => (LarkToken::Close, 1),
        '&' => (LarkToken::And, 1),
        '|' => (LarkToken::Bar, 1),
        '*' => (LarkToken::Optional, 1),
        ':' if text.starts_with("::") => (LarkToken::Other, 2),
        ':' => (LarkToken::Colon, 1),
        _ => match name(text) {
            0 if first == '?' => (LarkToken::Optional, 1),
            0 => (LarkToken::Other, first.len_utf8()),
            bytes => (LarkToken::Name(&text[..bytes]), bytes),
        },
    })
}

/// Bytes of a text or an expression, with both its signs, or to the end if the second is not there.
fn quoted(text: &str, sign: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == sign => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Bytes of a rule's name, `!?[_?]?[a-z][_a-z0-9\-]*`, or of a terminal's, `_?[A-Z][_A-Z0-9\-]*`; none where there is
/// no name.
fn name(text: &str) -> usize {
    let plain = text.strip_prefix('!').unwrap_or(text);
    let plain = plain.strip_prefix(['_', '?']).unwrap_or(plain);
    let rule = name_like(plain, |c| c.is_ascii_lowercase() || c.is_ascii_digit());
    if rule > 0 && plain.starts_with(|c: char| c.is_ascii_lowercase()) {
        return text.len() - plain.len() + rule;
    }
    let plain = text.strip_prefix('_').unwrap_or(text);
    let terminal = name_like(plain, |c| c.is_ascii_uppercase() || c.is_ascii_digit());
    match terminal > 0 && plain.starts_with(|c: char| c.is_ascii_uppercase()) {
        true => text.len() - plain.len() + terminal,
        false => 0,
    }
}

fn name_like(text: &str, of_name: impl Fn(char) -> bool) -> usize {
    text.find(|c| !of_name(c) && c != '_' && c != '-').unwrap_or(text.len())
}

/// Bytes of a number, `[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?` or `0x[0-9a-f]+`.
fn number(text: &str) -> usize {
    let digits = |text: &str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    if let Some(hex) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        return 2 + hex.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(hex.len());
    }
    let mut end = digits(text);
    if text[end..].starts_with('.') {
        end += 1 + digits(&text[end + 1..]);
    }
    if let Some(exponent) = text[end..].strip_prefix(['e', 'E']) {
        let signed = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        if digits(signed) > 0 {
            end = text.len() - signed.len() + digits(signed);
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn size(lark: &str) -> (usize, usize) {
        let size = Outline::of(lark).size();
        (size.levels, size.written.bytes)
    }

    #[test]
    fn terminals_are_written_out_in_every_place_of_their_name_and_rules_are_not() {
        assert_eq!(size("start: A\nA: \"ab\""), (2, 4 + 1));
        assert_eq!(size("start: A\nA: B B | B\nB: \"ab\""), (3, 1 + 15 + 4));
        assert_eq!(size("start: a\na: b b | b\nb: \"ab\""), (3, 1 + 3 + 4));
        assert_eq!(size("start: a\na: B B B\nB: \"ab\""), (3, 1 + 3 + 4), "each is a piece of its own");
        assert_eq!(size("start: a\na[stop=C]: B B B\nB: \"ab\"\nC: /c/"), (4, 1 + 20 + 4 + 3));
        assert_eq!(size("%ignore W\nW: \" \"\nstart: \"a\""), (2, 8 + 3 + 3), "what is passed over as well");
        assert_eq!(size("start: \"a\"\nB: B B"), (1, 3), "what nobody names is not looked at");
    }

    #[test]
    fn optional_parts_of_terminals_are_counted_with_each_place_of_their_name() {
        let optional = |lark: &str| Outline::of(lark).size().written.optional;
        assert_eq!(optional("start: A\nA: \"a\"? \"b\"* \"c\"+ \"d\"{2} [\"e\"] \"\""), 5);
        assert_eq!(optional("start: A\nA: B B B\nB: \"a\"?"), 3 + 1);
        assert_eq!(
            optional("start: \"a\"? b*\nb: \"a\"? /a?b*c{2}(?:d)\\?\\\\*/"),
            4,
            "of rules the expressions alone"
        );
        for nothing in
            ["| \"a\"", "\"a\" |", "\"a\" | | \"b\"", "(| \"a\")", "(\"a\" |) \"b\"", "() \"b\"", "\n | \"a\""]
        {
            assert_eq!(optional(&format!("start: A\nA: {nothing}\nB: \"b\"")), 1, "{nothing:?}");
            assert_eq!(optional(&format!("B: \"b\"\nstart: A\nA: {nothing}")), 1, "{nothing:?}");
        }
        assert_eq!(optional("start: A\nA: \"a\" | \"b\"\n | (\"c\") | B\nB: \"?*\""), 0);
    }

    #[test]
    fn levels_are_those_of_the_way_down_and_what_leads_back_ends_there() {
        assert_eq!(size("start: a\na: (b | \"x\")\nb: ((start))").0, 1 + 1 + 1 + 1 + 2);
        assert_eq!(size("start: start start | \"a\"").0, 1);
        let chain: String = (0..3000).map(|i| format!("a{i}: a{}\n", i + 1)).collect();
        assert_eq!(size(&format!("start: a0\n{chain}a3000: \"x\"")).0, 3002);
        assert!(within_limits(&format!("start: a0\n{chain}a3000: \"x\"")).is_err());
    }

    #[test]
    fn texts_expressions_and_comments_hide_what_stands_in_them() {
        let hidden = "start: \"(&\\\"(\" /[(&]\\/(\n&(/ <(\"&> x // ( & \"\n  | y # ( & /\nx: \"b\"";
        let outline = Outline::of(hidden);
        assert_eq!((outline.brackets, outline.conjunctions), (0, 0));
        let names: Vec<_> = outline.definitions.iter().map(|definition| definition.name).collect();
        assert_eq!(names, ["", "start", "x"]);
        // The second line begins inside of an expression.
        assert_eq!(Outline::of("A: /x\n\"/ & B & C").conjunctions, 2);
        assert_eq!(Outline::of("A: ((([B{1,2}])))").brackets, 5);
    }

    #[test]
    fn names_and_numbers_end_where_the_library_ends_them() {
        let pieces = |mut text: &'static str| {
            let mut names = Vec::new();
            while let Some((piece, bytes)) = next_piece(text) {
                text = &text[bytes..];
                if let LarkToken::Name(name) = piece {
                    names.push(name);
                }
            }
            names
        };
        assert_eq!(
            pieces("aAbB_1 ?a !_b _C A1a é 1A 1e5A 0xaA 1.5e-3b"),
            ["a", "A", "b", "B_1", "?a", "!_b", "_C", "A1", "a", "A", "A", "b"]
        );
        assert_eq!(pieces("%import common.INT -> X\n@name a"), ["common", "INT", "X", "a"]);
    }
}
