//! The values of expressions.

use std::collections::BTreeMap;

use super::text::{Amount, amount, figures};

/// The names of the table, and the files of the repository.
pub(super) struct Values<'a> {
    names: &'a BTreeMap<String, String>,
    source: &'a dyn Fn(&str) -> Vec<String>,
}

impl<'a> Values<'a> {
    pub(super) fn new(
        names: &'a BTreeMap<String, String>,
        source: &'a dyn Fn(&str) -> Vec<String>,
    ) -> Self {
        Self { names, source }
    }

    /// Compares a figure with its expressions.
    ///
    /// # Errors
    ///
    /// The first expression that has no value, or another one.
    pub(super) fn compare(&self, figure: &str, expressions: &[String]) -> Result<(), String> {
        let Amount { numbers, unit } = amount(figure).ok_or("not a figure")?;
        if numbers.len() != expressions.len() {
            return Err(format!("{} numbers, {} expressions", numbers.len(), expressions.len()));
        }
        let (factor, time) = scale(unit);
        for ((number, decimals), expression) in numbers.into_iter().zip(expressions) {
            let found = self.value(expression)?;
            // Rounded as written; whole numbers are exact.
            let digits = i32::try_from(decimals).map_err(|error| error.to_string())?;
            let slack = if decimals == 0 { 0.0 } else { 0.5 * 10_f64.powi(-digits) };
            if (found / factor - number).abs() > slack + 1e-9 {
                let unit = if time { " s" } else { "" };
                return Err(format!("{expression} is {found}{unit}"));
            }
        }
        Ok(())
    }

    /// The value of an expression; times are in seconds.
    fn value(&self, expression: &str) -> Result<f64, String> {
        let mut parser = Parser { values: self, rest: expression.trim() };
        let value = parser.sum()?;
        if parser.rest.is_empty() {
            Ok(value)
        } else {
            Err(format!("`{}` is no end of an expression", parser.rest))
        }
    }

    /// The constant `name` of a file or folder; `NAME[1]` is an element of an array.
    fn constant(&self, file: &str, name: &str) -> Result<f64, String> {
        let (name, index) = match name.split_once('[') {
            Some((name, index)) => (name, index.trim_end_matches(']').parse::<usize>().ok()),
            None => (name, None),
        };
        let mut found: Vec<f64> = Vec::new();
        for text in (self.source)(file) {
            for (_, right) in
                text.match_indices(&format!("const {name}: ")).map(|(at, _)| text.split_at(at))
            {
                let right = right.split_once(" = ").map_or("", |(_, right)| right);
                let right = right.split(';').next().unwrap_or_default().trim();
                let value = match index {
                    Some(index) => {
                        right.trim_matches(['[', ']']).split(',').nth(index).and_then(literal)
                    }
                    None => literal(right),
                };
                found.push(value.ok_or_else(|| format!("cannot read {file}:{name}"))?);
            }
        }
        match found.as_slice() {
            [value] => Ok(*value),
            [] => Err(format!("no file {file} has a constant {name}")),
            _ => Err(format!("several constants are {file}:{name}")),
        }
    }

    /// The last value in `needle`, which a file contains.
    fn text(&self, needle: &str, file: &str) -> Result<f64, String> {
        let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        if !(self.source)(file).iter().any(|text| flat(text).contains(&flat(needle))) {
            return Err(format!("no file {file} has the text `{needle}`"));
        }
        if needle.contains("from_") {
            return literal(needle).ok_or_else(|| format!("cannot read `{needle}`"));
        }
        let readable = needle.replace(['"', '\'', '='], " ");
        let written = figures(&readable).last().and_then(|figure| amount(&figure.text));
        let written =
            written.and_then(|it| it.numbers.last().map(|(number, _)| number * scale(it.unit).0));
        let number = |word: &str| word.replace('_', "").parse::<f64>().ok();
        let plain = || needle.split([' ', '=', '"', ',', '(']).filter_map(number).next_back();
        written.or_else(plain).ok_or_else(|| format!("`{needle}` has no value"))
    }

    /// The time after which an alert fires.
    fn alert(&self, name: &str) -> Result<f64, String> {
        let file = "deploy/monitoring/alerts.yaml";
        let text = (self.source)(file).concat();
        let (_, rule) = text
            .split_once(&format!("- alert: {name}\n"))
            .ok_or_else(|| format!("no alert {name}"))?;
        let rule = rule.split("- alert: ").next().unwrap_or_default();
        let wait = rule.lines().find_map(|line| line.trim().strip_prefix("for: "));
        let wait = wait.ok_or_else(|| format!("the alert {name} fires at once"))?;
        let minutes = wait.strip_suffix('m').and_then(|minutes| minutes.parse::<f64>().ok());
        let seconds = wait.strip_suffix('s').and_then(|seconds| seconds.parse::<f64>().ok());
        minutes.map(|it| it * 60.0).or(seconds).ok_or_else(|| format!("cannot read `for: {wait}`"))
    }
}

/// The factor of a unit to its base unit, and whether it is one of time.
fn scale(unit: &str) -> (f64, bool) {
    match unit {
        "ns" => (1e-9, true),
        "µs" => (1e-6, true),
        "ms" => (1e-3, true),
        "s" | "second" | "seconds" => (1.0, true),
        "minute" | "minutes" => (60.0, true),
        "hour" | "hours" => (3600.0, true),
        "KiB" => (1024.0, false),
        "MiB" => (1024.0 * 1024.0, false),
        "GiB" => (1024.0 * 1024.0 * 1024.0, false),
        "MB" => (1e6, false),
        _ => (1.0, false),
    }
}

/// The value of a constant's right side: a `Duration`, in seconds, or a number.
fn literal(text: &str) -> Option<f64> {
    let text = text.split(';').next()?.trim();
    for (constructor, factor) in
        [("from_secs(", 1.0), ("from_millis(", 1e-3), ("from_micros(", 1e-6), ("from_nanos(", 1e-9)]
    {
        if let Some((_, inside)) = text.split_once(constructor) {
            return product(inside.trim_end_matches(')')).map(|it| it * factor);
        }
    }
    product(text)
}

fn product(text: &str) -> Option<f64> {
    text.split('*').map(|part| part.trim().replace('_', "").parse::<f64>().ok()).product()
}

/// A recursive descent over the rest of an expression.
struct Parser<'a> {
    values: &'a Values<'a>,
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn sum(&mut self) -> Result<f64, String> {
        let mut value = self.factors()?;
        loop {
            if self.take("+") {
                value += self.factors()?;
            } else if self.take("-") {
                value -= self.factors()?;
            } else {
                return Ok(value);
            }
        }
    }

    fn factors(&mut self) -> Result<f64, String> {
        let mut value = self.primary()?;
        loop {
            if self.take("*") {
                value *= self.primary()?;
            } else if self.take("/") {
                value /= self.primary()?;
            } else {
                return Ok(value);
            }
        }
    }

    fn primary(&mut self) -> Result<f64, String> {
        for (open, whole) in [("floor(", true), ("(", false)] {
            if self.take(open) {
                let value = self.sum()?;
                if !self.take(")") {
                    return Err("a parenthesis is not closed".to_owned());
                }
                return Ok(if whole { value.floor() } else { value });
            }
        }
        if self.rest.starts_with('"') {
            return self.quoted();
        }
        if self.take("alert ") {
            let name = self.word();
            return self.values.alert(name);
        }
        if self.rest.starts_with(|first: char| first.is_ascii_digit()) {
            let end = self.rest.find(['+', '*', ')', '-', '/']).unwrap_or(self.rest.len());
            let (text, rest) = self.rest.split_at(end);
            self.rest = rest;
            let text = text.trim();
            if let Some(Amount { numbers, unit }) = amount(text)
                && let [(number, _)] = numbers.as_slice()
            {
                return Ok(number * scale(unit).0);
            }
            return text.parse().map_err(|_| format!("`{text}` is no number"));
        }
        let word = self.word();
        match word.rsplit_once(':') {
            Some((file, name)) => self.values.constant(file, name),
            None => match self.values.names.get(word) {
                Some(expression) => self.values.value(expression),
                None => Err(format!("`{word}` is no name")),
            },
        }
    }

    fn quoted(&mut self) -> Result<f64, String> {
        let inside = self.rest.get(1..).unwrap_or_default();
        let end = inside
            .char_indices()
            .scan('"', |before, (at, character)| {
                let escaped = *before == '\\';
                *before = character;
                Some((at, character == '"' && !escaped))
            })
            .find_map(|(at, ends)| ends.then_some(at))
            .ok_or("a text does not end")?;
        let needle = inside.get(..end).unwrap_or_default().replace("\\\"", "\"");
        self.rest = inside.get(end + 1..).unwrap_or_default().trim_start();
        if !self.take("in ") {
            return Err(format!("`{needle}` names no file"));
        }
        let file = self.word();
        self.values.text(&needle, file)
    }

    /// A name or a path.
    fn word(&mut self) -> &'a str {
        let end = self.rest.find([' ', ')', '*', '+']).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest.trim_start();
        word
    }

    fn take(&mut self, text: &str) -> bool {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest.trim_start();
                true
            }
            None => false,
        }
    }
}
