//! llama.cpp's notation of grammars, GBNF, written in Lark's, which the library reads: rules of names, texts, sets of
//! characters, groups, alternatives and repetitions. Rules that do not lead back to themselves become expressions, so
//! that an answer is followed by few places; what the library reads as one piece is read as far as it goes, so a text
//! that could only be split elsewhere is not among the answers, and every answer is among those of the grammar.

use super::check::FormError;
use crate::limits::GRAMMAR_DEPTH_MAX;
use std::collections::HashMap;

/// The rule that an answer is.
const ROOT: &str = "root";

/// A grammar in Lark's notation that allows what one in GBNF does.
pub(super) fn as_lark(gbnf: &str) -> Result<String, FormError> {
    let rules = Parser { text: gbnf, at: 0, depth: 0 }.rules()?;
    let numbers: HashMap<&str, usize> = rules.iter().enumerate().map(|(i, (name, _))| (*name, i)).collect();
    if numbers.len() < rules.len() {
        let twice = rules.iter().enumerate().find(|(i, (name, _))| numbers[name] != *i);
        return Err(wrong(format!("it has the rule `{}` twice", twice.map_or("", |(_, (name, _))| name))));
    }
    let Some(&root) = numbers.get(ROOT) else { return Err(wrong(format!("it has no rule `{ROOT}`"))) };
    let flat = flat(&rules, &numbers)?;
    let mut writer = GbnfWriter { flat, numbers, out: String::new() };
    writer.out = format!("start: {}\n", writer.name(root));
    for (i, (_, body)) in rules.iter().enumerate() {
        let name = writer.name(i);
        writer.out += &format!("{name}: ");
        writer.expression(body);
        writer.out.push('\n');
    }
    Ok(writer.out)
}

/// What a rule is made of.
#[derive(Debug, PartialEq)]
enum Expression<'a> {
    Text(String),
    /// Characters between these, or all others.
    Set {
        not: bool,
        ranges: Vec<(char, char)>,
    },
    Rule(&'a str),
    Sequence(Vec<Expression<'a>>),
    Either(Vec<Expression<'a>>),
    Repeat(Box<Expression<'a>>, u32, Option<u32>),
}

/// Which rules lead back to no rule: those whose parts all do so.
fn flat(rules: &[(&str, Expression<'_>)], numbers: &HashMap<&str, usize>) -> Result<Vec<bool>, FormError> {
    let (mut missing, mut users) = (vec![0usize; rules.len()], vec![Vec::new(); rules.len()]);
    for (i, (name, body)) in rules.iter().enumerate() {
        let mut parts = Vec::new();
        body.names(&mut parts);
        for part in parts {
            let of = numbers.get(part);
            let of = *of.ok_or_else(|| wrong(format!("its rule `{name}` names `{part}`, which it does not have")))?;
            missing[i] += 1;
            users[of].push(i);
        }
    }
    let mut flat = vec![false; rules.len()];
    let mut done: Vec<usize> = (0..rules.len()).filter(|i| missing[*i] == 0).collect();
    while let Some(i) = done.pop() {
        flat[i] = true;
        for &user in &users[i] {
            missing[user] -= 1;
            if missing[user] == 0 {
                done.push(user);
            }
        }
    }
    Ok(flat)
}

impl<'a> Expression<'a> {
    /// Of all rules that it names.
    fn names(&self, all: &mut Vec<&'a str>) {
        match self {
            Self::Rule(name) => all.push(name),
            Self::Sequence(parts) | Self::Either(parts) => parts.iter().for_each(|part| part.names(all)),
            Self::Repeat(part, ..) => part.names(all),
            Self::Text(_) | Self::Set { .. } => {}
        }
    }
}

struct GbnfWriter<'a> {
    numbers: HashMap<&'a str, usize>,
    flat: Vec<bool>,
    out: String,
}

impl GbnfWriter<'_> {
    /// Expressions have names in capitals there.
    fn name(&self, rule: usize) -> String {
        if self.flat[rule] { format!("R{rule}") } else { format!("r{rule}") }
    }

    fn expression(&mut self, expression: &Expression<'_>) {
        match expression {
            Expression::Text(text) => self.out += &serde_json::Value::from(text.as_str()).to_string(),
            Expression::Set { not, ranges } => self.set(*not, ranges),
            Expression::Rule(name) => self.out += &self.name(self.numbers[name]),
            Expression::Sequence(parts) => self.joined(parts, " "),
            Expression::Either(parts) => self.joined(parts, " | "),
            Expression::Repeat(part, min, max) => {
                self.joined(std::slice::from_ref(part), "");
                self.out += &match (min, max) {
                    (0, None) => "*".to_owned(),
                    (1, None) => "+".to_owned(),
                    (0, Some(1)) => "?".to_owned(),
                    (min, Some(max)) => format!("{{{min},{max}}}"),
                    (min, None) => format!("{{{min},}}"),
                };
            }
        }
    }

    fn joined(&mut self, parts: &[Expression<'_>], between: &str) {
        if parts.is_empty() {
            self.out += "\"\"";
            return;
        }
        self.out.push('(');
        for (i, part) in parts.iter().enumerate() {
            self.out += if i == 0 { "" } else { between };
            self.expression(part);
        }
        self.out.push(')');
    }

    fn set(&mut self, not: bool, ranges: &[(char, char)]) {
        self.out += if not { "/[^" } else { "/[" };
        for (first, last) in ranges {
            self.out += &format!("\\x{{{:X}}}-\\x{{{:X}}}", *first as u32, *last as u32);
        }
        self.out += "]/";
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn rules(mut self) -> Result<Vec<(&'a str, Expression<'a>)>, FormError> {
        let mut rules = Vec::new();
        self.space(true);
        while !self.rest().is_empty() {
            let name = self.name();
            self.space(false);
            if name.is_empty() || !self.takes("::=") {
                return Err(self.wrong("`NAME ::=`"));
            }
            self.space(true);
            rules.push((name, self.alternatives(false)?));
            self.space(true);
        }
        Ok(rules)
    }

    /// Up to the end of the rule, or of the group.
    fn alternatives(&mut self, group: bool) -> Result<Expression<'a>, FormError> {
        let mut all = vec![self.sequence(group)?];
        while self.takes("|") {
            self.space(true);
            all.push(self.sequence(group)?);
        }
        Ok(if all.len() == 1 { all.remove(0) } else { Expression::Either(all) })
    }

    fn sequence(&mut self, group: bool) -> Result<Expression<'a>, FormError> {
        let mut parts: Vec<Expression<'a>> = Vec::new();
        loop {
            let part = match self.rest().chars().next() {
                Some('"') => Expression::Text(self.quoted()?),
                Some('[') => self.class()?,
                Some('.') => {
                    self.at += 1;
                    Expression::Set { not: false, ranges: vec![('\0', char::MAX)] }
                }
                Some('(') => self.group()?,
                Some(c) if is_of_name(c) => Expression::Rule(self.name()),
                _ => return Ok(Expression::Sequence(parts)),
            };
            let part = self.repeated(part)?;
            // Inside of a group a rule goes on over line breaks.
            self.space(group);
            parts.push(part);
        }
    }

    fn group(&mut self) -> Result<Expression<'a>, FormError> {
        self.at += 1;
        self.depth += 1;
        if self.depth > GRAMMAR_DEPTH_MAX {
            return Err(wrong(format!("its groups have more than {GRAMMAR_DEPTH_MAX} levels")));
        }
        self.space(true);
        let inner = self.alternatives(true)?;
        self.depth -= 1;
        if self.takes(")") { Ok(inner) } else { Err(self.wrong("`)`")) }
    }

    /// What is repeated as often as the signs after it say.
    fn repeated(&mut self, mut part: Expression<'a>) -> Result<Expression<'a>, FormError> {
        for level in 0.. {
            let (min, max) = match self.rest().chars().next() {
                Some('*') => (0, None),
                Some('+') => (1, None),
                Some('?') => (0, Some(1)),
                Some('{') => self.bounds()?,
                _ => break,
            };
            if level == GRAMMAR_DEPTH_MAX {
                return Err(wrong(format!("something of it is repeated more than {GRAMMAR_DEPTH_MAX} times over")));
            }
            self.at += 1;
            part = Expression::Repeat(Box::new(part), min, max);
        }
        Ok(part)
    }

    /// `{m}`, `{m,}`, `{m,n}` or `{,n}`, up to the brace that closes it.
    fn bounds(&mut self) -> Result<(u32, Option<u32>), FormError> {
        self.at += 1;
        let Some(end) = self.rest().find('}') else { return Err(self.wrong("`}`")) };
        let inner = &self.rest()[..end];
        let number = |text: &str| text.trim().parse::<u32>().ok();
        let bounds = match inner.split_once(',') {
            None => number(inner).map(|n| (n, Some(n))),
            Some((min, max)) => {
                let min = if min.trim().is_empty() { Some(0) } else { number(min) };
                let max = if max.trim().is_empty() { Some(None) } else { number(max).map(Some) };
                min.zip(max).filter(|(min, max)| max.is_none_or(|max| *min <= max))
            }
        };
        let Some(bounds) = bounds else { return Err(self.wrong("a number of repetitions")) };
        self.at += end;
        Ok(bounds)
    }

    fn quoted(&mut self) -> Result<String, FormError> {
        self.at += 1;
        let mut text = String::new();
        loop {
            match self.character('"')? {
                Some(c) => text.push(c),
                None => return Ok(text),
            }
        }
    }

    fn class(&mut self) -> Result<Expression<'a>, FormError> {
        self.at += 1;
        let not = self.takes("^");
        let mut ranges = Vec::new();
        while let Some(first) = self.character(']')? {
            // A sign before the end stands for itself.
            let last = match self.rest().starts_with('-') && !self.rest().starts_with("-]") {
                true => {
                    self.at += 1;
                    self.character(']')?.ok_or_else(|| self.wrong("a character"))?
                }
                false => first,
            };
            if first > last {
                return Err(wrong(format!("its set has the range {first:?} to {last:?}, which is empty")));
            }
            ranges.push((first, last));
        }
        match (ranges.is_empty(), not) {
            (true, true) => Ok(Expression::Set { not: false, ranges: vec![('\0', char::MAX)] }),
            (true, false) => Err(wrong("it has a set without characters".into())),
            (false, not) => Ok(Expression::Set { not, ranges }),
        }
    }

    /// The next character of a text or a set; `None` at its end, which is taken.
    fn character(&mut self, end: char) -> Result<Option<char>, FormError> {
        let Some(c) = self.rest().chars().next() else { return Err(self.wrong(&format!("`{end}`"))) };
        self.at += c.len_utf8();
        match c {
            c if c == end => Ok(None),
            '\\' => self.escaped().map(Some),
            c => Ok(Some(c)),
        }
    }

    fn escaped(&mut self) -> Result<char, FormError> {
        let Some(c) = self.rest().chars().next() else { return Err(self.wrong("a character")) };
        self.at += c.len_utf8();
        let digits = match c {
            'x' => 2,
            'u' => 4,
            'U' => 8,
            'n' => return Ok('\n'),
            'r' => return Ok('\r'),
            't' => return Ok('\t'),
            '\\' | '"' | '[' | ']' => return Ok(c),
            _ => return Err(self.wrong("an escape that it knows")),
        };
        let code = self.rest().get(..digits).and_then(|hex| u32::from_str_radix(hex, 16).ok()).and_then(char::from_u32);
        let Some(code) = code else { return Err(self.wrong(&format!("{digits} digits of a character"))) };
        self.at += digits;
        Ok(code)
    }

    fn name(&mut self) -> &'a str {
        let rest = self.rest();
        let name = &rest[..rest.find(|c| !is_of_name(c)).unwrap_or(rest.len())];
        self.at += name.len();
        name
    }

    /// Passes blanks and comments, and line breaks where they mean nothing.
    fn space(&mut self, lines: bool) {
        loop {
            let rest = self.rest();
            let blanks = rest.len()
                - rest.trim_start_matches(|c| c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))).len();
            self.at += blanks;
            if !self.rest().starts_with('#') {
                return;
            }
            let rest = self.rest();
            self.at += rest.find('\n').unwrap_or(rest.len());
        }
    }

    fn takes(&mut self, sign: &str) -> bool {
        let there = self.rest().starts_with(sign);
        self.at += if there { sign.len() } else { 0 };
        there
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn wrong(&self, wanted: &str) -> FormError {
        let line = self.text[..self.at].matches('\n').count() + 1;
        let got: String = self.rest().chars().take(20).collect();
        wrong(format!("line {line}: it wants {wanted}, got {got:?}"))
    }
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-' || c == '_'
}

fn wrong(message: String) -> FormError {
    FormError::unusable(message)
}
