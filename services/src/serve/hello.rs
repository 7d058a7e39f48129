//! The first screen: where a service that is ready can be reached, and what to try.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// The port that clients of ours ask where they are told none.
const USUAL_PORT: u16 = 8080;
/// What the model that ships can answer, and a larger one too.
const QUESTION: &str = "What is 17 + 25?";

/// What whoever started a service wants to know once it answers.
pub(super) struct Hello {
    /// Address and port on which the service listens.
    pub(super) address: SocketAddr,
    /// Whether requests need an API key.
    pub(super) guarded: bool,
    /// Whether the service speaks https.
    pub(super) encrypted: bool,
    /// It serves the console.
    pub(super) console: bool,
    /// Origins of pages elsewhere that may call it, as they were configured.
    pub(super) pages: String,
    /// How this program was called.
    pub(super) program: String,
    /// How long the start took.
    pub(super) took: Duration,
}

impl Hello {
    fn scheme(&self) -> &'static str {
        if self.encrypted { "https" } else { "http" }
    }

    fn who(&self) -> &'static str {
        match (self.address.ip().is_loopback(), self.guarded) {
            (true, false) => "this machine only",
            (true, true) => "this machine only, with an API key",
            (false, true) => "everybody who reaches this machine, with an API key",
            (false, false) => "EVERYBODY who reaches this machine, WITHOUT a key (--allow-open)",
        }
    }

    /// An address that works on this machine.
    fn url(&self) -> String {
        let mut address = self.address;
        match address {
            SocketAddr::V4(v4) if v4.ip().is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
            SocketAddr::V6(v6) if v6.ip().is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
            _ => {}
        }
        format!("{}://{address}", self.scheme())
    }

    fn chat(&self) -> String {
        let url = self.url();
        let asked = format!("http://127.0.0.1:{USUAL_PORT}");
        let elsewhere = if url == asked { String::new() } else { format!(" --url {url}") };
        let key = if self.guarded { " --api-key-file FILE" } else { "" };
        format!("{} chat{elsewhere}{key}", self.program)
    }

    fn curl(&self) -> String {
        let key = if self.guarded { " -H 'Authorization: Bearer KEY'" } else { "" };
        format!(
            "curl -N {}/v1/chat/completions{key} -d \
             '{{\"stream\":true,\"messages\":[{{\"role\":\"user\",\"content\":\"{QUESTION}\"}}]}}'",
            self.url()
        )
    }
}

impl fmt::Display for Hello {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = if self.encrypted || self.address.ip().is_loopback() { "" } else { ", unencrypted" };
        let seconds = self.took.as_secs_f32();
        write!(f, "ready in {seconds:.2} s on {}://{} for {}{plain}", self.scheme(), self.address, self.who())?;
        if !self.pages.is_empty() {
            write!(f, "; pages of {} may call it from browsers", self.pages)?;
        }
        write!(f, "\n\n")?;
        if self.console {
            writeln!(f, "  in a browser     {}", self.url())?;
        }
        writeln!(f, "  in a terminal    {}", self.chat())?;
        writeln!(f, "  from a program   {}", self.curl())?;
        write!(
            f,
            "\n  what there is    {}/openapi.json, {} --help, and README.md with docs/\n",
            self.url(),
            self.program
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(address: &str) -> Hello {
        let (pages, program) = (String::new(), "chimere".to_owned());
        let address = address.parse().unwrap();
        let took = Duration::from_millis(174);
        Hello { address, guarded: false, encrypted: false, console: true, pages, program, took }
    }

    #[test]
    fn the_first_screen_names_the_console_and_three_ways_to_ask() {
        let said = hello("127.0.0.1:8080").to_string();
        let lines: Vec<_> = said.lines().collect();
        assert_eq!(lines[0], "ready in 0.17 s on http://127.0.0.1:8080 for this machine only");
        assert_eq!(lines[2], "  in a browser     http://127.0.0.1:8080");
        assert_eq!(lines[3], "  in a terminal    chimere chat");
        assert!(lines[4].starts_with("  from a program   curl -N http://127.0.0.1:8080/v1/chat/completions -d '{"));
        assert!(lines.len() < 9, "it is short: {said}");
    }

    #[test]
    fn commands_say_what_they_need_to_work_as_they_stand() {
        let said = Hello { guarded: true, encrypted: true, console: false, ..hello("0.0.0.0:4433") }.to_string();
        let first = "ready in 0.17 s on https://0.0.0.0:4433 for everybody who reaches this machine, with an API key\n";
        assert!(said.starts_with(first));
        assert!(said.contains("chimere chat --url https://127.0.0.1:4433 --api-key-file FILE\n"), "{said}");
        assert!(said.contains("curl -N https://127.0.0.1:4433/v1/chat/completions -H 'Authorization: Bearer KEY' -d"));
        assert!(!said.contains("in a browser"), "{said}");
        assert!(hello("[::]:8080").to_string().contains("--url http://[::1]:8080"));
    }

    #[test]
    fn who_may_come_without_a_key_is_said_loudly() {
        let said = Hello { pages: "https://a.example".into(), ..hello("0.0.0.0:8080") }.to_string();
        let first = said.lines().next().unwrap();
        assert!(first.contains("EVERYBODY") && first.contains("WITHOUT a key") && first.contains(", unencrypted"));
        assert!(first.ends_with("; pages of https://a.example may call it from browsers"), "{first}");
    }
}
