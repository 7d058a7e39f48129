//! XML as office files have it: elements by their local names, text, and nothing that a document type could define.

use super::lines::ParseFault;
use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};
use std::io::BufRead;

/// What a reader of XML meets.
#[derive(Debug)]
pub(super) enum XmlEvent {
    /// An element begins; an empty one ends at once.
    Begin(XmlElement),
    /// An element of this name ends.
    End(String),
    /// Text between two tags.
    Text(String),
}

/// An element that begins.
#[derive(Debug)]
pub(super) struct XmlElement {
    /// Without the prefix of its name space.
    pub(super) name: String,
    attributes: Vec<(String, String)>,
}

impl XmlElement {
    /// The value of an attribute by its local name.
    pub(super) fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// Hands on all that a piece of XML has.
pub(super) fn each(
    source: impl BufRead,
    mut meet: impl FnMut(XmlEvent) -> Result<(), ParseFault>,
) -> Result<(), ParseFault> {
    let mut reader = Reader::from_reader(source);
    let mut buffer = Vec::new();
    loop {
        match reader.read_event_into(&mut buffer).map_err(ParseFault::invalid)? {
            Event::Eof => return Ok(()),
            Event::Start(tag) => meet(XmlEvent::Begin(element(&tag)))?,
            Event::Empty(tag) => {
                let element = element(&tag);
                let name = element.name.clone();
                meet(XmlEvent::Begin(element))?;
                meet(XmlEvent::End(name))?;
            }
            Event::End(tag) => meet(XmlEvent::End(local(tag.name().as_ref())))?,
            Event::Text(text) => meet(XmlEvent::Text(text.xml10_content().into_owned()))?,
            Event::CData(text) => meet(XmlEvent::Text(text.xml10_content().into_owned()))?,
            Event::GeneralRef(reference) => meet(XmlEvent::Text(character(&reference.xml10_content())))?,
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) | Event::DocType(_) => {}
        }
        buffer.clear();
    }
}

fn element(tag: &BytesStart<'_>) -> XmlElement {
    let mut attributes = tag.attributes();
    let attributes = attributes.with_checks(false).filter_map(Result::ok);
    let value = |raw: &str| quick_xml::escape::unescape(raw).map_or_else(|_| raw.to_owned(), |text| text.into_owned());
    let attributes = attributes.map(|a| (local(a.key.as_ref()), value(&a.value))).collect();
    XmlElement { name: local(tag.name().as_ref()), attributes }
}

fn local(name: &str) -> String {
    name.rsplit(':').next().unwrap_or_default().to_owned()
}

/// One of the five characters that XML knows by name, or one by its number. Others are defined in a document type, and
/// nothing is.
fn character(name: &str) -> String {
    quick_xml::escape::unescape(&format!("&{name};")).map_or_else(|_| String::new(), |text| text.into_owned())
}
