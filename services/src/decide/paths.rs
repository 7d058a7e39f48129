//! The tokens along which options are scored: those of each answer, up to the one that completes its value. All begin
//! alike, and none is the beginning of another, since a closing quote or the end of `true` says that a value is over.

use chimere_engine::ids::TokenId;
use std::collections::HashMap;

/// The answers of a question as tokens.
#[derive(Debug, PartialEq)]
pub struct AnswerPaths {
    /// What all of them begin with.
    pub common: Vec<TokenId>,
    /// What follows in each; at least one token.
    pub paths: Vec<Vec<TokenId>>,
}

impl AnswerPaths {
    /// Of the answers' tokens, each followed by one byte that says nothing any more; `len` counts a token's bytes.
    ///
    /// # Errors
    /// If two answers are the same tokens: the numbers of both.
    pub fn of(answers: Vec<Vec<TokenId>>, len: impl Fn(TokenId) -> usize) -> Result<Self, (usize, usize)> {
        let paths: Vec<Vec<TokenId>> = answers.into_iter().map(|tokens| completed(tokens, &len)).collect();
        let mut seen = HashMap::new();
        for (at, path) in paths.iter().enumerate() {
            if let Some(before) = seen.insert(&path[..], at) {
                return Err((before, at));
            }
        }
        let first = &paths[0];
        let shared = |path: &Vec<TokenId>| first.iter().zip(path).take_while(|(a, b)| a == b).count();
        // Each keeps a token of its own.
        let shortest = paths.iter().map(Vec::len).min().unwrap_or(1);
        let common = paths.iter().map(shared).min().unwrap_or(0).min(shortest - 1);
        Ok(Self { common: first[..common].to_vec(), paths: paths.iter().map(|path| path[common..].to_vec()).collect() })
    }
}

/// Cut behind the token in which the last byte but one is.
fn completed(mut tokens: Vec<TokenId>, len: &impl Fn(TokenId) -> usize) -> Vec<TokenId> {
    let bytes: usize = tokens.iter().map(|token| len(*token)).sum();
    let mut so_far = 0;
    let last = tokens.iter().position(|token| {
        so_far += len(*token);
        so_far + 1 >= bytes
    });
    tokens.truncate(last.map_or(1, |last| last + 1));
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_ends_with_the_token_that_completes_its_value() {
        // Token n has n bytes.
        let of =
            |answers: &[&[TokenId]]| AnswerPaths::of(answers.iter().map(|a| a.to_vec()).collect(), |id| id as usize);
        let paths = of(&[&[5, 3, 1], &[5, 4, 2], &[5, 3, 7, 1]]).unwrap();
        assert_eq!((paths.common, paths.paths), (vec![5], vec![vec![3], vec![4, 2], vec![3, 7]]));
        assert_eq!(of(&[&[5, 3, 1], &[5, 4, 1], &[5, 3, 1]]), Err((0, 2)));
    }
}
