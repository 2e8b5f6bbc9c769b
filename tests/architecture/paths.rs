//! The paths that a file names: in `use` trees, and inline.

use crate::tokens::{Token, tokens};

/// One leaf of a `use` tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Use {
    /// The segments, as written.
    pub path: Vec<String>,
    /// The name under which it is known; none for `*`.
    pub name: Option<String>,
    /// Whether it is re-exported.
    pub exported: bool,
}

/// The paths of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paths {
    /// The leaves of its `use` trees.
    pub uses: Vec<Use>,
    /// The paths of two segments or more in expressions, types and attributes.
    pub inline: Vec<Vec<String>>,
    /// The modules that it declares under `#[cfg(test)]`.
    pub tests: Vec<String>,
}

/// The paths in `text`, except those of items under `#[cfg(test)]`.
pub fn paths(text: &str) -> Paths {
    let tokens = tokens(text);
    let (mut reader, mut paths) = (Reader { rest: &tokens }, Paths::default());
    let mut exported = false;
    while let Some(token) = reader.peek() {
        match token {
            Token::Mark('#') if reader.test_attribute() => paths.tests.extend(reader.skip_item()),
            Token::Word("pub") => {
                reader.advance();
                reader.skip_parentheses();
                exported = true;
                continue;
            }
            Token::Word("use") => {
                reader.advance();
                reader.tree(&mut Vec::new(), exported, &mut paths.uses);
            }
            Token::Word(_) => {
                let path = reader.path();
                paths.inline.extend(Some(path).filter(|path| path.len() > 1));
            }
            Token::Colons => {
                // An absolute path, or the rest of a qualified one.
                reader.advance();
                reader.path();
            }
            Token::Mark(_) => reader.advance(),
        }
        exported = false;
    }
    paths
}

/// The tokens that are still to be read.
struct Reader<'a> {
    rest: &'a [Token<'a>],
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<Token<'a>> {
        self.rest.first().copied()
    }

    fn advance(&mut self) {
        self.rest = self.rest.get(1..).unwrap_or_default();
    }

    fn take(&mut self, token: Token<'_>) -> bool {
        let is_it = self.peek() == Some(token);
        if is_it {
            self.advance();
        }
        is_it
    }

    /// A path from its first segment on.
    fn path(&mut self) -> Vec<String> {
        let mut segments = Vec::new();
        while let Some(Token::Word(word)) = self.peek() {
            segments.push(word.to_owned());
            self.advance();
            if !matches!(self.rest, [Token::Colons, Token::Word(_), ..]) {
                break;
            }
            self.advance();
        }
        segments
    }

    /// One `use` tree below `prefix`, up to the `,`, `}` or `;` after it.
    fn tree(&mut self, prefix: &mut Vec<String>, exported: bool, uses: &mut Vec<Use>) {
        let depth = prefix.len();
        self.take(Token::Colons);
        loop {
            match self.peek() {
                Some(Token::Word(word)) => {
                    prefix.push(word.to_owned());
                    self.advance();
                    if self.take(Token::Colons) {
                        continue;
                    }
                    if prefix.last().is_some_and(|word| word == "self") && prefix.len() > 1 {
                        prefix.pop();
                    }
                    let mut name = prefix.last().cloned();
                    if self.take(Token::Word("as")) {
                        name = match self.peek() {
                            Some(Token::Word(word)) => Some(word.to_owned()),
                            _ => None,
                        };
                        self.advance();
                    }
                    uses.push(Use { path: prefix.clone(), name, exported });
                }
                Some(Token::Mark('*')) => {
                    self.advance();
                    uses.push(Use { path: prefix.clone(), name: None, exported });
                }
                Some(Token::Mark('{')) => {
                    self.advance();
                    while !self.take(Token::Mark('}')) && self.peek().is_some() {
                        self.tree(prefix, exported, uses);
                        self.take(Token::Mark(','));
                    }
                }
                _ => self.advance(),
            }
            break;
        }
        prefix.truncate(depth);
    }

    /// Reads an attribute `#[cfg(test)]` or `#[cfg(all(test, ..))]`; any other stays.
    fn test_attribute(&mut self) -> bool {
        let [_, Token::Mark('['), Token::Word("cfg"), Token::Mark('('), ..] = self.rest else {
            return false;
        };
        let end = self.rest.iter().position(|token| *token == Token::Mark(']'));
        let (attribute, rest) = self.rest.split_at(end.map_or(self.rest.len(), |end| end + 1));
        let says = |word| attribute.contains(&Token::Word(word));
        let is_test = says("test") && !says("not") && !says("any");
        if is_test {
            self.rest = rest;
        }
        is_test
    }

    /// Skips an item, with the attributes before it; returns its name if it is a module in another file.
    fn skip_item(&mut self) -> Option<String> {
        let mut module = None;
        let mut depth = 0_usize;
        while let Some(token) = self.peek() {
            if let [Token::Word("mod"), Token::Word(name), Token::Mark(';'), ..] = self.rest {
                module = Some((*name).to_owned());
            }
            self.advance();
            match token {
                Token::Mark('{' | '(' | '[') => depth += 1,
                Token::Mark(')' | ']') => depth = depth.saturating_sub(1),
                Token::Mark('}') => {
                    depth = depth.saturating_sub(1);
                    // After the tree of a `use` the `;` ends the item.
                    if depth == 0 && self.peek() != Some(Token::Mark(';')) {
                        return None;
                    }
                }
                Token::Mark(';') if depth == 0 => return module,
                _ => {}
            }
        }
        module
    }

    /// Skips the parentheses of `pub(in crate::x)`.
    fn skip_parentheses(&mut self) {
        if self.take(Token::Mark('(')) {
            while self.peek().is_some() && !self.take(Token::Mark(')')) {
                self.advance();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Vec<String> {
        let paths = paths(text);
        let uses = paths.uses.iter().map(|it| {
            let exported = if it.exported { "pub " } else { "" };
            format!("{exported}{} = {}", it.name.as_deref().unwrap_or("*"), it.path.join("::"))
        });
        let inline = paths.inline.iter().map(|path| path.join("::"));
        let tests = paths.tests.iter().map(|name| format!("test {name}"));
        uses.chain(inline).chain(tests).collect()
    }

    #[test]
    fn each_leaf_of_a_use_tree_is_a_path() {
        for (text, expected) in [
            ("use super::a::B;", &["B = super::a::B"][..]),
            (
                "use super::{a::B, c::{self, D as E, f::*}};",
                &["B = super::a::B", "c = super::c", "E = super::c::D", "* = super::c::f"],
            ),
            ("pub use a::B;", &["pub B = a::B"]),
            ("pub(crate) use crate::x::y;", &["pub y = crate::x::y"]),
            ("pub(in crate::x) use self::y::Z;", &["pub Z = self::y::Z"]),
            ("use std::fmt; pub(super) struct A;", &["fmt = std::fmt"]),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
    }

    #[test]
    fn inline_paths_are_found_where_they_are_no_comment_or_text() {
        for (text, expected) in [
            ("let a = super::peers::FENCED_BY;", &["super::peers::FENCED_BY"][..]),
            ("fn f(x: crate::x::Y<super::Z>) {}", &["crate::x::Y", "super::Z"]),
            ("a::b::<T>(c)", &["a::b"]),
            ("/// crate::a::b\nfn f() { g(\"crate::c::d\") }", &[]),
            ("pub(in crate::x) fn f() {}", &[]),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
    }

    #[test]
    fn items_of_tests_do_not_count() {
        for (text, expected) in [
            (
                "#[cfg(test)]\nmod tests { use super::a::B; } use super::c::D;",
                &["D = super::c::D"][..],
            ),
            ("#[cfg(test)]\nmod tests;\nuse a::b;", &["b = a::b", "test tests"]),
            ("#[cfg(test)]\nuse super::{a, b};\nuse c::d;", &["d = c::d"]),
            ("#[cfg(not(test))]\nuse c::d;", &["d = c::d"]),
            (
                "#[cfg(test)]\n#[allow(dead_code)]\nfn f(a: [u8; 2]) { a::b } fn g() { c::d }",
                &["c::d"],
            ),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
    }
}
