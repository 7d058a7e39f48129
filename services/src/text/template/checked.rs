//! A compiled template with checks between its steps. Operators, literals and raw text are the engine's own and call
//! nobody, so what pays for their results is put beside them, as filters: those take from the stack what operators
//! leave on it. Also what is looked at before a template is compiled.

use super::TemplateError;
use super::filters::{HELD, KEPT, LISTED, MADE, METHOD, REM, SLICED, TEXT};
use crate::limits::{TEMPLATE_BYTES_MAX, TEMPLATE_SOURCE_BYTES_MAX};
use minijinja::Value;
use minijinja::machinery::{Instruction, Instructions, Token, tokenize};
use minijinja::syntax::SyntaxConfig;

/// Not remembered by place: the engine has room for a few dozen.
const NO_PLACE: u8 = !0;
/// Operators, brackets and the like of one tag. Chains of them are compiled by recursion.
const TAG_MARKS_MAX: u32 = 512;

/// The instructions of a template with checks between them.
pub(super) fn checked<'a>(plain: &Instructions<'a>) -> Result<Instructions<'a>, TemplateError> {
    let mut places = Vec::new();
    let mut out = Instructions::new(plain.name(), plain.source());
    let mut end = 0;
    for (at, step) in (0..).map_while(|at| plain.get(at).map(|step| (at, step))) {
        places.push(end);
        let line = plain.get_line(at).unwrap_or(0);
        for step in steps(step).map_err(|why| TemplateError::Failed { line, message: why.into() })? {
            end = 1 + match plain.get_span(at) {
                Some(span) => out.add_with_span(step, span),
                None => out.add_with_line(step, u16::try_from(line).unwrap_or(u16::MAX)),
            };
        }
    }
    places.push(end);
    for at in 0..end {
        if let Some(target) = out.get_mut(at).and_then(target) {
            *target = places[*target as usize];
        }
    }
    Ok(out)
}

fn filter<'a>(name: &'static str, args: u16) -> Instruction<'a> {
    Instruction::ApplyFilter(name, Some(args), NO_PLACE)
}

/// What stands in the place of one instruction.
fn steps<'a>(step: &Instruction<'a>) -> Result<Vec<Instruction<'a>>, &'static str> {
    use Instruction as I;
    let own = step.clone();
    let both = |name, own| vec![filter(name, 1), I::Swap, filter(name, 1), I::Swap, own, filter(KEPT, 1)];
    Ok(match step {
        I::StringConcat => both(TEXT, own),
        I::Mul => both(LISTED, own),
        I::Add => vec![own, filter(KEPT, 1)],
        I::Rem => vec![filter(REM, 2)],
        // The engine's own panics where there is nothing to take backwards.
        I::Slice => vec![filter(SLICED, 4)],
        I::BuildList(Some(_)) | I::BuildTuple(Some(_)) | I::BuildMap(_) => vec![own, filter(MADE, 1)],
        I::SetAttr(_) => vec![I::Swap, filter(HELD, 1), I::Swap, own],
        I::EmitRaw(text) => vec![I::LoadConst(Value::from(*text)), I::Emit],
        I::CallMethod(name, Some(args)) => vec![I::LoadConst(Value::from(*name)), filter(METHOD, args + 1)],
        I::UnpackLists(_) | I::MergeKwargs(_) => {
            return Err("lists and maps cannot be spread over arguments (`*`, `**`)");
        }
        I::CallBlock(_) | I::FastSuper | I::LoadBlocks | I::Include(_) | I::ExportLocals => {
            return Err("blocks and other templates are not supported in a chat template");
        }
        _ => vec![own],
    })
}

/// Where an instruction jumps to.
fn target<'i>(step: &'i mut Instruction<'_>) -> Option<&'i mut u32> {
    use Instruction as I;
    match step {
        I::Jump(to) | I::JumpIfFalse(to) | I::JumpIfFalseOrPop(to) | I::JumpIfTrueOrPop(to) | I::Iterate(to) => {
            Some(to)
        }
        I::BuildMacro(_, to, _) => Some(to),
        _ => None,
    }
}

/// Refuses a source whose compilation alone would take too much: constants are multiplied and joined then, and chains
/// of operators walked by recursion.
pub(super) fn check_source(source: &str, syntax: &SyntaxConfig) -> Result<(), TemplateError> {
    let refused = |line, message: String| Err(TemplateError::Failed { line, message });
    if source.len() > TEMPLATE_SOURCE_BYTES_MAX {
        return refused(1, format!("wanted at most {TEMPLATE_SOURCE_BYTES_MAX} bytes, got {}", source.len()));
    }
    let (mut tag, mut constants) = (TemplateTag::default(), 0u64);
    for token in tokenize(source, false, syntax.clone()) {
        // What is no token the compiler refuses, and says where.
        let Ok((token, span)) = token else { break };
        if matches!(token, Token::BlockStart | Token::VariableStart) {
            constants = constants.saturating_add(tag.constants(span.start_offset));
            tag = TemplateTag { begin: span.start_offset, ..TemplateTag::default() };
        }
        tag.add(&token);
        if tag.marks > TAG_MARKS_MAX {
            return refused(span.start_line.into(), format!("more than {TAG_MARKS_MAX} operators in one tag"));
        }
    }
    constants = constants.saturating_add(tag.constants(u32::try_from(source.len()).unwrap_or(u32::MAX)));
    if constants > TEMPLATE_BYTES_MAX / 16 {
        return refused(1, format!("its constants are multiplied to about {constants} bytes"));
    }
    Ok(())
}

/// What there is between `{{` and `}}`.
#[derive(Default)]
struct TemplateTag {
    begin: u32,
    marks: u32,
    multiplies: bool,
    factor: u64,
}

impl TemplateTag {
    fn add(&mut self, token: &Token<'_>) {
        let number = match token {
            Token::Int(n) => *n,
            Token::Int128(_) => u64::MAX,
            Token::Float(x) => *x as u64,
            _ => 1,
        };
        self.factor = self.factor.max(1).saturating_mul(number.max(1));
        self.multiplies |= matches!(token, Token::Mul);
        let plain = matches!(
            token,
            Token::TemplateData(_) | Token::Str(_) | Token::String(_) | Token::Int(_) | Token::Comma | Token::Colon
        );
        let word = matches!(token, Token::Ident(name) if !["and", "or", "not", "if", "is", "in"].contains(name));
        self.marks += u32::from(!plain && !word);
    }

    /// Bytes that its constants may be multiplied to.
    fn constants(&self, end: u32) -> u64 {
        if self.multiplies { self.factor.saturating_mul(u64::from(end - self.begin)) } else { 0 }
    }
}
