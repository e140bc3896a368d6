//! The tokens of PromQL.

use std::fmt::Write;

use super::ast::{AggregateOp, BinaryOp};
use super::quote;

/// A token and its position, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// The kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenKind {
    EndOfInput,
    Comma,
    Colon,
    LeftParen,
    RightParen,
    LeftBrace,
    RightBrace,
    LeftBracket,
    RightBracket,
    /// `=`
    Equal,
    /// `=~`
    EqualRegexp,
    /// `!~`
    NotEqualRegexp,
    /// `@`
    At,
    Number,
    Duration,
    String,
    Identifier,
    /// An identifier that contains a colon.
    MetricIdentifier,
    Operator(BinaryOp),
    Aggregate(AggregateOp),
    Keyword(Keyword),
    Preprocessor(Preprocessor),
}

/// The keywords that modify an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keyword {
    Anchored,
    Bool,
    By,
    Fill,
    FillLeft,
    FillRight,
    GroupLeft,
    GroupRight,
    Ignoring,
    Offset,
    On,
    Smoothed,
    Without,
}

/// Functions that are evaluated before the query, without data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Preprocessor {
    Start,
    End,
    Step,
    Range,
    MinOf,
    MaxOf,
}

impl TokenKind {
    /// Returns the kind of an identifier outside of braces. Keywords are case-insensitive.
    pub(crate) fn of_identifier(text: &str) -> Self {
        let mut lower = [0; KEYWORD_SIZE_MAX];
        let Some(lower) = lower.get_mut(..text.len()) else {
            return Self::of_name(text);
        };
        lower.copy_from_slice(text.as_bytes());
        lower.make_ascii_lowercase();
        keyword(lower).unwrap_or_else(|| Self::of_name(text))
    }

    fn of_name(text: &str) -> Self {
        if text.contains(':') {
            Self::MetricIdentifier
        } else {
            Self::Identifier
        }
    }

    /// Returns `true` if an expression can begin with the token.
    pub(crate) fn begins_expression(self) -> bool {
        use TokenKind::{Duration, LeftBrace, LeftParen, Number, Operator, String};
        match self {
            LeftBrace | LeftParen | Number | Duration | String => true,
            Operator(BinaryOp::Add | BinaryOp::Sub) => true,
            _ => self.is_metric_name(),
        }
    }

    /// Returns `true` if the token can be a metric name.
    pub(crate) fn is_metric_name(self) -> bool {
        match self {
            Self::Identifier
            | Self::MetricIdentifier
            | Self::Aggregate(_)
            | Self::Preprocessor(_) => true,
            Self::Operator(op) => matches!(op, BinaryOp::And | BinaryOp::Or | BinaryOp::Unless),
            Self::Keyword(keyword) => {
                use Keyword::{Bool, GroupLeft, GroupRight, Ignoring, On};
                !matches!(keyword, Bool | On | Ignoring | GroupLeft | GroupRight)
            }
            _ => false,
        }
    }

    /// Returns `true` if the token can be a label name in a list such as `by (...)`.
    pub(crate) fn is_label_name(self) -> bool {
        use BinaryOp::{And, Atan2, Or, Unless};
        match self {
            Self::Identifier
            | Self::MetricIdentifier
            | Self::Aggregate(_)
            | Self::Preprocessor(_) => true,
            Self::Operator(op) => matches!(op, And | Or | Unless | Atan2),
            Self::Keyword(keyword) => keyword != Keyword::Without,
            _ => false,
        }
    }
}

impl Token {
    /// Returns the token's text.
    pub(crate) fn text<'q>(&self, query: &'q str) -> &'q str {
        &query[self.start..self.end]
    }

    /// Describes the token for an error message.
    pub(crate) fn describe(&self, query: &str) -> String {
        let text = self.text(query);
        match self.kind {
            TokenKind::EndOfInput => "end of input".to_owned(),
            TokenKind::Keyword(_) => format!("<{text}>"),
            TokenKind::Operator(_)
            | TokenKind::EqualRegexp
            | TokenKind::NotEqualRegexp
            | TokenKind::At => {
                format!("<op:{text}>")
            }
            TokenKind::Aggregate(_) => format!("<aggr:{text}>"),
            TokenKind::Identifier => format!("identifier {}", quote::quoted(text)),
            TokenKind::MetricIdentifier => format!("metric identifier {}", quote::quoted(text)),
            TokenKind::Number => format!("number {}", shortened(text)),
            TokenKind::Duration => format!("duration {}", shortened(text)),
            TokenKind::String => format!("string {}", shortened(text)),
            _ => shortened(text),
        }
    }
}

/// Quotes a string. Quotes only the first characters if it is long.
fn shortened(text: &str) -> String {
    if text.len() <= SHORTENED_LEN {
        return quote::quoted(text);
    }
    let end = text
        .char_indices()
        .nth(SHORTENED_LEN)
        .map_or(text.len(), |(at, _)| at);
    let mut quoted = quote::quoted(&text[..end]);
    let _ = write!(quoted, "...");
    quoted
}

fn keyword(lower: &[u8]) -> Option<TokenKind> {
    use TokenKind::Operator;
    let preprocessor = TokenKind::Preprocessor;
    Some(match lower {
        b"and" => Operator(BinaryOp::And),
        b"or" => Operator(BinaryOp::Or),
        b"unless" => Operator(BinaryOp::Unless),
        b"atan2" => Operator(BinaryOp::Atan2),
        b"offset" => TokenKind::Keyword(Keyword::Offset),
        b"smoothed" => TokenKind::Keyword(Keyword::Smoothed),
        b"anchored" => TokenKind::Keyword(Keyword::Anchored),
        b"by" => TokenKind::Keyword(Keyword::By),
        b"without" => TokenKind::Keyword(Keyword::Without),
        b"on" => TokenKind::Keyword(Keyword::On),
        b"ignoring" => TokenKind::Keyword(Keyword::Ignoring),
        b"group_left" => TokenKind::Keyword(Keyword::GroupLeft),
        b"group_right" => TokenKind::Keyword(Keyword::GroupRight),
        b"fill" => TokenKind::Keyword(Keyword::Fill),
        b"fill_left" => TokenKind::Keyword(Keyword::FillLeft),
        b"fill_right" => TokenKind::Keyword(Keyword::FillRight),
        b"bool" => TokenKind::Keyword(Keyword::Bool),
        b"start" => preprocessor(Preprocessor::Start),
        b"end" => preprocessor(Preprocessor::End),
        b"step" => preprocessor(Preprocessor::Step),
        b"range" => preprocessor(Preprocessor::Range),
        b"max_of" => preprocessor(Preprocessor::MaxOf),
        b"min_of" => preprocessor(Preprocessor::MinOf),
        b"inf" | b"nan" => TokenKind::Number,
        _ => {
            return AggregateOp::ALL
                .into_iter()
                .find(|op| op.as_str().as_bytes() == lower)
                .map(TokenKind::Aggregate);
        }
    })
}

/// Size in bytes of the longest keyword, `count_values`.
const KEYWORD_SIZE_MAX: usize = 12;

/// Maximum number of characters of a token in an error message.
const SHORTENED_LEN: usize = 10;
