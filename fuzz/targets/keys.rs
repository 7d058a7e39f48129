//! A key file of any text is an error or keys, never a panic, and no error shows a key.

use chimere::http::auth::AcceptedKeys;
use chimere_engine::scheduler::KeyLimits;

pub fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match AcceptedKeys::parse(text, KeyLimits::default()) {
        Ok(keys) => assert!(!keys.is_empty() && keys.len() <= text.lines().count()),
        // A message quotes words that stand where options do, of which a key is none.
        Err(message) => {
            let long: Vec<&str> = text.split_ascii_whitespace().filter(|word| word.len() >= 32).collect();
            let mut first = text.lines().filter_map(|line| line.split_ascii_whitespace().next());
            // Of other characters a word that is quoted may look like a key.
            let plain = |word: &str| word.bytes().all(|b| b.is_ascii_alphanumeric());
            let alone = first.find(|word| long == [*word] && plain(word));
            assert!(alone.is_none_or(|key| !message.contains(key)), "{message}");
        }
    }
}
