use super::super::tools::Tool;
use super::*;
use proptest::prelude::*;
use serde_json::json;

fn tools() -> Arc<Tools> {
    let parameters = json!({"type": "object", "properties": {
        "city": {"type": "string"}, "days": {"type": "integer"}, "tags": {"type": "array"}, "code": {"type": "string"},
    }});
    let plain = ["other", "a", "b"].map(|name| Tool { name: name.into(), parameters: json!({}) });
    Arc::new(Tools::new([Tool { name: "weather".into(), parameters }].into_iter().chain(plain).collect()))
}

/// What a reader has at the end, as `R(reasoning) C(answer) T(name id arguments)`, in order; ` ...` stands after what
/// is incomplete.
fn parsed(thinking: Thinking, tools: Option<Arc<Tools>>, pieces: &[&str], cut: bool) -> String {
    let mut parser = OutputParser::new(thinking, tools, "x".into());
    let mut deltas: Vec<OutputDelta> = pieces.iter().flat_map(|piece| parser.push(piece)).collect();
    deltas.extend(parser.finish(cut));
    let mut out: Vec<(String, String)> = Vec::new();
    for delta in deltas {
        let (kind, text) = match delta {
            OutputDelta::Reasoning(text) => ("R".to_owned(), text),
            OutputDelta::Content(text) => ("C".to_owned(), text),
            OutputDelta::ToolCall { index, id, name } => {
                assert_eq!(id, format!("call_x{index}"));
                out.push((format!("T{index}"), name + " "));
                continue;
            }
            OutputDelta::Arguments { index, json } => (format!("T{index}"), json),
            OutputDelta::Incomplete { index } => (format!("T{index}"), " ...".to_owned()),
        };
        assert!(!text.is_empty(), "an empty delta says nothing");
        match out.last_mut() {
            Some((last, all)) if *last == kind => all.push_str(&text),
            _ => out.push((kind, text)),
        }
    }
    for (kind, text) in &out {
        if kind.starts_with('T') {
            let arguments = text.split_once(' ').unwrap().1;
            let value = serde_json::from_str::<serde_json::Value>(arguments);
            assert!(text.ends_with(" ...") && value.is_err() || value.unwrap().is_object(), "{arguments}");
        }
    }
    out.into_iter().map(|(kind, text)| format!("{kind}({text})")).collect::<Vec<_>>().join(" ")
}

/// Checks what a text is parsed into: as a whole, character by character, and for every cut into two and three.
#[track_caller]
fn check_with(thinking: Thinking, tools: Option<Arc<Tools>>, text: &str, expected: &str) {
    check_ended(thinking, tools, text, false, expected);
}

/// Checks what a text that was cut off is parsed into.
#[track_caller]
fn check_cut(text: &str, expected: &str) {
    check_ended(Thinking::Closed, Some(tools()), text, true, expected);
}

#[track_caller]
fn check_ended(thinking: Thinking, tools: Option<Arc<Tools>>, text: &str, cut: bool, expected: &str) {
    let parse = |pieces: &[&str]| parsed(thinking, tools.clone(), pieces, cut);
    assert_eq!(parse(&[text]), expected);
    let cuts: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
    let characters: Vec<&str> = cuts.windows(2).map(|w| &text[w[0]..w[1]]).collect();
    assert_eq!(parse(&characters), expected, "character by character");
    for (i, &a) in cuts.iter().enumerate() {
        assert_eq!(parse(&[&text[..a], &text[a..]]), expected, "cut at {a}");
        for &b in cuts[i..].iter().step_by(3) {
            assert_eq!(parse(&[&text[..a], &text[a..b], &text[b..]]), expected, "cut at {a} and {b}");
        }
    }
}

#[track_caller]
fn check(text: &str, expected: &str) {
    check_with(Thinking::Closed, Some(tools()), text, expected);
}

#[track_caller]
fn check_thinking(text: &str, expected: &str) {
    check_with(Thinking::Open, Some(tools()), text, expected);
}

#[test]
fn reasoning_ends_at_its_tag_and_loses_the_newlines_around_it() {
    check_thinking("why\nnot\n</think>\n\nbecause", "R(why\nnot) C(because)");
    check_thinking("\nwhy\n\n</think>because\n", "R(why\n) C(because\n)");
    check_thinking("</think>\n\nyes", "C(yes)");
    check_thinking("a < b </thin </think>c", "R(a < b </thin ) C(c)");
}

#[test]
fn reasoning_that_never_ends_is_all_reasoning() {
    check_thinking("why\n", "R(why\n)");
    check_thinking("why </thi", "R(why </thi)");
    check_thinking("", "");
}

#[test]
fn a_literal_opening_tag_is_tolerated() {
    check_thinking("<think>\nwhy</think>c", "R(why) C(c)");
    check_with(Thinking::Free, None, "<think>why\n</think>\n\nc", "R(why) C(c)");
    check_with(Thinking::Free, None, "\n<think>why", "R(why)");
    check_with(Thinking::Free, None, "<thin ice", "C(<thin ice)");
    check_with(Thinking::Free, None, "no thoughts", "C(no thoughts)");
}

#[test]
fn with_thinking_off_everything_is_the_answer() {
    check_with(Thinking::Closed, None, "<think>a</think>b", "C(<think>a</think>b)");
    check("a\n\nb \n", "C(a\n\nb \n)");
}

#[test]
fn a_call_becomes_a_name_and_typed_arguments() {
    check(
        "<tool_call>\n<function=weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
        r#"T0(weather {"city": "Paris", "days": 3})"#,
    );
    check("<tool_call>\n<function=weather>\n</function>\n</tool_call>", "T0(weather {})");
    check(
        "<tool_call><function=weather><parameter=days>3</parameter></function></tool_call>",
        r#"T0(weather {"days": 3})"#,
    );
}

#[test]
fn an_answer_may_come_before_and_after_calls() {
    check(
        "Let me see.\n\n<tool_call>\n<function=weather>\n</function>\n</tool_call>\n<tool_call>\n<function=other>\n</function>\n</tool_call>\nDone.",
        "C(Let me see.\n\n) T0(weather {}) T1(other {}) C(\nDone.)",
    );
    check("<tool_call>\n<function=weather>\n</function>\n</tool_call>\n\n", "T0(weather {})");
}

#[test]
fn values_are_raw_text_between_one_newline_on_each_side() {
    check(
        "<tool_call>\n<function=weather>\n<parameter=code>\n\nif a < b && \"q\" {\n  <b>é\\</b>\n}\n\n</parameter>\n</function>\n</tool_call>",
        r#"T0(weather {"code": "\nif a < b && \"q\" {\n  <b>é\\</b>\n}\n"})"#,
    );
    check(
        "<tool_call><function=weather><parameter=city></parameter></function></tool_call>",
        r#"T0(weather {"city": ""})"#,
    );
    check(
        "<tool_call><function=weather><parameter=city>\n</parameter></function></tool_call>",
        r#"T0(weather {"city": ""})"#,
    );
    check(
        "<tool_call><function=weather><parameter=city>\n\n</parameter></function></tool_call>",
        r#"T0(weather {"city": ""})"#,
    );
    check(
        "<tool_call><function=weather><parameter=tags>\n[\"a\",\n1]\n</parameter></function></tool_call>",
        "T0(weather {\"tags\": [\"a\",\n1]})",
    );
}

#[test]
fn tags_of_others_inside_of_a_value_are_text() {
    check(
        "<tool_call><function=weather><parameter=code>\nx</function> y <parameter=z> <tool_call> \n<parameter=z>\n</parameter></function></tool_call>",
        r#"T0(weather {"code": "x</function> y <parameter=z> <tool_call> \n<parameter=z>"})"#,
    );
}

#[test]
fn a_call_inside_of_reasoning_is_a_call_and_the_thought_goes_on_after_it() {
    let call = "<tool_call>\n<function=a>\n</function>\n</tool_call>";
    check_thinking(&format!("hm\n{call}\nso\n</think>\n\nyes"), "R(hm) T0(a {}) R(\nso) C(yes)");
    check_thinking(&format!("hm\n{call}\n</think>\n\nyes"), "R(hm) T0(a {}) C(yes)");
    check_thinking(&format!("hm\n{call}\n{call}\n"), "R(hm) T0(a {}) T1(a {})");
    check_thinking(&format!("hm</think>{call}\nyes</think>"), "R(hm) T0(a {}) C(\nyes</think>)");
    check_thinking(
        "I need data\n<tool_call>\n<function=weather>\n</function>\n</tool_call>",
        "R(I need data) T0(weather {})",
    );
    check_thinking("I could use <tool_call> here</think>no", "R(I could use <tool_call> here) C(no)");
}

#[test]
fn missing_closing_tags_are_implied() {
    let whole = r#"T0(weather {"city": "Paris"})"#;
    check("<tool_call>\n<function=weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n", whole);
    check("<tool_call>\n<function=weather>\n<parameter=city>\nParis\n</parameter>\n</fun", whole);
    check("<tool_call>\n<function=weather>\n<parameter=city>\nParis\n</parameter>\n", whole);
    check("<tool_call>\n<function=weather>\n<parameter=city>\nParis\n</function>\n</tool_call>", whole);
    check("<tool_call>\n<function=weather>\n<parameter=city>\nParis\n</tool_call>", whole);
    check("<tool_call>\n<function=weather>\n<parameter=city>\nParis\n</function>\n", whole);
    check("<tool_call>\n<function=weather>", "T0(weather {})");
    check(
        "<tool_call>\n<function=weather>\n<parameter=city>\nParis\n</parameter>\n</tool_call>ok",
        r#"T0(weather {"city": "Paris"}) C(ok)"#,
    );
    check(
        "<tool_call>\n<function=weather>\n<parameter=city>\nParis\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
        r#"T0(weather {"city": "Paris", "days": 3})"#,
    );
    check(
        "<tool_call><function=weather><parameter=days>\n1\n</parameter><tool_call><function=weather></function></tool_call>",
        r#"T0(weather {"days": 1}) T1(weather {})"#,
    );
    check("<tool_call><function=a></function><function=b></function></tool_call>", "T0(a {}) T1(b {})");
    check("<tool_call><function=a><function=b></function></tool_call></tool_call>\nok", "T0(a {}) T1(b {}) C(\nok)");
}

#[test]
fn a_call_whose_parameter_is_open_at_the_end_of_the_text_is_incomplete() {
    let open = "<tool_call>\n<function=weather>\n";
    for end in ["", "\n", "\n</para"] {
        check(&format!("{open}<parameter=city>\nParis{end}"), r#"T0(weather {"city": "Paris ...)"#);
    }
    check(&format!("{open}<parameter=city>Paris"), r#"T0(weather {"city": "Paris ...)"#);
    check(&format!("{open}<parameter=days>\n3\n"), "T0(weather { ...)");
    check(&format!("{open}<parameter=ci"), "T0(weather { ...)");
    check(&format!("{open}<parameter=days>\n3\n</parameter>\n<parameter=city>"), r#"T0(weather {"days": 3 ...)"#);
}

#[test]
fn no_markup_of_a_call_leaks_into_the_text() {
    let open = "<tool_call>\n<function=weather>\n<parameter=days>\n3\n</parameter>\n";
    for end in [
        "</function>\n</function_invocation>\n</tool_call>",
        "</function_invocation>\n</tool_call>",
        "</function>\n</parameter>\n</tool_call>\n</function_calls>",
        "</function>\n</tool_call>\n</tool_calls>",
        "</function>\n</function_inv",
    ] {
        check(&format!("{open}{end}"), r#"T0(weather {"days": 3})"#);
    }
    check(
        "<tool_call><function=a></function></function_invocation><function=b></function></tool_call>\n</div>",
        "T0(a {}) T1(b {}) C(\n</div>)",
    );
    check(
        &format!("{open}</function>\n</function_invocation>\n</tool_call>\nDone."),
        "T0(weather {\"days\": 3}) C(\nDone.)",
    );
}

#[test]
fn arguments_inside_of_a_function_may_be_one_json_object() {
    let call = |inside: &str| format!("<tool_call>\n<function=weather>\n{inside}\n</function>\n</tool_call>");
    check(
        &call(r#"{"city": "a </function> {", "days": 1.50}"#),
        r#"T0(weather {"city": "a </function> {", "days": 1.50})"#,
    );
    check(&call("{}"), "T0(weather {})");
    check(&call(r#"{"name": "weather", "arguments": {"days": 2}}"#), r#"T0(weather {"days": 2})"#);
    check(&call(r#"{"name": "x", "arguments": 1}"#), r#"T0(weather {"name": "x", "arguments": 1})"#);
    check(&call("{\"days\": 2}\n<parameter=city>\nParis\n</parameter>"), r#"T0(weather {"days": 2})"#);
    check("<tool_call>\n<function=weather>\n{\"city\": \"Par", "T0(weather {\"city\": \"Par ...)");
    check_cut("<tool_call>\n<function=weather>\n{\"city\": \"Par", "T0(weather {\"city\": \"Par ...)");
    check(&call("{days: 2}"), "T0(weather {}) C({days: 2})");
    check(&call("<parameter=days>\n2\n</parameter>\n{\"a\": 1}"), r#"T0(weather {"days": 2}) C({"a": 1})"#);
}

#[test]
fn a_closing_tag_inside_of_a_line_is_text() {
    let value = |lines: &str| {
        let call = "<tool_call>\n<function=weather>\n<parameter=code>\n";
        format!("{call}{lines}\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>")
    };
    for line in [
        "say </parameter> now",
        "say </tool_call> now",
        "say </function> now",
        "</parameter> first",
        "</tool_call> first",
        "say <parameter=days> now",
        "<parameter=days> first",
        "say </parameter>\nthen",
        "`</parameter>`",
        "check(\"<tool_call><function=f><parameter=a>1</parameter></function></tool_call>\");",
        "one </parameter> and </parameter> two </tool_call> three",
        "<parameter=code>\nthe line above names this parameter",
        "</parameter>x",
    ] {
        let quoted = serde_json::Value::from(line).to_string();
        check(&value(line), &format!(r#"T0(weather {{"code": {quoted}, "days": 3}})"#));
    }
}

#[test]
fn a_line_with_the_tag_of_a_parameter_that_came_before_is_text() {
    check(
        "<tool_call>\n<function=weather>\n<parameter=city>\nParis\n</parameter>\n\
         <parameter=code>\na\n<parameter=city>\nb\n</parameter>\n</function>\n</tool_call>",
        r#"T0(weather {"city": "Paris", "code": "a\n<parameter=city>\nb"})"#,
    );
}

#[test]
fn a_closing_tag_in_an_open_json_string_is_text() {
    let call = |value: &str| {
        format!("<tool_call><function=weather><parameter=tags>{value}</parameter></function></tool_call>")
    };
    for json in [
        r#"["</parameter></function></tool_call>"]"#,
        r#"["a </tool_call>", "</parameter>"]"#,
        r#"["\"</parameter>\n<parameter=days>"]"#,
    ] {
        check(&call(json), &format!(r#"T0(weather {{"tags": {json}}})"#));
    }
    check(&call("[\n\"</function></tool_call>\"\n]\n"), "T0(weather {\"tags\": [\n\"</function></tool_call>\"\n]})");
    // A string that nobody closes ends with its line.
    check(
        "<tool_call>\n<function=weather>\n<parameter=tags>\n[\"a]\n</parameter>\n</function>\n</tool_call>",
        r#"T0(weather {"tags": "[\"a]"})"#,
    );
}

#[test]
fn in_a_call_on_one_line_the_last_closing_tag_counts() {
    check(
        "<tool_call><function=weather><parameter=code>say </parameter> now</parameter></function></tool_call>",
        r#"T0(weather {"code": "say </parameter> now"})"#,
    );
    check(
        "<tool_call><function=weather><parameter=city>a</parameter></function></tool_call> and \
         <tool_call><function=weather><parameter=city>b</parameter></function></tool_call>",
        r#"T0(weather {"city": "a"}) C( and ) T1(weather {"city": "b"})"#,
    );
    check("<tool_call><function=weather><parameter=city>Paris</tool_call>", r#"T0(weather {"city": "Paris"})"#);
}

#[test]
fn a_value_may_end_without_a_line_break_where_the_call_goes_on() {
    for end in [
        "</parameter>\n</function>\n</tool_call>",
        "</function>\n</tool_call>",
        "</parameter>\n</function>",
        "</tool_call>",
    ] {
        check(
            &format!("<tool_call>\n<function=weather>\n<parameter=city>\nParis{end}"),
            r#"T0(weather {"city": "Paris"})"#,
        );
    }
    check(
        "<tool_call>\n<function=weather>\n<parameter=city>\nParis</parameter>\n\
         <parameter=days>\n3</parameter>\n</function>\n</tool_call>\nok",
        "T0(weather {\"city\": \"Paris\", \"days\": 3}) C(\nok)",
    );
}

#[test]
fn a_call_of_a_tool_that_nobody_declared_is_text() {
    let call = "<tool_call>\n<function=rm>\n<parameter=path>\n/\n</parameter>\n</function>\n</tool_call>";
    check(&format!("so\n{call}\nthere"), &format!("C(so\n{call}\nthere)"));
    check_thinking(&format!("so\n{call}</think>no"), &format!("R(so\n{call}) C(no)"));
    check(
        "<tool_call><function=a></function></tool_call>\n<tool_call><function=rm></function></tool_call><tool_call><function=b></function></tool_call>",
        "T0(a {}) C(\n<tool_call><function=rm></function></tool_call>) T1(b {})",
    );
    check(
        "<tool_call><function=a></function><function=rm></function></tool_call>",
        "T0(a {}) C(<function=rm></function></tool_call>)",
    );
    check(
        "<tool_call><function=a><function=rm></function></tool_call>",
        "T0(a {}) C(<function=rm></function></tool_call>)",
    );
}

/// The parts of a text as they are decided, `R`, `C` and `T`, each with what stands for it.
fn parts(thinking: Thinking, text: &str) -> String {
    let mut parser = OutputParser::new(thinking, Some(tools()), "x".into());
    parser.push(text);
    parser.finish(false);
    let mut at = 0;
    let spans = parser.spans();
    assert_eq!(spans.last().map_or(0, |s| s.end), text.len(), "every byte stands for something");
    let mut all: Vec<(char, String)> = Vec::new();
    for span in spans {
        let kind = match span.part {
            TextPart::Reasoning => 'R',
            TextPart::Content => 'C',
            TextPart::Calls => 'T',
        };
        match all.last_mut() {
            Some((last, whole)) if *last == kind => whole.push_str(&text[at..span.end]),
            _ => all.push((kind, text[at..span.end].to_owned())),
        }
        at = span.end;
    }
    all.into_iter().map(|(kind, text)| format!("{kind}({text})")).collect::<Vec<_>>().join(" ")
}

#[test]
fn every_byte_of_the_text_belongs_to_a_part() {
    assert_eq!(parts(Thinking::Open, "why\n</think>\n\nbecause"), "R(why\n</think>\n\n) C(because)");
    let call = "<tool_call>\n<function=weather>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>";
    assert_eq!(parts(Thinking::Closed, &format!("so\n{call}\nthere")), format!("C(so\n) T({call}) C(\nthere)"));
    assert_eq!(parts(Thinking::Open, &format!("hm\n{call}")), format!("R(hm) T(\n{call})"));
    assert_eq!(parts(Thinking::Closed, "a <tool_call></tool_call> b"), "C(a ) T(<tool_call></tool_call>) C( b)");
    assert_eq!(parts(Thinking::Closed, "a\n<tool_call>\n<func"), "C(a\n) T(<tool_call>\n<func)");
    assert_eq!(parts(Thinking::Closed, "<tool_call><function=rm>"), "C(<tool_call><function=rm>)");
}

#[test]
fn half_a_call_is_dropped_and_never_shown() {
    check("yes\n<tool_call>", "C(yes\n)");
    check("yes\n<tool_call>\n<function=wea", "C(yes\n)");
    check("yes\n<tool_call>\n</tool_call>\nno", "C(yes\n\nno)");
    check_thinking("hm\n<tool_call>\n<func", "R(hm)");
}

#[test]
fn blanks_belong_to_the_text_that_they_stand_beside() {
    let call = "<tool_call>\n<function=a>\n</function>\n</tool_call>";
    check(&format!("so  {call}  then"), "C(so  ) T0(a {}) C(  then)");
    check(&format!("\n {call}\n\n{call} \n"), "T0(a {}) T1(a {})");
    check(&format!("so\n\n{call}\n"), "C(so\n\n) T0(a {})");
    check(&format!("{call} <tool_cal"), "T0(a {}) C( <tool_cal)");
    check(" \n", "C( \n)");
}

#[test]
fn a_call_that_was_cut_off_is_incomplete_and_its_arguments_are_no_json() {
    let open = "<tool_call>\n<function=weather>\n";
    check_cut(&format!("{open}<parameter=city>\nPar"), r#"T0(weather {"city": "Par ...)"#);
    check_cut(&format!("{open}<parameter=days>\n3"), "T0(weather { ...)");
    check_cut(
        &format!("{open}<parameter=city>\nP\n</parameter>\n<parameter=days>\n3"),
        r#"T0(weather {"city": "P" ...)"#,
    );
    check_cut(&format!("{open}<parameter=city>\nP\n</parameter>\n"), r#"T0(weather {"city": "P" ...)"#);
    check_cut(&format!("{open}<parameter=city>"), "T0(weather { ...)");
    check_cut(open, "T0(weather { ...)");
    check_cut(&format!("{open}</function>\n"), "T0(weather {})");
    check_cut(
        &format!("{open}<parameter=city>\nP\n</parameter>\n</function>\n</tool_c"),
        r#"T0(weather {"city": "P"})"#,
    );
    check_cut("so\n", "C(so\n)");
}

#[test]
fn line_breaks_may_be_those_of_other_systems() {
    check_thinking("\r\nwhy\r\nnot\r\n</think>\r\n\r\nyes", "R(why\r\nnot) C(yes)");
    check(
        "<tool_call>\r\n<function=weather>\r\n<parameter=city>\r\nPa\r\nris\r\n</parameter>\r\n<parameter=days>\r\n3\r\n</parameter>\r\n</function>\r\n</tool_call>",
        r#"T0(weather {"city": "Pa\r\nris", "days": 3})"#,
    );
    check(
        "<tool_call><function=weather><parameter=city>\r\r\n\r\r\n</parameter></function></tool_call>",
        r#"T0(weather {"city": "\r\r\n\r"})"#,
    );
    check(
        "<tool_call><function=weather><parameter=city>\na\r</parameter></function></tool_call>",
        r#"T0(weather {"city": "a\r"})"#,
    );
}

#[test]
fn text_that_only_looks_like_markup_is_text() {
    check("the <tool_call> tag", "C(the <tool_call> tag)");
    check("a <tool_cal", "C(a <tool_cal)");
    check("<tool_call>\n<function name=x>", "C(<tool_call>\n<function name=x>)");
    check("<tool_call>\n<function=two\nlines>", "C(<tool_call>\n<function=two\nlines>)");
    check("<function=weather></function> a<b </tool_call>", "C(<function=weather></function> a<b </tool_call>)");
}

#[test]
fn without_tools_calls_are_text_and_nothing_is_held() {
    let call = "x\n<tool_call>\n<function=f>\n</function>\n</tool_call>";
    check_with(Thinking::Closed, None, call, &format!("C({call})"));
    assert_eq!(
        OutputParser::new(Thinking::Closed, None, String::new()).push("a \n"),
        [OutputDelta::Content("a \n".into())]
    );
}

#[test]
fn an_argument_that_comes_twice_counts_once() {
    check(
        "<tool_call><function=weather><parameter=city>a</parameter><parameter=city>b</parameter><parameter=days>1</parameter></function></tool_call>",
        r#"T0(weather {"city": "a", "days": 1})"#,
    );
}

#[test]
fn stray_text_between_parameters_comes_after_the_call() {
    check(
        "<tool_call><function=weather> and < then <parameter=days>1</parameter>, <x> </function></tool_call>",
        r#"T0(weather {"days": 1}) C(and < then , <x>)"#,
    );
    check_thinking(
        "hm\n<tool_call>\n<function=weather>\nso\n</parameter>\n</function>\n</tool_call>\nwell</think>yes",
        "R(hm) T0(weather {}) R(so\nwell) C(yes)",
    );
}

#[test]
fn string_arguments_are_streamed_as_they_come() {
    let mut parser = OutputParser::new(Thinking::Closed, Some(tools()), "r-".into());
    let header = parser.push("<tool_call>\n<function=weather>\n<parameter=city>\n");
    assert_eq!(header, [OutputDelta::ToolCall { index: 0, id: "call_r-0".into(), name: "weather".into() }]);
    assert_eq!(parser.push("Par"), [OutputDelta::Arguments { index: 0, json: "{\"city\": \"Par".into() }]);
    assert_eq!(parser.push("is\n"), [OutputDelta::Arguments { index: 0, json: "is".into() }]);
    // Only with its line break it is known to be no text.
    assert_eq!(parser.push("</parameter>"), []);
    assert_eq!(parser.push("\n"), [OutputDelta::Arguments { index: 0, json: "\"".into() }]);
    assert_eq!(parser.push("</function>"), [OutputDelta::Arguments { index: 0, json: "}".into() }]);
    assert_eq!((parser.calls(), parser.push("\n</tool_call>"), parser.finish(false)), (1, vec![], vec![]));
}

#[test]
fn reasoning_is_told_while_it_lasts() {
    let mut parser = OutputParser::new(Thinking::Open, None, String::new());
    assert!(parser.in_reasoning());
    parser.push("hm");
    assert!(parser.in_reasoning());
    parser.push("</think>");
    assert!(!parser.in_reasoning());
}

proptest! {
    #[test]
    fn any_text_parses_the_same_however_it_is_cut(
        pieces in prop::collection::vec(prop_oneof![
            Just("<tool_call>"), Just("</tool_call>"), Just("<function=weather>"), Just("</function>"), Just("<parameter=city>"),
            Just("<parameter=days>"), Just("<parameter=other>"), Just("</parameter>"), Just("<think>"), Just("</think>"), Just("\n"), Just("\r"), Just("\r\n"), Just("<function=rm>"),
            Just(" "), Just("a"), Just("7"), Just("é"), Just("<"), Just("</"), Just("<parameter="), Just("<func"),
            Just("<parameter=tags>"), Just("[\""), Just("\"]"), Just("{\""), Just("{"), Just("\"}"),
            Just("</function_invocation>"),
            Just("</p"), Just("<parameter=city>\n"), Just("\n</parameter>\n"),
        ], 0..25),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        thinking in prop_oneof![Just(Thinking::Open), Just(Thinking::Closed), Just(Thinking::Free)],
        with_tools: bool,
        was_cut: bool,
    ) {
        let text = pieces.concat();
        let boundaries: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
        let mut cuts: Vec<usize> = cuts.iter().map(|i| boundaries[i.index(boundaries.len())]).chain([0, text.len()]).collect();
        cuts.sort();
        let cut: Vec<&str> = cuts.windows(2).map(|w| &text[w[0]..w[1]]).collect();
        let tools = with_tools.then(tools);
        prop_assert_eq!(parsed(thinking, tools.clone(), &cut, was_cut), parsed(thinking, tools, &[&text], was_cut));
    }
}

#[test]
fn a_call_may_be_one_json_object() {
    check(
        "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"a </tool_call> b\", \"days\": 2}}\n</tool_call>",
        "T0(weather {\"city\": \"a </tool_call> b\", \"days\": 2})",
    );
    check(
        "Look.\n<tool_call>{\"name\":\"a\",\"arguments\":{}}</tool_call>\n<tool_call>{\"arguments\":{\"x\":1},\"name\":\"b\"}</tool_call>",
        "C(Look.\n) T0(a {}) T1(b {\"x\":1})",
    );
}

#[test]
fn an_object_that_is_no_call_of_a_declared_tool_is_text() {
    check("<tool_call>{\"name\": \"nobody\"}</tool_call>", "C(<tool_call>{\"name\": \"nobody\"}</tool_call>)");
    check("<tool_call>{\"a\": 1} x", "C(<tool_call>{\"a\": 1} x)");
}

#[test]
fn half_an_object_is_never_shown_and_an_incomplete_call_if_its_name_came() {
    check("so <tool_call>{\"name\": \"weath", "C(so )");
    check("so <tool_call>{\"name\": \"nobody\", \"arg", "C(so )");
    check("so <tool_call>{\"name\": \"weather\", \"arg", "C(so ) T0(weather { ...)");
    check("<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"P", "T0(weather {\"city\": \"P ...)");
    check("<tool_call>{\"name\": \"weather\", \"arguments\": {\"days\": 1}", "T0(weather {\"days\": 1})");
}
