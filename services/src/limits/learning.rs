//! Limits of what is kept for learning.

/// Days that an example is kept where the configuration does not say.
pub const LEARNING_DAYS: u64 = 90;
/// Mebibytes of all examples where the configuration does not say.
pub const LEARNING_MIB: u64 = 64;
/// The most days, and the most mebibytes, that the configuration may say.
pub const LEARNING_NUMBER_MAX: u64 = 1 << 20;
/// Bytes of an answer with its conversation; larger ones are not remembered, and not imported.
pub const LEARNING_EXAMPLE_BYTES_MAX: usize = 1 << 20;
/// Bytes of the answers of one account that feedback can name.
pub const LEARNING_RECENT_ACCOUNT_BYTES: usize = 4 << 20;
/// Bytes of all answers that feedback can name; those of who has most go first.
pub const LEARNING_RECENT_BYTES: usize = 32 << 20;
/// Writes that may wait for the disk; an example that comes then is dropped and counted.
pub const LEARNING_QUEUE: usize = 64;
/// Seconds between two looks for examples whose time is over.
pub const LEARNING_EXPIRE_SECONDS: u64 = 3600;
/// Seconds that feedback and a removal wait for the disk.
pub const LEARNING_WRITE_SECONDS: u64 = 30;
/// Characters of a correction.
pub const LEARNING_CORRECTION_CHARS_MAX: usize = 100_000;
/// Characters of a reason.
pub const LEARNING_REASON_CHARS_MAX: usize = 2_000;
/// Labels of an example.
pub const LEARNING_LABELS_MAX: usize = 8;
/// Characters of a label, and of a family.
pub const LEARNING_LABEL_CHARS_MAX: usize = 64;
/// Examples on one page of an account's own where the request does not say.
pub const LEARNING_PAGE: usize = 20;
/// Examples on one page of an account's own.
pub const LEARNING_PAGE_MAX: usize = 100;
/// Lines of one import.
pub const LEARNING_IMPORT_LINES_MAX: usize = 10_000;
/// Versions of one thing that is learned that are kept: so many that were served, and so many that were refused.
pub const LEARNING_VERSIONS_MAX: usize = 8;
/// Bytes of a version of something that is learned.
pub const LEARNING_VERSION_BYTES_MAX: usize = 64 << 20;
/// Answers of a run that differ from those of the served version and are shown to an administrator.
pub const LEARNING_CHANGED_MAX: usize = 20;
/// Characters of each text that is shown of such an answer.
pub const LEARNING_CHANGED_CHARS_MAX: usize = 600;
/// Files of questions in the directory of families.
pub const LEARNING_FAMILIES_MAX: usize = 64;
/// Bytes of one file of questions.
pub const LEARNING_FAMILY_BYTES_MAX: u64 = 64 << 20;
/// Questions of one file.
pub const LEARNING_QUESTIONS_MAX: usize = 100_000;
/// Tokens of an answer where a question does not say.
pub const LEARNING_QUESTION_TOKENS: u32 = 256;
