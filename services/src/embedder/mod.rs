//! Makers of the vectors by which collections and stores of documents find texts. Who asks for them, and in which turn,
//! is not here: see `turn/text_vectors.rs`.

/// Maker of vectors of texts.
#[derive(Clone, Debug)]
pub enum Embedder {
    /// The served model: the mean of its hidden states.
    Model,
}

/// The use that a vector is made for. Some encoders read a prefix for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To look for texts.
    Query,
    /// To be found.
    Passage,
}

/// Texts as vectors.
#[derive(Clone, Debug, Default)]
pub struct EmbeddedTexts {
    /// A vector of length 1 for each text, in their order.
    pub vectors: Vec<Vec<f32>>,
    /// Tokens of all texts.
    pub tokens: usize,
}
