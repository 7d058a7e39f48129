//! Texts that look like secrets: an example with one is not kept.

use regex::RegexSet;
use std::sync::LazyLock;

/// Forms that keys, tokens and passwords have. A false alarm costs an example, a miss costs a secret.
const FORMS: [&str; 12] = [
    // Private keys in PEM.
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----",
    // OpenAI's, Anthropic's and others with their prefix, Stripe's, Hugging Face's.
    r"\bsk-[A-Za-z0-9_-]{20,}",
    r"\b([sr]k_(live|test)_[A-Za-z0-9]{16,}|hf_[A-Za-z0-9]{30,})",
    // A header of HTTP that lets somebody in.
    r"(?i)\bauthorization\s*:\s*(bearer|basic)\s+[A-Za-z0-9._~+/=-]{12,}",
    // Amazon's.
    r"\b(AKIA|ASIA)[A-Z0-9]{16}\b",
    // GitHub's, GitLab's, Slack's and npm's.
    r"\b(gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,}|glpat-[A-Za-z0-9_-]{20,})",
    r"\bxox[abeprs]-[A-Za-z0-9-]{10,}",
    r"\bnpm_[A-Za-z0-9]{30,}",
    // Google's.
    r"\bAIza[A-Za-z0-9_-]{35}",
    // JSON web tokens.
    r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",
    // A password or a key that is given a value with a digit in it, in files and in addresses.
    concat!(
        r#"(?i)(?:^|[^a-z])(password|passwd|passwort|kennwort|secret([_-]?access)?([_-]?key)?|api[_-]?key|"#,
        r#"access[_-]?token|auth[_-]?token|mot de passe|contraseña)["']?\s*[:=]\s*["']?"#,
        r#"([^\s"']{3,}\d|[^\s"']*\d[^\s"']{3})"#,
    ),
    r"(?i)\b[a-z][a-z0-9+.-]*://[^\s/:@]+:[^\s/@]{4,}@",
];

/// Whether a text has something that looks like a secret.
pub(super) fn has_secret(text: &str) -> bool {
    static SET: LazyLock<RegexSet> = LazyLock::new(|| RegexSet::new(FORMS).expect("the forms are expressions"));
    SET.is_match(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_tokens_and_passwords_are_seen() {
        let long = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8";
        for secret in [
            "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl",
            &format!("use sk-{long} please"),
            "AKIAIOSFODNN7EXAMPLE",
            &format!("ghp_{long}"),
            &format!("glpat-{long}"),
            "xoxb-12345678901-abcdef",
            &format!("AIza{}", &long[..35]),
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmN",
            "PASSWORD=hunter2hunter2",
            "api_key: 'abcdefgh1234'",
            "postgres://me:hunter2@db/x",
            "{\"client_secret\": \"q8Zr4tLm\"}",
            "Passwort: Geheim123",
            "AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI7K",
            &format!("sk_live_{long}"),
            "Authorization: Bearer abcdefghij123456",
        ] {
            assert!(has_secret(secret), "{secret}");
        }
    }

    #[test]
    fn ordinary_words_are_not() {
        for text in [
            "What is a private key?",
            "My password is too short, what now?",
            "The secret: practice every day",
            "https://example.org/a:b@c",
            "Call +49 30 1234567 or write to a@b.org",
            "git commit 3f786850e387550fdab836ed7e6dc881de23001b",
        ] {
            assert!(!has_secret(text), "{text}");
        }
    }
}
