//! Numbers that the library cannot follow, since it reads each one as a double: it gets another number in the place of
//! each, its stand-in, and once it has made its lexer, the terminal of the stand-in becomes that of the number.

use super::decimal::Decimal;
use crate::text::template::written;
use llguidance::derivre::RegexAst;
use llguidance::earley::lexerspec::{LexemeClass, LexerSpec};
use serde_json::{Map, Number, Value as Json, json};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// What a definition of one is called in a schema.
const DEFINITION: &str = "exact-number-";
/// Stand-ins are integers of 16 digits from here, and below the first that no double holds.
const STAND_INS: u64 = 1_000_000_000_000_000;

/// The numbers of a grammar that stand-ins are there for, as expressions by their stand-ins.
#[derive(Debug, Default)]
pub(in crate::text::grammar) struct ExactNumbers {
    numbers: BTreeMap<u64, String>,
    as_doubles: bool,
}

impl ExactNumbers {
    /// A schema of one number, as it is written.
    pub(super) fn constant(&mut self, text: &str) -> Json {
        self.of_expression(text.replace('.', "\\.").replace('+', "\\+"))
    }

    /// A schema of integers between two, where there are two.
    pub(super) fn range(&mut self, least: Option<&Decimal>, most: Option<&Decimal>) -> Option<Json> {
        let least = least.map(Decimal::integer);
        let most = most.map(Decimal::integer);
        if matches!(least, Some(None)) || matches!(most, Some(None)) {
            return None;
        }
        let at_least = least.flatten().map(|(negative, digits)| match negative {
            true => format!("(0|[1-9][0-9]*|-({}))", up_to(&digits, true)),
            false => format!("({})", from(&digits)),
        });
        let at_most = most.flatten().map(|(negative, digits)| match negative {
            true => format!("(-({}))", from(&digits)),
            false => format!("(-[1-9][0-9]*|{})", up_to(&digits, false)),
        });
        Some(self.of_expression(at_least.into_iter().chain(at_most).collect::<Vec<_>>().join("&")))
    }

    fn of_expression(&mut self, expression: String) -> Json {
        let mut hasher = DefaultHasher::new();
        expression.hash(&mut hasher);
        let stand_in = STAND_INS + hasher.finish() % (8 * STAND_INS);
        self.numbers.insert(stand_in, expression);
        json!({"$ref": format!("#/$defs/{DEFINITION}{stand_in}")})
    }

    /// Whether numbers are to have stand-ins.
    pub(super) fn wanted(&self) -> bool {
        !self.as_doubles
    }

    /// For a schema whose numbers are followed as doubles, or refused.
    pub(in crate::text::grammar) fn unwanted() -> Self {
        Self { as_doubles: true, ..Self::default() }
    }

    /// Adds the definitions of the stand-ins to a schema; `false` where they cannot stand in it.
    pub(in crate::text::grammar) fn define(&self, schema: &mut Json) -> bool {
        if self.is_empty() {
            return true;
        }
        let text = schema.to_string();
        let name = |stand_in: &u64| format!("{DEFINITION}{stand_in}");
        let taken = |stand_in: &u64| text.replace(&name(stand_in), "").contains(&stand_in.to_string());
        if self.numbers.keys().any(taken) || joins(schema) {
            return false;
        }
        let Json::Object(schema) = schema else { return true };
        let definitions = schema.entry("$defs").or_insert_with(|| json!({}));
        if let Json::Object(definitions) = definitions {
            definitions.extend(self.numbers.keys().map(|of| (name(of), json!({"const": of}))));
        }
        true
    }

    /// Adds those of another schema.
    pub(in crate::text::grammar) fn extend(&mut self, others: Self) {
        self.numbers.extend(others.numbers);
    }

    /// Whether no number has a stand-in.
    pub(in crate::text::grammar) fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Puts the terminals of the numbers in the places of those of their stand-ins.
    pub(in crate::text::grammar) fn put_into(&self, lexer: &mut LexerSpec) -> Result<(), String> {
        let mut classes: Vec<LexemeClass> = lexer.lexemes.iter().map(|lexeme| lexeme.class()).collect();
        classes.dedup();
        for class in classes {
            lexer.current_class = class;
            for (stand_in, expression) in &self.numbers {
                replace(lexer, RegexAst::Regex(format!("({stand_in})")), terminal(expression))?;
            }
        }
        lexer.current_class = LexemeClass::ROOT;
        Ok(())
    }
}

/// The terminal of an expression, parts of which are joined by `&`.
fn terminal(expression: &str) -> RegexAst {
    RegexAst::And(expression.split('&').map(|part| RegexAst::Regex(part.to_owned())).collect())
}

/// A lexer finds a terminal that it has, and adds one that it has not. Rules name terminals by their places, so those
/// behind the one that is replaced are taken off and put back.
fn replace(lexer: &mut LexerSpec, old: RegexAst, new: RegexAst) -> Result<(), String> {
    let count = lexer.lexemes.len();
    let add = |lexer: &mut LexerSpec, terminal| {
        let added = lexer.add_greedy_lexeme(String::new(), terminal, false, None, usize::MAX);
        added.map(|at| at.as_usize()).map_err(|e| e.to_string())
    };
    let at = add(lexer, old)?;
    lexer.lexemes.truncate(count);
    if at < count {
        let behind = lexer.lexemes.split_off(at + 1);
        lexer.lexemes.truncate(at);
        if add(lexer, new)? != at || lexer.lexemes.len() != at + 1 {
            return Err("a number has the terminal of another one".into());
        }
        lexer.lexemes.extend(behind);
    }
    Ok(())
}

/// Positive integers from this one.
fn from(digits: &str) -> String {
    let len = digits.len();
    let greater = digits
        .bytes()
        .enumerate()
        .filter(|(_, digit)| *digit < b'9')
        .map(|(at, digit)| format!("{}[{}-9][0-9]{{{}}}", &digits[..at], char::from(digit + 1), len - at - 1));
    greater.chain([digits.to_owned(), format!("[1-9][0-9]{{{len},}}")]).collect::<Vec<_>>().join("|")
}

/// Integers up to this one, zero among them or not.
fn up_to(digits: &str, positive: bool) -> String {
    let len = digits.len();
    let smaller = digits.bytes().enumerate().filter_map(|(at, digit)| {
        let least = if at == 0 { b'1' } else { b'0' };
        (digit > least).then(|| {
            let (least, most) = (char::from(least), char::from(digit - 1));
            format!("{}[{least}-{most}][0-9]{{{}}}", &digits[..at], len - at - 1)
        })
    });
    let shorter = (len > 1).then(|| format!("[1-9][0-9]{{0,{}}}", len - 2));
    let zero = (!positive && digits != "0").then(|| "0".to_owned());
    smaller.chain(shorter).chain(zero).chain([digits.to_owned()]).collect::<Vec<_>>().join("|")
}

/// Whether a schema may have a value keep to several of its parts at once.
fn joins(schema: &Json) -> bool {
    const JOINS: [&str; 7] =
        ["allOf", "not", "if", "dependencies", "dependentSchemas", "dependentRequired", "patternProperties"];
    const OPTIONS: [&str; 3] = ["$ref", "anyOf", "oneOf"];
    match schema {
        Json::Array(items) => items.iter().any(joins),
        Json::Object(map) => {
            let own = |key: &str| key == "type" || OPTIONS.contains(&key) || is_constraint(key);
            let options = OPTIONS.iter().any(|key| map.contains_key(*key));
            let beside = options && map.keys().filter(|key| own(key)).count() > 1;
            let single = map.get("allOf").and_then(Json::as_array).is_some_and(|parts| parts.len() == 1)
                && map.keys().filter(|key| own(key)).count() == 0;
            let joined = JOINS.iter().any(|key| map.contains_key(*key) && !(*key == "allOf" && single));
            beside || joined || map.values().any(joins)
        }
        _ => false,
    }
}

fn is_constraint(key: &str) -> bool {
    matches!(key, "properties" | "required" | "items" | "additionalProperties" | "const" | "enum" | "pattern")
        || key.starts_with("min")
        || key.starts_with("max")
        || key.starts_with("exclusive")
        || key == "multipleOf"
}

/// A schema in which those numbers stand as they were written that a JSON value does not hold, and all others as
/// values.
pub(in crate::text::grammar) fn held(schema: &Json) -> Json {
    match schema {
        Json::Array(items) => items.iter().map(held).collect(),
        Json::Object(map) => match written::number(map) {
            Some(text) => held_number(text).map_or_else(|| schema.clone(), Json::Number),
            None => map.iter().map(|(key, value)| (key.clone(), held(value))).collect::<Map<_, _>>().into(),
        },
        other => other.clone(),
    }
}

/// The number of a text, if a value holds all of it.
fn held_number(text: &str) -> Option<Number> {
    let number: Number = serde_json::from_str(text).ok()?;
    let value = number.as_f64().filter(|_| number.is_f64()).map_or_else(|| number.to_string(), |x| x.to_string());
    (Decimal::read(text)? == Decimal::read(&value)?).then_some(number)
}
