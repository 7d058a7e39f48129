//! The tokenizer of an encoder's directory: WordPiece, from tokenizer.json or from vocab.txt. The `tokenizers` crate
//! does all of it; what looks like a control token in a text is text.

use chimere_engine::files::{read_regular, read_regular_text};
use chimere_engine::ids::TokenId;
use serde::Deserialize;
use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::Path;
use tokenizers::models::bpe::Vocab;
use tokenizers::models::wordpiece::WordPiece;
use tokenizers::normalizers::BertNormalizer;
use tokenizers::pre_tokenizers::bert::BertPreTokenizer;
use tokenizers::processors::bert::BertProcessing;
use tokenizers::{AddedToken, Encoding, ModelWrapper, PostProcessor, Tokenizer, TruncationDirection};

/// Bytes of a file that says how texts are cut: many times the largest vocabulary.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// Texts to ids, those around each text included. Immutable and shared.
#[derive(Debug)]
pub struct WordPieceTokenizer {
    inner: Tokenizer,
    /// Tokens that are put around a text.
    around: usize,
    /// Texts are written in small letters first.
    lower_case: bool,
}

/// Why a directory's tokenizer cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{file}: {why}")]
pub struct WordPieceError {
    /// The file that is at fault.
    pub file: String,
    /// What was wanted, and what came.
    pub why: String,
}

/// The ids of a text, and how many it had before it was cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CutText {
    /// At most as many as were asked for.
    pub ids: Vec<TokenId>,
    /// Ids of the whole text.
    pub whole: usize,
}

impl WordPieceTokenizer {
    /// Reads tokenizer.json, or else vocab.txt with tokenizer_config.json. `vocab` are the rows of the embedding;
    /// `lower_case` writes texts in small letters before all else.
    pub fn open(dir: &Path, vocab: usize, lower_case: bool) -> Result<Self, WordPieceError> {
        let file = dir.join("tokenizer.json");
        let (file, mut inner) = match read_regular(&file, FILE_BYTES_MAX) {
            Ok(bytes) => (file.clone(), Tokenizer::from_bytes(bytes).map_err(|e| wrong(&file, e))?),
            Err(e) if e.kind() == ErrorKind::NotFound => (dir.join("vocab.txt"), of_vocabulary(dir)?),
            Err(e) => return Err(wrong(&file, e)),
        };
        if !matches!(inner.get_model(), ModelWrapper::WordPiece(_)) {
            return Err(wrong(&file, "wanted a model of type `WordPiece`, got another one"));
        }
        match inner.get_vocab(true).into_values().max() {
            Some(top) if (top as usize) < vocab => {}
            Some(top) => {
                return Err(wrong(&file, format!("wanted ids below {vocab}, the rows of the embedding, got {top}")));
            }
            None => return Err(wrong(&file, "wanted a vocabulary, got an empty one")),
        }
        // A text is cut where the encoder ends, and stands alone.
        inner.with_truncation(None).map_err(|e| wrong(&file, e))?.with_padding(None);
        inner.set_encode_special_tokens(true);
        let around = inner.get_post_processor().map_or(0, |processor| processor.added_tokens(false));
        Ok(Self { inner, around, lower_case })
    }

    /// Tokens that are put around a text.
    pub fn around(&self) -> usize {
        self.around
    }

    /// The ids of a text, of which the last ones are left out where it has more than `max`; those around it stay.
    pub fn cut(&self, text: &str, max: usize) -> CutText {
        let lowered = self.lower_case.then(|| text.to_lowercase());
        let encoded = self.inner.encode_fast(lowered.as_deref().unwrap_or(text), false);
        let mut encoding: Encoding = encoded.expect("WordPiece has an unknown token for what it does not know");
        let whole = encoding.len() + self.around;
        encoding.truncate(max.saturating_sub(self.around), 0, TruncationDirection::Right);
        let encoding = self.inner.post_process(encoding, None, true).expect("the tokens around a text were counted");
        CutText { ids: encoding.get_ids().to_vec(), whole }
    }
}

fn wrong(file: &Path, why: impl std::fmt::Display) -> WordPieceError {
    WordPieceError { file: file.display().to_string(), why: why.to_string() }
}

/// The keys of tokenizer_config.json that BERT's own tokenizer reads.
#[derive(Deserialize)]
#[serde(default)]
struct BertSettings {
    do_lower_case: bool,
    tokenize_chinese_chars: bool,
    strip_accents: Option<bool>,
}

impl Default for BertSettings {
    fn default() -> Self {
        Self { do_lower_case: true, tokenize_chinese_chars: true, strip_accents: None }
    }
}

/// As `transformers` makes BERT's tokenizer of a list of words, a line each.
fn of_vocabulary(dir: &Path) -> Result<Tokenizer, WordPieceError> {
    let (file, about) = (dir.join("vocab.txt"), dir.join("tokenizer_config.json"));
    let words = read_regular_text(&file, FILE_BYTES_MAX).map_err(|e| wrong(&file, e))?;
    let settings = match read_regular(&about, FILE_BYTES_MAX) {
        Err(e) if e.kind() == ErrorKind::NotFound => BertSettings::default(),
        bytes => serde_json::from_slice(&bytes.map_err(|e| wrong(&about, e))?).map_err(|e| wrong(&about, e))?,
    };
    let vocab: HashMap<String, u32> = (0..).zip(words.lines()).map(|(id, word)| (word.to_owned(), id)).collect();
    let special = |word: &str| {
        let id = vocab.get(word).copied();
        id.map(|id| (word.to_owned(), id)).ok_or_else(|| wrong(&file, format!("wanted the token {word}, got none")))
    };
    let (sep, cls, unknown) = (special("[SEP]")?, special("[CLS]")?, special("[UNK]")?.0);
    let model = WordPiece::builder().vocab(vocab.into_iter().collect::<Vocab>()).unk_token(unknown).build();
    let mut made = Tokenizer::new(model.map_err(|e| wrong(&file, e))?);
    let BertSettings { do_lower_case, tokenize_chinese_chars, strip_accents } = settings;
    let normalizer = BertNormalizer::new(true, tokenize_chinese_chars, strip_accents, do_lower_case);
    made.with_normalizer(Some(normalizer)).map_err(|e| wrong(&file, e))?;
    made.with_pre_tokenizer(Some(BertPreTokenizer));
    let specials = [&sep.0, &cls.0].map(|word| AddedToken::from(word.clone(), true));
    made.with_post_processor(Some(BertProcessing::new(sep, cls)));
    made.add_special_tokens(specials).map_err(|e| wrong(&file, e))?;
    Ok(made)
}
