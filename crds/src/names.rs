//! Names that are parsed once, at the edge, and cost nothing to clone.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Why a name was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The name is empty.
    #[error("the name is empty")]
    Empty,
    /// The name is longer than its kind allows.
    #[error("`{name}` is longer than {max} bytes")]
    TooLong {
        /// The name.
        name: String,
        /// The greatest length in bytes.
        max: usize,
    },
    /// The name has a character that its kind does not allow.
    #[error("`{name}` has a character that is not allowed: {allowed}")]
    Character {
        /// The name.
        name: String,
        /// The permitted characters.
        allowed: &'static str,
    },
}

fn check(
    name: &str,
    max: usize,
    allowed: &'static str,
    accept: impl Fn(char) -> bool,
) -> Result<(), NameError> {
    if name.is_empty() {
        return Err(NameError::Empty);
    }
    if name.len() > max {
        return Err(NameError::TooLong { name: name.to_owned(), max });
    }
    if !name.chars().all(accept) {
        return Err(NameError::Character { name: name.to_owned(), allowed });
    }
    Ok(())
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $max:literal, $allowed:literal, $accept:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $type(Arc<str>);

        impl $type {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $type {
            type Err = NameError;

            fn from_str(name: &str) -> Result<Self, NameError> {
                check(name, $max, $allowed, $accept)?;
                Ok(Self(name.into()))
            }
        }

        impl TryFrom<String> for $type {
            type Error = NameError;

            fn try_from(name: String) -> Result<Self, NameError> {
                check(&name, $max, $allowed, $accept)?;
                Ok(Self(name.into()))
            }
        }

        impl From<$type> for String {
            fn from(name: $type) -> Self {
                name.0.as_ref().to_owned()
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl AsRef<str> for $type {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
    };
}

name!(
    /// The name of a network interface: 1 to 15 bytes without `/` and white space
    /// (`IFNAMSIZ`, `dev_valid_name` in the kernel's `net/core/dev.c`).
    InterfaceName,
    15,
    "an interface name has no `/`, `:` or white space",
    |c: char| c != '/' && c != ':' && !c.is_whitespace()
);

name!(
    /// The name of a Node: a DNS subdomain (RFC 1123) of at most 253 bytes.
    NodeName,
    253,
    "lower-case letters, digits, `-` and `.`",
    |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.'
);

impl NodeName {
    /// The text, for another name that says the same.
    pub(crate) fn shared(&self) -> Arc<str> {
        Arc::clone(&self.0)
    }
}

/// Names of interfaces: one, or all that a pattern matches in which `*` stands for any characters and
/// `?` for any one. Of several patterns all have to match.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct InterfacePattern(Vec<glob::Pattern>);

impl InterfacePattern {
    /// Whether the interface has such a name.
    pub fn matches(&self, name: &InterfaceName) -> bool {
        self.0.iter().all(|pattern| pattern.matches(name.as_str()))
    }

    /// The names that both stand for.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let mut patterns = [self.0.as_slice(), &other.0].concat();
        patterns.sort();
        patterns.dedup();
        let both = Self(patterns);
        let name = both.names().next().filter(|_| both.is_possible()).cloned();
        name.map_or(both, |name| Self(vec![name]))
    }

    /// Whether any name could be meant, as far as that is plain.
    pub fn is_possible(&self) -> bool {
        self.names().all(|name| self.0.iter().all(|pattern| pattern.matches(name.as_str())))
    }

    /// The patterns that stand for one name.
    fn names(&self) -> impl Iterator<Item = &glob::Pattern> {
        self.0.iter().filter(|pattern| !pattern.as_str().contains(['*', '?']))
    }
}

impl TryFrom<String> for InterfacePattern {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        let allowed = "an interface name has no `/`, `:`, `[`, `]` or white space; `*` stands for any \
                       characters and is not repeated, `?` for any one";
        let character = |c: char| !matches!(c, '/' | ':' | '[' | ']') && !c.is_whitespace();
        check(&text, 15, allowed, character)?;
        let refused = |_| NameError::Character { name: text.clone(), allowed };
        glob::Pattern::new(&text).map(|pattern| Self(vec![pattern])).map_err(refused)
    }
}

impl FromStr for InterfacePattern {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        text.to_owned().try_into()
    }
}

impl From<InterfacePattern> for String {
    fn from(pattern: InterfacePattern) -> Self {
        pattern.to_string()
    }
}

impl fmt::Display for InterfacePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, pattern) in self.0.iter().enumerate() {
            let and = if number == 0 { "" } else { " and " };
            write!(f, "{and}{}", pattern.as_str())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_where_they_are_parsed() {
        for good in ["eth0", "enp3s0f1np1", "br-lan", "eth0.100"] {
            assert!(good.parse::<InterfaceName>().is_ok(), "{good}");
        }
        for bad in ["", "a/b", "with space", "sixteencharacter"] {
            assert!(bad.parse::<InterfaceName>().is_err(), "{bad}");
        }
        for bad in ["", "Node", "a_b", "a/b"] {
            assert!(bad.parse::<NodeName>().is_err(), "{bad}");
        }
        assert!("node-1.example.com".parse::<NodeName>().is_ok());
    }

    #[test]
    fn of_two_patterns_both_have_to_match() {
        for (one, other, both, possible) in [
            ("eth0", "eth0", "eth0", true),
            ("eth0", "eth1", "eth0 and eth1", false),
            ("eth*", "eth1", "eth1", true),
            ("eth1", "bond*", "bond* and eth1", false),
            ("eth*", "*1", "*1 and eth*", true),
        ] {
            let (one, other): (InterfacePattern, InterfacePattern) =
                (one.parse().unwrap(), other.parse().unwrap());
            let found = one.and(&other);
            assert_eq!((found.to_string().as_str(), found.is_possible()), (both, possible));
            assert_eq!(found, other.and(&one));
            for name in ["eth0", "eth1", "bond1"] {
                let name = name.parse().unwrap();
                assert_eq!(found.matches(&name), one.matches(&name) && other.matches(&name));
            }
        }
    }

    #[test]
    fn patterns_match_the_whole_name_of_an_interface() {
        for (pattern, name, expected) in [
            ("eth0", "eth0", true),
            ("eth0", "eth01", false),
            ("eth*", "eth0.100", true),
            ("*.100", "eth0.100", true),
            ("eth?", "eth10", false),
            ("en*np?", "enp3s0f1np1", true),
            ("*", "bond0", true),
            ("br-lan", "br-lan", true),
        ] {
            let pattern: InterfacePattern = pattern.parse().unwrap();
            assert_eq!(pattern.matches(&name.parse().unwrap()), expected, "{pattern} {name}");
        }
        for bad in ["", "eth[01]", "eth**", "a/b", "a b", "sixteencharacter"] {
            assert!(bad.parse::<InterfacePattern>().is_err(), "{bad}");
        }
    }
}
