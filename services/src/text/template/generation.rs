//! `{% generation %}` around what an assistant says: training programs mark these parts of a conversation, and a prompt
//! shows them as if nothing stood around them. To Jinja2 such a block has variables of its own, as `with` has.

use minijinja::machinery::{Token, tokenize};
use minijinja::syntax::SyntaxConfig;

/// The source with `with` blocks in their place. Lines stay where they are.
pub(super) fn without_marks(source: &str, syntax: &SyntaxConfig) -> String {
    let (mut out, mut copied, mut opened) = (String::with_capacity(source.len()), 0, false);
    for token in tokenize(source, false, syntax.clone()) {
        // What is no token the compiler refuses, and says where.
        let Ok((token, span)) = token else { break };
        let word = match token {
            Token::Ident("generation") if opened => Some("with"),
            Token::Ident("endgeneration") if opened => Some("endwith"),
            _ => None,
        };
        opened = matches!(token, Token::BlockStart);
        if let Some(word) = word {
            out.push_str(&source[copied..span.start_offset as usize]);
            out.push_str(word);
            copied = span.end_offset as usize;
        }
    }
    out.push_str(&source[copied..]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_blocks_of_this_name_are_replaced() {
        let source = "{%- generation -%}{{ generation }}generation{%endgeneration%}{{ '{% generation %}' }}";
        let want = "{%- with -%}{{ generation }}generation{%endwith%}{{ '{% generation %}' }}";
        assert_eq!(without_marks(source, &SyntaxConfig::default()), want);
        assert_eq!(
            without_marks("{# {% generation %} #}{{ ~`", &SyntaxConfig::default()),
            "{# {% generation %} #}{{ ~`"
        );
    }
}
