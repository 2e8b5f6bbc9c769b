//! The tokens of a file that matter here: words and punctuation, without comments and literals.

/// One token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token<'a> {
    /// An identifier or a keyword.
    Word(&'a str),
    /// `::`
    Colons,
    /// Any other character that is not white space.
    Mark(char),
}

/// The tokens of `text`.
pub fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (token, length) = next(rest, first);
        found.extend(token);
        rest = rest.get(length..).unwrap_or_default();
    }
    found
}

/// The first token of `rest`, if it is one, and the length of what was read.
fn next(rest: &str, first: char) -> (Option<Token<'_>>, usize) {
    if rest.starts_with("//") {
        return (None, rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return (None, block_comment(rest));
    }
    if let Some(length) = raw_string(rest) {
        return (None, length);
    }
    match first {
        '"' => (None, 1 + quoted(rest.get(1..).unwrap_or_default(), '"')),
        '\'' => (None, character(rest)),
        ':' if rest.starts_with("::") => (Some(Token::Colons), 2),
        _ if is_word(first) => {
            let length = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            (rest.get(..length).map(Token::Word), length)
        }
        _ if first.is_whitespace() => (None, first.len_utf8()),
        _ => (Some(Token::Mark(first)), first.len_utf8()),
    }
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// The length of a block comment, with those within.
fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(here) = rest.get(at..).filter(|here| !here.is_empty()) {
        if here.starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if here.starts_with("*/") {
            (depth, at) = (depth.saturating_sub(1), at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += here.chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

/// The length of a raw string, if `rest` begins with one.
fn raw_string(rest: &str) -> Option<usize> {
    let body = rest.strip_prefix("br").or_else(|| rest.strip_prefix('r'))?;
    let hashes = body.len() - body.trim_start_matches('#').len();
    let content = body.get(hashes..)?.strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let length = content.find(&end).map_or(content.len(), |at| at + end.len());
    Some(rest.len() - content.len() + length)
}

/// The length of a literal up to its closing quote.
fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    rest.len()
}

/// The length of a character literal, or of the quote of a lifetime.
fn character(rest: &str) -> usize {
    let body = rest.get(1..).unwrap_or_default();
    let mut chars = body.chars();
    match (chars.next(), chars.next()) {
        (Some('\\'), _) => 1 + quoted(body, '\''),
        (Some(one), Some('\'')) => 2 + one.len_utf8(),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let show = |token| match token {
            Token::Word(word) => word.to_owned(),
            Token::Colons => "::".to_owned(),
            Token::Mark(mark) => mark.to_string(),
        };
        tokens(text).into_iter().map(show).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_and_literals_are_no_tokens() {
        for (text, expected) in [
            ("a::b // c::d\ne", "a :: b e"),
            ("/* a /* b */ c */ d", "d"),
            (r#"f("super::x \" y", 'z', '\'', b"q")"#, "f ( , , , b )"),
            (r##"r#"crate::a " b"# c"##, "c"),
            ("fn f<'a>(x: &'a str)", "fn f < a > ( x : & a str )"),
            ("let ü = \"ß\";", "let ü = ;"),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
    }
}
