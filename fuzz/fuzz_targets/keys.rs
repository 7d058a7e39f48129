//! A key file of any text is an error or keys, never a panic, and no error shows a key.
#![no_main]

use chimere::http::auth::Keys;
use chimere_engine::scheduler::KeyLimits;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(keys) = Keys::parse(text, KeyLimits::default()) {
        assert!(!keys.is_empty() && keys.len() <= text.lines().count());
    }
});
