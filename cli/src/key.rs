//! `chimere key`: API keys and their lines in the key file.

use chimere::http::auth;
use chimere::limits::KEY_CHARS_MIN;
use chimere_tools::CliError;
use std::io::Read;

/// Characters of a key that are drawn: 62 of them each, so more than 256 bits together.
const DRAWN: usize = 44;

/// The commands on keys.
#[derive(clap::Subcommand, Debug, Clone, Copy)]
pub(crate) enum KeyCommand {
    /// Draw a key. It is printed with the line for the key file, and kept nowhere: give the one away, append the other
    /// to the file.
    New,
    /// Read a key from standard input and print its line for the key file.
    Hash,
}

/// Prints what was asked for.
pub(crate) fn run(command: &KeyCommand) -> Result<(), CliError> {
    match command {
        KeyCommand::New => {
            let key = draw();
            println!("key   {key}\nline  {}", auth::hashed(&key));
        }
        KeyCommand::Hash => {
            let mut text = String::new();
            std::io::stdin()
                .read_to_string(&mut text)
                .map_err(|e| CliError::Failed(format!("cannot read a key: {e}")))?;
            println!("{}", line_of(&text)?);
        }
    }
    Ok(())
}

/// The first line is the key.
fn line_of(text: &str) -> Result<String, CliError> {
    let key = text.lines().next().unwrap_or_default().trim();
    if key.is_empty() || !key.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(CliError::Failed("a key is one line of plain ASCII without blanks".into()));
    }
    // Its line does not tell how long it is: the file could not refuse it any more.
    if key.len() < KEY_CHARS_MIN {
        let got = key.len();
        return Err(CliError::Failed(format!(
            "a key has at least {KEY_CHARS_MIN} characters, got {got} (`chimere key new`)"
        )));
    }
    Ok(auth::hashed(key))
}

fn draw() -> String {
    const LETTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let drawn = (0..DRAWN).map(|_| char::from(LETTERS[rand::random_range(0..LETTERS.len())]));
    "sk-".chars().chain(drawn).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_differ_and_their_lines_are_what_the_service_reads() {
        let (a, b) = (draw(), draw());
        assert!(a != b && a.len() == 3 + DRAWN, "{a} {b}");
        assert_eq!(line_of(&format!("{a}\n")).unwrap(), auth::hashed(&a));
        assert!(line_of(" \n").is_err() && line_of("two words").is_err());
        let short = line_of(&a[..KEY_CHARS_MIN - 1]).unwrap_err().to_string();
        assert!(short.contains("at least 16 characters, got 15"), "{short}");
        assert!(line_of(&a[..KEY_CHARS_MIN]).is_ok());
    }

    #[test]
    fn the_hash_is_sha_256_in_hexadecimal() {
        assert_eq!(auth::hashed("abc"), "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
