//! Labels of series in unit tests: `up{job="node"}`.

use super::{Context, Parser, Result};
use crate::features::Features;
use crate::quote::quoted;
use crate::token::TokenKind;
use varve_context::QueryContext;
use varve_model::Labels;
use varve_model::labels::METRIC_NAME;

/// Parses the labels of a series. No text is the empty label set.
///
/// # Errors
/// The first [`ParseError`](crate::ParseError).
pub fn parse_metric(text: &str, features: &Features) -> Result<Labels> {
    let ctx = QueryContext::unbounded();
    let mut parser = Parser::new(text, features, &ctx)?;
    let labels = parser.metric(false)?;
    parser.expect_end()?;
    Ok(labels)
}

/// Parses the labels at the start of a description of a series: `up{job="node"} 1 2 3`. Returns the
/// rest of the text as well. As in Prometheus' `ParseSeriesDesc`, no space may separate the name
/// from the braces.
///
/// # Errors
/// The first [`ParseError`](crate::ParseError).
pub fn parse_description<'q>(text: &'q str, features: &Features) -> Result<(Labels, &'q str)> {
    let ctx = QueryContext::unbounded();
    let mut parser = Parser::new(text, features, &ctx)?;
    let labels = parser.metric(true)?;
    Ok((labels, &text[parser.end..]))
}

impl Parser<'_> {
    fn metric(&mut self, is_description: bool) -> Result<Labels> {
        let first = *self.peek()?;
        let name = first.kind.is_metric_name().then(|| first.text(self.text));
        if name.is_some() {
            self.advance()?;
        }
        let is_apart = is_description && name.is_some() && !self.text[self.end..].starts_with('{');
        let mut pairs = if is_apart {
            Vec::new()
        } else {
            self.label_set()?
        };
        if let Some(name) = name {
            pairs.retain(|(label, _)| label != METRIC_NAME);
            pairs.push((METRIC_NAME.to_owned(), name.to_owned()));
        }
        let labels = Labels::from_pairs(
            pairs
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_str())),
        );
        labels.map_err(|why| self.error(0, why.to_string()))
    }

    /// Parses the braces, if any.
    fn label_set(&mut self) -> Result<Vec<(String, String)>> {
        let mut pairs = Vec::new();
        if self.eat(TokenKind::LeftBrace)? {
            while !self.eat(TokenKind::RightBrace)? {
                pairs.push(self.label()?);
                if self.peek()?.kind != TokenKind::RightBrace {
                    self.expect_in(TokenKind::Comma, Context::LabelNext)?;
                }
            }
        }
        Ok(pairs)
    }

    /// Parses `label="value"`, `"label"="value"` or `"metric"`.
    fn label(&mut self) -> Result<(String, String)> {
        let name = *self.peek()?;
        let label = match name.kind {
            TokenKind::Identifier => name.text(self.text).to_owned(),
            TokenKind::String => self.text_literal()?,
            _ => return Err(self.unexpected(name, Context::LabelStart)),
        };
        if name.kind == TokenKind::Identifier {
            self.advance()?;
            self.expect_in(TokenKind::Equal, Context::LabelOperator)?;
        } else if !self.eat(TokenKind::Equal)? {
            return Ok((METRIC_NAME.to_owned(), label));
        }
        Ok((label, self.text_literal()?))
    }

    /// Parses a string that is UTF-8. Prometheus accepts any bytes.
    fn text_literal(&mut self) -> Result<String> {
        let token = self.expect_in(TokenKind::String, Context::LabelValue)?;
        let bytes = self.string_literal(token)?;
        String::from_utf8(bytes).map_err(|_| {
            self.error(
                token.start,
                format!("not UTF-8: {}", quoted(token.text(self.text))),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: &str) {
        let parsed = parse_metric(text, &Features::default());
        assert_eq!(
            parsed.map_or_else(|error| error.to_string(), |labels| labels.to_string()),
            expect,
            "{text}"
        );
    }

    #[test]
    fn metrics_are_parsed_as_in_prometheus() {
        check("", "{}");
        check(
            "sum {a='1', \"b c\"=`2`,}",
            "{__name__=\"sum\", a=\"1\", \"b c\"=\"2\"}",
        );
        check("{\"m\", a=\"\"}", "{__name__=\"m\"}");
        check("m{__name__=\"n\"}", "{__name__=\"m\"}");
        check("on", "1:1: parse error: unexpected <on>");
        check("m[5m]", "1:2: parse error: unexpected \"[\"");
        check(
            "m{,}",
            "1:3: parse error: unexpected \",\" in label set, expected identifier or \"}\"",
        );
        check(
            "m{a}",
            "1:4: parse error: unexpected \"}\" in label set, expected \"=\"",
        );
        check(
            "m{a=~'b'}",
            "1:4: parse error: unexpected <op:=~> in label set, expected \"=\"",
        );
        check(
            "m{a=b}",
            "1:5: parse error: unexpected identifier \"b\" in label set, expected string",
        );
        check(
            "m{a='b' c='d'}",
            "1:9: parse error: unexpected identifier \"c\" in label set, expected \",\" or \"}\"",
        );
    }

    #[test]
    fn the_rest_of_a_description_follows_the_labels() {
        let rest = |text| {
            parse_description(text, &Features::default()).map(|(labels, rest)| (labels.len(), rest))
        };
        assert_eq!(rest("m 1 2").unwrap(), (1, " 1 2"));
        assert_eq!(rest("m{a='b'}").unwrap(), (2, ""));
        assert_eq!(rest("{a='b'} _x3").unwrap(), (1, " _x3"));
        assert_eq!(rest("m {a='b'} 1").unwrap(), (1, " {a='b'} 1"));
        assert_eq!(rest("m[5m] 1").unwrap(), (1, "[5m] 1"));
    }
}
