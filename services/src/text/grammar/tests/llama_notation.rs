//! Grammars in llama.cpp's notation.

use super::*;

#[test]
fn a_grammar_in_llama_cpp_s_notation_allows_what_it_says() {
    check(&gbnf("root ::= \"a\"{5,5}"), None, &["aaaaa"], &[("aaaa", "aaaa"), ("aaaaaa", "aaaaa")]);
    check(
        &gbnf(
            "# one\nroot  ::= (\"yes\" | \"no\" # both\n  | maybe) \".\"?\nmaybe ::= [m-n] \"a\" [^a-z\\n]+ \"\\x41\\u00e9\"",
        ),
        None,
        &["yes", "no.", "ma1A\u{e9}", "na--A\u{e9}."],
        &[("maaA\u{e9}", "ma"), ("yess", "yes"), ("", "")],
    );
    let json = gbnf(concat!(
        "root ::= object\nvalue ::= object | array | string | number | (\"true\" | \"false\" | \"null\") ws\n",
        "object ::= \"{\" ws ( string \":\" ws value (\",\" ws string \":\" ws value)* )? \"}\" ws\n",
        "array ::= \"[\" ws ( value (\",\" ws value)* )? \"]\" ws\n",
        "string ::= \"\\\"\" ( [^\"\\\\\\x7F\\x00-\\x1F] | \"\\\\\" [\"\\\\bfnrt] )* \"\\\"\" ws\n",
        "number ::= (\"-\"? ([0-9] | [1-9] [0-9]{0,15})) (\".\" [0-9]+)? ([eE] [-+]? [0-9]{1,15})? ws\n",
        "ws ::= | \" \" | \"\\n\" [ \\t]{0,20}\n",
    ));
    check(
        &json,
        Some(Thinking::Closed),
        &["{}", "{\"a\": [1, -2.5e3, {\"b\": null}], \"c\": \"x\\\\n\"}", "{\n  \"a\": true}"],
        &[("[]", ""), ("{\"a\"}", "{\"a\""), ("{\"a\":01}", "{\"a\":0")],
    );
}

#[test]
fn what_is_wrong_with_a_grammar_in_llama_cpp_s_notation_is_said_with_its_line() {
    for (text, part) in [
        ("", "no rule `root`"),
        ("rot ::= \"a\"", "no rule `root`"),
        ("root ::= a", "names `a`, which it does not have"),
        ("root ::= \"a\"\nroot ::= \"b\"", "the rule `root` twice"),
        ("root ::= \"a", "wants `\"`"),
        ("root ::= (\"a\"", "wants `)`"),
        ("root ::= [z-a]", "which is empty"),
        ("root ::= []", "without characters"),
        ("root ::= \"a\"{2,1}", "a number of repetitions"),
        ("root ::= \"a\"\nb = \"c\"", "line 2: it wants `NAME ::=`"),
        ("root ::= \"\\q\"", "an escape that it knows"),
        (&format!("root ::= {}", "(".repeat(100)), "more than 64 levels"),
        (&format!("root ::= \"a\"{}", "*".repeat(100)), "more than 64 times over"),
    ] {
        let error = grammars().compile(&gbnf(text)).err().unwrap_or_else(|| panic!("{text:?} is taken"));
        assert!(error.message.contains(part), "{text:?}: {error}");
    }
}

#[test]
fn a_grammar_in_llama_cpp_s_notation_that_would_grow_without_end_is_refused_or_followed() {
    let doubled = (0..1000).fold("root ::= n0\n".to_owned(), |all, i| all + &format!("n{i} ::= n{0} n{0}\n", i + 1));
    let texts = [
        "root ::= \"a\"{4294967295}".to_owned(),
        "root ::= (((\"a\"{999}){999}){999}){999}".to_owned(),
        "root ::= root root root | \"a\"?".to_owned(),
        "root ::= x{9999}\nx ::= \"a\" | x \"b\" x".to_owned(),
        format!("root ::= {}\"a\"", "[a-z] | ".repeat(1500)),
        doubled + "n1000 ::= \"a\"",
    ];
    for text in texts {
        let shown = text[..40.min(text.len())].to_owned();
        let follow = move || {
            let grammar = grammars().compile(&gbnf(&text)).map_err(|error| error.to_string())?;
            let mut sequence = grammar.after(None).map_err(|error| error.to_string())?.begin(0);
            let a = golden().encode("a")[0];
            (0..5).try_for_each(|_| sequence.rule().and_then(|_| sequence.take(a)))
        };
        // As deep as where grammars are made.
        let thread = std::thread::Builder::new().stack_size(limits::GRAMMAR_STACK_BYTES).spawn(follow).unwrap();
        let followed = thread.join().unwrap_or_else(|_| panic!("{shown} panics"));
        assert!(followed.as_ref().err().is_none_or(|why| !why.is_empty()), "{shown}: {followed:?}");
    }
}
