//! Random forms of answers, each made of a number alone: schemas with extreme numbers, deep nesting, long alternations
//! and references that lead back, and grammars and expressions that double or nest. What `grammar` reads.

/// The form of this number: a letter for its kind, and its text.
pub fn of(seed: u64) -> Vec<u8> {
    let mut writer =
        JsonWriter { draws: Draws(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1), out: String::new(), left: 0 };
    // The first few numbers of a generator of this kind look alike.
    for _ in 0..8 {
        writer.draws.below(2);
    }
    writer.left = [8, 20, 60, 300][writer.draws.below(4)];
    match writer.draws.below(16) {
        0 => writer.regex_form(),
        1 => writer.choices(),
        2 => writer.lark(),
        3 | 4 => writer.gbnf(),
        _ => writer.schema_form(),
    }
    writer.out.into_bytes()
}

struct Draws(u64);

impl Draws {
    /// A number below this one, or 0.
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % end.max(1)
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }

    /// With the chance of one in `of`.
    fn hits(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }
}

struct JsonWriter {
    draws: Draws,
    out: String,
    /// Parts that may still come.
    left: usize,
}

const INTEGERS: [&str; 24] = [
    "0",
    "-0",
    "1",
    "-1",
    "7",
    "10",
    "99",
    "255",
    "-128",
    "65536",
    "2147483647",
    "-2147483648",
    "4294967295",
    "9007199254740991",
    "9007199254740992",
    "9007199254740993",
    "-9007199254740993",
    "999999999999999999",
    "1000000000000000000",
    "9223372036854774784",
    "9223372036854775807",
    "-9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
];
const REALS: [&str; 20] = [
    "0.5",
    "-0.1",
    "1e0",
    "1e-6",
    "1e-7",
    "0.001",
    "-1e3",
    "1e6",
    "123.456",
    "9.3e18",
    "-9.3e18",
    "1e19",
    "-1e19",
    "-9223372036854775809",
    "1e100",
    "-1e100",
    "1.7976931348623157e308",
    "-1.7976931348623157e308",
    "5e-324",
    "-2.2250738585072014e-308",
];
const PATTERNS: [&str; 22] = [
    "^a+$",
    "[a-z]{2,8}",
    "^(a|b)*a(a|b){12}$",
    "a{1000000}",
    "(a{1000}){1000}",
    "((a{99}){99}){99}",
    "^.*$",
    "(?i)straße|\\\\w+",
    "\\\\p{L}+",
    "[^\\\\x00-\\\\x1f]*",
    "^$",
    "(",
    "a**",
    "(?=a)b",
    "^(https?|ftp)://[^ /]+(/[^ ]*)?$",
    "a|b|c|",
    "\\\\d{4}-\\\\d{2}-\\\\d{2}",
    "(a?){50}a{50}",
    "x{0,4294967295}",
    "x{4294967296}",
    "[\\\\w.-]+@[\\\\w.-]+",
    "\\\\u00e9é",
];
const FORMATS: [&str; 8] = ["date", "date-time", "email", "uuid", "ipv6", "regex", "int32", "uri"];
const TYPES: [&str; 7] = ["null", "boolean", "number", "integer", "string", "array", "object"];
const NAMES: [&str; 10] = ["a", "b", "name", "const", "enum", "minimum", "properties", "é", "", "a\\\"b"];
const TARGETS: [&str; 12] = [
    "#",
    "#/",
    "#/$defs/a",
    "#/$defs/b",
    "#/$defs/name",
    "#/$defs/none",
    "#/properties/a",
    "#/properties",
    "#/$defs",
    "#/anyOf/0",
    "#/const",
    "http://example.com/x",
];

impl JsonWriter {
    fn push(&mut self, text: &str) {
        self.out.push_str(text);
    }

    /// Whether another part may come, which is counted.
    fn more(&mut self) -> bool {
        let more = self.left > 0;
        self.left = self.left.saturating_sub(1);
        more
    }

    fn schema_form(&mut self) {
        let kind = self.draws.one(&["j", "j", "j", "c", "t", "m"]);
        self.push(kind);
        if kind == "t" || kind == "m" {
            self.push("{\"type\":\"object\",\"required\":[\"a\"],\"properties\":{\"a\":");
            self.schema(2);
            self.push(",\"b\":");
            self.schema(2);
            self.push("}");
            self.definitions();
            return self.push("}");
        }
        match self.draws.below(12) {
            0 => self.deep(),
            1 => self.long(),
            _ => {
                self.push("{");
                self.keywords(0);
                self.definitions();
                self.push("}");
            }
        }
    }

    /// `$defs` that refer to each other, behind what is there.
    fn definitions(&mut self) {
        if self.draws.hits(3) {
            return;
        }
        self.push(",\"$defs\":{");
        for (i, name) in ["a", "b", "name"].into_iter().enumerate() {
            self.push(if i == 0 { "\"" } else { ",\"" });
            self.push(name);
            self.push("\":");
            self.schema(1);
        }
        self.push("}");
    }

    fn schema(&mut self, depth: usize) {
        if !self.more() || depth > 60 {
            let text = self.draws.one(&["true", "{}", "false", "{\"type\":\"string\"}", "{\"type\":\"integer\"}"]);
            return self.push(text);
        }
        self.push("{");
        self.keywords(depth);
        self.push("}");
    }

    fn keywords(&mut self, depth: usize) {
        for i in 0..1 + self.draws.below(4) {
            if i > 0 {
                self.push(",");
            }
            self.keyword(depth);
        }
    }

    fn key(&mut self, key: &str) {
        self.push("\"");
        self.push(key);
        self.push("\":");
    }

    fn keyword(&mut self, depth: usize) {
        match self.draws.below(20) {
            0..=2 => {
                self.key("type");
                let kind = format!("\"{}\"", self.draws.one(&TYPES));
                self.push(&kind);
            }
            3..=6 => {
                let bound = self.draws.one(&["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]);
                self.key(bound);
                match bound.starts_with("exclusive") && self.draws.hits(4) {
                    true => self.push("true"),
                    false => self.number(),
                }
            }
            7 => {
                self.key("multipleOf");
                let of =
                    self.draws.one(&["1", "2", "0.01", "3", "0.1", "7", "1e-6", "1e6", "0", "-5", "12.5", "1e300"]);
                self.push(of);
            }
            8 => {
                let count = self.draws.one(&[
                    "minLength",
                    "maxLength",
                    "minItems",
                    "maxItems",
                    "minProperties",
                    "maxProperties",
                ]);
                self.key(count);
                let of = self.draws.one(&[
                    "0",
                    "1",
                    "2",
                    "5",
                    "1000",
                    "1000000",
                    "4294967295",
                    "18446744073709551615",
                    "-1",
                ]);
                self.push(of);
            }
            9 => {
                self.key("const");
                self.value(0);
            }
            10 => {
                self.key("enum");
                self.list(|writer| writer.value(0));
            }
            11 => {
                let key = self.draws.one(&["anyOf", "oneOf", "allOf", "prefixItems"]);
                self.key(key);
                self.list(|writer| writer.schema(depth + 1));
            }
            12 => {
                let key = self.draws.one(&["items", "additionalProperties", "not", "additionalItems", "if"]);
                self.key(key);
                self.schema(depth + 1);
            }
            13 | 14 => {
                let key =
                    self.draws.one(&["properties", "properties", "patternProperties", "dependentSchemas", "$defs"]);
                self.key(key);
                self.named(|writer| writer.schema(depth + 1));
            }
            15 => {
                self.key("required");
                self.list(|writer| writer.text(&NAMES));
            }
            16 => {
                self.key("pattern");
                self.text(&PATTERNS);
            }
            17 => {
                self.key("format");
                self.text(&FORMATS);
            }
            18 => {
                self.key("$ref");
                self.text(&TARGETS);
            }
            _ => {
                let key = self.draws.one(&["default", "x-note", "dependentRequired", "title", "examples"]);
                self.key(key);
                self.value(0);
            }
        }
    }

    fn text(&mut self, of: &[&str]) {
        let text = format!("\"{}\"", self.draws.one(of));
        self.push(&text);
    }

    fn number(&mut self) {
        let number = if self.draws.hits(2) { self.draws.one(&REALS) } else { self.draws.one(&INTEGERS) };
        self.push(number);
    }

    fn list(&mut self, mut item: impl FnMut(&mut Self)) {
        self.push("[");
        for i in 0..self.draws.below(5) {
            if i > 0 {
                self.push(",");
            }
            item(self);
        }
        self.push("]");
    }

    fn named(&mut self, mut of: impl FnMut(&mut Self)) {
        self.push("{");
        let first = self.draws.below(NAMES.len());
        for i in 0..self.draws.below(4) {
            if i > 0 {
                self.push(",");
            }
            self.key(NAMES[(first + i) % NAMES.len()]);
            of(self);
        }
        self.push("}");
    }

    fn value(&mut self, depth: usize) {
        let kinds = if depth < 6 && self.more() { 8 } else { 5 };
        match self.draws.below(kinds) {
            0 => self.push("null"),
            1 => self.text(&["", "a", "é\\n", "</parameter>", "\\u0000"]),
            2 => self.push("true"),
            3 | 4 => self.number(),
            5 => self.list(|writer| writer.value(depth + 1)),
            _ => self.named(|writer| writer.value(depth + 1)),
        }
    }

    /// As deep as a schema may be, or deeper.
    fn deep(&mut self) {
        let (open, close) = match self.draws.below(5) {
            0 => ("{\"items\":", "}"),
            1 => ("{\"not\":", "}"),
            2 => ("{\"anyOf\":[{\"type\":\"null\"},", "]}"),
            3 => ("{\"allOf\":[{},", "]}"),
            _ => ("{\"properties\":{\"a\":", "},\"required\":[\"a\"]}"),
        };
        let levels = [5, 30, 31, 62, 64, 65, 110][self.draws.below(7)];
        (0..levels).for_each(|_| self.push(open));
        self.schema(50);
        (0..levels).for_each(|_| self.push(close));
    }

    /// Very many of one kind.
    fn long(&mut self) {
        let count = [50, 300, 2000][self.draws.below(3)];
        let key = self.draws.one(&["enum", "anyOf", "oneOf", "allOf"]);
        self.push("{");
        self.key(key);
        self.push("[");
        let alike = self.draws.below(4);
        for i in 0..count {
            self.push(if i == 0 { "" } else { "," });
            match (key, alike) {
                ("enum", 0) => self.push(&format!("\"the same beginning of all of them {i}\"")),
                ("enum", 1) => self.push(&i.to_string()),
                ("enum", _) => self.value(4),
                (_, 0) => self.push(&format!("{{\"const\":{i}}}")),
                (_, 1) => self.push(&format!("{{\"minimum\":{i},\"multipleOf\":0.5}}")),
                (_, 2) => self.push(&format!("{{\"properties\":{{\"p{i}\":{{\"type\":\"integer\"}}}}}}")),
                _ => self.push("{\"type\":[\"string\",\"array\",\"null\"]}"),
            }
        }
        self.push("]}");
    }

    fn regex_form(&mut self) {
        self.push("r");
        for _ in 0..1 + self.draws.below(4) {
            let part = self.draws.one(&PATTERNS).replace("\\\\", "\\");
            let sign = self.draws.one(&["", "|", "*", "{3}", "{0,5000}", "?", "+"]);
            self.push(&format!("({part}){sign}"));
        }
        let wrapped = [0, 0, 0, 40, 249, 251, 3000][self.draws.below(7)];
        let inner = self.out.split_off(1);
        self.push(&format!("{}{inner}{}", "(".repeat(wrapped), ")".repeat(wrapped)));
    }

    fn choices(&mut self) {
        self.push("o");
        for i in 0..1 + self.draws.below(self.left) {
            let text = self.draws.one(&["yes", "a\\b", "é", "a very long beginning that is the same", "\"", ""]);
            let number = if self.draws.hits(2) { i } else { 0 };
            self.push(&format!("{text}{number}\n"));
        }
    }

    fn lark(&mut self) {
        self.push("l");
        let rules = 1 + self.draws.below(self.left);
        let capitals = self.draws.hits(2);
        let name =
            |i: usize| if i == 0 { "start".to_owned() } else { format!("{}{i}", if capitals { "A" } else { "a" }) };
        for i in 0..rules {
            self.push(&name(i));
            self.push(": ");
            self.rule(i, rules, 0, &name);
            self.push("\n");
        }
    }

    fn gbnf(&mut self) {
        self.push("g");
        let rules = 1 + self.draws.below(self.left);
        let name = |i: usize| if i == 0 { "root".to_owned() } else { format!("a{i}") };
        for i in 0..rules {
            self.push(&name(i));
            self.push(" ::= ");
            self.rule(i, rules, 0, &name);
            self.push("\n");
        }
    }

    /// What a rule is made of: mostly of rules behind it, so that it doubles, and at times of one before.
    fn rule(&mut self, i: usize, rules: usize, depth: usize, name: &dyn Fn(usize) -> String) {
        for part in 0..1 + self.draws.below(3) {
            let between = if part > 0 && self.draws.hits(3) { " | " } else { " " };
            self.push(between);
            match self.draws.below(10) {
                0..=4 if i + 1 < rules => {
                    let next = name(i + 1 + if self.draws.hits(4) { self.draws.below(rules - i - 1) } else { 0 });
                    let again = if self.draws.hits(2) { next.as_str() } else { "" };
                    self.push(&format!("{next} {again}"));
                }
                5 if self.draws.hits(4) => {
                    let before = name(self.draws.below(i + 1));
                    self.push(&before);
                }
                6 if depth < 40 => {
                    self.push("(");
                    self.rule(i, rules, depth + 1, name);
                    self.push(")");
                    let sign = self.draws.one(&["", "*", "+", "?", "{3}", "{2,100000}", "{5,}"]);
                    self.push(sign);
                }
                _ => {
                    let text = self.draws.one(&["\"a\"", "\"ab\"", "[a-z]", "[^\\n]", "\"\"", "\"x\"{4294967295}"]);
                    self.push(text);
                }
            }
        }
    }
}
