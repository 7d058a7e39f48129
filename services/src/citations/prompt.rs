//! How sources stand in a prompt, and how the model is asked to cite them.

/// Asks for an answer that cites its sources. It stands before the first of them.
pub const CITE: &str = "Answer from these passages and cite the number of each passage that you use, like [1]. If they \
                        do not have the answer, say so.";

/// Said behind a question that no passage was found for.
pub const NOTHING_FOUND: &str = "The files were searched, and no passage was found for this.";

/// Said behind a question whose passages hardly have its answer.
pub const MISSING: &str =
    "The passages may not have the answer. If they do not, say what is missing, and do not guess.";

/// Asks for quotes that the service then keeps to the sources' words.
pub const QUOTE: &str = "Put the words that you quote from them between quotation marks.";

/// A source under its number, from 1.
pub fn numbered(number: usize, text: &str) -> String {
    format!("[{number}] {text}")
}
