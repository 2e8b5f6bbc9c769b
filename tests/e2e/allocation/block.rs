//! Addresses of which no two turns have one: what a row gives back rests for a while, and the next row
//! would get it last.

use anyhow::Result;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The addresses of a turn, which rows write as documentation addresses (RFC 5737, RFC 3849): each
/// /24 of these stands for one of the block's, and `2001:db8::/32` for the block's own /32.
#[derive(Clone, Copy, Debug)]
pub struct Block(pub u8);

impl Block {
    fn prefixes(self) -> [(&'static str, String); 4] {
        let number = self.0;
        [
            ("192.0.2.", format!("10.{number}.1.")),
            ("198.51.100.", format!("10.{number}.2.")),
            ("203.0.113.", format!("10.{number}.3.")),
            ("2001:db8:", format!("fd{number:02x}:db8:")),
        ]
    }

    /// A text with the block's addresses in place of documentation addresses.
    pub fn own(self, text: &str) -> String {
        let prefixes = self.prefixes();
        prefixes.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
    }

    /// A text with documentation addresses in place of the block's.
    pub fn documented(self, text: &str) -> String {
        let prefixes = self.prefixes();
        prefixes.iter().fold(text.to_owned(), |text, (to, from)| text.replace(from, to))
    }

    /// An object with documentation addresses.
    pub fn documented_object<T: Serialize + DeserializeOwned>(self, object: &T) -> Result<T> {
        Ok(serde_json::from_str(&self.documented(&serde_json::to_string(object)?))?)
    }

    /// A JSON value with the block's addresses in all its strings.
    pub fn own_json(self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.own(text)),
            Value::Array(values) => values.iter().map(|value| self.own_json(value)).collect(),
            Value::Object(fields) => {
                fields.iter().map(|(name, value)| (name.clone(), self.own_json(value))).collect()
            }
            other => other.clone(),
        }
    }
}
